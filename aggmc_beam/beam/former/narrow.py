"""Whole numbers in as few bytes as hold them all: quicker to read, and to pick from at random.

`over` is a map that may run its calls at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: Values that are looked at and written while they are in a core's cache.
CACHED = 1 << 16

#: Writes values as a type, checked against its limits if it is `checked`; None if some are beyond them.
Write = Callable[[np.dtype[Any], bool], np.ndarray | None]


def narrowest(dtype: np.dtype[Any], write: Write) -> np.ndarray:
    """What is written as the type of fewest bytes that holds whole numbers of a type."""
    for fewer in (np.dtype(np.int16), np.dtype(np.int32)):
        if fewer.itemsize < dtype.itemsize:
            found = write(fewer, True)
            if found is not None:
                return found
    found = write(dtype, False)
    assert found is not None
    return found


def fitted(values: np.ndarray, out: np.ndarray) -> bool:
    """Write whole numbers into an array of fewer bytes; False if some are beyond its limits.

    >>> out = np.zeros(2, np.int16)
    >>> fitted(np.array([7, -8]), out), out.tolist(), fitted(np.array([7, 40_000]), out)
    (True, [7, -8], False)
    """
    limits = np.iinfo(out.dtype)
    if values.size and (values.min() < limits.min or values.max() > limits.max):
        return False
    out[...] = values
    return True


def narrowed(values: np.ndarray, over: Any = map) -> np.ndarray:
    """Whole numbers [n, S] in few bytes, otherwise as they lie in memory; other numbers as they are."""
    if values.dtype.kind not in "iu":
        return values
    if values.flags.f_contiguous and not values.flags.c_contiguous:
        return narrowed(values.T, over).T
    if values.flags.c_contiguous:
        return _rewritten(values.reshape(-1), CACHED, over).reshape(values.shape)
    return _rewritten(values, _rows(values), over)


def compact(values: np.ndarray, over: Any = map) -> np.ndarray:
    """The same values [n, S] row by row, whole numbers in few bytes."""
    if values.dtype.kind in "iu" and not values.flags.c_contiguous:
        return _rewritten(values, _rows(values), over)
    return narrowed(np.ascontiguousarray(values), over)


def _rows(values: np.ndarray) -> int:
    return max(1, CACHED // int(values.shape[1]))


def _rewritten(values: np.ndarray, rows: int, over: Any) -> np.ndarray:
    """Whole numbers in few bytes, row by row, so many rows at once."""

    def written(dtype: np.dtype[Any], checked: bool) -> np.ndarray | None:
        if dtype == values.dtype and values.flags.c_contiguous:
            return values
        out = np.empty(values.shape, dtype)

        def write(start: int) -> bool:
            part, target = values[start : start + rows], out[start : start + rows]
            if checked:
                return fitted(part, target)
            target[:] = part
            return True

        return out if all(over(write, range(0, len(values), rows))) else None

    return narrowest(values.dtype, written)
