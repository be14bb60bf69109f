"""Walks whose moves are known, and estimates that are right."""

from dataclasses import replace

import numpy as np

from aggmc_beam.simulation import stationary_distribution


def walk(P, N=300, K=5, T=40, seed=0, activity=None, batch=1):
    """(counts [K, T, S], moves [K, T - 1, S, S]) of members who move `batch` at a time."""
    rng = np.random.default_rng(seed)
    S = np.shape(P)[-1]
    P = np.broadcast_to(P, (T - 1, S, S))
    n = np.zeros((K, T, S), int)
    moves = np.zeros((K, T - 1, S, S), int)
    start = stationary_distribution(P[0])
    n[:, 0] = rng.multinomial(N // batch, start, K)
    for t in range(T - 1):
        for k in range(K):
            Q = P[t] if activity is None else np.eye(S) + activity[k, t] * (P[t] - np.eye(S))
            moves[k, t] = rng.multinomial(n[k, t], Q)
        n[:, t + 1] = moves[:, t].sum(1)
    return n * batch, moves * batch


def sure(estimate, P, error=1e-3):
    """The estimate with another matrix, known to this error, of movers who are independent."""
    P = np.asarray(P, float)
    told = {k: v for k, v in estimate.diagnostics.items() if k not in ("scores", "ground")}
    return replace(estimate, transition_matrix=P, standard_error=np.full(P.shape, error), diagnostics=told)


def chain(S=4, seed=0, stay=0.8):
    rng = np.random.default_rng(seed)
    return stay * np.eye(S) + (1 - stay) * rng.dirichlet(np.ones(S), S)
