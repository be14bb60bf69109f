"""Step means as sums, where these are whole numbers: a quarter of the bytes, and nothing is lost."""

from __future__ import annotations

import numpy as np

from aggmc_beam.errors import InputError

#: Fewer values are not worth a look.
MANY = 1 << 12
#: Rows that are looked at while they are in a core's cache.
ROWS = 1 << 10
_LIMIT = 2**31


def sums_of(means: np.ndarray, number: np.ndarray) -> np.ndarray | None:
    """The whole numbers [n, S] whose means over so many [n] these are, to the last bit; None if there are no
    such, or the means are few.

    >>> means = np.full((100, 50), 7 / 3)
    >>> sums_of(means, np.full(100, 3.0))[0, :3]
    array([7, 7, 7], dtype=int32)
    >>> sums_of(means, np.full(100, 2.0)) is None
    True
    """
    if means.size < MANY or not (number >= 1).all():
        return None
    found = np.empty(means.shape, np.int32)
    for start in range(0, len(means), ROWS):
        part, n = means[start : start + ROWS], number[start : start + ROWS, None]
        sums = np.rint(part * n)
        if not (np.abs(sums).max() < _LIMIT and (sums / n == part).all()):  # False for NaN
            return None
        found[start : start + ROWS] = sums
    return found


def means_of(sums: np.ndarray, number: np.ndarray) -> np.ndarray:
    """The inverse of `sums_of`."""
    if not (number >= 1).all():
        raise InputError("it has sums of no records")
    return np.asarray(sums / number[:, None])
