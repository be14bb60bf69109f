"""Step sums: how the mean counts move with time, for each group and jackknife replicate.

A record is an end of up to four pairs: left and right row at lags 1 and 2. Mostly it is all of them, so the
sum over the left rows at a step is that over its records, and the difference is stored where there is one:
at gaps, at the first and last steps, and at the borders of replicates. So a step costs S numbers and not 5 S,
and everything is additive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.sums.centred import Centred
from aggmc_beam.sums.kernel import Pairs

#: A group with more distinct steps than this has bins of 2, 4, 8 ... steps.
MAX_BINS = 4096
#: What is summed at a step: records, and left and right rows of pairs at lags 1 and 2.
RECORDS, LEFT1, RIGHT1, LEFT2, RIGHT2 = range(5)
KINDS = 5
_LAG = np.array([0, 1, 1, 2, 2])
#: How many steps after the left row of a pair each kind of row is.
SHIFT = np.array([0, 0, 1, 0, 2])
_LARGEST = 2**53
#: Rows of step sums that are changed at once.
CACHED = 1 << 12


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
        counts = (self.number[records] >= 0).all() and (np.abs(self.number) < _LARGEST).all()
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


def sum_steps(
    table: Centred,
    time: np.ndarray,
    pairs: Pairs,
    group: np.ndarray,
    replicate: np.ndarray,
    weight: np.ndarray | None = None,
) -> StepSums:
    """The step sums of rows as `kernel.sum_records` takes them: `group` and `replicate` [n] are those of each
    row, which a pair has from its left one."""
    if not len(time):
        return StepSums.zero(table.states)
    width = _widths(group, time)
    bins = time
    if any(wide > 1 for wide in width.values()):
        factor = np.ones(int(group.max()) + 1, np.int64)
        for g, wide in width.items():
            factor[g] = wide
        bins = time // factor[group]
    place = Places.of_rows(group, replicate, bins)
    rows = None if pairs.new is None else np.flatnonzero(pairs.new)
    found = []
    if rows is None or len(rows):
        found = [_summed(table, place.of if rows is None else place.of[rows], rows, None, RECORDS, weight)]
    for kind, (of, row, sign) in zip((LEFT1, RIGHT1, LEFT2, RIGHT2), _exceptions(pairs, place), strict=True):
        if len(row):
            found.append(_summed(table, of, row, sign, kind, weight))
    if not found:
        return StepSums.zero(table.states)
    code, number, weights, total = _interleaved(found)
    key = place.key(code)
    _add_centres(total, weights, table.centre, key[:, 0])
    return _without_zeros(StepSums(table.states, key, number, weights, total, width))


class Places(NamedTuple):
    """Integers [n] for (group, replicate, bin) of rows, in their order; `label` [n] is that of the first two."""

    of: np.ndarray
    label: np.ndarray
    low: int
    bins: int
    replicates: int

    @classmethod
    def of_rows(cls, group: np.ndarray, replicate: np.ndarray, bins: np.ndarray) -> Places:
        low = int(bins.min())
        span, replicates = int(bins.max()) - low + 1, int(replicate.max()) + 1
        if (int(group.max()) + 1) * replicates * span >= _LARGEST:
            raise InputError(
                f"times run over {span} steps, too far to be steps of one process; check the time column and its step"
            )
        label = group * replicates + replicate if group.any() else replicate
        return cls(label * span + (bins - low), label, low, span, replicates)

    def moved(self, row: np.ndarray, owner: np.ndarray) -> np.ndarray:
        """The places of rows if they had the group and replicate of their owners."""
        return np.asarray(self.of[row] + (self.label[owner] - self.label[row]) * self.bins)

    def key(self, code: np.ndarray) -> np.ndarray:
        """[m, 4]: group, replicate, bin and kind of codes place * KINDS + kind."""
        place, kind = np.divmod(code, KINDS)
        rest, at = np.divmod(place, self.bins)
        group, replicate = np.divmod(rest, self.replicates)
        return np.column_stack([group, replicate, at + self.low, kind])


Part = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _summed(
    table: Centred,
    place: np.ndarray,
    rows: np.ndarray | None,
    sign: np.ndarray | None,
    kind: int,
    weight: np.ndarray | None,
) -> Part:
    """Codes, numbers, weights and sums about the centre of the rows (None: all) at each place, those of `sign` -1
    being taken off."""
    from scipy.sparse import csc_array  # takes a moment to import

    distinct, place = _ranked(place)
    met = np.bincount(place, minlength=len(distinct))
    dtype = table.rows.dtype if table.adds_exactly(int(met.max(initial=0))) else np.dtype(np.float64)
    values = table.rows[:-1] if rows is None else np.take(table.rows, rows, axis=0)
    number = met if sign is None else np.bincount(place, sign, len(distinct)).astype(np.int64)
    if weight is None:
        heavy = np.ones(len(place), dtype) if sign is None else sign.astype(dtype)
        weights = number.astype(np.float64)
    else:
        heavy = weight if rows is None else weight[rows]
        heavy = heavy if sign is None else heavy * sign
        weights = np.bincount(place, heavy, len(distinct))
    # Each row is a column of a sparse matrix.
    matrix = csc_array((heavy, place, np.arange(len(place) + 1)), shape=(len(distinct), len(place)))
    total = (matrix @ values.astype(dtype, copy=False))[:, : table.states]
    return distinct * KINDS + kind, number, weights, total


def _ranked(place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct places, sorted, and which of them each is."""
    low = int(place.min())
    size = int(place.max()) - low + 1
    if size > 4 * len(place) + (1 << 16):
        return np.unique(place, return_inverse=True)
    there = np.zeros(size, bool)
    there[place - low] = True
    if there.all():
        return np.arange(low, low + size), place - low
    return np.flatnonzero(there) + low, (np.cumsum(there, dtype=np.int32) - 1)[place - low]


def _exceptions(pairs: Pairs, place: Places) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each kind of ends of pairs (places, rows, signs): what it has more or less than the records do."""
    n, label = len(place.of), place.label
    for follow in (pairs.next1, pairs.next2):
        is_left = follow < n
        if pairs.new is None:
            gained, missed = np.zeros(0, np.int64), np.flatnonzero(~is_left)
        else:
            gained, missed = np.flatnonzero(is_left & ~pairs.new), np.flatnonzero(pairs.new & ~is_left)
        yield _both((place.of[gained], gained), (place.of[missed], missed))
        left = np.flatnonzero(is_left)
        right = follow[left]
        own = label[left] == label[right]
        if pairs.new is not None:
            own &= pairs.new[right]
        has_own = np.zeros(n, bool)
        has_own[right] = own
        missed = np.flatnonzero(~has_own if pairs.new is None else pairs.new & ~has_own)
        other = np.flatnonzero(~own)
        yield _both((place.moved(right[other], left[other]), right[other]), (place.of[missed], missed))


def _both(
    more: tuple[np.ndarray, np.ndarray], less: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    signs = np.repeat(np.array([1, -1]), [len(more[0]), len(less[0])])
    return np.concatenate([more[0], less[0]]), np.concatenate([more[1], less[1]]), signs


def _interleaved(parts: Sequence[Part]) -> Part:
    """Parts whose codes are sorted and all different, as one that is sorted by code."""
    code = np.concatenate([part[0] for part in parts])
    order = np.argsort(code, kind="stable")
    number, weights = (np.concatenate([part[i] for part in parts])[order] for i in (1, 2))
    at = np.empty_like(order)
    at[order] = np.arange(len(order))
    total = np.empty((len(code), parts[0][3].shape[1]))
    begin = 0
    for part in parts:
        total[at[begin : begin + len(part[0])]] = part[3]
        begin += len(part[0])
    return code[order], number, weights, total


def _add_centres(total: np.ndarray, weight: np.ndarray, centre: np.ndarray, group: np.ndarray) -> None:
    """Make sums about centres those of values, in place and while they are in a core's cache."""
    for begin in range(0, len(total), CACHED):
        at = slice(begin, begin + CACHED)
        total[at] += weight[at, None] * (centre if len(centre) == 1 else centre[group[at]])


def _distinct(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of integers [m, 4], sorted, and which of them each row is."""
    low = key.min(0)
    span = (key.max(0) - low + 1).tolist()
    if span[0] * span[1] * span[2] * span[3] >= 2**62:
        raise InputError(
            f"times run over {span[2]} steps, too far to be steps of one process; check the time column and its step"
        )
    code = key[:, 0] - low[0]
    for i in range(1, 4):
        code = code * span[i] + (key[:, i] - low[i])
    size = span[0] * span[1] * span[2] * span[3]
    if size <= 8 * len(code) + (1 << 16):
        there = np.zeros(size, bool)
        there[code] = True
        found = np.flatnonzero(there)
        place = (np.cumsum(there) - 1)[code]
    else:
        found, place = np.unique(code, return_inverse=True)
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
    found = _without_zeros(found)
    crowded = {g: 2 * w for g, w in width.items() if _bins(found, g) > MAX_BINS}
    if crowded:
        wider = found._widened({**width, **crowded})
        return _grouped(S, wider.key, wider.number, wider.weight, wider.total, wider.width)
    return found


def _bins(steps: StepSums, group: int) -> int:
    bins = steps.key[steps.rows(group), 2]
    return 0 if len(bins) <= MAX_BINS else len(np.unique(bins))


def _without_zeros(steps: StepSums) -> StepSums:
    """Without differences that are none any more."""
    gone = (steps.number == 0) & (steps.key[:, 3] != RECORDS)
    gone[gone] = (np.abs(steps.total[gone]) <= 1e-9 * np.abs(steps.total).max(initial=0.0)).all(1)
    if not gone.any():
        return steps
    kept = ~gone
    return replace(
        steps,
        key=steps.key[kept],
        number=steps.number[kept],
        weight=steps.weight[kept],
        total=steps.total[kept],
    )


def _widths(group: np.ndarray, time: np.ndarray) -> dict[int, int]:
    """The width of each group's bins: the least power of two that leaves at most `MAX_BINS` of them."""
    present = np.flatnonzero(np.bincount(group))
    widths = dict.fromkeys(present.tolist(), 1)
    first, last = int(time.min()), int(time.max())
    if last - first < MAX_BINS:
        return widths
    order = np.argsort(group, kind="stable")
    cuts = np.searchsorted(group[order], [*present, present[-1] + 1])
    for g, a, b in zip(present.tolist(), cuts[:-1], cuts[1:], strict=True):
        steps = np.unique(time[order[a:b]]) if b - a > MAX_BINS else time[:0]
        while len(steps) > MAX_BINS:
            widths[g] *= 2
            steps = np.unique(steps // 2)
    return widths


@dataclass(frozen=True, eq=False)
class Profile:
    """Weighted mean counts by bin of time; bin b covers steps b * width ... (b + 1) * width - 1.

    `bins` [B] sorted; `number` and `weight` [B, 3] by lag, `means` [B, 5, S] of the records and of the left and
    right rows of pairs at lags 1 and 2. A pair is in the bin of its left row; in bins of several steps the right
    rows are taken to be in the same one.
    """

    width: int
    bins: np.ndarray
    number: np.ndarray
    weight: np.ndarray
    means: np.ndarray

    @classmethod
    def zero(cls, S: int) -> Profile:
        none = np.zeros((0, 3))
        return cls(1, np.zeros(0, np.int64), none.astype(np.int64), none, np.zeros((0, KINDS, S)))

    @classmethod
    def of(
        cls, width: int, bins: np.ndarray, number: np.ndarray, weight: np.ndarray, means: np.ndarray
    ) -> Profile:
        return cls(width, bins, number, weight, means)

    @classmethod
    def of_rows(
        cls,
        width: int,
        step: np.ndarray,
        kind: np.ndarray,
        number: np.ndarray,
        weight: np.ndarray,
        total: np.ndarray,
    ) -> Profile:
        """From the rows of one replicate in `StepSums`."""
        steps, place = np.unique(step, return_inverse=True)
        S = total.shape[1]
        counts, weights, sums = (np.zeros((len(steps), KINDS, *a.shape[1:])) for a in (number, weight, total))
        for dense, rows in ((counts, number), (weights, weight), (sums, total)):
            dense[place, kind] = rows
            dense[:, 1:] += dense[:, :1]
        pairs = counts[:, [RECORDS, LEFT1, LEFT2]].astype(np.int64)
        used = np.flatnonzero(counts[:, RECORDS] > 0)
        bins = steps[used]
        means = np.zeros((len(used), KINDS, S))
        for k in range(KINDS):
            at = np.minimum(np.searchsorted(steps, bins + SHIFT[k] * (width == 1)), len(steps) - 1)
            held = (
                (steps[at] == bins + SHIFT[k] * (width == 1))
                & (weights[at, k] > 0)
                & (pairs[used, _LAG[k]] > 0)
            )
            np.divide(sums[at, k], weights[at, k, None], out=means[:, k], where=held[:, None])
        return cls(width, bins, pairs[used], weights[used][:, [RECORDS, LEFT1, LEFT2]], means)

    @property
    def records(self) -> np.ndarray:
        """[B, S]: the mean counts at each step."""
        return self.means[:, RECORDS]

    def kind(self, kind: int) -> np.ndarray:
        """[B, S]: the means of `kind` (RECORDS, LEFT1, ...), zeros where there are none."""
        return self.means[:, kind]

    def between_steps(self, start: int, stop: int) -> Profile:
        """Only the bins that begin at steps start .. stop - 1."""
        at = slice(*np.searchsorted(self.bins * self.width, (start, stop)))
        return Profile(self.width, self.bins[at], self.number[at], self.weight[at], self.means[at])

    def mean(self, kind: int) -> np.ndarray:
        """[S]: the overall mean of `kind` (RECORDS, LEFT1, ...)."""
        w, means = self.weight[:, _LAG[kind]], self.kind(kind)
        return np.asarray(means[0] + w @ (means - means[0]) / w.sum())

    def between(self, lag: int) -> np.ndarray:
        """[S, S]: the part of the lag's co-moment that is due to the movement of the means.

        sum_t w_t (left_t - left)(right_t - right)'; subtract it from the co-moment to get the one
        about each step's own means.
        """
        left, right = (RECORDS, RECORDS) if lag == 0 else (2 * lag - 1, 2 * lag)
        x, y = self.kind(left) - self.mean(left), self.kind(right) - self.mean(right)
        return np.asarray((self.weight[:, lag, None] * x).T @ y)


def add_profiles(items: Iterable[Profile], S: int) -> Profile:
    """The profile of all data behind several, none included."""
    parts = [part for part in items if len(part.bins)]
    if len(parts) < 2:
        return parts[0] if parts else Profile.zero(S)
    width = max(part.width for part in parts)
    place = [part.bins // (width // part.width) for part in parts]
    bins, at = np.unique(np.concatenate(place), return_inverse=True)
    number, weight = np.zeros((len(bins), 3), np.int64), np.zeros((len(bins), 3))
    np.add.at(number, at, np.concatenate([part.number for part in parts]))
    np.add.at(weight, at, np.concatenate([part.weight for part in parts]))
    # About one member of each bin, so that large means keep their digits.
    anchor = np.zeros((len(bins), KINDS, S))
    means, w = (np.concatenate([getattr(part, n) for part in parts]) for n in ("means", "weight"))
    for kind in range(KINDS):
        used = w[:, _LAG[kind]] > 0
        anchor[at[used], kind] = means[used, kind]
    total = np.zeros_like(anchor)
    np.add.at(total, at, w[:, _LAG, None] * (means - anchor[at]))
    heavy = weight[:, _LAG, None]
    np.divide(total, heavy, out=total, where=heavy > 0)
    return Profile(width, bins, number, weight, np.where(heavy > 0, anchor + total, 0.0))
