"""Many elements of a pipeline as one block of records: columns are made of rows, and `tidy` reads them.

Columns are made only of values of one kind, so that nothing is taken for what it is not: a row with anything else
is read by `records.read_record`, which is the definition of a record and tells what is wrong.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from aggmc_beam.beam.blocks import records_as_block
from aggmc_beam.beam.dead_letters import rejection
from aggmc_beam.beam.rows import PLAIN, plain_row, plain_value, rows
from aggmc_beam.errors import InputError
from aggmc_beam.local.batches import Batch
from aggmc_beam.local.blocks import index_names
from aggmc_beam.local.tidy import Read, Tidier, reason_of
from aggmc_beam.records import Record, Rejected, Schema
from aggmc_beam.sums.records import Records

#: With fewer rows than this, rows whose columns cannot be made are read one at a time.
FEW = 32
_LISTS: set[type] = {list, tuple, np.ndarray}


class Mixed(Exception):
    """A column of values of several kinds."""


@dataclass
class Found:
    """What some elements held: records, the number of rows, how many of these had been read before, and rejections:
    the record, its reason, its source."""

    records: list[Records] = field(default_factory=list)
    rows: int = 0
    read_before: int = 0
    rejected: list[dict[str, Any]] = field(default_factory=list)


class ElementReader:
    """Reads elements of any kind by a schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.columns = list(dict.fromkeys(schema.columns))
        self._names = set(schema.keys)

    def read(self, elements: Sequence[Any]) -> Found:
        """The records in some elements."""
        found, given = Found(), elements
        if set(map(type, elements)) != {dict}:
            given = list(self._plain(elements, found))
        if given:
            found.rows += len(given)
            # Categories of names live as long as the reader of a batch.
            self._read(given, Tidier(self.schema), found)
        return found

    def _plain(self, elements: Sequence[Any], found: Found) -> Iterator[Mapping[str, Any]]:
        single = [element for element in elements if isinstance(element, Record)]
        if single:
            found.records.append(records_as_block(single))
            found.rows += len(single)
            found.read_before += len(single)
        for element in elements:
            if isinstance(element, Record):
                continue
            if isinstance(element, Records):
                found.records.append(element)
                found.rows += element.number_of_rows()
                found.read_before += element.number_of_rows()
            elif isinstance(element, pa.RecordBatch | pa.Table | pl.DataFrame):
                self._table(element, found)
            else:
                for row in rows(element):
                    if isinstance(row, Rejected):
                        found.rows += 1
                        found.rejected.append(rejection(element, str(row)))
                    else:
                        yield row

    def _table(self, table: Any, found: Found) -> None:
        frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame(pl.from_arrow(table))
        missing = [c for c in self.columns if c not in frame.columns]
        if missing:
            has = ", ".join(frame.columns)
            raise InputError(f"a table of the input has no column {missing[0]!r}; it has {has}")
        frame = frame.select(self.columns)
        found.rows += frame.height
        batch = Batch(
            frame, np.arange(frame.height), lambda i: plain_row(frame.row(i, named=True), self.columns)
        )
        self._take(
            Tidier(self.schema).read(batch, "a table of the input"), batch, frame.rows(named=True), found
        )

    def _read(self, given: Sequence[Mapping[str, Any]], tidier: Tidier, found: Found) -> None:
        try:
            frame = self._frame(given)
            batch = Batch(frame, np.arange(len(given)), lambda i: plain_row(given[i], self.columns))
            read = tidier.read(batch)
        except (Mixed, InputError):
            half = len(given) // 2
            if len(given) >= FEW:
                self._read(given[:half], tidier, found)
                self._read(given[half:], tidier, found)
                return
            batch, read = self._singly(given, tidier)
        self._take(read, batch, given, found)

    def _singly(self, given: Sequence[Mapping[str, Any]], tidier: Tidier) -> tuple[Batch, Read]:
        nothing = pl.DataFrame({c: [None] * len(given) for c in self.columns})
        everything = np.arange(len(given))
        batch = Batch(nothing, everything, lambda i: plain_row(given[i], self.columns), broken=everything)
        return batch, tidier.read(batch)

    def _take(self, read: Read, batch: Batch, given: Sequence[Any], found: Found) -> None:
        for i in read.refused.tolist():
            reason = reason_of(batch, i, self.schema) or "it cannot be read as a record"
            found.rejected.append(rejection(given[i], reason))
        tidy = read.tidy
        if len(tidy):
            realization, names, group_of, groups = index_names(tidy.names)
            found.records.append(
                Records(realization, tidy.time, tidy.counts, names, group_of, groups, tidy.population)
            )

    def _frame(self, given: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
        """The columns of rows, all values of a column being of one kind; `Mixed` if they are not."""
        schema = self.schema
        try:
            fields = list(map(itemgetter(*self.columns), given))
        except KeyError:
            raise Mixed from None
        if isinstance(schema.counts, tuple) and not schema.clock.stamps:
            flat = list(chain.from_iterable(fields))
            numbers = _integers(flat)
            if numbers is not None:
                return pl.from_numpy(numbers.reshape(len(given), -1), self.columns)
        columns = dict(zip(self.columns, map(list, zip(*fields, strict=True)), strict=True))
        return pl.DataFrame([self._series(name, column) for name, column in columns.items()])

    def _series(self, name: str, column: list[Any]) -> pl.Series:
        kinds = set(map(type, column))
        if name == self.schema.counts:
            return _lists(name, column, kinds, len(self.schema.states))
        if not kinds <= PLAIN:
            column = list(map(plain_value, column))
            kinds = set(map(type, column))
        if name not in self._names and Decimal in kinds:
            column = [float(v) if type(v) is Decimal else v for v in column]
            kinds = kinds - {Decimal} | {float}
        if kinds == {str}:
            try:
                return pl.Series(name, column, pl.String)
            except UnicodeEncodeError:
                raise Mixed from None
        if kinds == {datetime}:
            zones = {value.tzinfo for value in column}
            if len(zones) > 1:
                raise Mixed
            return pl.Series(name, column, pl.Datetime("us", None if zones == {None} else "UTC"))
        return pl.Series(name, _numbers(column, kinds))


def _integers(values: list[Any]) -> np.ndarray | None:
    """Integers as an array; None if there is anything else. No bool passes for one, and no other type.

    >>> _integers([1, 2, -3]).tolist(), _integers([1, True])
    ([1, 2, -3], None)
    """
    if set(map(type, values)) != {int}:
        return None
    try:
        return np.frombuffer(array("q", values), np.int64)
    except OverflowError:
        return None


def _numbers(values: list[Any], kinds: set[type]) -> np.ndarray:
    """Numbers as integers, or as floats where some are; `Mixed` if they are anything else."""
    if kinds == {int}:
        found = _integers(values)
        if found is None:
            raise Mixed
        return found
    if kinds == {float}:
        return np.array(values, np.float64)
    if kinds == {int, float}:
        try:
            found = np.array(values, np.float64)
        except OverflowError:
            raise Mixed from None
        if np.abs(found).max(initial=0) < 2**53:
            return found
    raise Mixed


def _lists(name: str, column: list[Any], kinds: set[type], S: int) -> pl.Series:
    """Lists of S numbers each; `Mixed` if there is another."""
    if not kinds <= _LISTS:
        column = list(map(plain_value, column))
        kinds = set(map(type, column))
    if not kinds <= _LISTS or set(map(len, column)) != {S}:
        raise Mixed
    if kinds == {np.ndarray}:
        values = np.stack(column)
        if values.ndim != 2 or values.dtype.kind not in "if":
            raise Mixed
    else:
        flat = list(chain.from_iterable(column))
        inner = set(map(type, flat))
        if not inner <= PLAIN:
            flat = [float(v) if type(v) is Decimal else v for v in map(plain_value, flat)]
            inner = set(map(type, flat))
        values = _numbers(flat, inner).reshape(-1, S)
    return pl.Series(name, values, pl.List(pl.Int64 if values.dtype.kind == "i" else pl.Float64))
