"""Rows of plain integers, taken out of their dictionaries by compiled loops as they come.

A row is read while it is in a core's cache, and its memory is used again for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from aggmc_beam.beam.values import Batch
from aggmc_beam.native import compiled
from aggmc_beam.records import Schema

#: Numbers that are held before they become a batch.
HELD = 1 << 17

#: What becomes of an element.
Process = Callable[[Any], Iterable[Any]]


class Table:
    """Rows with a realization, a time and counts, all of them integers of 32 bits.

    `take` is given each element, and gives those to `other` that are no such row, or for which there is no
    room; what that tells is returned."""

    def __init__(self, names: list[str], lists: bool, states: int, other: Process) -> None:
        assert compiled is not None
        places, width = {name: i for i, name in enumerate(names)}, 2 + states
        self._shape = max(1, HELD // width), width
        self._taken = compiled.Rows(places, lists, width, other)
        self.take: Process = self._taken.take
        self.clear()

    @classmethod
    def of(cls, schema: Schema, other: Process) -> Table | None:
        """A table for rows of a schema, if there is nothing in them but such numbers."""
        lists = isinstance(schema.counts, str)
        names = [schema.realization, schema.time, *([schema.counts] if lists else schema.counts)]
        plain = schema.clock.unit == 1 and not schema.clock.stamps
        plain &= not schema.group_by and schema.population is None and len(set(names)) == len(names)
        return cls(names, lists, len(schema.states), other) if plain and compiled is not None else None

    def clear(self) -> None:
        """Forget all rows."""
        self._rows = np.empty(self._shape, np.int32)
        self._taken.write_to(self._rows)

    @property
    def is_full(self) -> bool:
        return self._taken.number == len(self._rows)

    def batch(self) -> Batch:
        """The rows so far, which are forgotten here."""
        found = self._rows[: self._taken.number]
        self.clear()
        names, key = distinct(found[:, 0])
        return Batch((), names, key, found[:, 1].astype(np.int64), found[:, 2:])


def distinct(numbers: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """The names of numbers, and which of them each one has. Mostly a number follows its equal.

    >>> distinct(np.array([7, 7, 3, 7]))
    (('3', '7'), array([1, 1, 0, 1]))
    """
    starts = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]])[: len(numbers)])
    known, at = np.unique(numbers[starts], return_inverse=True)
    return tuple(map(str, known.tolist())), np.repeat(at, np.diff(starts, append=len(numbers)))
