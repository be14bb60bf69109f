"""Integers of Python, many made an array at once."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np


def whole(values: list[Any]) -> np.ndarray | None:
    """Integers of 32 bits as an array; None if there is anything else. Nothing passes for such an integer: no
    bool, None, subclass, or number of a library.

    >>> whole([1, 2, -3])
    array([ 1,  2, -3], dtype=int32)
    >>> whole([1, True]) is None
    True
    """
    if list(map(type, values)).count(int) != len(values):
        return None
    try:
        # By itself this takes whatever can be an index, True included; it is twice as quick as numpy.
        return np.frombuffer(struct.pack(f"<{len(values)}i", *values), "<i4")
    except struct.error:
        return None
