"""How much moves in each cell, against the mean over all cells: by how much the next counts miss their prediction.

The variance of n_t+1 about P'n_t, about its mean in the cell and with the noise taken off, grows with the number who
move, whether they move alone or many at once. It tells the rate of a cell long before single moves can be told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from aggmc_beam.estimators.neighbours import Prior, Row, eliminate, posterior
from aggmc_beam.estimators.spread import scattered

#: Variances of the rates about 1 that are weighed, and correlations of neighbours.
VARIANCES = tuple(np.geomspace(1e-4, 10, 11).tolist())
CORRELATIONS = (0.0, 0.5, 0.8, 0.95)
#: The mean change must be so many standard errors from zero to be a measure of anything.
SURE = 3.0
#: Where misses are not those of independent movers, individuals move in groups, whose size may differ between cells
#: by so much of it; a rate cannot be told from that.
UNLIKE = 0.5
#: Where moves are many, twice as many do not double the misses; below this part of it they tell no rate.
STICKY = 0.6
#: The logarithm of the odds by which rates that differ must explain the misses better than equal ones.
TOLD = 5.0
#: Variance of what is common to all rates, whose mean is 1 by their definition.
COMMON = 1e-6
#: Errors are in proportion to rates, but not below this.
FLAT = 0.05
#: A rate is not below this: nothing is known to stand still.
LEAST = 0.01


@dataclass(frozen=True, eq=False)
class Changes:
    """Squared misses of a cell per replicate, summed over pairs: `squares` [G, S] for `pairs` [G], of which `noise`
    [S] per pair is due to noise, and `expected` [S] to independent moves by the pooled matrix; `slope` [S] is by how
    much more is expected where all moves are twice as many, to first order."""

    squares: np.ndarray
    pairs: np.ndarray
    noise: np.ndarray
    expected: np.ndarray
    slope: np.ndarray

    def weighed(self, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Per replicate, states weighed: what is seen but for noise, what is expected, and its slope. `level`:
        individuals who count as one mover."""
        slope = np.maximum(self.slope, 0.0)
        weight = slope / np.maximum(level * self.expected + self.noise, 1e-300) ** 2
        seen = (self.squares - self.pairs[:, None] * self.noise) @ weight
        return seen, self.pairs * float(self.expected @ weight), self.pairs * float(slope @ weight)


def rates(cells: list[Changes | None], row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Rates [C] about 1 and their standard errors; ones without an error if nothing is told of them."""
    C = row.cells
    told = {c: cell for c, cell in enumerate(cells) if cell is not None and np.count_nonzero(cell.pairs) > 1}
    found = excess(list(told.values())) if len(told) > 1 else None
    if found is None:
        return np.ones(C), np.zeros(C)
    A, b = np.zeros((C, 1, 1, 1)), np.zeros((C, 1, 1))
    priors = [Prior(own, COMMON, rho) for rho in CORRELATIONS for own in VARIANCES]
    rate, at, second = np.ones(C), np.zeros(C), np.zeros(C)
    for again in range(
        2
    ):  # errors are in proportion to rates: first to equal ones, then to those that are found
        variance = np.maximum(found.variance(rate[list(told)]), 1e-12)
        A[list(told), 0, 0, 0] = 1 / variance
        b[list(told), 0, 0] = found.values / variance
        evidence = np.array([eliminate(A, b, row, prior).evidence for prior in priors])
        alike = max(e for prior, e in zip(priors, evidence, strict=True) if prior.own == VARIANCES[0])
        if not again and evidence.max() < alike + TOLD:
            return np.ones(C), np.zeros(C)
        weights = np.exp(evidence - evidence.max())
        weights /= weights.sum()
        at, second = np.zeros(C), np.zeros(C)
        for w, prior in zip(weights, priors, strict=True):
            if w > 1e-3:
                mean, covariance = posterior(eliminate(A, b, row, prior), C)
                at += w * mean[:, 0, 0]
                second += w * (covariance[:, 0, 0, 0] + mean[:, 0, 0] ** 2)
        rate = np.maximum(1 + at, LEAST)
    unlike = UNLIKE * abs(1 - 1 / found.level) * rate
    return rate, np.sqrt(np.maximum(second - at**2, 0.0) + unlike**2)


@dataclass(frozen=True, eq=False)
class Excess:
    """Rates less 1, and individuals who count as one mover, `level`. Their sampling variances are `scale` times those
    of sums of squares; `noise`, `steepness` and `size` say how large these are in each cell."""

    values: np.ndarray
    level: float
    scale: float
    noise: np.ndarray
    steepness: np.ndarray
    size: np.ndarray

    def shape(self, rate: np.ndarray) -> np.ndarray:
        return np.asarray((np.maximum(rate, FLAT) + self.noise) ** 2 * self.steepness**2 / self.size)

    def variance(self, rate: np.ndarray) -> np.ndarray:
        """Sampling variances where rates are these. A cell's own scatter, of few replicates, is less where less is
        seen, so that what is low by chance would seem sure: it tells no more than the scale of all."""
        return self.scale * self.shape(rate)


def excess(cells: list[Changes]) -> Excess | None:
    """None if misses are not told from zero, or do not grow with the number who move."""
    level = 1.0
    for _ in range(2):  # the level changes the weights of the states a little
        parts = [cell.weighed(level) for cell in cells]
        seen, expected, slope = (np.array([part.sum() for part in kind]) for kind in zip(*parts, strict=True))
        error = np.array(
            [
                float(np.sqrt((scattered(one, cell.pairs / cell.pairs.sum()) ** 2).sum()))
                for (one, *_), cell in zip(parts, cells, strict=True)
            ]
        )
        sure = float(seen.sum()) > SURE * float(np.sqrt((error**2).sum()))
        if not sure or not (slope > 0).all() or slope.sum() < STICKY * expected.sum():
            return None
        level = float(seen.sum() / expected.sum())
    size = np.array([cell.pairs.sum() for cell in cells])
    noise = np.array([float(cell.noise.sum() / cell.expected.sum()) for cell in cells])
    x, e = (seen / level - expected) / slope, error / level / slope
    found = Excess(x, level, 1.0, noise / level, expected / slope, size)
    # Outliers are real where something moves many at once; the median of a chi-square is below its mean.
    freedom = np.maximum([np.count_nonzero(cell.pairs) - 1 for cell in cells], 1)
    below = (1 - 2 / (9 * freedom)) ** 3
    return replace(found, scale=float(np.median(e**2 / found.shape(1 + x) / below)))
