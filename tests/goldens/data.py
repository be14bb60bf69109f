"""Counts of individuals who move, with noise, drawn by numpy alone: the same for any code under test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

STATES = ("home", "work", "über land", "shop", "gym", "else")
#: Realizations in each group, steps: a matrix for each step needs many realizations, others many steps.
SHAPES = {
    "stationary": (5, 40),
    "per-step": (26, 6),
    "window": (6, 30),
    "cycle": (8, 32),
    "parametric": (8, 36),
}
#: Noise as a config describes it.
NOISES = {
    "exact": {"model": "exact"},
    "binomial": {"model": "binomial", "alpha": 0.8},
    "detection": {"model": "detection", "alpha": [0.9, 0.8, 0.7, 0.85, 0.75, 0.95]},
    "gaussian": {"model": "gaussian", "sigma": 2.0},
    "linear": {"model": "linear", "A": None, "b": None, "covariance": None},
    "per-step noise": {
        "model": "per-step",
        "models": [{"model": "binomial", "alpha": 0.9}, {"model": "binomial", "alpha": 0.7}],
    },
}


@dataclass(frozen=True)
class Panel:
    """`counts` [K, T, S] of one group, and the individuals behind each realization [K]."""

    counts: np.ndarray
    population: np.ndarray


def describe_noise(name: str, S: int) -> dict:
    """What a config says of a noise model for S states."""
    found = dict(NOISES[name])
    if name == "detection":
        found["alpha"] = found["alpha"][:S]
    if name == "linear":
        found["A"] = (0.9 * np.eye(S) + 0.05 * np.roll(np.eye(S), 1, 0)).tolist()
        found["b"] = [2.0] * S
        found["covariance"] = (1.5 * np.eye(S)).tolist()
    return found


def observe(name: str, n: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Counts [K, T, S] seen through the noise."""
    S = n.shape[-1]
    about = describe_noise(name, S)
    if name == "binomial":
        return rng.binomial(n, about["alpha"]).astype(float)
    if name == "detection":
        return rng.binomial(n, np.broadcast_to(about["alpha"], n.shape)).astype(float)
    if name == "gaussian":
        return n + rng.normal(0.0, about["sigma"], n.shape).round(3)
    if name == "linear":
        noise = rng.normal(0.0, 1.5**0.5, n.shape)
        return (n @ np.array(about["A"]).T + np.array(about["b"]) + noise).round(3)
    if name == "per-step noise":
        alpha = np.where(np.arange(n.shape[1]) % 2, 0.7, 0.9)[None, :, None]
        return rng.binomial(n, np.broadcast_to(alpha, n.shape)).astype(float)
    return n.astype(float)


def panel(
    rng: np.random.Generator,
    K: int,
    T: int,
    S: int,
    noise: str,
    size: int,
    vary: bool,
    period: int = 0,
    mild: bool = False,
) -> Panel:
    """Individuals who move by a sticky matrix, with `period` by another one in every second half of it.
    `vary`: each realization has a population of its own. `mild`: no move is rare."""
    P = 0.6 * np.eye(S) + 0.4 * rng.dirichlet(np.full(S, 2.0), S)
    other = 0.4 * np.eye(S) + 0.6 * rng.dirichlet(np.full(S, 2.0), S)
    if mild:
        P, other = 0.4 * np.eye(S) + 0.6 / S, 0.3 * np.eye(S) + rng.dirichlet(np.full(S, 50.0), S) * 0.7
    N = size + (size // 10) * np.arange(K) * vary
    share = np.linalg.matrix_power(P, 64)[0]
    n = np.empty((K, T, S), np.int64)
    for k in range(K):
        n[k, 0] = rng.multinomial(N[k], share)
        for t in range(T - 1):
            moves = other if period and t % period >= period / 2 else P
            n[k, t + 1] = sum(rng.multinomial(n[k, t, i], moves[i] / moves[i].sum()) for i in range(S))
    return Panel(observe(noise, n, rng), N)
