"""Stretches of equal numbers that follow each other, as the records of a realization mostly do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


def heads_of(numbers: np.ndarray) -> np.ndarray | None:
    """Where each stretch of equal numbers begins; None if these have fewer than two numbers on average, or
    the first ones do.

    >>> heads_of(np.array([7, 7, 5, 5, 5, 7])).tolist(), heads_of(np.array([7, 5, 7]))
    ([0, 2, 5], None)
    """
    changed = numbers[1:] != numbers[:-1]
    if 2 * np.count_nonzero(changed) > len(changed):
        return None
    return np.concatenate([[0], np.flatnonzero(changed) + 1])


def limits_of(numbers: np.ndarray) -> tuple[int, int]:
    """The least and the largest of some numbers, in one go.

    >>> limits_of(np.array([4, 9, 2]))
    (2, 9)
    """
    found = Steps.of(numbers, np.zeros(1, np.int64))
    return int(found.first[0]), int(found.last[0])


class Steps(NamedTuple):
    """The `first` and `last` step in each stretch; how many records come `back` to an earlier step than the
    one before them in their stretch, and how many stay at the same `level`."""

    first: np.ndarray
    last: np.ndarray
    back: int
    level: int

    @classmethod
    def of(cls, time: np.ndarray, heads: np.ndarray) -> Steps:
        """
        >>> Steps.of(np.array([4, 5, 5, 9, 8]), np.array([0, 3]))
        Steps(first=array([4, 8]), last=array([5, 9]), back=1, level=1)
        """
        time = np.ascontiguousarray(time, np.int64)
        first, last = np.empty_like(heads), np.empty_like(heads)
        if not len(heads):
            return cls(first, last, 0, 0)
        back, level = time[1:] < time[:-1], time[1:] == time[:-1]
        back[heads[1:] - 1] = level[heads[1:] - 1] = False
        ends = np.minimum.reduceat(time, heads), np.maximum.reduceat(time, heads)
        return cls(*ends, int(np.count_nonzero(back)), int(np.count_nonzero(level)))


def are_in_order(key: np.ndarray, time: np.ndarray, heads: np.ndarray | None) -> bool:
    """Whether each record comes after the one before it, by key and time; given where stretches of one key
    begin, if that is known.

    >>> are_in_order(np.array([3, 3, 5]), np.array([1, 4, 0]), None)
    True
    """
    heads = np.flatnonzero(np.diff(key, prepend=key[:1] - 1)) if heads is None else heads
    steps = Steps.of(time, heads)
    return bool(np.all(np.diff(key[heads]) > 0)) and not steps.back and not steps.level
