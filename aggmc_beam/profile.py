"""Profile: the mean counts at each step, over realizations.

Moments tell how counts vary around one mean; the profile tells how that mean itself moves. With
both, moments centred step by step are one subtraction away (`between`), at O(T S) memory
instead of O(T S^2).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.pairing import Block

#: Beyond this many steps, neighbouring ones share a bin of twice the width.
MAX_BINS = 4096
#: What is averaged at a step: the records, and the left and right ends of pairs at lags 1 and 2.
RECORDS, LEFT1, RIGHT1, LEFT2, RIGHT2 = range(5)


@dataclass(frozen=True, eq=False)
class Profile:
    """Weighted mean counts by bin of time; bin b covers steps b * width ... (b + 1) * width - 1.

    `bins` [B] sorted; `number` and `weight` [B, 3] by lag; `means` [B, 5, S]: records, left and
    right ends of lag-1 pairs, left and right ends of lag-2 pairs. A pair is in the bin of its left
    end. The width is 1 unless the data span more than `MAX_BINS` distinct bins.
    """

    width: int
    bins: np.ndarray
    number: np.ndarray
    weight: np.ndarray
    means: np.ndarray

    @classmethod
    def zero(cls, S: int) -> Profile:
        empty = np.zeros((0, 3))
        return cls(1, np.zeros(0, np.int64), empty.astype(np.int64), empty, np.zeros((0, 5, S)))

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
            int(name): cls(int(width), bins[at], number[at], weights[at], means[at])
            for name, width, at in zip(names, widths, parts, strict=True)
        }

    def checked(self) -> Profile:
        """The same, if its bins are in order and its weights fit its numbers; else an `InputError`."""
        ordered = (np.diff(self.bins) > 0).all() and (np.abs(self.bins) < 2**62 // self.width).all()
        fits = (self.number >= 0).all() and ((self.number > 0) == (self.weight > 0)).all()
        power_of_two = self.width & (self.width - 1) == 0
        if not (ordered and fits and power_of_two):
            raise InputError("its profiles are not those of any data")
        return self

    def __add__(self, other: Profile) -> Profile:
        if not len(other.bins):
            return self
        if not len(self.bins):
            return other
        width = max(self.width, other.width)
        a, b = self.coarsened(width), other.coarsened(width)
        if np.array_equal(a.bins, b.bins):
            weight = a.weight + b.weight
            share = np.divide(b.weight, weight, out=np.zeros_like(weight), where=weight > 0)[:, _LAG_OF]
            means = a.means + share[..., None] * (b.means - a.means)
            return Profile(width, a.bins, a.number + b.number, weight, means)
        # Only the bins between b's first and last can meet; in a feed ordered by time that is few.
        low, high = np.searchsorted(a.bins, b.bins[0]), np.searchsorted(a.bins, b.bins[-1], "right")
        middle = _chain([a._part(slice(low, high)), b])
        middle = _pool(width, middle.bins, middle.number, middle.weight, middle.means)
        return _chain([a._part(slice(0, low)), middle, a._part(slice(high, None))])._bounded()

    def _part(self, at: slice) -> Profile:
        return Profile(self.width, self.bins[at], self.number[at], self.weight[at], self.means[at])

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
        steps = self.bins * self.width
        at = (steps >= start) & (steps < stop)
        return Profile(self.width, self.bins[at], self.number[at], self.weight[at], self.means[at])

    def mean(self, kind: int) -> np.ndarray:
        """[S]: the overall mean of `kind` (RECORDS, LEFT1, ...)."""
        w = self.weight[:, _LAG_OF[kind]]
        first = self.means[0, kind]
        return np.asarray(first + w @ (self.means[:, kind] - first) / w.sum())

    def between(self, lag: int) -> np.ndarray:
        """[S, S]: the part of the lag's co-moment that is due to the movement of the means.

        sum_t w_t (left_t - left)(right_t - right)'; subtract it from the co-moment to get the one
        about each step's own means.
        """
        left, right = (RECORDS, RECORDS) if lag == 0 else (2 * lag - 1, 2 * lag)
        x = self.means[:, left] - self.mean(left)
        y = self.means[:, right] - self.mean(right)
        return np.asarray((self.weight[:, lag, None] * x).T @ y)


_LAG_OF = np.array([0, 1, 1, 2, 2])


def scattered(at: np.ndarray, rows: np.ndarray, places: int, weight: np.ndarray | None = None) -> np.ndarray:
    """[places, S]: the sums of the rows [n, S] that have the same place `at` [n]."""
    from scipy.sparse import csc_array  # takes a moment to import

    weight = np.ones(len(at)) if weight is None else weight
    return np.asarray(csc_array((weight, at, np.arange(len(at) + 1)), shape=(places, len(at))) @ rows)


def _ratio(sums: np.ndarray, weight: np.ndarray) -> np.ndarray:
    out = np.zeros_like(sums)
    np.divide(sums, weight[..., None], out=out, where=weight[..., None] > 0)
    return out


def _chain(parts: list[Profile]) -> Profile:
    """Profiles of the same width, one after the other."""
    columns = (np.concatenate([getattr(p, n) for p in parts]) for n in ("bins", "number", "weight", "means"))
    return Profile(parts[0].width, *columns)


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
    return Profile(width, bins[starts], new_number, new_weight, anchor + _ratio(sums, new_weight[:, _LAG_OF]))
