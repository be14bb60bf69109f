"""True counts from noisy ones: Kalman filter and smoother in the Gaussian approximation of the chain.

    n_t+1 = P_t' n_t + e_t,  Cov(e_t) = phi sum_i n_ti (diag P_ti - P_ti P_ti'),     y_t = A n_t + b + noise
The population is closed: e_t sums to 0, so the total is learned from all steps together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aggmc_beam.noise import Exact, Noise
from aggmc_beam.uses.transitions import chance, noise_at

#: Steps are taken to be normal with at least this variance, which keeps covariances regular.
TINY = 1e-9


@dataclass(frozen=True, eq=False)
class LatentCounts:
    """`mean` [K, T, S] and `covariance` [K, T, S, S] of true counts given all records, and `cross`
    [K, T - 1, S, S], the covariance of a step with the next."""

    mean: np.ndarray
    covariance: np.ndarray
    cross: np.ndarray


def unmixed(y: np.ndarray, noise: Noise) -> np.ndarray:
    """A^-1 (y - b), [K, T, S]: each count by itself."""
    S = y.shape[2]
    if isinstance(noise, Exact):
        return y
    models = [noise.at(t) for t in range(y.shape[1])] if noise.varies else [noise] * y.shape[1]
    return np.stack(
        [np.linalg.solve(m.matrix(S), (y[:, t] - m.offset(S)).T).T for t, m in enumerate(models)], 1
    )


def smooth(y: np.ndarray, matrices: np.ndarray, noise: Noise, dispersion: float) -> LatentCounts:
    """y [K, T, S] with NaN rows for missing steps; matrices [K or 1, T - 1, S, S].

    `dispersion` is phi. Exact counts come back as they are.
    """
    K, T, S = y.shape
    if isinstance(noise, Exact) and not np.isnan(y).any():
        return LatentCounts(y.copy(), np.zeros((K, T, S, S)), np.zeros((K, T - 1, S, S)))
    found = run_filter(y, matrices, noise, dispersion)
    mean, spread, ahead, wide = found.mean, found.covariance, found.ahead, found.wide
    cross = np.zeros((K, T - 1, S, S))
    for t in range(T - 2, -1, -1):
        forward = spread[:, t] @ np.broadcast_to(matrices[:, t], (K, S, S))
        gain = np.linalg.solve(wide[:, t + 1] + _ridge(wide[:, t + 1]), forward.swapaxes(1, 2)).swapaxes(1, 2)
        mean[:, t] += np.einsum("kij,kj->ki", gain, mean[:, t + 1] - ahead[:, t + 1])
        spread[:, t] += _turned(gain, spread[:, t + 1] - wide[:, t + 1])
        cross[:, t] = gain @ spread[:, t + 1]
    if isinstance(noise, Exact):
        # What was counted exactly is so, without the rounding of a filter.
        seen = ~np.isnan(y).any(2)
        mean[seen], spread[seen] = y[seen], 0.0
        cross[seen[:, :-1] | seen[:, 1:]] = 0.0
    return LatentCounts(mean, spread, cross)


@dataclass(frozen=True, eq=False)
class Filtered:
    """True counts [K, T, S] given the records so far, and (`ahead`, `wide`) given those before."""

    mean: np.ndarray
    covariance: np.ndarray
    ahead: np.ndarray
    wide: np.ndarray


def run_filter(y: np.ndarray, matrices: np.ndarray, noise: Noise, dispersion: float) -> Filtered:
    """The forward half of `smooth`."""
    K, T, S = y.shape
    x = unmixed(y, noise)
    level = np.nanmean(x, 1)
    level = np.maximum(level, 1e-3 * np.maximum(level.sum(1, keepdims=True), 1.0))
    mean, spread = np.empty((K, T, S)), np.empty((K, T, S, S))
    ahead, wide = np.empty((K, T, S)), np.empty((K, T, S, S))
    m, C = level, _prior(x, level)
    for t in range(T):
        if t:
            P = matrices[:, t - 1]
            C = _turned(P.swapaxes(-1, -2), C) + dispersion * chance(m, P)
            m = np.einsum("ki,kij->kj", m, np.broadcast_to(P, (K, S, S)))
        ahead[:, t], wide[:, t] = m, C
        m, C = _update(y[:, t], m, C, noise, t)
        mean[:, t], spread[:, t] = m, C
    return Filtered(mean, spread, ahead, wide)


def _prior(x: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Before any record: shares may be off by what they vary over all steps, the total by its noise."""
    _K, T, S = x.shape
    N = level.sum(1)
    mu = level / N[:, None]
    deviation = np.where(np.isnan(x), 0.0, x - level[:, None])
    vary = np.einsum("kti,ktj->kij", deviation, deviation) / T
    around = N[:, None, None] * (mu[:, :, None] * np.eye(S) - mu[:, :, None] * mu[:, None])
    total = np.einsum("kti->kt", deviation).var(1) / T
    centre = np.eye(S) - mu[:, :, None] * np.ones((1, 1, S))
    shares = _turned(centre, vary) + around
    return np.asarray(2 * shares + total[:, None, None] * mu[:, :, None] * mu[:, None])


def _update(
    y: np.ndarray, m: np.ndarray, C: np.ndarray, noise: Noise, step: int
) -> tuple[np.ndarray, np.ndarray]:
    seen = ~np.isnan(y).any(1)
    if not seen.any():
        return m, C
    A, b, R = noise_at(noise, step, m)
    S = C @ A.T
    V = A @ S + R
    gain = np.linalg.solve(V + _ridge(V), S.swapaxes(1, 2)).swapaxes(1, 2)
    better = m + np.einsum("kij,kj->ki", gain, np.where(np.isnan(y), 0.0, y) - (m @ A.T + b))
    keep = np.eye(len(A)) - gain @ A
    less = _turned(keep, C) + _turned(gain, R)
    return np.where(seen[:, None], better, m), np.where(seen[:, None, None], less, C)


def _turned(A: np.ndarray, C: np.ndarray) -> np.ndarray:
    return np.asarray(A @ C @ np.swapaxes(A, -1, -2))


def _ridge(V: np.ndarray) -> np.ndarray:
    S = V.shape[-1]
    size = np.trace(V, axis1=-2, axis2=-1)[..., None, None] / S
    return np.asarray((TINY * size + TINY) * np.eye(S))
