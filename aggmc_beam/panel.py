"""A panel: whole realizations laid end to end on a line, so that neighbours need not be looked up.

There is a place for each step, with empty places between realizations and where steps are missing. Records
may come in any order; repeated ones, and those that lie too far apart, are left to `Tracks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from aggmc_beam.stretches import Steps, limits_of

#: Empty places after each realization: no pair at lag 2 reaches from one to the next.
APART = 2
#: Stretches of a column that are long enough to be copied one by one.
LONG = 256
#: Places for each record, beyond which a panel is not worth its while.
SPARSE = 8
#: Places for each record, up to which records that come in another order are written to their places.
FULL = 2

Label = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Panel:
    """R realizations, ordered by label. `place` [R + 1] is where each begins and where the last one ends,
    `first` [R] its first step.

    `row` [P] tells the record at each place, or -1. Instead, if every realization has all steps and its
    records follow each other, `head` [R] is the first of them.
    """

    key: np.ndarray
    label: np.ndarray
    place: np.ndarray
    first: np.ndarray
    width: int
    """How many places each realization has, if all have the same number and the same first step; else 0."""
    row: np.ndarray | None = None
    head: np.ndarray | None = None
    spot: np.ndarray | None = None
    """If records are to be written to their places first: where each goes, or the first of as many records
    as there are for each. Then `row` and `head` tell what is so once that is done."""

    @classmethod
    def of(cls, key: np.ndarray, time: np.ndarray, label_of: Label, heads: np.ndarray | None) -> Panel | None:
        """Of the records' realizations and steps [n]; None if records are repeated or lie too far apart.
        `heads` tells where stretches of equal keys begin, if there are such."""
        runs = None if heads is None else _Runs.of(key, heads)
        if runs is None:
            return cls._of_scattered(key, time, label_of)
        steps = len(key) // len(runs.key)
        spans = Steps.of(time, runs.head)
        first, last = spans.first, spans.last
        are_full = (runs.length == steps) & (first == time[0]) & (last - first == steps - 1)
        if not spans.back and not spans.level and are_full.all():
            order, panel = cls._over(runs.key, np.full_like(runs.head, time[0]), runs.length, label_of)
            return replace(panel, head=runs.head[order])
        low, most = int(first.min()), int(last.max() - first.min()) + 1
        length = last - first + 1
        if most * len(length) <= 1.25 * length.sum():
            first, length = np.full_like(first, low), np.full_like(length, most)
        if length.sum() > SPARSE * len(time):
            return None
        order, panel = cls._over(runs.key, first, length, label_of)
        start = np.empty_like(first)
        start[order] = panel.place[:-1] - panel.first
        return panel._with_records(np.repeat(start, runs.length) + time)

    @classmethod
    def _of_scattered(cls, key: np.ndarray, time: np.ndarray, label_of: Label) -> Panel | None:
        """Where the records of a realization do not follow each other."""
        (base, highest), (low, last) = limits_of(key), limits_of(time)
        steps = last - low + 1
        number = key - base if base else key
        met = np.zeros(highest - base + 1, bool)
        met[number] = True
        keys = np.flatnonzero(met) + base
        if steps * len(keys) > SPARSE * len(key):
            by = np.lexsort((time, key))
            panel = cls.of(key[by], time[by], label_of, np.flatnonzero(np.diff(key[by], prepend=base - 1)))
            return None if panel is None else replace(panel, row=np.append(by, -1)[panel.rows()], head=None)
        _, panel = cls._over(keys, np.full_like(keys, low), np.full_like(keys, steps), label_of)
        start = np.zeros(int(keys[-1]) - base + 1, np.int64)
        start[panel.key - base] = panel.place[:-1] - low
        return panel._with_scattered(start[number] + time)

    @classmethod
    def _over(
        cls, key: np.ndarray, first: np.ndarray, steps: np.ndarray, label_of: Label
    ) -> tuple[np.ndarray, Panel]:
        """An empty panel of realizations with these steps, and their order on the line."""
        label = label_of(key)
        order = np.lexsort((key, label))
        equal = bool((steps == steps[0]).all() and (first == first[0]).all())
        place = np.concatenate([[0], np.cumsum(steps[order] + APART)])
        width = int(steps[0]) + APART if equal else 0
        return order, cls(key[order], label[order], place, first[order], width)

    def _with_records(self, at: np.ndarray) -> Panel | None:
        """With records at these places, or None if two have the same."""
        number = _numbers(len(at))
        row: np.ndarray = np.full_like(number, -1, shape=self.places)
        row[at] = number
        return replace(self, row=row) if np.count_nonzero(row >= 0) == len(at) else None

    def _with_scattered(self, at: np.ndarray) -> Panel | None:
        """The same of records in any order."""
        if self.places > FULL * len(at):
            return self._with_records(at)
        there = np.zeros(self.places, bool)
        there[at] = True
        if np.count_nonzero(there) < len(at):
            return None
        if len(at) == len(self.key) * (self.width - APART):
            return replace(self, head=self.place[:-1], spot=at)
        return replace(self, row=np.where(there, _numbers(self.places), -1), spot=at)

    def dealt(self) -> Panel:
        """The same with realizations, none of whose records are missing, to be written to their places."""
        assert self.head is not None
        return replace(self, head=self.place[:-1], spot=self.place[np.argsort(self.head)])

    @property
    def places(self) -> int:
        return int(self.place[-1])

    @cached_property
    def is_full(self) -> bool:
        """Whether every realization has a record at each of the same steps."""
        if self.row is None:
            return True
        return self.width > 0 and np.count_nonzero(self.row >= 0) == len(self.key) * (self.width - APART)

    def copies(self, values: np.ndarray) -> bool:
        """Whether records are copied in long stretches as they lie in memory, not picked out one by one."""
        return self.head is not None and (values.flags.c_contiguous or self.width - APART >= LONG)

    @property
    def spans(self) -> list[tuple[int, int, int]]:
        """(label, a, b) for each label: the realizations a ... b - 1 have it."""
        cuts = np.concatenate([[0], np.flatnonzero(np.diff(self.label)) + 1, [len(self.label)]]).tolist()
        return [(int(self.label[a]), a, b) for a, b in pairwise(cuts)]

    def blocks(self, a: int, b: int, places: int) -> Iterator[tuple[int, int]]:
        """Realizations a ... b - 1, at least one at a time and as many as have so many places."""
        while a < b:
            stop = int(np.searchsorted(self.place, self.place[a] + places, "right")) - 1
            stop = min(max(stop, a + 1), b)
            yield a, stop
            a = stop

    def rows(self, a: int = 0, b: int | None = None) -> np.ndarray:
        """The records at the places of realizations a ... b - 1, -1 where there is none."""
        b = len(self.key) if b is None else b
        if self.row is not None:
            return self.row[self.place[a] : self.place[b]]
        assert self.head is not None
        found = self.head[a:b, None] + np.arange(self.width)
        found[:, -APART:] = -1
        return found.ravel()

    def steps(self, a: int = 0, b: int | None = None) -> np.ndarray:
        """The step of each place of these realizations."""
        b = len(self.key) if b is None else b
        away = np.repeat(self.first[a:b] - self.place[a:b], np.diff(self.place[a : b + 1]))
        return np.asarray(away + np.arange(self.place[a], self.place[b]))

    def at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The realizations that have these places, the steps of these, and their records."""
        which = np.searchsorted(self.place, places, "right") - 1
        away = places - self.place[which]
        record = self.row[places] if self.row is not None else away + np.asarray(self.head)[which]
        return self.key[which], self.first[which] + away, record

    def borders(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The places of records without one before, without one after, and near a step that has none."""
        if self.is_full:
            head, steps = self.place[:-1], self.width - APART
            away = sorted({*range(min(APART, steps)), *range(max(steps - APART, 0), steps)})
            return head, head + steps - 1, (head[:, None] + away).ravel()
        there = np.zeros(int(self.place[-1]) + 2 * APART, bool)
        there[APART:-APART] = self.rows() >= 0
        here, after, before, second, other = (
            there[APART + d : len(there) - APART + d] for d in (0, 1, -1, 2, -2)
        )
        near = np.flatnonzero(here & ~(after & before & second & other))
        return np.flatnonzero(here & ~before), np.flatnonzero(here & ~after), near


def _numbers(n: int) -> np.ndarray:
    """0 ... n - 1, in half of the bytes where that can be: they are met at random."""
    return np.arange(n, dtype=np.int32 if n < 1 << 31 else np.int64)


class _Runs(NamedTuple):
    """Stretches of records of one realization: its key, the first record, how many there are."""

    key: np.ndarray
    head: np.ndarray
    length: np.ndarray

    @classmethod
    def of(cls, key: np.ndarray, head: np.ndarray) -> _Runs | None:
        """The stretches of all realizations; None if one has several."""
        keys = key[head]
        base = int(keys.min())
        if len(keys) > int(keys.max()) - base + 1 or np.bincount(keys - base).max() > 1:
            return None
        return cls(keys, head, np.diff(head, append=len(key)))
