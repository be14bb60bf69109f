"""Tracks: what realizations must remember so that their records may come in any order, each counted once.

A record is named by one integer, its place on a line on which the realizations' steps are laid end to end with
a margin in between. Covered steps are intervals of that line; neighbours are one or two places apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.sums import storage

#: Free places between realizations, so that no record is the neighbour of another realization's.
_MARGIN = 4
_LIMIT = 2**62
#: Places for each record, up to which records are ordered by writing them into a table of all places.
_SPARSE = 8


class Taken(NamedTuple):
    """What `Tracks.take` made of a block of records.

    The rows to be summed, sorted by (key, time): new records with the open records that are their neighbours,
    whose `settled` is 1 (None: all rows are new). `firsts` are the rows at which a realization is met for the
    first time. `repeated` are the positions, in the given arrays, of records that were dropped because their
    step is covered, and `conflicting` those of them that are known to differ from the record that was kept.
    """

    key: np.ndarray
    time: np.ndarray
    values: np.ndarray
    weight: np.ndarray | None
    settled: np.ndarray | None
    firsts: np.ndarray
    repeated: np.ndarray
    conflicting: np.ndarray


class Between(NamedTuple):
    """The open records of two merged tracks, sorted, `settled` being 1 for those of the one and 2 for those of
    the other; the realizations that both have, and for each step that both hold its realization."""

    key: np.ndarray
    time: np.ndarray
    values: np.ndarray
    weight: np.ndarray
    settled: np.ndarray
    shared: np.ndarray
    overlaps: np.ndarray


@dataclass(frozen=True)
class TimeLine:
    """Places of (key, time) on one line."""

    start: int
    width: int

    @classmethod
    def over(cls, *records: tuple[np.ndarray, np.ndarray]) -> TimeLine:
        """A line on which all these (key, time) have places of their own."""
        filled = [(key, time) for key, time in records if len(time)]
        if not filled:
            return cls(0, 1 + _MARGIN)
        start = min(int(time.min()) for _, time in filled)
        stop = max(int(time.max()) for _, time in filled)
        width = stop - start + 1 + _MARGIN
        keys = max(int(key.max()) for key, _ in filled) + 1
        if keys * width >= _LIMIT:
            raise InputError(
                f"times run from step {start} to step {stop}, too far to be steps of one process; "
                "check the time column and its step"
            )
        return cls(start, width)

    def places(self, key: np.ndarray, time: np.ndarray) -> np.ndarray:
        return np.asarray(key * self.width + (time - self.start), np.int64)

    def key(self, place: np.ndarray) -> np.ndarray:
        return np.asarray(place // self.width)

    def time(self, place: np.ndarray) -> np.ndarray:
        return np.asarray(place % self.width + self.start)


@dataclass
class Tracks:
    """Covered steps as intervals (key, start, stop), and the open records (key, time, values, weight).

    A record within two steps of an uncovered step is open: it may still find a neighbour. All others are
    forgotten, so memory is O(S x gaps): a realization whose records come in order costs four rows.

    >>> tracks = Tracks.empty(2)
    >>> taken = tracks.take(np.array([0, 0]), np.array([0, 2]), np.array([[3.0, 1], [1, 3]]))
    >>> len(taken.time), tracks.stop.tolist()
    (2, [0, 2])
    >>> again = tracks.take(np.array([0, 0]), np.array([1, 2]), np.array([[2.0, 2], [9, 3]]))
    >>> again.settled.tolist(), again.repeated.tolist(), again.conflicting.tolist()
    ([1, 0, 1], [1], [1])
    """

    states: int
    key: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    open_key: np.ndarray
    open_time: np.ndarray
    open_values: np.ndarray
    open_weight: np.ndarray

    @classmethod
    def empty(cls, S: int) -> Tracks:
        none = np.zeros(0, np.int64)
        return cls(S, none, none, none, none, none, np.zeros((0, S)), np.zeros(0))

    def take(
        self, key: np.ndarray, time: np.ndarray, values: np.ndarray, weight: np.ndarray | None = None
    ) -> Taken:
        """Take records in any order: key [n] small integers, time [n], values [n, S], weight [n].

        Of records with the same key and time the first is kept, within a block and between blocks.
        """
        line = TimeLine.over((key, time), (self.key, self.start), (self.key, self.stop))
        place = line.places(key, time)
        starts, stops = line.places(self.key, self.start), line.places(self.key, self.stop)
        opened = line.places(self.open_key, self.open_time)
        order, repeated = _first_of_each(place, int(key.max(initial=-1) + 1) * line.width)
        covered = _inside(place[order] if order is not None else place, starts, stops)
        if covered.any():
            order = np.arange(len(place)) if order is None else order
            repeated = np.sort(np.concatenate([repeated, order[covered]]))
            order = order[~covered]
        conflicting = self._conflicts(place, values, order, repeated, opened)
        if order is not None:
            place, values, weight = place[order], values[order], None if weight is None else weight[order]
        known = np.unique(self.key)
        near = _near(opened, place)
        taken = self._rows(line, place, values, weight, opened, near)
        heads = np.flatnonzero(np.diff(line.key(place), prepend=-1))
        unknown = heads[~np.isin(line.key(place[heads]), known)] if len(known) else heads
        rows = unknown if taken.settled is None else np.flatnonzero(taken.settled == 0)[unknown]
        self._cover(line, place, starts, stops)
        self._open(line, opened, place, values, weight)
        return taken._replace(firsts=rows, repeated=repeated, conflicting=conflicting)

    def _conflicts(
        self,
        place: np.ndarray,
        values: np.ndarray,
        order: np.ndarray | None,
        dropped: np.ndarray,
        opened: np.ndarray,
    ) -> np.ndarray:
        """Dropped records whose values differ from the kept one, as far as that is remembered."""
        if not len(dropped):
            return dropped
        kept = np.arange(len(place)) if order is None else order
        differs = np.zeros(len(dropped), bool)
        for known, at_rows, rows in ((place[kept], kept, values), (opened, None, self.open_values)):
            if len(known):
                at = np.minimum(np.searchsorted(known, place[dropped]), len(known) - 1)
                met = known[at] == place[dropped]
                there = at[met] if at_rows is None else at_rows[at[met]]
                differs[met] |= (rows[there] != values[dropped[met]]).any(1)
        return np.asarray(dropped[differs])

    def _rows(
        self,
        line: TimeLine,
        place: np.ndarray,
        values: np.ndarray,
        weight: np.ndarray | None,
        opened: np.ndarray,
        near: np.ndarray,
    ) -> Taken:
        """New records, and the open records near them, in order."""
        none = np.zeros(0, np.int64)
        settled = None
        if near.any():
            everywhere = np.concatenate([place, opened[near]])
            order = np.argsort(everywhere, kind="stable")
            settled = (order >= len(place)).astype(np.int8)
            place = everywhere[order]
            values = np.concatenate([values, self.open_values[near]])[order]
            if weight is not None:
                weight = np.concatenate([weight, self.open_weight[near]])[order]
        return Taken(line.key(place), line.time(place), values, weight, settled, none, none, none)

    def _cover(self, line: TimeLine, place: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:
        breaks = np.flatnonzero(np.diff(place) != 1)
        heads = place[np.concatenate([[0], breaks + 1])] if len(place) else place
        tails = place[np.concatenate([breaks, [len(place) - 1]])] if len(place) else place
        if len(starts):
            heads, tails = _union(np.concatenate([starts, heads]), np.concatenate([stops, tails]))
        self.key, self.start, self.stop = line.key(heads), line.time(heads), line.time(tails)

    def _open(
        self,
        line: TimeLine,
        opened: np.ndarray,
        place: np.ndarray,
        values: np.ndarray,
        weight: np.ndarray | None,
    ) -> None:
        starts, stops = line.places(self.key, self.start), line.places(self.key, self.stop)
        old, new = np.flatnonzero(_is_open(opened, starts, stops)), _is_open(place, starts, stops)
        weights = np.ones(len(place)) if weight is None else weight
        if not new.all():
            place, values, weights = place[new], values[new], weights[new]
        if len(old):
            place = np.concatenate([opened[old], place])
            order = np.argsort(place, kind="stable")
            place = place[order]
            values = np.concatenate([self.open_values[old], values])[order]
            weights = np.concatenate([self.open_weight[old], weights])[order]
        self.open_key, self.open_time = line.key(place), line.time(place)
        self.open_values, self.open_weight = values, weights

    def merge(self, other: Tracks) -> Between:
        """Take over other tracks of the same keys; the open records between which pairs are to be formed.

        Steps that both cover were summed twice before they met; that cannot be undone.
        """
        line = TimeLine.over((self.key, self.start), (self.key, self.stop), (other.key, other.start),
                         (other.key, other.stop))  # fmt: skip
        mine = line.places(self.key, self.start), line.places(self.key, self.stop)
        theirs = line.places(other.key, other.start), line.places(other.key, other.stop)
        a = line.places(self.open_key, self.open_time)
        b = line.places(other.open_key, other.open_time)
        lone_a, lone_b = ~_inside(a, *theirs), ~_inside(b, *mine)
        everywhere = np.concatenate([a[lone_a], b[lone_b]])
        order = np.argsort(everywhere, kind="stable")
        values = np.concatenate([self.open_values[lone_a], other.open_values[lone_b]])[order]
        weight = np.concatenate([self.open_weight[lone_a], other.open_weight[lone_b]])[order]
        settled = np.where(order < lone_a.sum(), 1, 2)
        place = everywhere[order]
        starts, stops = _union(np.concatenate([mine[0], theirs[0]]), np.concatenate([mine[1], theirs[1]]))
        shared = np.intersect1d(self.key, other.key)
        steps = self._steps(shared) + other._steps(shared)
        self.key, self.start, self.stop = line.key(starts), line.time(starts), line.time(stops)
        self._open(line, a, b[lone_b], other.open_values[lone_b], other.open_weight[lone_b])
        overlaps = np.repeat(shared, steps - self._steps(shared))
        return Between(line.key(place), line.time(place), values, weight, settled, shared, overlaps)

    def _steps(self, keys: np.ndarray) -> np.ndarray:
        """How many steps each of these realizations has."""
        found = np.bincount(self.key, self.stop - self.start + 1, minlength=int(keys.max(initial=0)) + 1)
        return np.asarray(found[keys], np.int64)

    def renumbered(self, keys: np.ndarray) -> Tracks:
        """The tracks of the realizations with keys[k] >= 0, under those keys."""
        part, rows = keys[self.key] >= 0, keys[self.open_key] >= 0
        new, opened = keys[self.key[part]], keys[self.open_key[rows]]
        by = np.lexsort((self.start[part], new))
        row = np.lexsort((self.open_time[rows], opened))
        return Tracks(
            self.states,
            new[by],
            self.start[part][by],
            self.stop[part][by],
            opened[row],
            self.open_time[rows][row],
            self.open_values[rows][row],
            self.open_weight[rows][row],
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {
            "covered": np.column_stack([self.key, self.start, self.stop]).astype(np.int64),
            "open": np.column_stack([self.open_key, self.open_time]).astype(np.int64),
            "open_values": self.open_values.astype(np.float64),
            "open_weight": self.open_weight,
        }

    @classmethod
    def from_arrays(cls, S: int, arrays: dict[str, np.ndarray]) -> Tracks:
        """The inverse of `to_arrays`; an `InputError` if they are not what tracks can be."""
        key, start, stop = storage.array(arrays, "covered", "i", None, 3).T
        open_key, open_time = storage.array(arrays, "open", "i", None, 2).T
        n = len(open_key)
        values = storage.array(arrays, "open_values", "f", n, S)
        weight = storage.array(arrays, "open_weight", "f", n)
        found = cls(S, key, start, stop, open_key, open_time, values, weight)
        found._check()
        return found

    def _check(self) -> None:
        """Intervals in order and apart, and every open record in one of them."""
        if (self.key < 0).any() or (self.start > self.stop).any() or (self.open_weight <= 0).any():
            raise InputError("its covered steps are not those of any data")
        line = TimeLine.over((self.key, self.start), (self.key, self.stop), (self.open_key, self.open_time))
        starts, stops = line.places(self.key, self.start), line.places(self.key, self.stop)
        opened = line.places(self.open_key, self.open_time)
        apart = (starts[1:] > stops[:-1] + 1).all() and (np.diff(opened) > 0).all()
        if not (apart and _inside(opened, starts, stops).all()):
            raise InputError("its covered steps are not those of any data")


def _first_of_each(place: np.ndarray, places: int) -> tuple[np.ndarray | None, np.ndarray]:
    """The rows in order of place, the first of each; None if all are in order. And the other rows."""
    n, none = len(place), np.zeros(0, np.int64)
    if not np.any(np.diff(place) <= 0):
        return None, none
    if places <= _SPARSE * n:
        table = np.full(places, -1, np.int32 if n < 1 << 31 else np.int64)
        # Written backwards, so that of equal ones the first stays.
        table[place[::-1]] = np.arange(n - 1, -1, -1, dtype=table.dtype)
        order = np.asarray(table[np.greater_equal(table, 0)], np.int64)
    else:
        by = np.argsort(place, kind="stable")
        order = by[np.concatenate([[True], np.diff(place[by]) > 0])]
    if len(order) == n:
        return order, none
    kept = np.zeros(n, bool)
    kept[order] = True
    return order, np.flatnonzero(~kept)


def _near(opened: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Which open places have one of the sorted places within two steps."""
    near = np.zeros(len(opened), bool)
    if len(opened) and len(place):
        at = np.searchsorted(place, opened)
        for by in (at - 1, at):
            inside = np.clip(by, 0, len(place) - 1)
            near |= np.abs(place[inside] - opened) <= 2
    return near


def _inside(place: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Whether each place lies in one of the sorted intervals."""
    if not len(starts):
        return np.zeros(len(place), bool)
    at = np.searchsorted(starts, place, "right") - 1
    return np.asarray((at >= 0) & (place <= stops[np.maximum(at, 0)]))


def _is_open(place: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Whether a covered place has an uncovered one within two steps; places are sorted."""
    if not len(place):
        return np.zeros(0, bool)
    at = np.searchsorted(starts, place, "right") - 1
    return np.asarray((place - starts[at] < 2) | (stops[at] - place < 2))


def _union(starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Intervals in any order, joined wherever they meet or touch."""
    if not len(starts):
        return starts, stops
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(stops[order])
    head = np.concatenate([[True], starts[1:] > reach[:-1] + 1])
    ends = np.concatenate([np.flatnonzero(head)[1:] - 1, [len(starts) - 1]])
    return starts[head], reach[ends]
