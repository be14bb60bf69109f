"""From a block of records to Moments: which rows are neighbours in time, and their sums.

This is the one kernel behind every engine. Rows are centred once per block, so the sums lose no
digits; neighbours are found by comparing shifted columns, so there is no loop over records or
realizations; and the products are matrix multiplications over the whole block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggmc_beam.moments import CoMoment, Counts, Moments

Index = slice | np.ndarray


@dataclass(frozen=True)
class Block:
    """Records of one or more realizations, sorted by (realization, time), each step at most once.

    `values` [n, S] finite; `time` [n] integer steps; `key` [n] tells realizations apart (None for
    one); `weight` [n] or None for 1. `settled` [n] is 0 for a new record (None: all are new); older
    records serve only as neighbours, and two with the same mark have formed their pair before.
    """

    values: np.ndarray
    time: np.ndarray
    key: np.ndarray | None = None
    weight: np.ndarray | None = None
    settled: np.ndarray | None = None

    def new_rows(self) -> Index:
        """Where the new records are."""
        return slice(None) if self.settled is None else np.flatnonzero(self.settled == 0)

    def links(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """(lag, offset, mask): rows i and i + offset are `lag` steps apart wherever mask[i]."""
        for offset in (1, 2):
            if len(self.time) <= offset:
                return
            distance = self.time[offset:] - self.time[:-offset]
            allowed = np.ones(len(distance), bool)
            if self.key is not None:
                allowed &= self.key[offset:] == self.key[:-offset]
            if self.settled is not None:
                a, b = self.settled[:-offset], self.settled[offset:]
                allowed &= (a != b) | (a == 0)
            for lag in range(offset, 3):
                mask = allowed & (distance == lag)
                if mask.any():
                    yield lag, offset, mask


def block_moments(block: Block) -> Moments:
    """The moments of all new records and new pairs of a block.

    >>> y = np.array([[3.0, 1.0], [2.0, 2.0], [4.0, 0.0]])
    >>> m = block_moments(Block(y, np.array([0, 1, 3])))
    >>> m.records, m.lag1.pairs, m.lag2.pairs
    (3, 1, 1)
    """
    kernel = _Kernel(block)
    lags = [CoMoment.zero(kernel.S) for _ in range(3)]
    ends = lags[0]
    for lag, offset, mask in block.links():
        lags[lag] += kernel.linked(mask, offset)
        if lag == 1:
            ends = kernel.linked(mask, 0)
    return kernel.moments(block.new_rows(), lags[1], lags[2], ends)


def labelled_moments(block: Block, labels: np.ndarray) -> dict[int, Moments]:
    """As `block_moments`, apart for each label; a pair has the label of its left end."""
    kernel = _Kernel(block)
    n = len(labels)
    links = [(lag, by, np.pad(mask, (0, n - len(mask)))) for lag, by, mask in block.links()]
    order = np.argsort(labels, kind="stable")
    found, starts = np.unique(labels[order], return_index=True)
    result = {}
    for label, a, b in zip(found, starts, [*starts[1:], n], strict=False):
        rows = order[a:b]
        lags = [CoMoment.zero(kernel.S) for _ in range(3)]
        ends = lags[0]
        for lag, offset, mask in links:
            left = rows[mask[rows]]
            lags[lag] += kernel.pairs(left, left + offset)
            if lag == 1:
                ends = kernel.pairs(left, left)
        new = rows if block.settled is None else rows[block.settled[rows] == 0]
        result[int(label)] = kernel.moments(new, lags[1], lags[2], ends)
    return result


class _Kernel:
    """A block centred at its mean, and weighted sums of its pairs."""

    def __init__(self, block: Block) -> None:
        values = np.asarray(block.values, np.float64)
        n, self.S = values.shape
        self.weight = np.ones(n) if block.weight is None else block.weight
        # Subtracting a row first keeps the digits of the mean when counts are huge.
        first = values[0] if n else np.zeros(self.S)
        centred = values - first
        # A product with ones is several times faster than numpy's sum along columns.
        shift = np.ones(n) @ centred / max(n, 1)
        centred -= shift
        self.centre = first + shift
        self.centred = centred
        self.weighted = centred if block.weight is None else centred * block.weight[:, None]

    def pairs(self, left: Index, right: Index) -> CoMoment:
        """The pairs of rows left[i] and right[i]."""
        return self._co_moment(self._sums(left, right))

    def linked(self, mask: np.ndarray, shift: int) -> CoMoment:
        """Pairs (i, i + shift) wherever mask[i]: all of them at once, less the few exceptions.

        Taking a view of the whole block and correcting it at the borders of realizations is
        cheaper than gathering nearly every row.
        """
        n = len(mask)
        missing = np.flatnonzero(~mask)
        if len(missing) > n // 2:
            left = np.flatnonzero(mask)
            return self.pairs(left, left + shift)
        sums = self._sums(slice(0, n), slice(shift, shift + n))
        if len(missing):
            exceptions = self._sums(missing, missing + shift)
            sums = tuple(a - b for a, b in zip(sums, exceptions, strict=True))
        return self._co_moment(sums)

    def moments(self, rows: Index, lag1: CoMoment, lag2: CoMoment, ends: CoMoment) -> Moments:
        inverse = float((1.0 / self.weight[rows]).sum())
        return Moments(self.pairs(rows, rows), lag1, lag2, ends, Counts(), inverse)

    def _sums(self, left: Index, right: Index) -> tuple[Any, ...]:
        x, y, w = self.weighted[left], self.centred[right], self.weight[left]
        return len(w), w.sum(), np.ones(len(w)) @ x, w @ y, x.T @ y

    def _co_moment(self, sums: tuple[Any, ...]) -> CoMoment:
        pairs, weight, left, right, product = sums
        return CoMoment.about(self.centre, pairs, float(weight), left, right, product)
