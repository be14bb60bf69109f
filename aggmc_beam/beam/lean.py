"""Step means as sums, where these are whole numbers: a quarter of the bytes, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.profile import Profile

#: Fewer values are not worth a look.
MANY = 1 << 12
#: Rows that are looked at while they are in a core's cache.
ROWS = 1 << 10
_LIMIT = 2**31


def sums_of(profiles: Sequence[Profile]) -> list[np.ndarray] | None:
    """The whole numbers whose means over the records of each step the profiles hold, to the last bit; None if
    not all means are such, or they are few."""
    if sum(profile.records.size for profile in profiles) < MANY:
        return None
    found = []
    for profile in profiles:
        sums = _sums(profile.records, profile.weight[:, 0])
        if sums is None:
            return None
        found.append(sums)
    return found


def _sums(means: np.ndarray, number: np.ndarray) -> np.ndarray | None:
    if not (number >= 1).all():
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
    """The means of sums [n, S] over so many records [n], as they were before `sums_of`."""
    if not (number >= 1).all():
        raise InputError("it has sums of no records")
    return np.asarray(sums / number[:, None])
