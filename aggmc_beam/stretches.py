"""Stretches of equal numbers that follow each other, as the records of a realization mostly do."""

from __future__ import annotations

import numpy as np


def heads_of(numbers: np.ndarray) -> np.ndarray | None:
    """Where each stretch of equal numbers begins; None if these have fewer than two numbers on average.

    >>> heads_of(np.array([7, 7, 5, 5, 5, 7])).tolist(), heads_of(np.array([7, 5, 7]))
    ([0, 2, 5], None)
    """
    changed = numbers[1:] != numbers[:-1]
    if 2 * np.count_nonzero(changed) > len(changed):
        return None
    return np.concatenate([[0], np.flatnonzero(changed) + 1])
