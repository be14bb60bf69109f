"""Sums of realizations that come whole and in order: the fast road, with the same sums at its end.

Records are laid on a line, a place for each step, with empty places between realizations and where steps
are missing. An empty place is a column of zeros, so neighbours at any lag are one matrix product of the line
with itself, shifted; no pair has to be looked up. A row of ones over the records gives means and numbers by
the same product. Counts are centred at whole numbers, so that sums of whole numbers are exact, whatever the
order, the chunks and the threads; where they are small, products in single precision are exact too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from aggmc_beam.digest import Digest
from aggmc_beam.moments import CoMoment, Counts, Moments
from aggmc_beam.profile import SHIFT, Profile, end_at, scattered
from aggmc_beam.tracks import Tracks

#: Places of the line that are multiplied at once: what stays in a core's cache.
CHUNK = 4096
#: Records whose mean becomes the centre; few, so that it is the same however records are cut into blocks.
SAMPLE = 256
#: Stretches of records at least this long on average are copied one by one, shorter ones by index.
LONG = 64
#: With fewer states, products are so quick that threads would mostly wait for the interpreter.
MANY_STATES = 32
#: Up to this many steps, the step of each place is a row of a matrix.
FEW_STEPS = 128
#: Whole numbers up to these are exact in single and double precision.
_SINGLE, _DOUBLE = 2.0**24, 2.0**53
#: Places between the last record of a realization and the first of the next.
_APART = 3

#: What `map` does, and a thread pool's.
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


class Opened(NamedTuple):
    """Records that later ones could still pair with: `values` [m, S], and whether each has a record one
    step after, one before, two after and two before it, `near` [m, 4]."""

    key: np.ndarray
    time: np.ndarray
    label: np.ndarray
    values: np.ndarray
    near: np.ndarray


class Lone(NamedTuple):
    """Sums [m, S + 1] by label and step, in this order; the last column is their number."""

    label: np.ndarray
    step: np.ndarray
    sums: np.ndarray

    def of(self, label: int, first: int) -> tuple[np.ndarray, np.ndarray]:
        """Steps and sums of one label, from step `first` on."""
        a, b = np.searchsorted(self.label, (label, label + 1))
        a += np.searchsorted(self.step[a:b], first)
        return self.step[a:b], self.sums[a:b]


class Span(NamedTuple):
    """The places start .. stop - 1 of a line, all of one label."""

    label: int
    start: int
    stop: int


@dataclass
class OrderedSums:
    """Sums for each of `labels` replicates, over the steps start .. start + steps - 1.

    `map` may run its calls at once, as that of a thread pool does.

    >>> sums = OrderedSums(states=2, labels=1, start=0, steps=3)
    >>> sums.add(np.array([0, 0, 0]), np.array([0, 1, 2]), np.eye(3, 2), lambda k: 0 * k)
    True
    >>> digest, tracks = sums.finish()
    >>> digest.total.records, digest.total.pairs, tracks.stop.tolist()
    (3, 2, [2])
    """

    states: int
    labels: int
    start: int
    steps: int
    map: Map = map
    digest: Digest = field(init=False)
    centre: np.ndarray | None = None
    last: int = -1
    size: float = 0.0
    """A bound on the sums of products so far."""

    def __post_init__(self) -> None:
        S, G = self.states, self.labels
        self.digest = Digest.zero(S)
        # Products at lags 0, 1 and 2, and of records without a next one with themselves.
        self.lags = np.zeros((G, 4, S + 1, S + 1))
        self.by_step = np.zeros((G, S + 1, self.steps))
        self.met = np.zeros(G, np.int64)
        self.covered: list[np.ndarray] = []
        self.opened: list[Opened] = []

    def add(self, key: np.ndarray, time: np.ndarray, values: np.ndarray, label_of: Label) -> bool:
        """Take records [n] of realizations not met before, or do nothing and return False if they are not
        whole and in order of key and time. `label_of` gives the labels of keys."""
        heads = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        gap = np.diff(time)
        gap[heads[1:] - 1] = _APART
        runs = key[heads]
        if runs[0] <= self.last or np.any(np.diff(runs) <= 0) or gap.min(initial=1) <= 0:
            return False
        if time.min() < self.start or time.max() >= self.start + self.steps:
            return False
        np.minimum(gap, _APART, out=gap)
        whole = values.dtype.kind in "iu" or bool((np.rint(values) == values).all())
        reach = self._recentre(values, whole)
        # Sums of this many products of whole numbers are exact in single precision.
        width = int((_SINGLE - 1) // max(reach, 1.0) ** 2) if whole else 0
        line = _Line.of(time - self.start, values, heads, gap, label_of(runs), width)
        over = self.map if self.states >= MANY_STATES else map
        for _ in over(lambda span: self._sum(line, span), line.spans):
            pass
        self.last = int(runs[-1])
        self.met += np.bincount(line.labels, minlength=self.labels)
        self._remember(key, time, values, gap, np.repeat(line.labels, line.lengths))
        return True

    def finish(self) -> tuple[Digest, Tracks]:
        """All sums, and the tracks of all realizations."""
        self._flush()
        key, start, stop = np.concatenate([np.zeros((3, 0), np.int64), *self.covered], axis=1)
        found = self._all_opened()
        ones = np.ones(len(found.key))
        tracks = Tracks(self.states, key, start, stop, found.key, found.time, found.values, ones)
        lone = self._lone(found) if self.digest.parts else []
        profiles = {g: self._profile(g, lone) for _, g in sorted(self.digest.parts)}
        return Digest(self.states, self.digest.parts, profiles), tracks

    def _recentre(self, values: np.ndarray, whole: bool) -> float:
        """Choose the centre of sums, or a new one where the old one would cost digits; the largest distance
        from it."""
        if self.centre is not None and whole:
            reach = _reach(values, self.centre)
            if self.size + reach**2 * len(values) < _DOUBLE:
                self.size += reach**2 * len(values)
                return reach
        self._flush()
        some = np.asarray(values[:SAMPLE], np.float64)
        centre = np.rint(some[0] + (some - some[0]).mean(0))
        if self.centre is not None:
            self.by_step[:, :-1] += self.by_step[:, -1:] * (self.centre - centre)[:, None]
        reach = _reach(values, centre)
        self.centre, self.size = centre, reach**2 * len(values)
        return reach

    def _sum(self, line: _Line, span: Span) -> None:
        """Add the pairs whose left ends are at these places; no two spans of a line have the same label."""
        assert self.centre is not None
        lags, by_step = self.lags[span.label], self.by_step[span.label]
        for start in range(span.start, span.stop, CHUNK):
            stop = min(start + CHUNK, span.stop)
            z = line.fill(start, stop + _APART - 1, self.centre)
            line.add_by_step(z, start, stop, by_step)
            for a in range(0, stop - start, line.width):
                b = min(a + line.width, stop - start)
                left = z[:, a:b]
                for lag in range(3):
                    lags[lag] += left @ z[:, a + lag : b + lag].T
            last = line.last(start, stop)
            for a in range(0, len(last), line.width):
                lone = z[:, last[a : a + line.width]]
                lags[3] += lone @ lone.T

    def _remember(
        self, key: np.ndarray, time: np.ndarray, values: np.ndarray, gap: np.ndarray, label: np.ndarray
    ) -> None:
        """Keep the covered intervals, and the records near an uncovered step."""
        gaps = np.concatenate([[_APART], gap, [_APART]])
        # A record's distances to the records before and after it, and to the second ones.
        before, after = gaps[:-1], gaps[1:]
        second = np.concatenate([[_APART], before[1:] + before[:-1]])
        following = np.concatenate([after[1:] + after[:-1], [_APART]])
        first = np.flatnonzero(before > 1)
        final = np.flatnonzero(after > 1)
        self.covered.append(np.stack([key[first], time[first], time[final]]))
        is_open = np.zeros(len(key), bool)
        for rows in (first, np.minimum(first + 1, final), np.maximum(final - 1, first), final):
            is_open[rows] = True
        at = np.flatnonzero(is_open)
        near = np.stack([
            after[at] == 1, before[at] == 1,
            (after[at] == 2) | (following[at] == 2), (before[at] == 2) | (second[at] == 2),
        ], axis=1)  # fmt: skip
        kept = np.asarray(values[at], np.float64, "C")
        self.opened.append(Opened(key[at], time[at], label[at], kept, near))

    def _all_opened(self) -> Opened:
        none = np.zeros(0, np.int64)
        empty = Opened(none, none, none, np.zeros((0, self.states)), np.zeros((0, 4), bool))
        return Opened(*(np.concatenate(parts) for parts in zip(empty, *self.opened, strict=True)))

    def _flush(self) -> None:
        """Turn the sums about the present centre into moments."""
        if self.centre is None:
            return
        S, centre = self.states, self.centre
        parts = {}
        for g in np.flatnonzero(self.lags[:, 0, S, S]).tolist():
            zero, one, two, last = self.lags[g]
            lag0, lag1, lag2, ends = (_co_moment(sums, centre) for sums in (zero, one, two, zero - last))
            counts = Counts(realizations=int(self.met[g]))
            parts[0, g] = Moments(lag0, lag1, lag2, ends, counts, float(lag0.pairs))
        self.digest += Digest(S, parts, {})
        self.lags[:] = 0
        self.met[:] = 0

    def _lone(self, opened: Opened) -> list[Lone]:
        """For each kind of end, the sums of records that are none, by label and step."""
        assert self.centre is not None
        centred = opened.values - self.centre
        spot = opened.label * self.steps + (opened.time - self.start)
        found = []
        for kind in range(4):
            alone = ~opened.near[:, kind]
            number = np.bincount(spot[alone], minlength=self.labels * self.steps)
            spots = np.flatnonzero(number)
            place = (np.cumsum(number > 0) - 1)[spot[alone]]
            sums = scattered(place, centred, len(spots), where=alone)
            found.append(Lone(*np.divmod(spots, self.steps), np.column_stack([sums, number[spots]])))
        return found

    def _profile(self, label: int, lone: list[Lone]) -> Profile:
        """Mean counts by step: those of all records, less the few that have no partner."""
        assert self.centre is not None
        S, steps, centre = self.states, self.steps, self.centre
        whole = np.ascontiguousarray(self.by_step[label].T)
        bins = np.flatnonzero(whole[:, S] > 0)
        row = np.cumsum(whole[:, S] > 0) - 1
        number = np.zeros((steps, 5))
        number[:, 0] = whole[:, S]
        odd, ends = [np.zeros(0, np.int64)], [np.zeros((0, S))]
        # Ends of pairs are at the step of the pair's left end.
        for kind, shift in enumerate(SHIFT.tolist(), 1):
            number[: steps - shift, kind] = whole[shift:, S]
            at, sums = lone[kind - 1].of(label, shift)
            rest = whole[at] - sums
            number[at - shift, kind] = rest[:, S]
            some = rest[:, S] > 0
            odd.append(end_at(row[at[some] - shift], kind))
            ends.append(_means(rest[some], centre))
        places = np.concatenate(odd)
        order = np.argsort(places)
        number = np.rint(number[bins][:, [0, 1, 3]])
        return Profile(
            1,
            bins + self.start,
            number.astype(np.int64),
            number,
            _means(whole[bins], centre),
            places[order],
            np.concatenate(ends)[order],
        )


Label = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class _Line:
    """Realizations end to end, ordered by label, each record at a place of its own."""

    values: np.ndarray
    time: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    dtype: type
    width: int
    """How many places may be multiplied at once."""
    rows: np.ndarray
    """First row of each stretch of consecutive steps."""
    size: np.ndarray
    place: np.ndarray
    """First place of each stretch, increasing."""
    end: np.ndarray
    spans: list[Span]
    index: np.ndarray | None
    """If stretches are short: the row at each place, or -1."""

    @classmethod
    def of(
        cls,
        time: np.ndarray,
        values: np.ndarray,
        heads: np.ndarray,
        gap: np.ndarray,
        labels: np.ndarray,
        width: int,
    ) -> _Line:
        n = len(time)
        lengths = np.diff(np.append(heads, n))
        first = np.concatenate([[0], np.flatnonzero(gap > 1) + 1])
        size = np.diff(np.append(first, n))
        run = np.searchsorted(heads, first, "right") - 1
        order = np.argsort(labels[run], kind="stable")
        # Stretches of a label follow each other at the distance of their steps.
        apart = np.concatenate([[0], gap[first[1:] - 1]])
        rows, size = first[order], size[order]
        step = np.where(np.diff(order, prepend=-1) == 1, apart[order], _APART)
        step[0] = 0
        place = np.cumsum(step) + np.concatenate([[0], np.cumsum(size[:-1] - 1)])
        of = labels[run][order]
        starts = np.flatnonzero(np.concatenate([[True], np.diff(of) != 0]))
        stops = np.append(starts[1:], len(of)) - 1
        spans = [
            Span(int(of[a]), int(place[a]), int(place[b] + size[b]))
            for a, b in zip(starts, stops, strict=True)
        ]
        index = None
        if n < LONG * len(rows):
            values = np.ascontiguousarray(values.T).T  # whose columns are quick to pick from
            within = np.arange(n) - np.repeat(np.cumsum(size) - size, size)
            index = np.full(place[-1] + size[-1] + _APART, -1)
            index[np.repeat(place, size) + within] = np.repeat(rows, size) + within
        single = width >= CHUNK // 8
        dtype, width = (np.float32, width) if single else (np.float64, CHUNK)
        return cls(values, time, lengths, labels, dtype, width, rows, size, place, place + size, spans, index)

    def fill(self, start: int, stop: int, centre: np.ndarray) -> np.ndarray:
        """The columns of these places, centred, with a row of ones below; zeros where there is no record."""
        S = len(centre)
        if self.index is not None:
            rows = self.index[start:stop]
            z: np.ndarray = np.empty((S + 1, stop - start), self.dtype)
            z[S] = rows >= 0
            self._centred(np.take(self.values.T, rows, axis=1, mode="clip"), centre, z[:S])
            z[:S] *= z[S]
            return z
        z = np.zeros((S + 1, stop - start), self.dtype)
        for row, at, m in self._stretches(start, stop):
            self._centred(self.values[row : row + m].T, centre, z[:S, at : at + m])
            z[S, at : at + m] = 1
        return z

    def _centred(self, values: np.ndarray, centre: np.ndarray, out: np.ndarray) -> None:
        if self.dtype is np.float32 and np.abs(centre).max(initial=0) < _SINGLE / 2:
            # The values are exact in single precision too, and nothing has to be converted twice.
            out[:] = values
            out -= centre.astype(np.float32)[:, None]
        else:
            np.subtract(values, centre[:, None], out=out, casting="unsafe")

    def add_by_step(self, z: np.ndarray, start: int, stop: int, total: np.ndarray) -> None:
        """Add each record of these places to its step."""
        if self.index is None:
            for row, at, m in self._stretches(start, stop):
                step = int(self.time[row])
                total[:, step : step + m] += z[:, at : at + m]
            return
        rows = self.index[start:stop]
        where = np.flatnonzero(rows >= 0)
        when, steps = self.time[rows[where]], total.shape[1]
        if steps <= FEW_STEPS:
            chosen = np.zeros((stop - start, steps), z.dtype)
            chosen[where, when] = 1
            total += z[:, : stop - start] @ chosen
        else:
            for j, row in enumerate(z[:, where]):
                total[j] += np.bincount(when, row, steps)

    def last(self, start: int, stop: int) -> np.ndarray:
        """The columns of records without one at the next step."""
        a, b = np.searchsorted(self.end, (start, stop), "right")
        return self.end[a:b] - 1 - start

    def _stretches(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """(row, column, length) of the stretches that lie at these places."""
        a = int(np.searchsorted(self.end, start, "right"))
        b = int(np.searchsorted(self.place, stop))
        for i in range(a, b):
            place, size = int(self.place[i]), int(self.size[i])
            low, high = max(place, start), min(place + size, stop)
            yield int(self.rows[i]) + low - place, low - start, high - low


def _reach(values: np.ndarray, centre: np.ndarray) -> float:
    """The largest distance of any value from the centre."""
    return float(np.maximum(centre - values.min(0), values.max(0) - centre).max())


def _means(sums: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """The means [n, S] of rows [n, S + 1] of sums about a centre and of numbers; the centre for none."""
    found = sums[:, :-1] / np.maximum(sums[:, -1:], 1.0)
    found += centre
    return np.asarray(found)


def _co_moment(sums: np.ndarray, centre: np.ndarray) -> CoMoment:
    """From the products of rows that end in a one."""
    pairs = round(float(sums[-1, -1]))
    return CoMoment.about(centre, pairs, float(pairs), sums[:-1, -1], sums[-1, :-1], sums[:-1, :-1])
