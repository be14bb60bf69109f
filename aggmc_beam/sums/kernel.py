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

from aggmc_beam.sums.centred import Centred

#: Rows of all segments that are multiplied at once: with their neighbours they stay in a core's cache.
STACK = 1 << 13


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
    """Segments as rows [B, m] of a table, n where there is none, with their labels [B], which are sorted, and
    `distinct` or not."""

    label: np.ndarray
    rows: np.ndarray
    distinct: bool

    def by_label(self, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Labels, each once, and the sums of what was found for their segments [B, ...]."""
        if self.distinct:
            return self.label, found
        starts = np.flatnonzero(np.diff(self.label, prepend=-1))
        if len(starts) == len(self.label):
            return self.label, found
        return self.label[starts], np.add.reduceat(found, starts, dtype=np.float64)


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
    table: Centred,
    pairs: Pairs,
    label: np.ndarray,
    group_of: np.ndarray,
    weight: np.ndarray | None = None,
) -> LabelSums:
    """The sums of the rows of a table for each label. `label` [n] lies in 0 .. L - 1, `group_of` [L] tells the
    group of a label, `weight` [n] is 1 unless given."""
    n, S, L = len(label), table.states, len(group_of)
    number, weights, inverse = _numbers(pairs, label, L, weight)
    ends, product = np.zeros((L, 5, S)), np.zeros((L, 4, S, S))
    # A row, the one a step later and the one two steps later, side by side.
    triple = np.full((n + 1, 3), n)
    triple[:n, 0], triple[:n, 1], triple[:n, 2] = np.arange(n), pairs.next1, pairs.next2
    heavy = None if weight is None else np.append(weight, 0.0)
    for stack in _segments(label, L, table.segment):
        right = np.take(table.rows, np.take(triple, stack.rows, axis=0), axis=0)
        left = right[:, :, 0]
        found = np.matmul(_turned(left, heavy, stack.rows), right.reshape(*stack.rows.shape, -1))
        labels, found = stack.by_label(found)
        found = found.reshape(len(labels), S + 3, 3, S + 3)
        for lag in range(3):
            product[labels, lag] += found[:, :S, lag, :S]
        for kind, (row, lag) in enumerate(((S, 0), (S + 1, 0), (S, 1), (S + 2, 0), (S, 2))):
            ends[labels, kind] += found[:, row, lag, :S]
    _correct(product, ends, table, label, heavy, pairs)
    return LabelSums(table.centre[group_of], number, weights, inverse, ends, product)


def _numbers(
    pairs: Pairs, label: np.ndarray, L: int, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers and weights [L, 3] of records and of pairs at lags 1 and 2, and sums of 1/w over records."""
    n = len(label)
    masks = pairs.new, pairs.next1 < n, pairs.next2 < n
    number = np.stack([_tally(label, L, mask) for mask in masks], 1).astype(np.int64)
    if weight is None:
        return number, number.astype(np.float64), number[:, 0].astype(np.float64)
    weights = np.stack([_tally(label, L, mask, weight) for mask in masks], 1)
    return number, weights, _tally(label, L, pairs.new, 1.0 / weight)


def _tally(
    label: np.ndarray, L: int, mask: np.ndarray | None, weight: np.ndarray | None = None
) -> np.ndarray:
    if mask is None:
        return np.bincount(label, weight, L)
    return np.bincount(label[mask], None if weight is None else weight[mask], L)


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
            these = np.sort(these)
            at = begin[these][:, None] + np.arange(m)
            if (length[these] < m).any():
                at[np.arange(m) >= length[these][:, None]] = len(order) - 1
            yield Stack(owner[these], order[at], alone)


def _turned(left: np.ndarray, weight: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    return (left if weight is None else left * weight[rows][..., None]).swapaxes(-1, -2)


def _correct(
    product: np.ndarray,
    ends: np.ndarray,
    table: Centred,
    label: np.ndarray,
    weight: np.ndarray | None,
    pairs: Pairs,
) -> None:
    """So far lag 0 runs over all rows. Old ones are taken off it, and those without a row one step later off
    its copy over the left rows of pairs."""
    S, n = table.states, len(label)
    product[:, 3] = product[:, 0]
    old = None if pairs.new is None else ~pairs.new
    for lag, mask in ((0, old), (3, pairs.next1 >= n)):
        if mask is None or not mask.any():
            continue
        for stack in _segments(label, len(product), table.segment, np.flatnonzero(mask)):
            left = np.take(table.rows, stack.rows, axis=0)
            labels, found = stack.by_label(np.matmul(_turned(left, weight, stack.rows), left[..., :S]))
            product[labels, lag] -= found[:, :S]
            if lag == 0:
                ends[labels, 0] -= found[:, S]
