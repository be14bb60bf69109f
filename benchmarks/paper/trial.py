"""One trial: true counts are drawn once, observed under every noise model, and estimated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggmc_beam.estimators.registry import FREE
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.fit.cell import CellFit
from aggmc_beam.fit.fit import Fit, Settings
from aggmc_beam.noise import Exact, Noise, noise_from_dict
from aggmc_beam.simulation import random_chain, simulate, stationary_distribution
from aggmc_beam.sums.sums import Sums
from benchmarks.paper.grid import Cell

#: States with a smaller stationary share are called rare, as in the regular ensemble.
RARE = 0.01


@dataclass(frozen=True)
class Row:
    """What one estimator made of one trial. Errors are entrywise mean squares.

    `common` is over rows of states that are not rare, NaN if there is none. `shares` is the error of
    the stationary distribution of the nearest stochastic matrix, `own_shares` of the matrix itself.
    """

    experiment: str
    ensemble: str
    trial: int
    N: int
    T: int
    K: int
    noise: str
    estimator: str
    rarest: float
    error: float
    common: float
    shares: float
    own_shares: float


def run(cell: Cell) -> list[Row]:
    """The rows of a cell; the same for the same cell."""
    chain_rng = np.random.default_rng(cell.entropy(chain=True))
    P = random_chain(chain_rng, cell.S, cell.precision, cell.ensemble)  # type: ignore[arg-type]
    pi = stationary_distribution(P)
    rng = np.random.default_rng(cell.entropy(chain=False))
    n = simulate(
        P, population=cell.N, steps=cell.T, realizations=cell.K, noise=Exact(), seed=rng
    ).truth.counts
    rows = []
    for name, description, estimators in cell.observations:
        noise = noise_from_dict(description)
        for estimator, found in estimates(noise.sample(n, rng), noise, cell.N, estimators).items():
            rows.append(
                Row(
                    cell.experiment,
                    cell.ensemble,
                    cell.trial,
                    cell.N,
                    cell.T,
                    cell.K,
                    name,
                    estimator,
                    float(pi.min()),
                    mean_square(found - P),
                    mean_square((found - P)[pi >= RARE]),
                    mean_square(stationary_distribution(project_rows(found)) - pi),
                    mean_square(fixed_point(found) - pi),
                )
            )
    return rows


def estimates(y: np.ndarray, noise: Noise, N: int, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The matrix by each estimator, as `am.estimate` gives it, without errors and scores.

    Rows of states that were never left, of which no estimator can know, are the mean shares.
    """
    sums = Sums.of(y)
    fit = Fit(sums, Settings(noise, float(N)))
    profiles: dict[int, Any] = dict(sums.profiles)
    data = CellFit(fit, sums.by_replicate(sums.cells), profiles)
    x = data.x.restricted(data.seen.anywhere)
    found = {name: data.seen.embed(FREE[name](x)) if name in FREE else data.point().P for name in names}
    return {name: np.where(np.isnan(P).any(1, keepdims=True), data.x.mu, P) for name, P in found.items()}


def fixed_point(P: np.ndarray) -> np.ndarray:
    """The vector pi with pi P = pi and sum 1, by least squares, of a matrix that may not be stochastic."""
    S = len(P)
    equations = np.vstack([P.T - np.eye(S), np.ones(S)])
    return np.asarray(np.linalg.lstsq(equations, np.eye(S + 1)[S], rcond=None)[0])


def mean_square(error: np.ndarray) -> float:
    return float(np.mean(error**2)) if error.size else float("nan")
