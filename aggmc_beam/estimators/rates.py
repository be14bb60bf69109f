"""How much moves in each cell, against the mean over all cells: by how much counts change from one step to the next.

Var(n_t+1 - n_t), about the means of the cell and with the noise taken off, is in proportion to the number who move,
whether they move alone or many at once. It tells the rate of a cell long before single moves can be told.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aggmc_beam.estimators.neighbours import Prior, Row, eliminate, posterior
from aggmc_beam.estimators.spread import scattered

#: Variances of the rates about 1 that are weighed, and correlations of neighbours.
VARIANCES = tuple(np.geomspace(1e-4, 10, 11).tolist())
CORRELATIONS = (0.0, 0.5, 0.8, 0.95)
#: The mean change must be so many standard errors from zero to be a measure of anything.
SURE = 3.0
#: A rate is not below this: nothing is known to stand still.
LEAST = 0.01


@dataclass(frozen=True, eq=False)
class Changes:
    """Squared changes of the counts of a cell per replicate, summed over pairs: `squares` [G, S] for `pairs` [G],
    of which `noise` [S] per pair is due to noise, and `expected` [S] to the moves of the pooled matrix."""

    squares: np.ndarray
    pairs: np.ndarray
    noise: np.ndarray
    expected: np.ndarray

    def seen(self, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each replicate: its squares less their noise, and what is expected of them, states weighed."""
        return (self.squares - self.pairs[:, None] * self.noise) @ weight, self.pairs * float(
            self.expected @ weight
        )


def rates(cells: list[Changes | None], row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Rates [C] about 1 and their standard errors; ones without an error if nothing is told of them."""
    C = row.cells
    ones = np.ones(C), np.zeros(C)
    found = np.full(C, np.nan)
    error, size = np.full(C, np.inf), np.zeros(C)
    for c, cell in enumerate(cells):
        if cell is None or np.count_nonzero(cell.pairs) < 2:
            continue
        varies = cell.expected + cell.noise
        weight = cell.expected / np.maximum(varies, 1e-300) ** 2
        seen, expected = cell.seen(weight)
        size[c] = cell.pairs.sum()
        found[c] = seen.sum() / expected.sum()
        error[c] = np.sqrt((scattered(seen, cell.pairs / size[c]) ** 2).sum()) / expected.sum()
    known = size > 0
    if known.sum() < 2:
        return ones
    share = size[known] / size[known].sum()
    level = float(share @ found[known])
    if not level > SURE * float(np.sqrt((share**2 @ error[known] ** 2))):
        return ones
    # Replicates are few, and where less is seen their scatter is less too: half of the variance is a smooth one.
    x, e = found / level, error / level
    noise = np.array([0.0 if c is None else float(c.noise.sum() / max(c.expected.sum(), 1e-300)) for c in cells])
    shape = np.where(known, (np.maximum(x, 0.05) + noise / level) ** 2, 1.0)[known] / size[known]
    smooth = shape * float((e[known] ** 2 / shape).mean())
    variance = (e[known] ** 2 + smooth) / 2
    A, b = np.zeros((C, 1, 1, 1)), np.zeros((C, 1, 1))
    A[known, 0, 0, 0] = 1 / np.maximum(variance, 1e-12)
    b[known, 0, 0] = A[known, 0, 0, 0] * (x[known] - 1)
    evidence = {}
    for rho in CORRELATIONS if C > 1 else CORRELATIONS[:1]:
        for tau in VARIANCES:
            prior = Prior(tau, COMMON, rho)
            evidence[prior] = eliminate(A, b, row, prior).evidence
    best = max(evidence.values())
    weights = {prior: np.exp(value - best) for prior, value in evidence.items() if value > best - 7}
    total, at, second = sum(weights.values()), np.zeros(C), np.zeros(C)
    for prior, w in weights.items():
        mean, covariance = posterior(eliminate(A, b, row, prior), C)
        at += w / total * mean[:, 0, 0]
        second += w / total * (covariance[:, 0, 0, 0] + mean[:, 0, 0] ** 2)
    return np.maximum(1 + at, LEAST), np.sqrt(np.maximum(second - at**2, 0.0))


#: Variance of what is common to all rates, whose mean is 1 by their definition.
COMMON = 1e-6
