"""Rows about centres: what the kernel multiplies.

Counts of millions vary by hundreds, so rows are centred before anything is squared. Whole numbers stay whole about a
whole centre; where all sums of squares of a segment of rows fit in the 24 bits of single precision they are exact
there, at half of the memory and time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Rows of a segment: its sums stay in a core's cache.
SEGMENT = 512
#: Single precision holds whole numbers up to this; sums of squares below it are exact.
SINGLE = 2.0**24
#: Rows from which the centres are found.
SAMPLE = 1 << 15
#: Rows that are centred at once, so that what is computed on the way stays in a core's cache.
CACHED = 1 << 13
#: Segments shorter than this are not worth single precision.
SHORTEST = 64
#: A centre is kept while it is within this many standard deviations of the mean: sums of squares about it then lose
#: two of sixteen digits, and parts that share a centre are added as they are.
NEAR = 16
#: A row this many times larger than the middle one says nothing of where the others are.
ABSURD = 2.0**20


@dataclass(frozen=True)
class Centred:
    """Rows [n + 1, S + 3]: values less the centre of their group; then 1, and whether the row is the left one of a
    pair at lag 1 and at lag 2; after the last a row of zeros, which stands for a missing one.

    `centre` [groups, S]; `reach` bounds how far whole numbers are from it (infinite for fractions); `segment` rows
    may be multiplied together in the precision of `rows`.
    """

    rows: np.ndarray
    centre: np.ndarray
    reach: float
    segment: int

    @classmethod
    def of(
        cls,
        values: np.ndarray,
        group: np.ndarray,
        groups: int,
        has1: np.ndarray,
        has2: np.ndarray,
        is_weighted: bool,
        known: np.ndarray | None = None,
    ) -> Centred:
        """From values [n, S] of rows of `group` [n], numbered below `groups`. Centres of groups that are `known`
        [groups, S], NaN where not, are kept where they are near."""
        n = len(values)
        centre = _centres(values, group, groups, not is_weighted, known)
        reach, segment = np.inf, SEGMENT
        dtype: np.dtype = np.dtype(np.float64)
        if values.dtype.kind in "iu" and not is_weighted and n:
            low, high = float(values.min()), float(values.max())
            reach = float(max(high - centre.min(), centre.max() - low, 1.0))
            exact = int(SINGLE / reach**2)
            if exact >= SHORTEST:
                dtype, segment = np.dtype(np.float32), min(SEGMENT, exact)
        # In single precision whole numbers are subtracted as such: it may not hold them, but their distance it does.
        about = centre.astype(np.int64 if dtype == np.float32 else np.float64)
        return cls(_rows(values, about, group, dtype, has1, has2), centre, reach, segment)

    @property
    def states(self) -> int:
        return int(self.rows.shape[1]) - 3

    def adds_exactly(self, most: int) -> bool:
        """Whether sums of so many rows are exact in the precision of `rows`, as far as any are."""
        return bool(self.rows.dtype == np.float64 or most * self.reach < SINGLE)


def _rows(
    values: np.ndarray,
    about: np.ndarray,
    group: np.ndarray,
    dtype: np.dtype,
    has1: np.ndarray,
    has2: np.ndarray,
) -> np.ndarray:
    n, S = values.shape
    found = np.empty((n + 1, S + 3), dtype)
    for begin in range(0, n, CACHED):
        at = slice(begin, min(n, begin + CACHED))
        found[at, :S] = values[at] - (about[0] if len(about) == 1 else about[group[at]])
    found[:n, S], found[:n, S + 1], found[:n, S + 2] = 1, has1, has2
    found[n] = 0
    return found


def _centres(
    values: np.ndarray, group: np.ndarray, groups: int, rounded: bool, known: np.ndarray | None
) -> np.ndarray:
    """[groups, S]: about the mean of some rows of each group."""
    n, S = values.shape
    # The first row of a group stands for it where no row of the sample is its own.
    rows = np.concatenate([np.arange(0, n, max(1, n // SAMPLE)), _first_rows(group, groups)])
    rows = rows[_is_usual(values[rows], group[rows])]
    found, spread = np.zeros((groups, S)), np.zeros((groups, S))
    size = np.bincount(group[rows], minlength=groups)
    order = rows[np.argsort(group[rows], kind="stable")]
    there = size > 0
    if there.any():
        starts = (np.cumsum(size) - size)[there]
        sample = values[order].astype(np.float64)
        found[there] = np.add.reduceat(sample, starts) / size[there, None]
        if known is not None:
            away = sample - found[group[order]]
            spread[there] = np.sqrt(np.add.reduceat(away * away, starts) / size[there, None])
    found = np.rint(found) if rounded else found
    if known is not None:
        near = (np.abs(found - known[:groups]) <= NEAR * spread + rounded).all(1)  # False for NaN
        found[near] = known[:groups][near]
    return found


def _is_usual(sample: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Which rows are not absurdly larger than the middle one of their group: a single count of 1e29 must not move the
    centre of all others."""
    size = np.abs(sample).max(1, initial=0).astype(np.float64)
    order = np.lexsort((size, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    number = np.diff([*starts, len(order)])
    middle = np.zeros(int(group.max(initial=0)) + 1)
    middle[group[order][starts]] = size[order][starts + (number - 1) // 2]
    return np.asarray(size <= ABSURD * (middle[group] + 1))


def _first_rows(group: np.ndarray, groups: int) -> np.ndarray:
    if groups == 1:
        return np.zeros(0, np.int64)
    first = np.full(groups, -1)
    first[group[::-1]] = np.arange(len(group) - 1, -1, -1)
    return first[first >= 0]
