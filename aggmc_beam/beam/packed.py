"""Rows of numbers at once: Python marshals them in one go, and their bytes are an array."""

from __future__ import annotations

import marshal
from typing import Any

import numpy as np

#: Format 2 of marshal, in which every number is a letter for its type and its bytes, and nothing is shared.
_VERSION = 2
_LETTERS: dict[type, tuple[str, str]] = {int: ("i", "<i4"), float: ("g", "<f8")}
#: A letter and a length stand before the rows, and before the numbers of each row.
_HEAD = 5


def columns(rows: list[Any]) -> list[np.ndarray] | None:
    """The columns of some rows, which are tuples; None unless each column has nothing but floats, or nothing
    but integers of 32 bits. Nothing else passes for one: no bool, None, subclass, or number of a library.

    >>> columns([(1, 0.5), (2, 1.5)])
    [array([1, 2], dtype=int32), array([0.5, 1.5])]
    >>> columns([(1, 0.5), (True, 1.5)]) is None
    True
    """
    if not all(type(value) in _LETTERS for value in rows[0]):
        return None
    letters, formats = zip(*(_LETTERS[type(value)] for value in rows[0]), strict=True)
    sizes = [1 + np.dtype(form).itemsize for form in formats]
    places = np.cumsum([_HEAD, *sizes])
    try:
        data = marshal.dumps(rows, _VERSION)
    except ValueError:
        return None
    if len(data) != _HEAD + len(rows) * places[-1]:
        return None
    table = np.frombuffer(data, np.uint8, offset=_HEAD).reshape(len(rows), places[-1])
    # Read from the left, each letter tells where the next one is; so if all are right, so is all between.
    if not (table[:, :_HEAD] == table[0, :_HEAD]).all() or table[0, 0] != ord("("):
        return None
    if not (table[:, places[:-1]] == [ord(letter) for letter in letters]).all():
        return None
    return [
        np.ndarray(len(rows), form, data, _HEAD + place + 1, (places[-1],)).astype(form[1:])
        for place, form in zip(places[:-1].tolist(), formats, strict=True)
    ]
