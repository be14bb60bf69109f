"""What happens to counts before they are summed; the same for every engine.

Populations that differ turn counts into shares y / N, weighted by N. Noise whose mean changes from
step to step, or has an offset that shares would distort, is undone record by record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aggmc_beam.digest import Digest
from aggmc_beam.errors import InputError
from aggmc_beam.moments import CoMoment, Moments
from aggmc_beam.noise import Noise
from aggmc_beam.resolve import Mapped


@dataclass(frozen=True)
class Preparation:
    """How records become values and weights of the sums.

    `weighted`: values are shares of each realization's population, weighted by it. `undo`: the noise
    model whose mean is undone on each record, if any.

    >>> import aggmc_beam as am
    >>> Preparation.plan(am.Exact(), np.array([100.0, 300.0]), 2).values(
    ...     np.array([[10.0, 90.0], [30.0, 270.0]]), np.array([0, 0]), np.array([100.0, 300.0]))
    array([[0.1, 0.9],
           [0.1, 0.9]])
    """

    noise: Noise
    weighted: bool = False
    undo: bool = False

    @classmethod
    def plan(cls, noise: Noise, populations: np.ndarray | None, S: int) -> Preparation:
        """For known populations of the realizations, or None if they are to be estimated."""
        weighted = populations is not None and len(populations) > 0 and bool(np.ptp(populations) > 0)
        if noise.is_known:
            noise.at(0).matrix(S)  # raises if the model does not fit the number of states
        undo = noise.varies or (weighted and bool(np.any(noise.offset(S) != 0)))
        return cls(noise, weighted, undo)

    def values(self, counts: np.ndarray, time: np.ndarray, population: np.ndarray | None) -> np.ndarray:
        """Values [n, S] to be summed, from counts [n, S], steps [n] and populations [n]."""
        if self.undo:
            counts = undo_noise(counts, time, self.noise)
        if self.weighted:
            assert population is not None
            counts = counts / population[:, None]
        return counts

    def remaining_noise(self, start: int, steps: int) -> Noise:
        """The noise of the values, for data over `steps` steps from `start`."""
        return Mapped(self.noise, steps, start) if self.undo else self.noise


def undo_noise(counts: np.ndarray, time: np.ndarray, noise: Noise) -> np.ndarray:
    """x_t = A_t^-1 (y_t - b_t) for records [n, S] at steps [n]."""
    S = counts.shape[1]
    steps, place = np.unique(time, return_inverse=True)
    models = [noise.at(int(t)) for t in steps]
    # Steps that share a model are solved together.
    first: dict[int, int] = {}
    which = np.array([first.setdefault(id(m), i) for i, m in enumerate(models)], np.int64)
    order = np.argsort(which[place], kind="stable")
    found, starts = np.unique(which[place][order], return_index=True)
    mapped = np.empty_like(counts)
    for i, a, b in zip(found, starts, [*starts[1:], len(order)], strict=True):
        at, rows = models[i], order[a:b]
        mapped[rows] = np.linalg.solve(at.matrix(S), (counts[rows] - at.offset(S)).T).T
    return mapped


def as_counts(digest: Digest, N: float) -> Digest:
    """Sums of shares of one population N, weighted by it, as the sums of counts that they are."""

    def scaled(c: CoMoment) -> CoMoment:
        return CoMoment(c.pairs, float(c.pairs), c.left * N, c.right * N, c.product * N)

    parts = {
        at: Moments(
            scaled(m.lag0), scaled(m.lag1), scaled(m.lag2), scaled(m.ends), m.counts, float(m.records)
        )
        for at, m in digest.parts.items()
    }
    profiles = {r: p.scaled(N) for r, p in digest.profiles.items()}
    return Digest(digest.states, parts, profiles)


def mean_population(population: Any, populations: np.ndarray | None) -> float | str:
    """What `Settings.population` is to be: a number where populations are known."""
    if populations is not None:
        return float(populations.mean())
    if isinstance(population, str) and population != "estimate":
        raise InputError(f"population must be a number, an array or 'estimate'; got {population!r}")
    return "estimate"
