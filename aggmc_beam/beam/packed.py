"""Rows of plain numbers, all read at once."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

#: Integers beyond these are left to those who know what a column may hold.
_LIMIT = 2**31


def columns(rows: list[tuple[Any, ...]]) -> list[np.ndarray] | None:
    """The columns of some rows; None unless each column has nothing but floats, or nothing but integers of 32
    bits. Nothing else passes for one: no bool, None, subclass, or number of a library.

    >>> columns([(1, 0.5), (2, 1.5)])
    [array([1, 2]), array([0.5, 1.5])]
    >>> columns([(1, 0.5), (True, 1.5)]) is None
    True
    """
    if len(set(map(len, rows))) != 1:
        return None
    kinds = set(map(type, chain.from_iterable(rows)))
    if not kinds <= {int, float}:
        return None
    try:
        if kinds == {int}:
            whole = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(rows[0]))
            found = list(whole.reshape(len(rows), -1).T)
        else:
            found = [
                np.array(column) for column in zip(*rows, strict=True) if len(set(map(type, column))) == 1
            ]
    except OverflowError:
        return None
    if len(found) != len(rows[0]) or not all(map(_is_plain, found)):
        return None
    return found


def _is_plain(column: np.ndarray) -> bool:
    if column.dtype == np.float64:
        return True
    return column.dtype == np.int64 and bool(column.min() >= -_LIMIT and column.max() < _LIMIT)
