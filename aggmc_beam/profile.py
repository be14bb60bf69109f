"""Profile: the mean counts at each step, over realizations.

Moments tell how counts vary around one mean; the profile tells how that mean itself moves. With
both, moments centred step by step are one subtraction away (`between`), at O(T S) memory
instead of O(T S^2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.pairing import Block
from aggmc_beam.sums import steps

#: Beyond this many steps, neighbouring ones share a bin of twice the width.
MAX_BINS = 4096
#: What is averaged at a step: the records, and the left and right ends of pairs at lags 1 and 2.
RECORDS, LEFT1, RIGHT1, LEFT2, RIGHT2 = range(5)
_LAG_OF = np.array([0, 1, 1, 2, 2])
#: How many steps after a pair's step the ends LEFT1, RIGHT1, LEFT2 and RIGHT2 are.
SHIFT = np.array([0, 1, 0, 2])


@dataclass(frozen=True, eq=False)
class Profile:
    """Weighted mean counts by bin of time; bin b covers steps b * width ... (b + 1) * width - 1.

    `bins` [B] sorted; `number` and `weight` [B, 3] by lag; `records` [B, S]. A pair is in the bin of its left
    end. The width is 1 unless the data span more than `MAX_BINS` distinct bins.

    Where all records of a step are ends of pairs, the mean of those ends is that of the records, and is not
    stored. So `ends` [m, S] holds only the means of the others: of the ends `odd`, see `end_at`, sorted.
    """

    width: int
    bins: np.ndarray
    number: np.ndarray
    weight: np.ndarray
    records: np.ndarray
    odd: np.ndarray
    ends: np.ndarray

    @classmethod
    def zero(cls, S: int) -> Profile:
        empty, none = np.zeros((0, 3)), np.zeros(0, np.int64)
        return cls(1, none, empty.astype(np.int64), empty, np.zeros((0, S)), none, np.zeros((0, S)))

    @classmethod
    def of(
        cls, width: int, bins: np.ndarray, number: np.ndarray, weight: np.ndarray, means: np.ndarray
    ) -> Profile:
        """From all means [B, 5, S]: records, left and right ends of lag-1 pairs, and of lag-2 pairs."""
        none = cls(width, bins, number, weight, means[:, RECORDS], np.zeros(0, np.int64), means[:0, 0])
        fits, source = none._fits()
        for kind in (LEFT1, RIGHT1, LEFT2, RIGHT2):
            like = means[source[:, kind - 1], RECORDS]
            fits[:, kind - 1] &= (means[:, kind] == like).all(1)
        odd = np.flatnonzero(~fits & (weight[:, _LAG_OF[1:]] > 0))
        row, end = np.divmod(odd, 4)
        return replace(none, odd=odd, ends=means[row, end + 1])

    def kind(self, kind: int) -> np.ndarray:
        """[B, S]: the means of `kind` (RECORDS, LEFT1, ...), zeros where there are none."""
        if kind == RECORDS:
            return self.records
        return self._rows(end_at(np.arange(len(self.bins)), kind))

    @property
    def means(self) -> np.ndarray:
        """[B, 5, S]: the means of all kinds."""
        return np.stack([self.kind(kind) for kind in range(5)], 1)

    def _source(self, row: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the steps at which these ends of pairs are, and whether there are such."""
        step = self.bins[row] + SHIFT[end] * (self.width == 1)
        found = np.minimum(np.searchsorted(self.bins, step), len(self.bins) - 1)
        return found, self.bins[found] == step

    def _fits(self) -> tuple[np.ndarray, np.ndarray]:
        """[B, 4]: whether these ends can be all records of a step, and the row of that step."""
        source, there = self._source(np.arange(len(self.bins))[:, None], np.arange(4))
        return there & (self.weight[:, _LAG_OF[1:]] == self.weight[source, 0]), source

    def _rows(self, at: np.ndarray) -> np.ndarray:
        """[m, S]: the means of these ends, given as `odd` is."""
        row, end = np.divmod(at, 4)
        found = self.records[self._source(row, end)[0]]
        found[self.weight[row, _LAG_OF[end + 1]] == 0] = 0
        stored = np.flatnonzero(np.isin(at, self.odd))
        found[stored] = self.ends[np.searchsorted(self.odd, at[stored])]
        return np.asarray(found)

    @classmethod
    def labelled(cls, block: Block, labels: np.ndarray) -> dict[int, Profile]:
        """A profile for each label of a block's new records and new pairs; left ends decide."""
        values = np.asarray(block.values, np.float64)
        n, S = values.shape
        weight = np.ones(n) if block.weight is None else block.weight
        names, label = np.unique(labels, return_inverse=True)
        widths = _widths(label, block.time, len(names))
        bins = block.time // widths[label]
        start, span = (int(bins.min()), int(np.ptp(bins)) + 1) if n else (0, 1)
        spots, place = np.unique(label * span + (bins - start), return_inverse=True)
        number = np.zeros((len(spots), 3), np.int64)
        weights = np.zeros((len(spots), 3))
        # Sums about a fixed row keep the digits of large counts.
        centre = values[0] if n else np.zeros(S)
        sums = np.zeros((len(spots), 5, S))

        def add(lag: int, left: np.ndarray, right: np.ndarray) -> None:
            at, w = place[left], weight[left]
            number[:, lag] += np.bincount(at, minlength=len(spots))
            weights[:, lag] += np.bincount(at, w, len(spots))
            ends = [(RECORDS, left)] if lag == 0 else [(2 * lag - 1, left), (2 * lag, right)]
            for kind, rows in ends:
                sums[:, kind] += scattered(at, values[rows] - centre, len(spots), w)

        rows = np.arange(n)[block.new_rows()]
        add(0, rows, rows)
        for lag, offset, mask in block.links():
            left = np.flatnonzero(mask)
            add(lag, left, left + offset)
        means = centre + _ratio(sums, weights[:, _LAG_OF])
        bins = spots % span + start
        cuts = np.searchsorted(spots, np.arange(len(names) + 1) * span)
        parts = [slice(a, b) for a, b in pairwise(cuts)]
        return {
            int(name): cls.of(int(width), bins[at], number[at], weights[at], means[at])
            for name, width, at in zip(names, widths, parts, strict=True)
        }

    def checked(self) -> Profile:
        """The same, if its bins are in order and its weights fit its numbers; else an `InputError`."""
        ordered = (np.diff(self.bins) > 0).all() and (np.abs(self.bins) < 2**62 // self.width).all()
        fits = (self.number >= 0).all() and ((self.number > 0) == (self.weight > 0)).all()
        power_of_two = self.width & (self.width - 1) == 0
        if not (ordered and fits and power_of_two and self._is_complete()):
            raise InputError("its profiles are not those of any data")
        return self

    def is_laid_out_as(self, other: Profile) -> bool:
        """Whether the other one has means of the same steps, of as many records each."""
        names = ("bins", "number", "weight", "odd")
        alike = (np.array_equal(getattr(self, name), getattr(other, name)) for name in names)
        return self.width == other.width and all(alike)

    def _is_complete(self) -> bool:
        """Whether the mean of every end is stored or can be told from the records."""
        known = self._fits()[0] | (self.weight[:, _LAG_OF[1:]] == 0)
        inside = (np.diff(self.odd) > 0).all() and (self.odd >= 0).all() and (self.odd < known.size).all()
        if inside:
            known.flat[self.odd] = True
        return bool(inside and known.all())

    def __add__(self, other: Profile) -> Profile:
        few, many = sorted((self, other), key=lambda p: len(p.bins))
        if len(few.bins) and few.width == many.width:
            # What a stream adds has few bins. Only these change, and those with ends that are there.
            low = int(np.searchsorted(many.bins, few.bins[0] - SHIFT.max()))
            high = int(np.searchsorted(many.bins, few.bins[-1], "right"))
            if 2 * (high - low + len(few.bins)) < len(many.bins):
                return many._spliced(low, high, many._part(low, high) + few)._bounded()
        return add_profiles([self, other], self.records.shape[1])

    def _spliced(self, low: int, high: int, middle: Profile) -> Profile:
        """With `middle` in place of its rows low ... high - 1."""
        bins, number, weight, records = (
            np.concatenate([getattr(self, n)[:low], getattr(middle, n), getattr(self, n)[high:]])
            for n in ("bins", "number", "weight", "records")
        )
        first, last = np.searchsorted(self.odd, (4 * low, 4 * high))
        later = 4 * (len(middle.bins) - (high - low))
        odd = np.concatenate([self.odd[:first], middle.odd + 4 * low, self.odd[last:] + later])
        ends = np.concatenate([self.ends[:first], middle.ends, self.ends[last:]])
        return Profile(self.width, bins, number, weight, records, odd, ends)

    def _on(self, bins: np.ndarray) -> Profile:
        """The same over more bins, which are empty."""
        at = np.searchsorted(bins, self.bins)

        def spread(column: np.ndarray) -> np.ndarray:
            wide = np.zeros((len(bins), column.shape[1]), column.dtype)
            wide[at] = column
            return wide

        row, end = np.divmod(self.odd, 4)
        number, weight, records = (spread(c) for c in (self.number, self.weight, self.records))
        return Profile(self.width, bins, number, weight, records, at[row] * 4 + end, self.ends)

    def _part(self, start: int, stop: int) -> Profile:
        """Its rows start ... stop - 1."""
        rows = slice(start, stop)
        columns = self.bins[rows], self.number[rows], self.weight[rows], self.records[rows]
        part = Profile(self.width, *columns, self.odd[:0], self.ends[:0])
        known = part._fits()[0] | (part.weight[:, _LAG_OF[1:]] == 0)
        first, last = np.searchsorted(self.odd, (4 * start, 4 * stop))
        known.flat[self.odd[first:last] - 4 * start] = False
        odd = np.flatnonzero(~known)
        return replace(part, odd=odd, ends=self._rows(odd + 4 * start))

    def coarsened(self, width: int) -> Profile:
        """The same data in bins of `width` steps, a multiple of the present width."""
        if width == self.width:
            return self
        bins = self.bins // (width // self.width)
        return _pool(width, bins, self.number, self.weight, self.means)

    def _bounded(self) -> Profile:
        profile = self
        while len(profile.bins) > MAX_BINS:
            profile = profile.coarsened(2 * profile.width)
        return profile

    def between_steps(self, start: int, stop: int) -> Profile:
        """Only the bins that begin at steps start .. stop - 1."""
        first, last = np.searchsorted(self.bins * self.width, (start, stop))
        return self._part(int(first), int(last))

    def scaled(self, factor: float) -> Profile:
        """Of counts that are so many times as large, each weighing the same."""
        weight = self.number.astype(np.float64)
        return replace(self, weight=weight, records=self.records * factor, ends=self.ends * factor)

    def mean(self, kind: int) -> np.ndarray:
        """[S]: the overall mean of `kind` (RECORDS, LEFT1, ...)."""
        w, means = self.weight[:, _LAG_OF[kind]], self.kind(kind)
        return np.asarray(means[0] + w @ (means - means[0]) / w.sum())

    def between(self, lag: int) -> np.ndarray:
        """[S, S]: the part of the lag's co-moment that is due to the movement of the means.

        sum_t w_t (left_t - left)(right_t - right)'; subtract it from the co-moment to get the one
        about each step's own means.
        """
        left, right = (RECORDS, RECORDS) if lag == 0 else (2 * lag - 1, 2 * lag)
        x = self.kind(left) - self.mean(left)
        y = self.kind(right) - self.mean(right)
        return np.asarray((self.weight[:, lag, None] * x).T @ y)


def end_at(row: np.ndarray, kind: int) -> np.ndarray:
    """The number of an end of pairs, LEFT1 to RIGHT2, in the row of a bin."""
    return 4 * row + kind - 1


def add_profiles(items: Iterable[Profile], S: int) -> Profile:
    """The sum of any number of profiles of S states, none included."""
    items = list(items)
    if any(isinstance(item, steps.Profile) for item in items):
        return steps.add_profiles(items, S)  # type: ignore[arg-type, return-value]
    parts = [part for part in items if len(part.bins)]
    if len(parts) < 2:
        return parts[0] if parts else Profile.zero(S)
    width = max(part.width for part in parts)
    parts = [part.coarsened(width) for part in parts]
    bins = parts[0].bins
    if not all(np.array_equal(part.bins, bins) for part in parts):
        bins = np.unique(np.concatenate([part.bins for part in parts]))
        parts = [part._on(bins) for part in parts]
    number = np.sum([part.number for part in parts], 0)
    weight = np.sum([part.weight for part in parts], 0)
    # Where ends are all records of a step in every part, they are in the sum.
    implied = np.ones((len(bins), 4), bool)
    for part in parts:
        implied &= part._fits()[0]
        implied.flat[part.odd] = False
    odd = np.flatnonzero(~implied & (weight[:, _LAG_OF[1:]] > 0))
    row, lag = odd // 4, _LAG_OF[odd % 4 + 1]
    # About the means of one part, so that large ones keep their digits.
    records, ends = np.zeros_like(parts[0].records), np.zeros((len(odd), S))
    anchor, ends_anchor = parts[0].records, parts[0]._rows(odd)
    for part in parts[1:]:
        records += part.weight[:, :1] * (part.records - anchor)
        ends += part.weight[row, lag, None] * (part._rows(odd) - ends_anchor)
    records = anchor + _ratio(records, weight[:, 0])
    ends = ends_anchor + _ratio(ends, weight[row, lag])
    return Profile(width, bins, number, weight, records, odd, ends)._bounded()


def scattered(
    at: np.ndarray,
    rows: np.ndarray,
    places: int,
    weight: np.ndarray | None = None,
    where: np.ndarray | None = None,
) -> np.ndarray:
    """[places, S]: the sums of the rows [n, S] that have the same place `at`. If `where` [n] chooses some of
    the rows, `at` and `weight` are those of the chosen."""
    from scipy.sparse import csc_array  # takes a moment to import

    weight = np.ones(len(at)) if weight is None else weight
    used = np.ones(len(rows), bool) if where is None else where
    columns = np.concatenate([[0], np.cumsum(used)])
    return np.asarray(csc_array((weight, at, columns), shape=(places, len(rows))) @ rows)


def _ratio(sums: np.ndarray, weight: np.ndarray) -> np.ndarray:
    out = np.zeros_like(sums)
    np.divide(sums, weight[..., None], out=out, where=weight[..., None] > 0)
    return out


def _widths(label: np.ndarray, time: np.ndarray, labels: int) -> np.ndarray:
    """The width of each label's bins: the power of two that leaves at most `MAX_BINS` of them."""
    widths = np.ones(labels, np.int64)
    crowded = np.flatnonzero(np.bincount(label, minlength=labels) > MAX_BINS)
    for one in crowded:
        steps = np.unique(time[label == one])
        while len(steps) > MAX_BINS:
            widths[one] *= 2
            steps = np.unique(steps // 2)
    return widths


def _pool(width: int, bins: np.ndarray, number: np.ndarray, weight: np.ndarray, means: np.ndarray) -> Profile:
    if np.any(np.diff(bins) < 0):
        order = np.argsort(bins, kind="stable")
        bins, number, weight, means = bins[order], number[order], weight[order], means[order]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(bins) != 0]))
    place = np.repeat(np.arange(len(starts)), np.diff([*starts, len(bins)]))
    new_number, new_weight = np.add.reduceat(number, starts), np.add.reduceat(weight, starts)
    w = weight[:, _LAG_OF]
    # About one member of each bin, so that large means keep their digits.
    anchor = means[starts]
    for kind in range(5):
        if not np.all(w[starts, kind] > 0):
            used = np.flatnonzero(w[:, kind] > 0)
            anchor[place[used], kind] = means[used, kind]
    sums = np.add.reduceat(w[..., None] * (means - anchor[place]), starts)
    pooled = anchor + _ratio(sums, new_weight[:, _LAG_OF])
    return Profile.of(width, bins[starts], new_number, new_weight, pooled)
