"""A line: some realizations of a panel, what is multiplied and added up of them, and what that tells."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from aggmc_beam.lagged import SINGLE
from aggmc_beam.native import compiled
from aggmc_beam.panel import APART, Panel
from aggmc_beam.profile import scattered

#: Records of a realization whose mean becomes the centre of sums, and that tell whether there are fractions.
SAMPLE = 256

#: Where the neighbours are that make a record the left or right end of a pair at lag 1, and at lag 2.
NEIGHBOURS = (1, -1, 2, -2)

#: Gives the values at some places.
Pick = Callable[[np.ndarray], np.ndarray]


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

    @cached_property
    def _sample(self) -> np.ndarray:
        """The first records."""
        if self.panel.head is not None:
            head = int(self.panel.head[self.a])
            return self.values[head : head + min(self.panel.width - APART, SAMPLE)]
        rows = self.panel.rows(self.a, self.a + 1)
        return np.asarray(self.values[rows[rows >= 0][:SAMPLE]])

    def centre(self) -> np.ndarray:
        """The mean [S] of the first records, at whole numbers."""
        return np.asarray(np.rint(np.add.reduce(self._sample, 0, np.float64) / len(self._sample)))

    @property
    def begins_whole(self) -> bool:
        """Whether the first records are whole numbers; others may have fractions."""
        return bool((np.rint(self._sample) == self._sample).all())

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
        # If records were laid out, there are empty places too.
        each, S = len(self.values) // len(self.panel.key), self.values.shape[1]
        which = self.panel.head[self.a : self.b] // each
        apart = int(which[1] - which[0]) if len(which) > 1 else 1
        shaped = self.values.reshape(-1, each, S)[:, : self.steps]
        # Most of the time realizations are dealt out in turn, so those of a line are evenly spaced.
        if apart > 0 and (which[1:] - which[:-1] == apart).all():
            return shaped[int(which[0]) : int(which[-1]) + 1 : apart]
        return np.take(shaped, which, axis=0, mode="clip")

    @property
    def steps(self) -> int:
        """How many steps the records may span."""
        return self.panel.width - APART if self.panel.width else int(self._steps.max()) + 1 - APART

    @cached_property
    def number(self) -> np.ndarray:
        """The number of records at each step from `first` on."""
        if self.panel.is_full:
            return np.full(self.steps, float(self.b - self.a))
        return self._number_of(self.there[APART:-APART])

    def by_step(self, z: np.ndarray) -> np.ndarray:
        """The sums [lines, m, S] of records by step from `first` on."""
        if not self.panel.width:
            return self._sums_at(self.there[APART:-APART], lambda places: z[0, places])[None]
        count = self.b - self.a
        # Whose products are exact in single precision, that many can be summed in it too.
        ones = np.ones(count, z.dtype if count < 4096 else np.float64)
        sums = ones @ self._shaped(z).reshape(len(z), count, -1)
        return np.asarray(sums.reshape(len(z), self.panel.width, -1)[:, : self.steps], np.float64)

    def _number_of(self, chosen: np.ndarray) -> np.ndarray:
        return np.bincount(self._steps[chosen], minlength=self.steps).astype(np.float64)

    def _sums_at(self, chosen: np.ndarray, pick: Pick) -> np.ndarray:
        """The sums [m, S] of the chosen records by step."""
        places = np.flatnonzero(chosen)
        return scattered(self._steps[places], np.asarray(pick(places), np.float64), self.steps)

    def _alone(self, distance: int) -> np.ndarray:
        """Whether there is a record at each place and none so many places away."""
        start = APART + distance
        return np.asarray(self.there[APART:-APART] & ~self.there[start : start + self.length])

    def lone(self, sums: np.ndarray, pick: Pick) -> list[Lone]:
        """The sums [lines, k, S] of records without each of the `NEIGHBOURS`, given those of all by step.
        `pick` gives the records, less the centre, at some places of one line that is not full."""
        if self.panel.is_full:
            return self._lone_in_full(sums)
        found = []
        for distance in NEIGHBOURS:
            alone = self._alone(distance)
            number = self._number_of(alone)
            at = np.flatnonzero(number)
            mine = sums
            if not np.array_equal(number[at], self.number[at]):
                mine = self._sums_at(alone, pick)[None]
            found.append(Lone(at, mine[:, at], number[at]))
        return found

    def _lone_in_full(self, sums: np.ndarray) -> list[Lone]:
        """The same where no record is missing: those of the first and the last steps."""
        m, found = len(self.number), []
        for distance in NEIGHBOURS:
            a, b = (max(m - distance, 0), m) if distance > 0 else (0, min(-distance, m))
            found.append(Lone(np.arange(a, b), sums[:, a:b], self.number[a:b]))
        return found

    def lone_in_c(self, sums: np.ndarray, centre: np.ndarray) -> list[Lone]:
        """The same of whole numbers, by compiled loops."""
        assert compiled is not None
        if self.panel.is_full:
            return self._lone_in_full(sums)
        kinds = len(NEIGHBOURS)
        lone, number = np.empty((kinds, *sums[0].shape)), np.empty((1 + kinds, self.steps))
        compiled.sum_lone(self.values, self.rows, *self._told, centre, lone, number)
        self.number = number[0]  # which need not be counted again
        at = [np.flatnonzero(one) for one in number[1:]]
        return [Lone(i, s[None, i], n[i]) for i, s, n in zip(at, lone, number[1:], strict=True)]

    @property
    def _told(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each realization begins, and where the last one ends; the first step of each."""
        place = self.panel.place[self.a : self.b + 1]
        return place - place[0], self.panel.first[self.a : self.b] - self.first

    def last(self, z: np.ndarray) -> np.ndarray:
        """The records [lines, k, S] without a next one."""
        if self.panel.is_full:
            return np.asarray(self._shaped(z)[..., -APART - 1, :])
        return np.asarray(z[:, self._last])

    @cached_property
    def _last(self) -> np.ndarray:
        """The places of records without a next one."""
        if self.panel.is_full:
            return np.arange(self.steps - 1, self.length, self.panel.width)
        return np.flatnonzero(self._alone(1))

    def sum_in_c(
        self, cuts: np.ndarray, centre: np.ndarray, lags: np.ndarray, last: np.ndarray, by_step: np.ndarray
    ) -> bool:
        """Find, by compiled loops, sums of the L lines that this one is made of, cut before the realizations
        `cuts` [L + 1]: the products [L, 3, S, S] at lags 0 to 2, those of records without a next one with
        themselves [L, 1, S, S], and sums by step [L, m, S]; or return False if some values are too large."""
        assert compiled is not None
        each = self.panel.row is not None
        record = self.rows if each else np.asarray(self.panel.head)[self.a : self.b]
        told = *self._told, cuts - self.a, centre
        if not compiled.sum_lines(self.values, record, each, *told, lags, by_step):
            return False
        # Lines of their own, with the empty places that a realization has at its end.
        record = np.full((len(centre), self._last.size // len(centre) + APART), -1)
        record[:, :-APART] = self.records_at(self._last).reshape(len(centre), -1)
        ones = np.arange(len(centre) + 1)
        told = ones * record.shape[1], np.zeros_like(ones[1:]), ones, centre
        return compiled.sum_lines(self.values, record.ravel(), True, *told, last, None)

    def records_at(self, places: np.ndarray) -> np.ndarray:
        """Which records are at some places."""
        return np.asarray(self.panel.at(self.panel.place[self.a] + places)[2])
