"""A Gaussian prior over cells in a row or on a circle: each cell is like all others, and like the next ones.

Unknowns z_c [J, S] of cells c = 0 .. C - 1, for J problems of the same kind at once, are

    z_c = z + d_c

where z is common to all cells and has variance `common`, d_c has variance `own`, and d_c and d_c+1 correlate by
`correlation`. The data say exp(b'z - z'Az / 2) of each cell. What follows is exact, and needs time and memory in
proportion to C: cells are eliminated one after the other; what is common, and the last cell of a circle, are the
border that remains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Prior:
    """Variances, and the correlation of cells that follow each other."""

    own: float
    common: float
    correlation: float = 0.0


@dataclass(frozen=True)
class Row:
    """C cells that follow each other; `closed` if the first follows the last one, as in a cycle."""

    cells: int
    closed: bool = False

    @property
    def is_circle(self) -> bool:
        return self.closed and self.cells > 2

    def precision(self, rho: float) -> tuple[np.ndarray, float]:
        """Of variances of 1 and neighbours' correlation rho: the diagonal [C], and what stands beside it.

        >>> Row(3).precision(0.5)[0].round(2).tolist()
        [1.33, 1.67, 1.33]
        """
        C = self.cells
        if C < 2 or rho == 0:
            return np.ones(C), 0.0
        if self.is_circle:
            angles = 2 * np.pi * np.arange(C) / C
            size = float((1 / (1 + rho**2 - 2 * rho * np.cos(angles))).mean())
            return np.full(C, size * (1 + rho**2)), -size * rho
        size = 1 / (1 - rho**2)
        diagonal = np.full(C, size * (1 + rho**2))
        diagonal[[0, -1]] = size
        return diagonal, -size * rho

    def dense(self, rho: float) -> np.ndarray:
        """The precision [C, C]."""
        diagonal, beside = self.precision(rho)
        found = np.diag(diagonal) + beside * (np.eye(self.cells, k=1) + np.eye(self.cells, k=-1))
        if self.is_circle:
            found[0, -1] = found[-1, 0] = beside
        return np.asarray(found)


@dataclass(frozen=True, eq=False)
class Elimination:
    """What is left of each cell when those before it are eliminated, and the posterior of the border.

    `evidence`: the logarithm of the prior's, but for what all priors share.
    """

    beside: float
    inverses: list[np.ndarray]
    rights: list[np.ndarray]
    borders: list[np.ndarray]
    border_mean: np.ndarray
    border_covariance: np.ndarray
    evidence: float


def eliminate(A: np.ndarray, b: np.ndarray, row: Row, prior: Prior) -> Elimination:
    """For information A [C, J, S, S] and b [C, J, S]."""
    C, J, S = b.shape
    eye, circle = np.eye(S), row.is_circle
    diagonal, beside = row.precision(prior.correlation)
    diagonal, beside = diagonal / prior.own, beside / prior.own
    alone = C - 1 if circle else C
    width = 2 * S if circle else S
    end, final = np.zeros((J, width, width)), np.zeros((J, width))
    end[:, :S, :S] = A.sum(0) + eye / prior.common
    final[:, :S] = b.sum(0)
    if circle:
        end[:, S:, S:] = A[-1] + diagonal[-1] * eye
        end[:, :S, S:] = end[:, S:, :S] = A[-1]
        final[:, S:] = b[-1]
    inverses, rights, borders, log_det = list[np.ndarray](), list[np.ndarray](), list[np.ndarray](), 0.0
    towards = np.zeros((J, S, width))  # of the cell before, as `inverse @ border`
    for c in range(alone):
        H, right = A[c] + diagonal[c] * eye, b[c]
        border = np.zeros((J, S, width))
        border[:, :, :S] = A[c]
        if circle and c in (0, alone - 1):
            border[:, :, S:] += beside * eye
        if c and beside:
            H = H - beside**2 * inverses[-1]
            right = right - beside * _times(inverses[-1], rights[-1])
            border = border - beside * towards
        inverse, size = _inverse(H)
        log_det += size
        towards = inverse @ border
        end -= border.swapaxes(1, 2) @ towards
        final -= _times(towards.swapaxes(1, 2), right)
        inverses.append(inverse)
        rights.append(right)
        borders.append(border)
    covariance, size = _inverse(end)
    mean = _times(covariance, final)
    quadratic = float((final * mean).sum())
    quadratic += sum(float((r * _times(i, r)).sum()) for i, r in zip(inverses, rights, strict=True))
    before = float(np.linalg.slogdet(row.dense(prior.correlation))[1])
    before -= C * np.log(prior.own) + np.log(prior.common)
    evidence = (quadratic - log_det - size + J * S * before) / 2
    return Elimination(beside, inverses, rights, borders, mean, covariance, evidence)


def posterior(found: Elimination, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean [C, J, S] and covariance [C, J, S, S] of each cell's z."""
    U, at = found.border_covariance, found.border_mean
    J, S = found.rights[0].shape
    mean, covariance = np.empty((cells, J, S)), np.empty((cells, J, S, S))
    own, spread, cross = np.zeros((J, S)), np.zeros((J, S, S)), np.zeros((J, S, U.shape[1]))
    if U.shape[1] > S:  # the last cell of a circle
        own, spread, cross = at[:, S:], U[:, S:, S:], U[:, S:]
        _sum(mean, covariance, cells - 1, (own, spread, cross), at, U)
        own, spread, cross = np.zeros((J, S)), np.zeros((J, S, S)), np.zeros((J, S, U.shape[1]))
    for c in range(len(found.inverses) - 1, -1, -1):
        inverse, border, beside = found.inverses[c], found.borders[c], found.beside
        own = _times(inverse, found.rights[c] - beside * own - _times(border, at))
        turned = border.swapaxes(1, 2)
        mixed = cross @ turned
        moved = beside**2 * spread + beside * (mixed + mixed.swapaxes(1, 2)) + border @ U @ turned
        spread = inverse + inverse @ moved @ inverse
        cross = -inverse @ (beside * cross + border @ U)
        _sum(mean, covariance, c, (own, spread, cross), at, U)
    return mean, covariance


def _sum(
    mean: np.ndarray,
    covariance: np.ndarray,
    cell: int,
    own: tuple[np.ndarray, np.ndarray, np.ndarray],
    at: np.ndarray,
    U: np.ndarray,
) -> None:
    """Of what is a cell's own and what is common."""
    S = mean.shape[2]
    d, spread, cross = own
    mean[cell] = d + at[:, :S]
    both = cross[:, :, :S]
    covariance[cell] = spread + both + both.swapaxes(1, 2) + U[:, :S, :S]


def _inverse(H: np.ndarray) -> tuple[np.ndarray, float]:
    """Of symmetric positive matrices, with the sum of their log determinants."""
    root = np.linalg.cholesky(H)
    log_det = 2 * float(np.log(np.diagonal(root, axis1=-2, axis2=-1)).sum())
    return np.linalg.inv(H), log_det


def _times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return np.asarray((matrix @ vector[..., None])[..., 0])
