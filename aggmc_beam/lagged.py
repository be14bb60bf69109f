"""Products of a line with itself at lags 0 to 2, as fast and as exact as matrix products can be.

A line [m, S] has a record or zeros in each row, and ends with two rows of zeros. Several are multiplied at
once, each by itself. Narrow matrices are multiplied slowly, so `fold` rows are taken as one: most pairs are
then within the wide rows, the others between neighbouring ones.

Sums of whole numbers are exact as long as they stay below what the precision holds, and no sum of products is
larger than the larger sum of squares. So the diagonal tells afterwards whether all of them are exact.
"""

from __future__ import annotations

import numpy as np

#: Wide rows have about so many values.
WIDE = 96
#: The farthest lag.
LAGS = 2
#: Whole numbers up to these are exact in single and double precision.
SINGLE, DOUBLE = 2.0**24, 2.0**53


def fold_of(S: int) -> int:
    """How many rows of S values are taken as one, a power of two."""
    return 1 << min(4, max(1, WIDE // S).bit_length() - 1)


def products(z: np.ndarray, fold: int, rows: int) -> np.ndarray | None:
    """The products [..., 3, S, S] of lines [..., m, S] at lags 0 to 2, or None if some may not be exact in
    single precision; `rows` wide rows at once are summed in it."""
    wide = z.reshape(*z.shape[:-2], -1, fold * z.shape[-1])
    within = gram(wide, rows)
    if within is None:
        return None
    if fold == 1:
        later = [_between(wide, wide[..., lag:, :], rows) for lag in range(1, LAGS + 1)]
        return np.stack([within, *later], -3)
    ends = LAGS * z.shape[-1]
    return _folded(within, _between(wide[..., -ends:], wide[..., 1:, :ends], rows), fold)


def _folded(within: np.ndarray, between: np.ndarray, fold: int) -> np.ndarray:
    """The products at lags 0 to 2 from those within wide rows, and between their ends."""
    before, S = within.shape[:-2], within.shape[-1] // fold
    within = within.reshape(*before, fold, S, fold, S)
    between = between.reshape(*before, LAGS, S, LAGS, S)
    lags = np.zeros((*before, LAGS + 1, S, S))
    for i in range(fold):
        for j in range(i, min(i + LAGS + 1, fold)):
            lags[..., j - i, :, :] += within[..., i, :, j, :]
    for i in range(LAGS):
        for j in range(i + 1):
            lags[..., LAGS + j - i, :, :] += between[..., i, :, j, :]
    return lags


def gram(x: np.ndarray, rows: int) -> np.ndarray | None:
    """x'x, so many rows at once in their own precision; None if that may not be exact for single precision.

    The limit is half of what it holds, since a row of the next part may take part in products between rows.
    """
    limit = SINGLE / 2 if x.dtype == np.float32 else np.inf
    total = np.zeros((*x.shape[:-2], x.shape[-1], x.shape[-1]))
    for start in range(0, x.shape[-2], rows):
        part = x[..., start : start + rows, :]
        found = part.swapaxes(-1, -2) @ part
        if not found.diagonal(0, -2, -1).max(initial=0) < limit:
            return None
        total += found
    return total


def _between(x: np.ndarray, y: np.ndarray, rows: int) -> np.ndarray:
    """x'y over the rows of y, so many at once."""
    total = np.zeros((*x.shape[:-2], x.shape[-1], y.shape[-1]))
    for start in range(0, y.shape[-2], rows):
        at = np.s_[..., start : min(start + rows, y.shape[-2]), :]
        total += x[at].swapaxes(-1, -2) @ y[at]
    return total
