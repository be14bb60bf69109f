"""Rows of plain integers, taken out of their dictionaries by compiled loops as they come.

A row is read while it is in a core's cache, and its memory is used again for the next one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aggmc_beam.beam.values import Batch
from aggmc_beam.native import compiled
from aggmc_beam.records import Schema

#: Numbers that are held before they become a batch.
HELD = 1 << 18


class Table:
    """Rows with a realization, a time and counts, all of them integers of 32 bits."""

    def __init__(self, names: list[str], lists: bool, states: int) -> None:
        self.places, self.lists, self.width = {name: i for i, name in enumerate(names)}, lists, 2 + states
        self.room = max(1, HELD // self.width)
        self._empty()

    @classmethod
    def of(cls, schema: Schema) -> Table | None:
        """A table for rows of a schema, if there is nothing in them but such numbers."""
        lists = isinstance(schema.counts, str)
        names = [schema.realization, schema.time, *([schema.counts] if lists else schema.counts)]
        plain = schema.clock.unit == 1 and not schema.clock.stamps
        plain &= not schema.group_by and schema.population is None and len(set(names)) == len(names)
        return cls(names, lists, len(schema.states)) if plain and compiled is not None else None

    def _empty(self) -> None:
        self.rows, self.number = np.empty((self.room, self.width), np.int32), 0

    def add(self, rows: list[Any]) -> bool:
        """Take rows; or none, and return False, if they hold anything else or are too many."""
        assert compiled is not None
        part = self.rows[self.number : self.number + len(rows)]
        if len(part) < len(rows) or not compiled.take_rows(rows, self.places, self.lists, part):
            return False
        self.number += len(rows)
        return True

    @property
    def is_full(self) -> bool:
        return 2 * self.number >= self.room

    def batch(self) -> Batch:
        """The rows so far, which are forgotten here."""
        found = self.rows[: self.number]
        self._empty()
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
