"""Draws from a normal distribution of matrices whose rows are probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class MatrixNormal:
    """Density of P [R, C] proportional to exp(-tr(P'G P W) / 2 + tr(H'P)) where P has rows of probabilities.

    One distribution for each chain m: `gram` G [M, R, R], `precision` W [M, C, C], `pull` H [M, R, C].
    """

    gram: np.ndarray
    precision: np.ndarray
    pull: np.ndarray


def draw(target: MatrixNormal, start: np.ndarray, sweeps: int, burn: int, seed: int) -> np.ndarray:
    """[sweeps - burn, M, R, C]: draws of M chains that start from the positive matrix `start` [R, C].

    Gibbs sampling: each update moves mass between two columns, in one row or along a principal axis of
    `gram`, since what rows trade with each other is what data tell least about. The size of the move is a
    normal variable, cut where a cell would become negative.
    """
    rng = np.random.default_rng(seed)
    M, R, C = target.pull.shape
    P = np.repeat(start[None], M, 0)
    slope = target.gram @ P @ target.precision - target.pull
    axes = np.linalg.eigh(target.gram.mean(0))[1].T
    moves = [(v, target.gram @ v, np.einsum("i,mij,j->m", v, target.gram, v)) for v in (*np.eye(R), *axes)]
    kept = np.empty((sweeps - burn, M, R, C))
    for sweep in range(sweeps):
        for v, pulled, stiff in moves:
            uniform = rng.random((C, M))
            for a, other in enumerate((1 + (rng.random(C) * (C - 1)).astype(int)).tolist()):
                b = (a + other) % C
                turn = target.precision[:, a] - target.precision[:, b]
                curve = np.maximum(stiff * (turn[:, a] - turn[:, b]), np.finfo(float).tiny)
                mean = (slope[:, :, b] - slope[:, :, a]) @ v / curve
                lower, upper = _room(P[:, :, a], P[:, :, b], v)
                size = truncated_normal(mean, curve**-0.5, lower, upper, uniform[a])
                P[:, :, a] = np.maximum(P[:, :, a] + size[:, None] * v, 0.0)
                P[:, :, b] = np.maximum(P[:, :, b] - size[:, None] * v, 0.0)
                slope += (size[:, None] * pulled)[:, :, None] * turn[:, None, :]
        if sweep >= burn:
            kept[sweep - burn] = P
    return np.asarray(kept / kept.sum(3, keepdims=True))


def _room(a: np.ndarray, b: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sizes [M] for which a + size v and b - size v [M, R] are not negative."""
    up, down = v > 0, v < 0
    size = np.abs(v)
    with np.errstate(over="ignore"):
        low = np.maximum(
            (-a[:, up] / size[up]).max(1, initial=-np.inf), (-b[:, down] / size[down]).max(1, initial=-np.inf)
        )
        high = np.minimum(
            (b[:, up] / size[up]).min(1, initial=np.inf), (a[:, down] / size[down]).min(1, initial=np.inf)
        )
    return low, high


def truncated_normal(
    mean: np.ndarray, sd: np.ndarray, lower: np.ndarray, upper: np.ndarray, uniform: np.ndarray
) -> np.ndarray:
    """Normal variables cut to [lower, upper], from uniform ones; sound in both far tails.

    >>> one = np.ones(1)
    >>> float(truncated_normal(-50 * one, one, 0 * one, one, 0.5 * one)[0]) < 0.02
    True
    """
    from scipy.special import ndtr, ndtri

    a, b = (lower - mean) / sd, (upper - mean) / sd
    # Probabilities keep their digits in the lower tail only, so an interval above 0 is mirrored.
    mirrored = a > 0
    low, high = np.where(mirrored, -b, a), np.where(mirrored, -a, b)
    u = np.where(mirrored, 1 - uniform, uniform)
    p, q = ndtr(low), ndtr(high)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Where no digits are left the tail is exponential.
        z = np.where(q > 1e-290, ndtri(p + (q - p) * u), high - np.log(u) / high)
    z = np.clip(z, low, high)
    return np.asarray(np.clip(mean + sd * np.where(mirrored, -z, z), lower, upper))
