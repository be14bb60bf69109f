"""Step sums: how the mean counts move with time, for each group and jackknife replicate.

A record is an end of up to four pairs: left and right row at lags 1 and 2. Mostly it is all of them, so the
sum over the left rows at a step is that over its records, and the difference is stored where there is one:
at gaps, at the first and last steps, and at the borders of replicates. So a step costs S numbers and not 5 S,
and everything is additive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.sums.profile import KINDS, RECORDS, Profile
from aggmc_beam.sums.ranks import ranked

#: A group with more distinct steps than this has bins of 2, 4, 8 ... steps.
MAX_BINS = 4096
#: Whole numbers below this are exact as floats.
LARGEST = 2**53


@dataclass(frozen=True, eq=False)
class StepSums:
    """Rows (group, replicate, bin, kind), sorted: `number` [m] and `weight` [m] of records, `total` [m, S] their
    weighted sum; of the kinds LEFT1 to RIGHT2 what differs from RECORDS, so that all three may be negative.

    Bin b of a group covers steps b * width ... (b + 1) * width - 1, with the group's own `width`.
    """

    states: int
    key: np.ndarray
    """[m, 4]: group, replicate, bin, kind."""
    number: np.ndarray
    weight: np.ndarray
    total: np.ndarray
    width: dict[int, int]

    @classmethod
    def zero(cls, S: int) -> StepSums:
        return cls(S, np.zeros((0, 4), np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros((0, S)), {})

    def __add__(self, other: StepSums) -> StepSums:
        return add_steps(self.states, (self, other))

    def _widened(self, width: dict[int, int]) -> StepSums:
        """In bins of these widths, which are multiples of its own; not sorted."""
        if all(self.width.get(g, 1) == w for g, w in width.items()):
            return self
        factor = np.ones(max(width) + 1, np.int64)
        for g, w in width.items():
            factor[g] = w // self.width.get(g, 1)
        key = self.key.copy()
        key[:, 2] //= factor[key[:, 0]]
        return replace(self, key=key, width=width)

    def rows(self, group: int) -> slice:
        return slice(*np.searchsorted(self.key[:, 0], (group, group + 1)))

    def of_group(self, group: int, number: int = 0) -> StepSums:
        """The rows of one group, as those of the group `number`."""
        at = self.rows(group)
        key = self.key[at].copy()
        key[:, 0] = number
        width = {number: self.width[group]} if group in self.width else {}
        return StepSums(self.states, key, self.number[at], self.weight[at], self.total[at], width)

    def renumbered(self, groups: np.ndarray) -> StepSums:
        """With groups[g] in place of group g."""
        if np.array_equal(groups, np.arange(len(groups))):
            return self
        key = self.key.copy()
        key[:, 0] = groups[key[:, 0]]
        width = {int(groups[g]): w for g, w in self.width.items()}
        return _grouped(self.states, key, self.number, self.weight, self.total, width)

    def part(self, at: np.ndarray | slice) -> StepSums:
        """Only some rows, by position."""
        return replace(
            self, key=self.key[at], number=self.number[at], weight=self.weight[at], total=self.total[at]
        )

    def in_bins(self, most: int) -> StepSums:
        """In bins so wide that no group has more than `most` of them.

        >>> three = StepSums(1, np.array([[0, 0, b, 0] for b in (0, 1, 5)]), np.ones(3, int), np.ones(3),
        ...                  np.ones((3, 1)), {0: 1})
        >>> three.in_bins(2).key[:, 2].tolist(), three.in_bins(2).width
        ([0, 2], {0: 2})
        """
        width = dict(self.width)
        for group in width:
            bins = np.unique(self.key[self.rows(group), 2])
            while len(bins) > most:
                width[group] *= 2
                bins = np.unique(bins // 2)
        if width == self.width:
            return self
        wider = self._widened(width)
        return _grouped(self.states, wider.key, wider.number, wider.weight, wider.total, width)

    def between(self, start: int, stop: int) -> StepSums:
        """Only the bins that begin at steps start ... stop - 1."""
        width = np.ones(int(self.key[:, 0].max(initial=0)) + 1, np.int64)
        for g, w in self.width.items():
            width[g] = w
        first = self.key[:, 2] * width[self.key[:, 0]]
        return self.part((first >= start) & (first < stop))

    def profiles(self, group: int = 0) -> dict[int, Profile]:
        """The step means of each replicate of a group."""
        at, width = self.rows(group), self.width.get(group, 1)
        return dict(self._profiles(at, width))

    def _profiles(self, at: slice, width: int) -> Iterator[tuple[int, Profile]]:
        replicate = self.key[at, 1]
        starts = np.flatnonzero(np.diff(replicate, prepend=-1))
        for a, b in zip(starts, [*starts[1:], len(replicate)], strict=True):
            rows = slice(at.start + int(a), at.start + int(b))
            yield (
                int(replicate[a]),
                Profile.of_rows(
                    width,
                    self.key[rows, 2],
                    self.key[rows, 3],
                    self.number[rows],
                    self.weight[rows],
                    self.total[rows],
                ),
            )

    def profile(self, group: int = 0) -> Profile:
        """The step means of all replicates of a group together."""
        at, width = self.rows(group), self.width.get(group, 1)
        key = self.key[at].copy()
        key[:, 1] = 0
        one = _grouped(self.states, key, self.number[at], self.weight[at], self.total[at], {group: width})
        return next((p for _, p in one._profiles(slice(0, len(one.key)), width)), Profile.zero(self.states))

    def checked(self) -> StepSums:
        """Itself, if it can be what some data give; else an `InputError`."""
        key = self.key
        order = np.lexsort((key[:, 3], key[:, 2], key[:, 1], key[:, 0]))
        sorted_rows = np.array_equal(order, np.arange(len(key))) and (
            len(key) < 2 or (np.diff(key, axis=0) != 0).any(1).all()
        )
        kinds = ((key[:, 3] >= 0) & (key[:, 3] < KINDS)).all() and (key[:, :2] >= 0).all()
        records = key[:, 3] == RECORDS
        counts = (self.number[records] >= 0).all() and (np.abs(self.number) < LARGEST).all()
        widths = all(w >= 1 and w & (w - 1) == 0 for w in self.width.values())
        if not (sorted_rows and kinds and counts and widths and (np.abs(key[:, 2]) < 2**62).all()):
            raise InputError("its step sums are not those of any data")
        return self


def add_steps(S: int, items: Iterable[StepSums]) -> StepSums:
    """The sum of any number of them, none included."""
    items = [item for item in items if len(item.key)]
    if len(items) < 2:
        return items[0] if items else StepSums.zero(S)
    width: dict[int, int] = {}
    for item in items:
        for group, wide in item.width.items():
            width[group] = max(width.get(group, 1), wide)
    parts = [item._widened(width) for item in items]
    key, number, weight, total = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("key", "number", "weight", "total")
    )
    return _grouped(S, key, number, weight, total, width)


def _distinct(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of integers [m, 4], sorted, and which of them each row is."""
    low = key.min(0)
    span = (key.max(0) - low + 1).tolist()
    if span[0] * span[1] * span[2] * span[3] >= 2**62:
        raise too_far(span[2])
    code = key[:, 0] - low[0]
    for i in range(1, 4):
        code = code * span[i] + (key[:, i] - low[i])
    found, place = ranked(code)
    columns = []
    for i in (3, 2, 1):
        found, rest = np.divmod(found, span[i])
        columns.append(rest + low[i])
    return np.column_stack([found + low[0], *columns[::-1]]), place


def _grouped(
    S: int,
    key: np.ndarray,
    number: np.ndarray,
    weight: np.ndarray,
    total: np.ndarray,
    width: dict[int, int],
) -> StepSums:
    """Rows in any order with those added that share a key, in bins that are few enough."""
    if not len(key):
        return StepSums.zero(S)
    distinct, place = _distinct(key)
    if len(distinct) == len(key):
        order = np.argsort(place, kind="stable")
        found = StepSums(S, distinct, number[order], weight[order], total[order], width)
    else:
        order = np.argsort(place, kind="stable")
        starts = np.flatnonzero(np.diff(place[order], prepend=-1))
        number, weight, total = (np.add.reduceat(a[order], starts) for a in (number, weight, total))
        found = StepSums(S, distinct, number, weight, total, width)
    found = without_zeros(found)
    crowded = {g: 2 * w for g, w in width.items() if _bins(found, g) > MAX_BINS}
    if crowded:
        wider = found._widened({**width, **crowded})
        return _grouped(S, wider.key, wider.number, wider.weight, wider.total, wider.width)
    return found


def _bins(steps: StepSums, group: int) -> int:
    bins = steps.key[steps.rows(group), 2]
    return 0 if len(bins) <= MAX_BINS else len(np.unique(bins))


def without_zeros(steps: StepSums) -> StepSums:
    """Without differences that are none any more."""
    gone = (steps.number == 0) & (steps.key[:, 3] != RECORDS)
    if not gone.any():
        return steps
    largest = max(steps.total.max(), -steps.total.min())
    gone[gone] = (np.abs(steps.total[gone]) <= 1e-9 * largest).all(1)
    kept = ~gone
    return replace(
        steps,
        key=steps.key[kept],
        number=steps.number[kept],
        weight=steps.weight[kept],
        total=steps.total[kept],
    )


def too_far(span: int) -> InputError:
    return InputError(
        f"times run over {span} steps, too far to be steps of one process; check the time column and its step"
    )
