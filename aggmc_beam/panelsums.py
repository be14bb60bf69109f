"""Sums of realizations that come whole, in any order of their records: the fast road to the same sums.

Where realizations are laid on a line, with rows of zeros between them, the pairs at any lag are one matrix
product of the line with itself, shifted. Counts are centred at whole numbers, so that sums of whole numbers
are exact, whatever the order, the blocks and the threads; where they are small, products in single precision
are exact too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from threading import local
from typing import Any, NamedTuple

import numpy as np

from aggmc_beam.digest import Digest
from aggmc_beam.lagged import DOUBLE, fold_of, folded, gram, products
from aggmc_beam.moments import CoMoment, Counts, Moments
from aggmc_beam.panel import APART, Label, Line, Lone, Panel, compact
from aggmc_beam.profile import SHIFT, Profile, end_at, scattered
from aggmc_beam.tracks import Tracks

#: Values that are multiplied at once, if realizations are not longer: what stays in a core's cache.
BLOCK = 1 << 19
#: Fewer rows than these are not worth single precision.
FEW = 64
#: Sums by step that are kept apart at most, until they are added up.
POOL = 32
#: With fewer values, threads are not worth their while: they wait for each other's short steps.
MANY = 1 << 16
#: Where the neighbours are that make a record the left or right end of a pair at lag 1, and at lag 2.
_NEIGHBOURS = (1, -1, 2, -2)

#: What `map` does, and a thread pool's.
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@dataclass
class PanelSums:
    """Sums for each of `labels` replicates, over the steps start .. start + steps - 1.

    `map` may run its calls at once, as that of a thread pool does.

    >>> sums = PanelSums(states=2, labels=1, start=0, steps=3)
    >>> sums.add(np.array([0, 0, 0]), np.array([1, 0, 2]), np.eye(3, 2), lambda k: 0 * k)
    True
    >>> sums.digest.total.records, sums.digest.total.pairs, sums.tracks.stop.tolist()
    (3, 2, [2])
    """

    states: int
    labels: int
    start: int
    steps: int
    map: Map = map
    last: int = -1
    """The highest key so far."""

    def __post_init__(self) -> None:
        self._by_step = np.zeros((self.labels, self.steps, self.states + 1))
        self._replicates = [_Replicate(self.states, by_step) for by_step in self._by_step]
        self._tracks = [Tracks.empty(self.states)]
        self._latest: tuple[Panel, np.ndarray] | None = None
        self._spaces = _Spaces(self.states)

    def add(self, key: np.ndarray, time: np.ndarray, values: np.ndarray, label_of: Label) -> bool:
        """Take records [n] of realizations with higher keys than all before, or do nothing and return False
        if some are repeated, have too many gaps, or lie outside of the steps. `label_of` gives the labels of
        keys. Values [n, S] must not change afterwards."""
        low, high = int(time.min()), int(time.max())
        if key.min() <= self.last or low < self.start or high >= self.start + self.steps:
            return False
        panel = Panel.of(key, time - self.start if self.start else time, label_of)
        if panel is None:
            return False
        over = self.map if values.size >= MANY else map
        values = values if panel.is_long else compact(values, over)

        def take(span: tuple[int, int, int]) -> None:
            label, a, b = span
            replicate = self._replicates[label]
            replicate.met += b - a
            for block in panel.blocks(a, b, BLOCK // self.states):
                replicate.add(Line(panel, values, *block, fold_of(self.states)), self._spaces)

        for _ in over(take, panel.spans):
            pass
        self.last = int(key.max())
        self._remember()
        self._latest = panel, values
        return True

    @property
    def digest(self) -> Digest:
        """All sums."""
        used = [(g, r) for g, r in enumerate(self._replicates) if r.met]

        def made(item: tuple[int, _Replicate]) -> tuple[int, Moments, Profile]:
            label, replicate = item
            return label, replicate.moments, replicate.profile(self.start)

        over = self.map if self.steps * self.states >= MANY else map
        found = list(over(made, used))
        return Digest(self.states, {(0, g): m for g, m, _ in found}, {g: p for g, _, p in found})

    @property
    def tracks(self) -> Tracks:
        """The tracks of all realizations. Those of the latest records are made only now, as few ask for
        them."""
        self._remember()
        return _joined(self._tracks)

    @property
    def open_values(self) -> int:
        """At most how many values tracks hold of records that later ones could pair with."""
        waiting = 0 if self._latest is None else 2 * APART * len(self._latest[0].key) * self.states
        return waiting + sum(tracks.open_values.size for tracks in self._tracks)

    def _remember(self) -> None:
        if self._latest is not None:
            self._tracks.append(_tracks(*self._latest, self.start))
            self._latest = None


class _Sums(NamedTuple):
    """Sums about a centre: `lags` as `products` finds them; `last` [S, S], the products of records without a
    next one with themselves; `ends` [5, S + 1], sums of all records and of those that are left and right ends
    of pairs at lag 1 and lag 2, with their numbers."""

    lags: list[np.ndarray]
    last: np.ndarray
    ends: np.ndarray

    def moments(self, centre: np.ndarray) -> Moments:
        zero, one, two = folded(self.lags, fold_of(len(centre)))
        records, left1, right1, left2, right2 = self.ends
        left = zero - self.last
        kinds = (records, records, zero), (left1, right1, one), (left2, right2, two), (left1, left1, left)
        lag0, lag1, lag2, ends = (
            CoMoment.about(centre, round(float(x[-1])), float(x[-1]), x[:-1], y[:-1], product)
            for x, y, product in kinds
        )
        return Moments(lag0, lag1, lag2, ends, Counts(), float(lag0.pairs))


class _Steps(NamedTuple):
    """Sums [m, S] and numbers [m] of records by step, and of those without each kind of neighbour."""

    sums: np.ndarray
    number: np.ndarray
    lone: list[Lone]


@dataclass
class _Replicate:
    """Sums of one replicate: those of whole numbers about its `centre`, and the moments of what is better
    summed about another one; and sums `by_step` [steps, S + 1], the last column being numbers."""

    states: int
    by_step: np.ndarray
    met: int = 0
    centre: np.ndarray | None = None
    sums: _Sums | None = None
    rows: int = 1 << 20
    """How many rows may be summed at once in single precision, as far as is known."""

    def __post_init__(self) -> None:
        self.others = Moments.zero(self.states)
        self.lone: tuple[list[Lone], ...] = ([], [], [], [])

    def add(self, line: Line, spaces: _Spaces) -> None:
        """Add the records of a line."""
        if self.centre is None:
            self.centre = line.centre()
        if self._add_whole(line, spaces):
            return
        # About a centre of its own, as sums about that of the others would cost digits.
        centre = line.centre()
        found = self._sum(line, line.fill(centre, spaces.of(line, np.float64)))
        assert found is not None
        self.others += found[0].moments(centre)
        self._add_steps(line, found[1], centre)

    def _add_whole(self, line: Line, spaces: _Spaces) -> bool:
        """Add whole numbers, in single precision where it is exact; or return False if no precision is."""
        assert self.centre is not None
        is_whole = line.values.dtype.kind in "iu"
        found = self._sum_in_single(line, spaces) if is_whole else None
        if found is None:
            z = line.fill(self.centre, spaces.of(line, np.float64))
            found = self._sum(line, z) if is_whole or (np.rint(z) == z).all() else None
            if found is None:
                return False
        sums, steps = found
        if self.sums is not None:
            for mine, more in zip(self.sums.lags, sums.lags, strict=True):
                more += mine
            sums = _Sums(sums.lags, sums.last + self.sums.last, sums.ends + self.sums.ends)
        if not sums.lags[0].diagonal().max() < DOUBLE:
            return False
        self.sums = sums
        self._add_steps(line, steps, self.centre)
        return True

    def _sum_in_single(self, line: Line, spaces: _Spaces) -> tuple[_Sums, _Steps] | None:
        """The sums about the centre, if single precision is exact for at least a few rows at once."""
        assert self.centre is not None
        if self.rows < FEW:
            return None
        z = line.fill(self.centre, spaces.of(line, np.float32))
        found = self._sum(line, z)
        while found is None and self.rows >= 4 * FEW:
            self.rows = min(self.rows, len(z)) // 4
            found = self._sum(line, z)
        if found is None:
            self.rows = 0
        return found

    def _sum(self, line: Line, z: np.ndarray) -> tuple[_Sums, _Steps] | None:
        """The sums of a line that is filled; None if single precision may not be exact."""
        rows = self.rows if z.dtype == np.float32 else len(z)
        lags, last = products(z, line.fold, rows), gram(line.last(z), rows)
        if lags is None or last is None:
            return None
        sums, number = line.by_step(z)
        lone = [line.lone(z, sums, number, distance) for distance in _NEIGHBOURS]
        total = np.append(sums.sum(0, dtype=np.float64), number.sum())
        ends = total - np.stack([np.zeros(self.states + 1), *(found.sums.sum(0) for found in lone)])
        return _Sums(lags, last, ends), _Steps(sums, number, lone)

    def _add_steps(self, line: Line, steps: _Steps, centre: np.ndarray) -> None:
        """Add each record to its step."""
        assert self.centre is not None
        S, (sums, number, lone) = self.states, steps
        if centre is not self.centre:
            away = np.append(centre - self.centre, 0.0)
            sums = sums + number[:, None] * away[:-1]
            lone = [Lone(step, found + found[:, -1:] * away) for step, found in lone]
        by_step = self.by_step[line.first : line.first + len(number)]
        by_step[:, :S] += sums
        by_step[:, S] += number
        for known, (step, found) in zip(self.lone, lone, strict=True):
            if known and np.array_equal(known[-1].step, step + line.first):
                known[-1].sums[:] += found
            else:
                known.append(Lone(step + line.first, found))
            if len(known) > POOL:
                known[:] = [_pooled(known)]

    @property
    def moments(self) -> Moments:
        assert self.centre is not None
        total = self.others if self.sums is None else self.sums.moments(self.centre) + self.others
        return replace(total, counts=Counts(realizations=self.met))

    def profile(self, start: int) -> Profile:
        """The mean counts of records by step, and of the ends of pairs: all, less those without a
        partner."""
        assert self.centre is not None
        whole, steps = self.by_step, len(self.by_step)
        means, there = _means(whole, self.centre), whole[:, -1] > 0
        row = np.cumsum(there) - 1
        number = np.zeros((steps, 5))
        number[:, 0] = whole[:, -1]
        odd, ends = [np.zeros(0, np.int64)], [np.zeros((0, self.states))]
        # Ends of pairs are at the step of the pair's left end.
        for kind, shift in enumerate(SHIFT.tolist(), 1):
            number[: steps - shift, kind] = whole[shift:, -1]
            at, sums = _pooled(self.lone[kind - 1])
            at, sums = at[at >= shift], sums[at >= shift]
            rest = whole[at] - sums
            number[at - shift, kind] = rest[:, -1]
            some = rest[:, -1] > 0
            odd.append(end_at(row[at[some] - shift], kind))
            ends.append(_means(rest[some], self.centre))
        places = np.concatenate(odd)
        order = np.argsort(places)
        bins, counted = np.flatnonzero(there), np.rint(number[:, [0, 1, 3]])
        if len(bins) < steps:
            counted, means = counted[bins], means[bins]
        whole_numbers = counted.astype(np.int64)
        ordered = np.concatenate(ends)[order]
        return Profile(1, bins + start, whole_numbers, counted, means, places[order], ordered)


class _Spaces(local):
    """Space to work in, for each thread: memory that was used before is much faster than new one."""

    def __init__(self, states: int) -> None:
        self.states = states
        self.held: dict[Any, np.ndarray] = {}

    def of(self, line: Line, dtype: Any) -> np.ndarray:
        """At least as many rows [m, S] as the line needs."""
        need = line.length + line.fold
        found = self.held.get(dtype)
        if found is None or len(found) < need:
            found = self.held[dtype] = np.zeros(
                (max(need, BLOCK // self.states + line.fold), self.states), dtype
            )
        return found


def _pooled(parts: list[Lone]) -> Lone:
    """With each step once, in order."""
    if len(parts) == 1:
        return parts[0]
    step, sums = np.concatenate([p.step for p in parts]), np.concatenate([p.sums for p in parts])
    at, place = np.unique(step, return_inverse=True)
    return Lone(at, scattered(place, sums, len(at)))


def _means(sums: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """The means [..., S] of sums [..., S + 1] about a centre, the last being numbers; the centre for none."""
    found = sums[..., :-1] / np.maximum(sums[..., -1:], 1.0)
    found += centre
    return np.asarray(found)


def _tracks(panel: Panel, values: np.ndarray, start: int) -> Tracks:
    """Covered intervals, and the records near an uncovered step."""
    rows, steps = panel.rows(), panel.steps() + start
    there = np.zeros(len(rows) + 2 * APART, bool)
    there[APART:-APART] = rows >= 0
    here, after, before, second, other = (there[APART + d : APART + d + len(rows)] for d in (0, *_NEIGHBOURS))
    heads, tails = np.flatnonzero(here & ~before), np.flatnonzero(here & ~after)
    opened = np.flatnonzero(here & ~(after & before & second & other))
    # By key; the line is by label.
    key, open_key = panel.keys(heads), panel.keys(opened)
    by, order = np.argsort(key, kind="stable"), np.argsort(open_key, kind="stable")
    opened = opened[order]
    return Tracks(
        values.shape[1],
        key[by],
        steps[heads[by]],
        steps[tails[by]],
        open_key[order],
        steps[opened],
        np.asarray(values[rows[opened]], np.float64, "C"),
        np.ones(len(opened)),
    )


def _joined(parts: list[Tracks]) -> Tracks:
    """Tracks of parts that share no realization, in the order of their keys."""
    names = ("key", "start", "stop", "open_key", "open_time", "open_values", "open_weight")
    return Tracks(parts[0].states, *(np.concatenate([getattr(p, n) for p in parts]) for n in names))
