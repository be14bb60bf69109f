"""Distinct whole numbers and their ranks, by a table of all that there may be where that is not too large."""

from __future__ import annotations

import numpy as np

#: A table may have so many places for each number: writing into it takes less time than sorting.
TABLE = 8
#: It may always have so many.
SMALL_TABLE = 1 << 16


def ranked(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values [n], sorted, and which of them each is.

    >>> [a.tolist() for a in ranked(np.array([7, -2, 7]))]
    [[-2, 7], [1, 0, 1]]
    """
    low = int(values.min())
    there = _are_there(values, low)
    if there is None:
        return np.unique(values, return_inverse=True)
    if there.all():
        return np.arange(low, low + len(there)), values - low
    return np.flatnonzero(there) + low, (np.cumsum(there) - 1)[values - low]


def distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values [n], sorted."""
    low = int(values.min())
    there = _are_there(values, low)
    return np.unique(values) if there is None else np.flatnonzero(there) + low


def _are_there(values: np.ndarray, low: int) -> np.ndarray | None:
    """Whether each number from `low` on is among the values; None if the table were too large."""
    size = int(values.max()) - low + 1
    if size > TABLE * len(values) + SMALL_TABLE:
        return None
    there = np.zeros(size, bool)
    there[values - low] = True
    return there
