"""How the errors of the entries of P hang together.

Each row sums to 1, and mean shares are known far better than P: with m the mean shares before a move and
r those after it, P'm = r holds but for the chance of moves and the noise of counts, whatever the error of
single entries. So errors of different rows make up for each other, and what mean shares decide (settled shares,
return times, P^h) is known better than rows that err independently would have it.
"""

from __future__ import annotations

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.noise import Exact
from aggmc_beam.result import Estimate
from aggmc_beam.uses.transitions import chance, known_errors, noise_at

#: Rounds in which the rows' own variances are found; more change them by less than a percent.
ROUNDS = 30


def matrix_covariance(estimate: Estimate) -> np.ndarray:
    """[S, S, S, S]: of entries (i, j) and (k, l) of P, with the estimate's standard errors, and P'm known as
    well as the counts tell.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=2000, realizations=10, seed=1)
    >>> C = matrix_covariance(am.estimate(y))
    >>> bool(C[0, 1, 1, 0] > 0)                   # more in one direction, more back
    True
    """
    P, S = np.nan_to_num(estimate.transition_matrix), len(estimate.states)
    target = known_errors(estimate.standard_error) ** 2
    m = np.nan_to_num(np.asarray(estimate.baselines["naive"], float)[0])
    if not (m > 0).any():
        return row_covariance(estimate.standard_error)
    known = _error_of_means(estimate, m, np.clip(P, 0, 1))
    square = target
    for _ in range(ROUNDS):
        rows = _rows(square)
        inner = _given_means(rows, m, known)
        found = np.einsum("ijj->ij", rows) - np.einsum("i,ija,ab,ibj->ij", m**2, rows, inner, rows)
        step = np.divide(target, found, out=np.ones_like(target), where=found > 1e-30)
        square = square * np.clip(step, 0.5, 2.0)
    rows = _rows(square)
    inner = _given_means(rows, m, known)
    left = m[:, None, None] * rows
    C = -np.einsum("ija,ab,kbl->ijkl", left, inner, left, optimize=True)
    for i in range(S):
        C[i, :, i] += rows[i]
    # What rows cannot make up for each other keeps its standard errors nevertheless.
    have = np.einsum("ijij->ij", C)
    scale = np.sqrt(np.divide(target, have, out=np.zeros_like(target), where=have > 1e-30))
    return np.asarray(C * scale[:, :, None, None] * scale)


def _given_means(rows: np.ndarray, m: np.ndarray, known: np.ndarray) -> np.ndarray:
    """M [S, S] so that C - C L'M L C has L C L' = `known` (no more than independent rows have), L E = m'E."""
    G = np.einsum("i,ijk->jk", m**2, rows)
    values, vectors = np.linalg.eigh(G)
    kept = values > 1e-10 * max(values[-1], 1e-300)
    root = vectors[:, kept] / np.sqrt(values[kept])
    part, turned = np.linalg.eigh(root.T @ known @ root)
    turned = root @ turned
    return np.asarray(turned * (1 - np.clip(part, 0.0, 1.0)) @ turned.T)


def _error_of_means(estimate: Estimate, m: np.ndarray, P: np.ndarray) -> np.ndarray:
    """Covariance [S, S] of m'P - r: chance, as dispersed as the estimate says, and noise of the records."""
    N, counts = estimate.population, estimate.counts
    pairs = max(counts["pairs"], 1)
    statistics = estimate.diagnostics.get("ground", {}).get("statistics", {})
    factor = max(float(statistics.get("dispersion") or 1.0), 1.0)
    moved = factor * chance(m, P) / (N * pairs)
    if isinstance(estimate.noise, Exact):
        return moved
    try:
        A, _, R = noise_at(estimate.noise, 0, N * m[None])
    except InputError:  # its covariance is not known
        return moved
    inverse = np.linalg.inv(A)
    V = inverse @ R[0] @ inverse.T / N**2
    # A record between two pairs is the end of one and the start of the next.
    shared = max(pairs - max(counts["realizations"], 1), 0) / pairs
    return np.asarray(moved + (V + P.T @ V @ P - shared * (V @ P + P.T @ V)) / pairs)


def _rows(square: np.ndarray) -> np.ndarray:
    """[S, S, S] of each row: diag(d) - d d' / sum d, as probabilities of independent counts have, with d so
    that its diagonal is `square` (or nearest to it, where one error exceeds all others together)."""
    d = 2 * square
    for _ in range(200):
        total = np.maximum(d.sum(1, keepdims=True), 1e-300)
        d = np.minimum(square / np.maximum(1 - d / total, 0.02), 50 * square)
    total = np.maximum(d.sum(1), 1e-300)[:, None, None]
    return np.asarray(d[:, :, None] * np.eye(len(d)) - d[:, :, None] * d[:, None] / total)


def row_covariance(error: np.ndarray) -> np.ndarray:
    """[S, S, S, S]: independent rows, each with these standard errors and a sum that does not vary.

    >>> C = row_covariance(np.array([[0.1, 0.1], [0.3, 0.3]]))
    >>> C[1, :, 1].round(3).tolist()
    [[0.09, -0.09], [-0.09, 0.09]]
    """
    S = len(error)
    rows = _rows(known_errors(error) ** 2)
    found = np.zeros((S, S, S, S))
    found[np.arange(S), :, np.arange(S)] = rows
    return found
