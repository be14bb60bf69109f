"""A panel: whole realizations laid end to end on a line, so that neighbours need not be looked up.

There is a place for each step, with empty places between realizations and where steps are missing. Records
may come in any order; repeated ones, and those that lie too far apart, are left to `Tracks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from aggmc_beam.lagged import SINGLE
from aggmc_beam.profile import scattered

#: Empty places after each realization: no pair at lag 2 reaches from one to the next.
APART = 2
#: Stretches of a column that are long enough to be copied one by one.
LONG = 256
#: Records of a realization whose mean becomes the centre of sums.
SAMPLE = 256
#: Values that are looked at and written while they are in a core's cache.
CACHED = 1 << 16
#: Places for each record, beyond which a panel is not worth its while.
SPARSE = 8

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

    @classmethod
    def of(cls, key: np.ndarray, time: np.ndarray, label_of: Label) -> Panel | None:
        """Of the records' realizations and steps [n]; None if records are repeated or lie too far apart."""
        runs = _Runs.of(key)
        if runs is None:
            return cls._of_scattered(key, time, label_of)
        steps = len(key) // len(runs.key)
        if runs.is_full(time, steps):
            order, panel = cls._over(runs.key, np.full_like(runs.head, time[0]), runs.length, label_of)
            return replace(panel, head=runs.head[order])
        first, last = np.minimum.reduceat(time, runs.head), np.maximum.reduceat(time, runs.head)
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
        base, low, steps = int(key.min()), int(time.min()), int(np.ptp(time)) + 1
        number = key - base if base else key
        met = np.zeros(int(number.max()) + 1, bool)
        met[number] = True
        keys = np.flatnonzero(met) + base
        if steps * len(keys) > SPARSE * len(key):
            by = np.lexsort((time, key))
            panel = cls.of(key[by], time[by], label_of)
            return None if panel is None else replace(panel, row=np.append(by, -1)[panel.rows()], head=None)
        _, panel = cls._over(keys, np.full_like(keys, low), np.full_like(keys, steps), label_of)
        start = np.zeros(int(keys[-1]) - base + 1, np.int64)
        start[panel.key - base] = panel.place[:-1] - low
        return panel._with_records(start[number] + time)

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
        # Half of the bytes where it can be: places are met at random.
        number = np.arange(len(at), dtype=np.int32 if len(at) < 1 << 31 else np.int64)
        row: np.ndarray = np.full_like(number, -1, shape=int(self.place[-1]))
        row[at] = number
        return replace(self, row=row) if np.count_nonzero(row >= 0) == len(at) else None

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


class _Runs(NamedTuple):
    """Stretches of records of one realization: its key, the first record, how many there are."""

    key: np.ndarray
    head: np.ndarray
    length: np.ndarray

    @classmethod
    def of(cls, key: np.ndarray) -> _Runs | None:
        """The stretches of all realizations; None if one has several."""
        base, changed = int(key.min()), key[1:] != key[:-1]
        if np.count_nonzero(changed) > int(key.max()) - base:
            return None
        head = np.concatenate([[0], np.flatnonzero(changed) + 1])
        if np.bincount(key[head] - base).max() > 1:
            return None
        return cls(key[head], head, np.diff(head, append=len(key)))

    def is_full(self, time: np.ndarray, steps: int) -> bool:
        """Whether all realizations have the same `steps`, in order."""
        if not (self.length == steps).all():
            return False
        return bool((time.reshape(-1, steps) == np.arange(time[0], time[0] + steps)).all())


class Lone(NamedTuple):
    """By step, sums [..., m, S] and numbers [m] of the records without a neighbour."""

    step: np.ndarray
    sums: np.ndarray
    number: np.ndarray


class Line:
    """The realizations a ... b - 1 of a panel, and the values [n, S] of its records.

    `fold` places are one row of a wide matrix, so lines are filled up to a multiple of it. Lines are alike if
    no record is missing and they have as many realizations. Of such, what one tells of z [lines, m, S] is
    told of each of them; else z must have been filled by this line alone."""

    def __init__(self, panel: Panel, values: np.ndarray, a: int, b: int, fold: int) -> None:
        self.panel, self.values, self.a, self.b, self.fold = panel, values, a, b, fold
        self.length = int(panel.place[b] - panel.place[a])
        self.first = int(panel.first[a] if panel.width else panel.first[a:b].min())

    @cached_property
    def rows(self) -> np.ndarray:
        return self.panel.rows(self.a, self.b)

    @cached_property
    def there(self) -> np.ndarray:
        """Whether there is a record at each place, with two empty places more at either end."""
        there = np.zeros(self.length + 2 * APART, bool)
        np.greater_equal(self.rows, 0, out=there[APART:-APART])
        return there

    @cached_property
    def _steps(self) -> np.ndarray:
        """The step of each place, from the first one of all."""
        return np.asarray(self.panel.steps(self.a, self.b) - self.first)

    def centre(self) -> np.ndarray:
        """The mean [S] of the first records, at whole numbers."""
        if self.panel.head is not None:
            head = int(self.panel.head[self.a])
            some = self.values[head : head + min(self.panel.width - APART, SAMPLE)]
        else:
            rows = self.panel.rows(self.a, self.a + 1)
            some = self.values[rows[rows >= 0][:SAMPLE]]
        return np.asarray(np.rint(np.add.reduce(some, 0, np.float64) / len(some)))

    def fill(self, centre: np.ndarray, z: np.ndarray) -> None:
        """Write the records less the centre into z [m, S], and zeros where there is none."""
        S, length = len(centre), self.length
        # Near such a centre values are exact in single precision too, so they are converted only once.
        near = np.abs(centre).max(initial=0) < SINGLE / 2
        if self.panel.head is None:
            places, taken = z[:length], np.take(self.values, self.rows, axis=0, mode="clip")
        else:
            places, taken = self._shaped(z)[:, :-APART], self._realizations()
        places[:] = taken if near else taken - centre
        if near:
            # Wide rows, as short ones are subtracted from slowly.
            wide = z.reshape(-1, self.fold * S)
            wide -= np.concatenate([centre.astype(z.dtype)] * self.fold)
        if self.panel.is_full:
            self._shaped(z)[:, -APART:] = 0
        else:
            z[np.flatnonzero(self.rows < 0)] = 0
        z[length:] = 0

    def _shaped(self, z: np.ndarray) -> np.ndarray:
        """[..., realizations, places of each, S], where all have as many."""
        return z[..., : self.length, :].reshape(*z.shape[:-2], self.b - self.a, self.panel.width, z.shape[-1])

    def _realizations(self) -> np.ndarray:
        """[realizations, T, S]: the values, where records are by realization and step and none is missing."""
        assert self.panel.head is not None
        T, S = self.panel.width - APART, self.values.shape[1]
        which = self.panel.head[self.a : self.b] // T
        apart = int(which[1] - which[0]) if len(which) > 1 else 1
        shaped = self.values.reshape(-1, T, S)
        # Most of the time realizations are dealt out in turn, so those of a line are evenly spaced.
        if apart > 0 and (which[1:] - which[:-1] == apart).all():
            return shaped[int(which[0]) : int(which[-1]) + 1 : apart]
        return np.take(shaped, which, axis=0, mode="clip")

    def by_step(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The sums [lines, m, S] of records by step from `first` on, and their numbers [m]."""
        if not self.panel.width:
            found = self._sums_at(z, self.there[APART:-APART])
            return found.sums, found.number
        count, width, steps = self.b - self.a, self.panel.width, self.panel.width - APART
        # Whose products are exact in single precision, that many can be summed in it too.
        ones = np.ones(count, z.dtype if count < 4096 else np.float64)
        sums = ones @ self._shaped(z).reshape(len(z), count, -1)
        sums = sums.reshape(len(z), width, -1)[:, :steps].astype(np.float64)
        if self.panel.is_full:
            return sums, np.full(steps, float(count))
        return sums, self.there[APART:-APART].reshape(count, width)[:, :steps].sum(0, dtype=np.float64)

    def _sums_at(self, z: np.ndarray, chosen: np.ndarray) -> Lone:
        """The sums of the chosen records by step, from the first step on."""
        places = np.flatnonzero(chosen)
        step, m = self._steps[places], int(self._steps.max()) + 1 - APART
        sums = scattered(step, np.asarray(z[0, places], np.float64), m)
        return Lone(np.arange(m), sums[None], np.bincount(step, minlength=m).astype(np.float64))

    def _alone(self, distance: int) -> np.ndarray:
        """Whether there is a record at each place and none so many places away."""
        start = APART + distance
        return np.asarray(self.there[APART:-APART] & ~self.there[start : start + self.length])

    def lone(self, z: np.ndarray, sums: np.ndarray, number: np.ndarray, distance: int) -> Lone:
        """The sums [lines, k, S] of records without one so many steps away, given those of all by step."""
        if self.panel.is_full:
            m = len(number)
            a, b = (max(m - distance, 0), m) if distance > 0 else (0, min(-distance, m))
            return Lone(np.arange(a, b), sums[:, a:b], number[a:b])
        alone = self._alone(distance)
        found = np.bincount(self._steps[alone], minlength=len(number))
        at = np.flatnonzero(found)
        if np.array_equal(found[at], number[at]):
            return Lone(at, sums[:, at], number[at])
        of_alone = self._sums_at(z, alone)
        return Lone(at, of_alone.sums[:, at], of_alone.number[at])

    def last(self, z: np.ndarray) -> np.ndarray:
        """The records [lines, k, S] without a next one."""
        if self.panel.is_full:
            return np.asarray(self._shaped(z)[..., -APART - 1, :])
        return np.asarray(z[:, self._alone(1).nonzero()[0]])


#: Writes values as a type, checked against its limits unless they are None; None if some are beyond.
Write = Callable[[np.dtype[Any], tuple[int, int] | None], np.ndarray | None]


def narrowest(dtype: np.dtype[Any], write: Write) -> np.ndarray:
    """What is written as the type of fewest bytes that holds whole numbers of a type."""
    for fewer in (np.dtype(np.int16), np.dtype(np.int32)):
        if fewer.itemsize < dtype.itemsize:
            limits = np.iinfo(fewer)
            found = write(fewer, (int(limits.min), int(limits.max)))
            if found is not None:
                return found
    found = write(dtype, None)
    assert found is not None
    return found


def compact(values: np.ndarray, over: Any = map) -> np.ndarray:
    """The same values [n, S] row by row and in few bytes, to be picked from at random. `over` is a map."""
    rows = max(1, CACHED // values.shape[1])

    def written(dtype: np.dtype[Any], limits: tuple[int, int] | None) -> np.ndarray | None:
        if dtype == values.dtype and values.flags.c_contiguous:
            return values
        out = np.empty(values.shape, dtype)

        def write(start: int) -> bool:
            part = values[start : start + rows]
            if limits is not None and (part.min() < limits[0] or part.max() > limits[1]):
                return False
            out[start : start + rows] = part
            return True

        return out if all(over(write, range(0, len(values), rows))) else None

    if values.dtype.kind in "iu":
        return narrowest(values.dtype, written)
    found = written(values.dtype, None)
    assert found is not None
    return found
