"""Moments: the sums that every estimator needs, as one value with a zero and a `+`.

For each lag the cross-products are kept about their own means and merged by Chan's pairwise
formula. `E[xy] - E[x]E[y]` is never formed, so populations of 10^9 with noise of 1 lose nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from aggmc_beam.errors import InputError

#: Values that are changed while they are in a core's cache.
CACHED = 1 << 16


@dataclass(frozen=True, eq=False)
class CoMoment:
    """Cross-products of weighted pairs (x, y), about the pairs' own means.

    `left` and `right` [S] are the weighted means of x and y, `product` [S, S] is
    sum w (x - left)(y - right)', `weight` is sum w and `pairs` their number.
    """

    pairs: int
    weight: float
    left: np.ndarray
    right: np.ndarray
    product: np.ndarray

    @classmethod
    def zero(cls, S: int) -> CoMoment:
        return cls(0, 0.0, np.zeros(S), np.zeros(S), np.zeros((S, S)))

    @classmethod
    def about(
        cls,
        centre: np.ndarray,
        pairs: int,
        weight: float,
        left: np.ndarray,
        right: np.ndarray,
        product: np.ndarray,
    ) -> CoMoment:
        """From sums about `centre`: left = sum w (x - c), right alike, product = sum w (x-c)(y-c)', which is
        changed."""
        several = (np.array([pairs]), np.array([weight]), left[None], right[None], product[None])
        return cls.several(centre[None], *several)[0]

    @classmethod
    def several(
        cls,
        centre: np.ndarray,
        pairs: np.ndarray,
        weight: np.ndarray,
        left: np.ndarray,
        right: np.ndarray,
        product: np.ndarray,
    ) -> list[CoMoment]:
        """As `about`, of as many as each array has rows."""
        # Where there is no pair, all sums are zero.
        divisor = np.where(pairs > 0, weight, 1.0)[:, None]
        a, b = left / divisor, right / divisor
        rows = max(1, CACHED // left.size)
        for at in range(0, left.shape[1], rows):
            # A product of matrices takes half of the time.
            product[:, at : at + rows] -= left[:, at : at + rows, None] @ b[:, None]
        parts = zip(pairs.tolist(), weight.tolist(), centre + a, centre + b, product, strict=True)
        return [cls(*part) if part[0] else cls.zero(centre.shape[1]) for part in parts]

    def __add__(self, other: CoMoment) -> CoMoment:
        if self.pairs == 0:
            return other
        if other.pairs == 0:
            return self
        weight = self.weight + other.weight
        share = other.weight / weight
        a, b = other.left - self.left, other.right - self.right
        product = self.product + other.product
        product += outer(a, self.weight * share * b)
        return CoMoment(
            self.pairs + other.pairs, weight, self.left + share * a, self.right + share * b, product
        )

    @classmethod
    def joined(cls, S: int, items: Sequence[CoMoment]) -> CoMoment:
        """The sum of any number of them."""
        items = [item for item in items if item.pairs]
        if len(items) < 2:
            return items[0] if items else cls.zero(S)
        w, left, right = stacked(items)
        total, a, b = float(w.sum()), weighted_mean(w, left), weighted_mean(w, right)
        product = (w[:, None] * (left - a)).T @ (right - b)
        for item in items:
            product += item.product
        return cls(sum(item.pairs for item in items), total, a, b, product)

    def product_about(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """sum w (x - left)(y - right)' about any two points."""
        found = outer(self.weight * (self.left - left), self.right - right)
        found += self.product
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CoMoment):
            return NotImplemented
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))


@dataclass(frozen=True)
class Counts:
    """What was met on the way to the sums, used or not. All are additive."""

    realizations: int = 0
    duplicates: int = 0
    overlaps: int = 0
    rejected: int = 0
    late: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.realizations + other.realizations,
            self.duplicates + other.duplicates,
            self.overlaps + other.overlaps,
            self.rejected + other.rejected,
            self.late + other.late,
        )


@dataclass(frozen=True, eq=False)
class Moments:
    """Means and lagged cross-products of counts, for a stretch of data of any size.

    `lag0` runs over all records, `lag1` and `lag2` over the pairs one and two steps apart, and
    `ends` is the lag-0 moment over the left ends of the lag-1 pairs, which least squares needs.
    Merging is exact up to rounding for any split, order and merge tree.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate(states=3, steps=50, seed=1)
    >>> whole = am.Sums.of(y).total
    >>> whole.records, whole.pairs, whole.gaps
    (50, 49, 0)
    >>> (Moments.zero(3) + whole).lag1 == whole.lag1
    True
    """

    lag0: CoMoment
    lag1: CoMoment
    lag2: CoMoment
    ends: CoMoment
    counts: Counts
    inverse_weight: float
    """sum of 1/w over records: additive noise on shares y/w has variance sigma^2/w."""

    @classmethod
    def zero(cls, S: int) -> Moments:
        """The identity of `+`."""
        empty = CoMoment.zero(S)
        return cls(empty, empty, empty, empty, Counts(), 0.0)

    @property
    def states(self) -> int:
        return len(self.lag0.left)

    @property
    def records(self) -> int:
        return self.lag0.pairs

    @property
    def pairs(self) -> int:
        return self.lag1.pairs

    @property
    def gaps(self) -> int:
        """How often a realization is interrupted: its runs of steps, less one, summed."""
        return self.records - self.pairs - self.counts.realizations

    def __add__(self, other: Moments) -> Moments:
        if self.states != other.states:
            raise InputError(
                f"moments of {self.states} states cannot be added to moments of {other.states}; "
                "both must come from the same list of states"
            )
        return Moments(
            self.lag0 + other.lag0,
            self.lag1 + other.lag1,
            self.lag2 + other.lag2,
            self.ends + other.ends,
            self.counts + other.counts,
            self.inverse_weight + other.inverse_weight,
        )


def outer(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """As `np.outer` of vectors, in half of the time."""
    return np.asarray(np.dot(a[:, None], b[None], out=out))


def stacked(items: Sequence[CoMoment]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights [G] and means [G, S] of left and right ends."""
    w = np.array([item.weight for item in items])
    return w, np.array([item.left for item in items]), np.array([item.right for item in items])


def weighted_mean(w: np.ndarray, means: np.ndarray) -> np.ndarray:
    """[S] of means [G, S] with weights [G], about one of them, so that large ones keep their digits."""
    anchor = means[np.argmax(w > 0)]
    return np.asarray(anchor + w @ (means - anchor) / w.sum()) if w.any() else anchor


def add_moments(S: int, items: Iterable[Moments]) -> Moments:
    """The sum of any number of moments, none included."""
    items = list(items)
    lag0, lag1, lag2, ends = (CoMoment.joined(S, [getattr(m, name) for m in items]) for name in PARTS)
    counts = sum((m.counts for m in items), Counts())
    return Moments(lag0, lag1, lag2, ends, counts, sum(m.inverse_weight for m in items))


#: The co-moments of `Moments`, by name.
PARTS = ("lag0", "lag1", "lag2", "ends")
