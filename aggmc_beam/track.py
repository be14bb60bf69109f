"""Track: what one realization must remember so that its records may come in any order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.moments import Counts, Moments
from aggmc_beam.pairing import Block, block_moments


class Row:
    """A record that may still find a neighbour."""

    __slots__ = ("values", "weight")

    def __init__(self, values: np.ndarray, weight: float) -> None:
        self.values, self.weight = values, weight


@dataclass
class Steps:
    """A set of integers kept as sorted, disjoint, non-adjacent closed intervals."""

    starts: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)

    def __contains__(self, step: int) -> bool:
        return self.holds(step, step)

    def holds(self, start: int, stop: int) -> bool:
        """Whether all steps from start to stop are in the set."""
        i = bisect_right(self.starts, start) - 1
        return i >= 0 and stop <= self.stops[i]

    def __len__(self) -> int:
        return sum(b - a + 1 for a, b in self.intervals())

    def intervals(self) -> list[tuple[int, int]]:
        return list(zip(self.starts, self.stops, strict=True))

    def missing(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The parts of [start, stop] that are not in the set."""
        parts = []
        i = bisect_left(self.stops, start)
        while i < len(self.starts) and self.starts[i] <= stop:
            if start < self.starts[i]:
                parts.append((start, self.starts[i] - 1))
            start = self.stops[i] + 1
            i += 1
        if start <= stop:
            parts.append((start, stop))
        return parts

    def add(self, start: int, stop: int) -> tuple[int, int]:
        """Add [start, stop], joined with every interval that it meets or touches; the one that results."""
        i = bisect_left(self.stops, start - 1)
        j = bisect_right(self.starts, stop + 1)
        if i < j:
            start, stop = min(start, self.starts[i]), max(stop, self.stops[j - 1])
        self.starts[i:j] = [start]
        self.stops[i:j] = [stop]
        return start, stop


@dataclass
class Track:
    """One realization's covered steps and its open records: those that may still find a neighbour.

    A record within two steps of an uncovered step is open; all others are forgotten, so memory is
    O(S x gaps): records that arrive in order cost four rows, two at each end.

    >>> track = Track(2)
    >>> track.extend([0, 2], [[3, 1], [1, 3]]).pairs
    0
    >>> m = track.extend([1, 2], [[2, 2], [1, 3]])   # fills the gap, and repeats step 2
    >>> m.pairs, m.counts.duplicates, len(track.open)
    (2, 1, 3)
    """

    states: int
    covered: Steps = field(default_factory=Steps)
    open: dict[int, Row] = field(default_factory=dict)

    def copy(self) -> Track:
        """One that is not changed with this one. Rows are shared: nobody changes them."""
        covered = Steps(list(self.covered.starts), list(self.covered.stops))
        return Track(self.states, covered, dict(self.open))

    def extend(self, time: np.ndarray, values: np.ndarray, weight: np.ndarray | None = None) -> Moments:
        """Take a block of records in any order; the moments of what is new in it.

        time [n] integers, values [n, S], weight [n] (the population, when values are shares).
        Steps that are covered already, or repeated in the block, are dropped and counted; of
        repeated ones the first is kept.
        """
        block, counts = self.take(time, values, weight)
        return replace(block_moments(block), counts=counts)

    def take(
        self, time: np.ndarray, values: np.ndarray, weight: np.ndarray | None = None
    ) -> tuple[Block, Counts]:
        """As `extend`, but hands out the new records with their neighbours, not yet summed."""
        time, values, weight = _checked(time, values, weight, self.states)
        given = len(time)
        if given == 1:
            return self.take_one(int(time[0]), values, None if weight is None else float(weight[0]))
        first_ever = not self.covered.starts
        if np.any(np.diff(time) <= 0):
            time, values, weight = _rows(np.unique(time, return_index=True)[1], time, values, weight)
        runs = [part for a, b in _runs(time) for part in self.covered.missing(int(time[a]), int(time[b]))]
        if sum(b - a + 1 for a, b in runs) < len(time):
            spans = [np.arange(*np.searchsorted(time, [a, b + 1])) for a, b in runs]
            fresh = np.concatenate([np.zeros(0, int), *spans])
            time, values, weight = _rows(fresh, time, values, weight)
        counts = Counts(int(first_ever and len(time) > 0), duplicates=given - len(time))
        return self._join(runs, time, values, weight), counts

    def take_one(self, t: int, values: np.ndarray, weight: float | None) -> tuple[Block, Counts]:
        """`take` of a single record: values [1, S] that are finite."""
        counts = _NOTHING if self.covered.starts else _FIRST
        met = self.meet(t, Row(values[0].copy(), 1.0 if weight is None else weight))
        if met is None:
            none = np.zeros(0, np.int64)
            return Block(values[:0], none, None, None if weight is None else np.zeros(0)), _DUPLICATE
        return _with_neighbours(values, weight, *met), counts

    def meet(self, t: int, row: Row) -> tuple[list[int], list[Row], int] | None:
        """Take a single record, as they come in a stream, and keep its row while it is open.

        The steps and rows of the record and its open neighbours in order of time, and its own place among
        them; None if its step is covered.
        """
        covered, rows = self.covered, self.open
        if covered.holds(t, t):
            return None
        steps = [s for s in (t - 2, t - 1) if s in rows]
        place = len(steps)
        after = [s for s in (t + 1, t + 2) if s in rows]
        among = [rows[s] for s in steps]
        among.append(row)
        among += [rows[s] for s in after]
        start, stop = covered.add(t, t)
        for s in (*steps, *after):
            if start + 2 <= s <= stop - 2:
                del rows[s]
        if not start + 2 <= t <= stop - 2:
            rows[t] = row
        return [*steps, t, *after], among, place

    def _join(
        self,
        runs: list[tuple[int, int]],
        time: np.ndarray,
        values: np.ndarray,
        weight: np.ndarray | None,
    ) -> Block:
        """The new records with their open neighbours; then covers, opens and forgets."""
        edges = {t for a, b in runs for t in (a - 2, a - 1, b + 1, b + 2)}
        neighbours = edges & self.open.keys()
        old = _block_of({t: self.open[t] for t in neighbours}, 1, self.states)
        block = _union(Block(values, time, None, weight), old)
        for a, b in runs:
            self.covered.add(a, b)
        for a, b in runs:
            for t in {a, min(a + 1, b), max(b - 1, a), b}:
                if self._is_open(t):
                    i = int(np.searchsorted(time, t))
                    # A copy, so that an open record does not keep its whole block alive.
                    self.open[t] = Row(values[i].copy(), 1.0 if weight is None else weight[i])
        for t in neighbours:
            if not self._is_open(t):
                del self.open[t]
        return block

    def merge(self, other: Track) -> Moments:
        """Take over another track of the same realization; the moments of the pairs between them.

        Steps that both tracks cover were summed twice before they met. That cannot be undone here;
        it is counted in `counts.overlaps`.
        """
        if other.states != self.states:
            raise InputError(f"a track of {other.states} states cannot join one of {self.states}")
        new = sum(d - c + 1 for a, b in other.covered.intervals() for c, d in self.covered.missing(a, b))
        met = bool(self.covered.starts and other.covered.starts)
        counts = Counts(realizations=-int(met), overlaps=len(other.covered) - new)
        mine = {t: row for t, row in self.open.items() if t not in other.covered}
        theirs = {t: row for t, row in other.open.items() if t not in self.covered}
        between = _union(_block_of(mine, 1, self.states), _block_of(theirs, 2, self.states))
        for a, b in other.covered.intervals():
            self.covered.add(a, b)
        rows = {**other.open, **self.open}
        self.open = {t: row for t, row in rows.items() if self._is_open(t)}
        return replace(block_moments(between), counts=counts)

    def _is_open(self, t: int) -> bool:
        """Whether a step that is covered has one that is not within two steps of it."""
        return not self.covered.holds(t - 2, t + 2)


def _with_neighbours(
    values: np.ndarray, weight: float | None, times: list[int], rows: list[Row], at: int
) -> Block:
    """A new record among older ones, in order of time; it is the one at place `at`."""
    n = len(rows)
    if n == 1:
        return Block(values, np.array(times), None, None if weight is None else np.array([weight]))
    weights = None
    if weight is not None or any(row.weight != 1.0 for row in rows):
        weights = np.array([row.weight for row in rows])
    return Block(np.array([row.values for row in rows]), np.array(times), None, weights, _MARKS[n, at])


def _marks(n: int, at: int) -> np.ndarray:
    """Which of n rows is new: the one at place `at`. Shared by all blocks, so not to be written to."""
    marks = np.ones(n, np.int64)
    marks[at] = 0
    marks.flags.writeable = False
    return marks


_MARKS = {(n, at): _marks(n, at) for n in range(2, 6) for at in range(n)}
_NOTHING, _FIRST, _DUPLICATE = Counts(), Counts(realizations=1), Counts(duplicates=1)


def _runs(time: np.ndarray) -> list[tuple[int, int]]:
    """(first, last) positions of the stretches of consecutive steps in increasing `time`."""
    if not len(time):
        return []
    breaks = np.flatnonzero(np.diff(time) != 1)
    return list(zip([0, *(breaks + 1).tolist()], [*breaks.tolist(), len(time) - 1], strict=True))


def _rows(
    index: np.ndarray, time: np.ndarray, values: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    return time[index], values[index], None if weight is None else weight[index]


def _block_of(rows: dict[int, Row], mark: int, S: int) -> Block:
    """Remembered records as a block of rows that have formed their pairs with each other."""
    times = sorted(rows)
    values = np.array([rows[t].values for t in times]).reshape(-1, S)
    weight = np.array([rows[t].weight for t in times], np.float64)
    unit = bool(np.all(weight == 1.0))
    marks = np.full(len(times), mark, np.int64)
    return Block(values, np.array(times, np.int64), None, None if unit else weight, marks)


def _union(a: Block, b: Block) -> Block:
    """Two blocks of the same realization in one, in order of time."""
    if not len(b.time):
        return a
    time = np.concatenate([a.time, b.time])
    order = np.argsort(time, kind="stable")
    weight = None
    if a.weight is not None or b.weight is not None:
        ones = [np.ones(len(x.time)) if x.weight is None else x.weight for x in (a, b)]
        weight = np.concatenate(ones)[order]
    marks = [np.zeros(len(x.time), np.int64) if x.settled is None else x.settled for x in (a, b)]
    return Block(
        np.concatenate([a.values, b.values])[order],
        time[order],
        None,
        weight,
        np.concatenate(marks)[order],
    )


def _checked(
    time: np.ndarray, values: np.ndarray, weight: np.ndarray | None, S: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    time = np.asarray(time)
    if time.size and not np.issubdtype(time.dtype, np.integer):
        raise InputError(f"time must be integer steps, not {time.dtype}")
    time = time.astype(np.int64)
    values = np.asarray(values, np.float64)
    if time.ndim != 1 or values.shape != (len(time), S):
        raise InputError(f"a block needs time [n] and values [n, {S}]; got {time.shape} and {values.shape}")
    if weight is not None:
        weight = np.broadcast_to(np.asarray(weight, np.float64), time.shape)
    return time, values, weight
