"""Profile: how the mean counts of a group, or of one of its replicates, move from step to step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from aggmc_beam.sums.ranks import ranked

#: What is summed at a step: records, and left and right rows of pairs at lags 1 and 2.
RECORDS, LEFT1, RIGHT1, LEFT2, RIGHT2 = range(5)
KINDS = 5
_LAG = np.array([0, 1, 1, 2, 2])
#: How many steps after the left row of a pair each kind of row is.
SHIFT = np.array([0, 0, 1, 0, 2])


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
    bins, at = ranked(np.concatenate([part.bins // (width // part.width) for part in parts]))
    order = np.argsort(at, kind="stable")
    at, starts = at[order], np.flatnonzero(np.diff(at[order], prepend=-1))

    def rows(name: str) -> np.ndarray:
        return np.asarray(np.concatenate([getattr(part, name) for part in parts])[order])

    w, means = rows("weight"), rows("means")
    number, weight = np.add.reduceat(rows("number"), starts), np.add.reduceat(w, starts)
    # About one member of each bin, so that large means keep their digits.
    anchor = np.zeros((len(bins), KINDS, S))
    for kind in range(KINDS):
        used = w[:, _LAG[kind]] > 0
        anchor[at[used], kind] = means[used, kind]
    total = np.add.reduceat(w[:, _LAG, None] * (means - anchor[at]), starts)
    heavy = weight[:, _LAG, None]
    np.divide(total, heavy, out=total, where=heavy > 0)
    return Profile(width, bins, number, weight, np.where(heavy > 0, anchor + total, 0.0))
