"""Which matrix applies at which step, for one estimate or for those of a chain that changes with time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from aggmc_beam.chain import Cycle
from aggmc_beam.clock import Clock
from aggmc_beam.errors import InputError
from aggmc_beam.fit.resolve import Mapped
from aggmc_beam.noise import Noise
from aggmc_beam.result import Estimate, Estimates, Groups

#: Standard deviation of a uniform probability.
UNKNOWN = 12**-0.5
#: What varies more than this is not made of moves that P has.
MOST_DISPERSED = 1e4


@dataclass(frozen=True, eq=False)
class Transitions:
    """`matrices` and `errors` [C, S, S], `shares` [C, S] and `dispersion` [C] of cells; `at` tells the cell of
    a step.

    Phases of a cycle of `period` steps come again, by what local clocks show. A step without a cell of its own,
    such as one after those of a chain with a matrix per step, has the matrix of all. `realizations` is the number of
    those that the matrices were learned from.
    """

    matrices: np.ndarray
    errors: np.ndarray
    shares: np.ndarray
    cells: tuple[int, ...]
    kind: str
    cycle: Cycle | None
    states: tuple[str, ...]
    noise: Noise
    population: float
    degrees: int
    dispersion: np.ndarray
    level: float = 0.95
    realizations: int = 1
    clock: Clock = field(default_factory=Clock)

    @classmethod
    def of(cls, estimate: Any, clock: Clock | None = None) -> Transitions:
        """clock: by which the steps were counted that `at` is asked for."""
        if isinstance(estimate, Estimate):
            items: list[Estimate] = [estimate]
            cells: tuple[int, ...] = (0,)
            kind = "stationary"
        elif isinstance(estimate, Estimates):
            items, cells, kind = _cells(estimate)
        elif isinstance(estimate, Groups):
            raise InputError(
                "these are estimates of groups; give that of one of them, such as "
                f"found[{', '.join(map(repr, next(iter(estimate), ('north',))))}], and its counts"
            )
        else:
            raise InputError(f"an Estimate or Estimates is needed, not {type(estimate).__name__}")
        first = items[0]
        cycle = Cycle.of_note(first.diagnostics["cycle"]) if kind == "cycle" else None
        P = np.stack([_filled(e) for e in items])
        errors = np.stack([known_errors(e.standard_error) for e in items])
        shares = np.stack([np.nan_to_num(e.stationary) for e in items])
        noise = first.noise
        if isinstance(noise, Mapped):  # records are those of the noise itself
            noise = noise.original
        if not noise.is_known:
            raise InputError(f"{noise.name} noise still has a parameter to be estimated")
        return cls(
            P,
            errors,
            shares,
            cells,
            kind,
            cycle,
            first.states,
            noise,
            first.population,
            min(e.degrees for e in items),
            np.array([_dispersion(e, M, mu) for e, M, mu in zip(items, P, shares, strict=True)]),
            first.level,
            max(int(e.counts["realizations"]) for e in items),
            clock or Clock(),
        )

    def determined(self) -> Transitions:
        """Members of a state stay where nothing is known of its row: no error is below that of a uniform
        probability."""
        lost = (self.errors >= UNKNOWN).all(2, keepdims=True)
        stay = np.eye(self.matrices.shape[1])
        return replace(
            self, matrices=np.where(lost, stay, self.matrices), errors=np.where(lost, UNKNOWN, self.errors)
        )

    def from_step(self, start: int) -> Transitions:
        """With the noise of step `start` as that of the first record."""
        return replace(self, noise=Later(self.noise, start)) if start and self.noise.varies else self

    @property
    def pooled(self) -> int:
        """The index of the matrix of all cells, which stands last where there are several."""
        return len(self.matrices) - 1

    def at(self, time: np.ndarray) -> np.ndarray:
        """Indices into `matrices` for pairs whose left ends are at these steps."""
        time = self.clock.local(np.asarray(time, np.int64))
        if self.kind == "stationary":
            return np.zeros(time.shape, np.int64)
        cells = np.array(self.cells)
        if self.kind == "window":
            return np.asarray(np.clip(np.searchsorted(cells, time, "right") - 1, 0, len(cells) - 1))
        if self.cycle is not None:
            time = self.cycle.cells(time)
        place = np.searchsorted(cells, time).clip(max=len(cells) - 1)
        return np.asarray(np.where(cells[place] == time, place, self.pooled))


@dataclass(frozen=True)
class Later(Noise):
    """Noise that differs by step, whose step 0 is another's step `start`."""

    of: Noise
    start: int

    name: ClassVar[str] = "later"

    @property
    def varies(self) -> bool:
        return True

    def at(self, t: int) -> Noise:
        return self.of.at(self.start + t)

    def covariance(self, mean: ArrayLike) -> np.ndarray | None:
        raise InputError("this noise differs by time step: ask at(t) for the model of one step")

    def sample(self, n: ArrayLike, rng: np.random.Generator) -> np.ndarray:
        raise InputError("this noise differs by time step: ask at(t) for the model of one step")


def _cells(estimates: Estimates) -> tuple[list[Estimate], tuple[int, ...], str]:
    items = list(estimates)
    if not items:
        raise InputError("there is no estimate: all cells were skipped")
    cells = tuple(int(c or 0) for c in estimates.cells)
    if items[0].window is not None:
        return items, cells, "window"
    kind = "cycle" if "cycle" in items[0].diagnostics else "steps"
    return [*items, estimates.pooled or _mean(items)], cells, kind


def _mean(items: list[Estimate]) -> Estimate:
    """Of cells whose pooled estimate was not kept: weighted by their pairs."""
    weight = np.array([max(e.counts["pairs"], 1) for e in items], float)
    known = np.stack([np.isfinite(e.transition_matrix).all(1) for e in items])
    weights = np.maximum(weight[:, None] * known, 1e-300)
    P = np.stack([np.nan_to_num(e.transition_matrix) for e in items])
    error = np.stack([known_errors(e.standard_error) for e in items])
    shares = np.average([np.nan_to_num(e.stationary) for e in items], 0, weight)
    return replace(
        items[0],
        transition_matrix=(P * weights[:, :, None]).sum(0) / weights.sum(0)[:, None],
        # No smaller than if all erred alike.
        standard_error=(error * weights[:, :, None]).sum(0) / weights.sum(0)[:, None],
        stationary=shares,
    )


def _dispersion(estimate: Estimate, P: np.ndarray, shares: np.ndarray) -> float:
    """How many times as much counts vary about P'n_t as those of independent movers, at least 1: from the
    error that the estimate made on data left out, or else what its ground says."""
    ground = estimate.diagnostics.get("ground", {}).get("statistics", {})
    error = estimate.diagnostics.get("scores", {}).get("estimate")
    seen = np.nan_to_num(np.asarray(estimate.baselines["naive"], float)[0])
    expected = float(np.trace(chance(seen if (seen > 0).any() else shares, P)))
    if error is None or expected <= 0:
        return max(float(ground.get("dispersion") or 1.0), 1.0)
    return float(np.clip(error / expected, 1.0, MOST_DISPERSED))


def _filled(estimate: Estimate) -> np.ndarray:
    """P with rows of probabilities; a state that was never seen stays where it is."""
    P = np.array(estimate.transition_matrix, np.float64)
    lost = ~np.isfinite(P).all(1)
    P[lost] = np.eye(len(P))[lost]
    P = np.clip(P, 0.0, None)
    return np.asarray(P / P.sum(1, keepdims=True))


def known_errors(error: np.ndarray) -> np.ndarray:
    """Standard errors [S, S] without NaN: an entry that constraints fix has none; a row of which nothing is
    known may be anything, with the standard deviation of a uniform probability.

    >>> known_errors(np.array([[0.1, np.nan], [np.nan, np.nan]])).round(2).tolist()
    [[0.1, 0.0], [0.29, 0.29]]
    """
    error = np.asarray(error, float)
    fixed = np.isfinite(error).any(1, keepdims=True)
    return np.asarray(np.where(np.isfinite(error), error, np.where(fixed, 0.0, UNKNOWN)))


def powered(P: np.ndarray, activity: float | np.ndarray) -> np.ndarray:
    """P [..., S, S] with all moves `activity` [...] times as frequent, as far as rows allow.

    >>> powered(np.array([[0.9, 0.1], [0.3, 0.7]]), 2.0).round(2).tolist()
    [[0.8, 0.2], [0.6, 0.4]]
    """
    S = P.shape[-1]
    moves = P * (1 - np.eye(S)) * np.asarray(activity)[..., None, None]
    leaving = moves.sum(-1, keepdims=True)
    moves = moves * np.minimum(1.0, 0.98 / np.maximum(leaving, 1e-300))
    return np.asarray(moves + np.eye(S) * (1 - moves.sum(-1))[..., None])


def chance(counts: np.ndarray, P: np.ndarray) -> np.ndarray:
    """Covariance [..., S, S] of n_t+1 given n_t = counts [..., S], for independent movers."""
    n = np.maximum(counts, 0.0)
    found = -np.einsum("...i,...ij,...ik->...jk", n, P, P, optimize=True)
    mean = np.einsum("...i,...ij->...j", n, P)
    S = P.shape[-1]
    found[..., np.arange(S), np.arange(S)] += mean
    return np.asarray(found)


def noise_at(noise: Noise, step: int, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(A, b, R [K, S, S]) of a step; `mean` [K, S] are expected true counts."""
    model, S = noise.at(step), mean.shape[1]
    spreads = []
    for row in np.maximum(mean, 0.0):
        found = model.covariance(row)
        if found is None:
            raise InputError(
                f"the {noise.name} noise is given without its covariance, which tells how far to trust a "
                "count; give Linear(A, b, covariance)"
            )
        spreads.append(found)
    return model.matrix(S), model.offset(S), np.stack(spreads)
