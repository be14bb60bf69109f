"""The only code that multiplies: sums of records and of their pairs, for any labels, in one way.

Rows are sorted by (realization, time). A pair is two rows of one realization, one or two steps apart; it has
the label of its left row. For each label the kernel finds, about the centre of the label's group,

    ends    [5, S]     sums of the records, and of the left and right rows of pairs at lags 1 and 2
    product [4, S, S]  sums of x x' over the records, x y' over the pairs at lags 1 and 2, and x x' over the
                       left rows of lag-1 pairs

Rows of a label are cut into segments of at most `SEGMENT` rows, segments of like size are stacked, and one
matrix product serves the whole stack: thousands of labels of a few rows cost no more than a few of many.

Sums of whole numbers are exact: the same bits for any order and split, as long as they stay below 2^53.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

#: Rows of a segment, and rows of all segments multiplied at once: these stay in a core's cache.
SEGMENT, STACK = 512, 1 << 14
#: Single precision holds whole numbers up to this; sums of squares below it are exact.
SINGLE = 2.0**24
#: Rows from which the centres are found.
SAMPLE = 1 << 15
#: Segments shorter than this are not worth single precision.
SHORTEST = 64


class Pairs(NamedTuple):
    """Which rows are pairs: `next1[i]` and `next2[i]` are the rows one and two steps after row i, or n where
    there is none. `new[i]` tells whether row i is counted as a record (None: all are)."""

    next1: np.ndarray
    next2: np.ndarray
    new: np.ndarray | None = None


class LabelSums(NamedTuple):
    """Sums by label about `centre` [L, S]; `number` and `weight` [L, 3] are those of records and of pairs at
    lags 1 and 2, `inverse_weight` [L] is the sum of 1/w over records."""

    centre: np.ndarray
    number: np.ndarray
    weight: np.ndarray
    inverse_weight: np.ndarray
    ends: np.ndarray
    product: np.ndarray


class Stack(NamedTuple):
    """Segments as rows [B, m] of a table, n where there is none, with their labels [B], which are `distinct`
    or not."""

    label: np.ndarray
    rows: np.ndarray
    distinct: bool

    def add_to(self, total: np.ndarray, found: np.ndarray, sign: int = 1) -> None:
        """Add what was found for each segment [B, ...] to the totals of labels [L, ...]."""
        if self.distinct:
            total[self.label] += found if sign > 0 else -found
        else:
            np.add.at(total, self.label, found if sign > 0 else -found)


def find_pairs(key: np.ndarray, time: np.ndarray, settled: np.ndarray | None = None) -> Pairs:
    """The pairs among rows sorted by (key, time), each once.

    `settled` [n] is 0 for a new row; rows of the same other mark have formed their pairs before.

    >>> find_pairs(np.array([0, 0, 0, 1]), np.array([0, 1, 3, 4])).next1.tolist()
    [1, 4, 4, 4]
    """
    n = len(key)
    next1, next2 = np.full(n, n), np.full(n, n)
    for by in (1, 2):
        same = key[by:] == key[:-by]
        if settled is not None:
            a, b = settled[:-by], settled[by:]
            same &= (a != b) | (a == 0)
        apart = time[by:] - time[:-by]
        if by == 1:
            one = np.flatnonzero(same & (apart == 1))
            next1[one] = one + 1
        two = np.flatnonzero(same & (apart == 2))
        next2[two] = two + by
    return Pairs(next1, next2, None if settled is None else settled == 0)


def sum_records(
    values: np.ndarray,
    pairs: Pairs,
    label: np.ndarray,
    group_of: np.ndarray,
    weight: np.ndarray | None = None,
) -> LabelSums:
    """The sums of rows `values` [n, S] for each label. `label` [n] lies in 0 .. L - 1, `group_of` [L] tells
    the labels that share a centre, `weight` [n] is 1 unless given."""
    n, S = values.shape
    L = len(group_of)
    has1, has2 = pairs.next1 < n, pairs.next2 < n
    new = np.ones(n, bool) if pairs.new is None else pairs.new
    number = np.stack([_tally(label, L, mask) for mask in (new, has1, has2)], 1).astype(np.int64)
    weights = number.astype(np.float64)
    inverse = weights[:, 0].copy()
    if weight is not None:
        weights = np.stack([_tally(label, L, mask, weight) for mask in (new, has1, has2)], 1)
        inverse = _tally(label, L, new, 1.0 / weight)
    whole = values.dtype.kind in "iu" and weight is None
    centre = _centres(values, group_of[label], int(group_of.max(initial=-1)) + 1, rounded=weight is None)
    table, rows = _table(values, centre, group_of[label], has1, has2, weight, whole)
    ends, product = np.zeros((L, 5, S)), np.zeros((L, 4, S, S))
    follow1, follow2 = np.append(pairs.next1, n), np.append(pairs.next2, n)
    heavy = None if weight is None else np.append(weight, 0.0)
    for stack in _segments(label, L, rows):
        left = table[stack.rows]
        turned = _turned(left, heavy, stack.rows)
        gram, lag1, lag2 = (
            np.matmul(turned, table[i][..., :S] if i is not stack.rows else left[..., :S])
            for i in (stack.rows, follow1[stack.rows], follow2[stack.rows])
        )
        for lag, found in enumerate((gram, lag1, lag2)):
            stack.add_to(product[:, lag], found[:, :S])
        sums = gram[:, S], gram[:, S + 1], lag1[:, S], gram[:, S + 2], lag2[:, S]
        for kind, found in enumerate(sums):
            stack.add_to(ends[:, kind], found)
    _correct(product, ends, table, label, heavy, new, has1, rows)
    return LabelSums(centre[group_of], number, weights, inverse, ends, product)


def _tally(label: np.ndarray, L: int, mask: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    if mask.all():
        return np.bincount(label, weight, L)
    return np.bincount(label[mask], None if weight is None else weight[mask], L)


def _centres(values: np.ndarray, group: np.ndarray, groups: int, rounded: bool) -> np.ndarray:
    """[groups, S]: about the mean of some rows of each group, so that no digits are lost to large counts.

    Whole numbers stay whole about a whole centre, and their sums exact.
    """
    n, S = values.shape
    # The first row of a group stands for it where no row of the sample is its own.
    rows = np.concatenate([np.arange(0, n, max(1, n // SAMPLE)), _first_rows(group, groups)])
    found = np.zeros((groups, S))
    size = np.bincount(group[rows], minlength=groups)
    order = rows[np.argsort(group[rows], kind="stable")]
    there = size > 0
    if there.any():
        starts = (np.cumsum(size) - size)[there]
        found[there] = np.add.reduceat(values[order].astype(np.float64), starts) / size[there, None]
    return np.rint(found) if rounded else found


def _first_rows(group: np.ndarray, groups: int) -> np.ndarray:
    first = np.full(groups, -1)
    first[group[::-1]] = np.arange(len(group) - 1, -1, -1)
    return first[first >= 0]


def _table(
    values: np.ndarray,
    centre: np.ndarray,
    group: np.ndarray,
    has1: np.ndarray,
    has2: np.ndarray,
    weight: np.ndarray | None,
    whole: bool,
) -> tuple[np.ndarray, int]:
    """[n + 1, S + 3]: values about their centre; 1, and 1 for left rows of pairs at lags 1 and 2; a row of
    zeros. And how many rows a segment may have for sums to be exact in its precision."""
    n, S = values.shape
    about = centre[0] if len(centre) == 1 else centre[group]
    dtype: np.dtype = np.dtype(np.float64)
    rows = SEGMENT
    if whole and n:
        low, high = values.min(0), values.max(0)
        reach = max(np.abs(high - centre.min(0)).max(), np.abs(centre.max(0) - low).max(), 1.0)
        exact = int(SINGLE / reach**2)
        if exact >= SHORTEST:
            dtype, rows = np.dtype(np.float32), min(SEGMENT, exact)
    table = np.empty((n + 1, S + 3), dtype)
    np.subtract(values, about, out=table[:n, :S], casting="unsafe")
    table[:n, S], table[:n, S + 1], table[:n, S + 2] = 1, has1, has2
    table[n] = 0
    return table, rows


def _segments(label: np.ndarray, L: int, rows: int, chosen: np.ndarray | None = None) -> Iterator[Stack]:
    """Stacks of segments of the `chosen` rows of each label; labels with several segments come apart."""
    n = len(label)
    of = label if chosen is None else label[chosen]
    # numpy sorts numbers of 16 bits by counting.
    order = np.argsort(of.astype(np.uint16) if L <= 1 << 16 else of, kind="stable")
    order = np.append(order if chosen is None else chosen[order], n)
    size = np.bincount(of, minlength=L)
    pieces = -(-size // rows)
    owner = np.repeat(np.arange(L), pieces)
    place = (np.arange(len(owner)) - (np.cumsum(pieces) - pieces)[owner]) * rows
    begin = (np.cumsum(size) - size)[owner] + place
    length = np.minimum(size[owner] - place, rows)
    for alone in (True, False):
        some = np.flatnonzero((pieces[owner] == 1) == alone)
        some = some[np.argsort(length[some], kind="stable")]
        while len(some):
            # Segments that are at most an eighth longer than the shortest are padded to the longest.
            most = int(length[some[0]]) * 9 // 8 + 1
            stop = min(int(np.searchsorted(length[some], most)), max(1, STACK // most))
            these, some = some[:stop], some[stop:]
            m = int(length[these[-1]])
            at = begin[these][:, None] + np.arange(m)
            if length[these[0]] < m:
                at[np.arange(m) >= length[these][:, None]] = len(order) - 1
            yield Stack(owner[these], order[at], alone)


def _turned(left: np.ndarray, weight: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    return (left if weight is None else left * weight[rows][..., None]).swapaxes(-1, -2)


def _correct(
    product: np.ndarray,
    ends: np.ndarray,
    table: np.ndarray,
    label: np.ndarray,
    weight: np.ndarray | None,
    new: np.ndarray,
    has1: np.ndarray,
    rows: int,
) -> None:
    """So far lag 0 runs over all rows. Old ones are taken off it, and those without a row one step later off
    its copy over the left rows of pairs."""
    S = product.shape[-1]
    product[:, 3] = product[:, 0]
    for lag, mask in ((0, ~new), (3, ~has1)):
        if not mask.any():
            continue
        for stack in _segments(label, len(product), rows, np.flatnonzero(mask)):
            left = table[stack.rows]
            found = np.matmul(_turned(left, weight, stack.rows), left[..., :S])
            stack.add_to(product[:, lag], found[:, :S], -1)
            if lag == 0:
                stack.add_to(ends[:, 0], found[:, S], -1)
