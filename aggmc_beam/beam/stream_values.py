"""The values that travel in a stream, or are kept. Plain data: nothing here knows Beam."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from aggmc_beam.sums.moments import Counts
from aggmc_beam.sums.steps import StepSums
from aggmc_beam.sums.sums import Sums
from aggmc_beam.sums.track import Track

#: Those of realizations in short: number, sum, least, greatest.
Populations = tuple[float, float, float, float]
NOBODY: Populations = (0.0, 0.0, np.inf, -np.inf)
#: What a row of a `Delta` is: a new record, an older one, a new one with which its realization is met first.
NEW, OLD, FIRST = 0, 1, 2
#: Bytes of arrays that one stored value holds, about.
PIECE = 1 << 20


@dataclass(frozen=True, eq=False)
class Delta:
    """What a bundle adds to a group: new records with the older ones that are their neighbours, sorted by
    (key, time), and what was counted.

    Of realization k, `numbers[k]` is the number by which it is dealt into jackknife groups and `population[k]`
    its population, if these differ. `mark` [n] is NEW, OLD or FIRST. `names` are those of realizations, where a
    record may turn out to be late.
    """

    numbers: np.ndarray
    key: np.ndarray
    time: np.ndarray
    values: np.ndarray
    mark: np.ndarray
    population: np.ndarray | None = None
    counts: Counts = field(default_factory=Counts)
    populations: Populations = NOBODY
    names: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + 16 * len(self.time) + 100

    def part(self, rows: np.ndarray) -> Delta:
        """Some of the rows, given by position; without what was counted."""
        used, key = np.unique(self.key[rows], return_inverse=True)
        return Delta(
            self.numbers[used],
            key,
            self.time[rows],
            self.values[rows],
            self.mark[rows],
            None if self.population is None else self.population[used],
            names=tuple(self.names[k] for k in used.tolist()) if self.names else (),
        )


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The sums of a group so far, or of one of its jackknife groups, about to be added to; `first` and `last` are
    the outermost steps."""

    sums: Sums
    populations: Populations = NOBODY
    first: int = 2**62
    last: int = -(2**62)

    @classmethod
    def zero(cls, S: int) -> Snapshot:
        return cls(Sums.zero(S))

    @property
    def records(self) -> int:
        return int(self.sums.number[:, 0].sum())

    @property
    def counts(self) -> Counts:
        return self.sums.counts.get(0, Counts())

    @property
    def nbytes(self) -> int:
        return int(self.sums.product.nbytes + self.sums.steps.total.nbytes)

    def __add__(self, other: Snapshot) -> Snapshot:
        return Snapshot(
            self.sums + other.sums,
            pooled(self.populations, other.populations),
            min(self.first, other.first),
            max(self.last, other.last),
        )

    def between(self, start: int, stop: int, pane: int) -> Snapshot:
        """What it holds of the steps from `start` up to `stop`, where a cell is a pane of that many; and the step
        means up to the far ends of its last pairs."""
        cells = self.sums.label[:, 1] * pane
        kept = self.sums.part((cells >= start) & (cells < stop), self.sums.steps.between(start, stop + 2))
        return replace(self, sums=kept, first=max(self.first, start), last=min(self.last, stop - 1))

    def pieces(self) -> Iterator[Snapshot]:
        """Snapshots of few bytes each, whose sum it is."""
        sums, steps = self.sums, self.sums.steps
        empty, rest = StepSums.zero(sums.states), Sums.zero(sums.states)
        yield replace(self, sums=replace(rest, counts=sums.counts))
        by = max(1, PIECE // (32 * sums.states**2))
        for at in range(0, len(sums.label), by):
            part = replace(sums.part(slice(at, at + by), empty), counts={})
            yield Snapshot(part)
        by = max(1, PIECE // (8 * sums.states))
        for at in range(0, len(steps.key), by):
            yield Snapshot(replace(rest, steps=steps.part(slice(at, at + by))))


@dataclass
class Known:
    """What is remembered of one realization: when it was last heard of (microseconds), its track, or
    once it is forgotten the step up to which it was known; its population, if it has one of its own.

    `pending`: a runner has been given it, and did not make bytes of it yet.
    """

    newest: int
    track: Track[np.ndarray] | None = None
    floor: int | None = None
    population: float | None = None
    pending: bool = field(default=False, compare=False)

    def copy(self) -> Known:
        """One that is not changed with this one, and that no runner has been given."""
        track = None if self.track is None else self.track.copy()
        return Known(self.newest, track, self.floor, self.population)


@dataclass
class Status:
    """Where the sums of a key stand: the cells that changed since they were handed on, the event time
    that is known to have passed, whether a refresh is due, and the newest event time (microseconds); of a chain
    of windows, the cells that hold something.

    `waiting` and `summed` are the bytes of what is still to be summed, and of the sums. `version` is how often
    sums were handed on.
    """

    changed: set[int] = field(default_factory=set)
    passed: int | None = None
    pending: bool = False
    newest: int = -(2**62)
    cells: set[int] = field(default_factory=set)
    waiting: int = 0
    summed: int = 0
    version: int = 0


def pooled(a: Populations, b: Populations) -> Populations:
    return a[0] + b[0], a[1] + b[1], min(a[2], b[2]), max(a[3], b[3])
