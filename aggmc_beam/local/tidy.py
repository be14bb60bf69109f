"""What a valid record is, for many rows at once: a batch of rows becomes arrays of records.

A row that these expressions cannot read is left to `records.read_record`, which reads one at a time and tells
what is wrong. So what is accepted here must be what `read_record` finds; what is not only takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.errors import Rejected
from aggmc_beam.local.batches import Batch
from aggmc_beam.local.columns import (
    lists,
    matrix,
    missing,
    names_of,
    narrowed,
    numbers_of,
    steps,
    time_column,
)
from aggmc_beam.local.text import Fields
from aggmc_beam.records import (
    MAX_COUNT,
    SERIES,
    Record,
    Schema,
    counts_of,
    identity,
    read_place,
    read_record,
)


@dataclass(frozen=True)
class Tidy:
    """Valid rows: `names` are the columns of groups and, last, the realization, as integers or categories.

    In the long layout `counts` [n] are those of the states `state` [n]; that is -1 where a row tells its
    realization and time, but no count of a state, so that its record cannot be used.
    """

    rows: np.ndarray
    names: list[pl.Series]
    time: np.ndarray
    counts: np.ndarray
    state: np.ndarray | None = None
    population: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, at: np.ndarray) -> Tidy:
        """Some of the rows."""
        return Tidy(
            self.rows[at],
            [name.gather(at) for name in self.names],
            self.time[at],
            np.take(self.counts, at, axis=0),
            None if self.state is None else self.state[at],
            None if self.population is None else self.population[at],
        )


@dataclass(frozen=True)
class Read:
    """A batch that was read: its valid rows, and the numbers of all its rows that are not."""

    height: int
    tidy: Tidy
    refused: np.ndarray
    singly: int
    """How many rows only `read_record` could read."""


class Tidier:
    """Reads the batches of a schema. Names of all of them are categories of one kind."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.name_kind = pl.Categorical(pl.Categories.random())
        self.columns = list(dict.fromkeys(schema.columns))

    def read(self, batch: Batch, source: str = "the input") -> Read:
        """The records in a batch; of a source by this name."""
        good = np.ones(batch.frame.height, bool)
        good[batch.broken] = False
        found = self._arrays(batch, good, source) if good.any() else self.nothing()
        left = np.flatnonzero(~good)
        if not len(left):
            return Read(len(good), found, batch.rows[:0], 0)
        return self._singly(batch, found, left)

    def nothing(self) -> Tidy:
        """No rows."""
        S, long = len(self.schema.states), self.schema.state is not None
        none = np.zeros(0, np.int64)
        names = [pl.Series([], dtype=pl.Int64)] * (1 + len(self.schema.group_by))
        counts = none if long else np.zeros((0, S), np.int16)
        population = None if self.schema.population is None else np.zeros(0)
        return Tidy(none, names, none, counts, none if long else None, population)

    def _arrays(self, batch: Batch, good: np.ndarray, source: str) -> Tidy:
        """The rows that these expressions can read; `good` is cleared for all others."""
        frame, schema = batch.frame, self.schema
        names = [self._names(frame[c], batch.is_json) for c in schema.keys]
        if schema.realization is None:
            names.append(pl.Series([int(SERIES)], dtype=pl.Int64).new_from_index(0, frame.height))
        columns = [*names, steps(time_column(frame, schema), schema.clock, source)]
        if schema.population is not None:
            size = numbers_of(frame[schema.population], schema.numerals)
            columns.append(size.set(~size.is_between(0, MAX_COUNT, "none"), None))
        for column in columns:
            if column.null_count():
                good &= column.is_not_null().to_numpy()
        at = None if good.all() else np.flatnonzero(good)
        state = None
        if schema.state is not None:
            state = self._states(frame[schema.state], batch.is_json)
            values = numbers_of(frame[str(schema.counts)], schema.numerals)
            value = values.cast(pl.Float64).fill_null(np.nan).to_numpy()
            there = np.abs(value) < MAX_COUNT
            if schema.gaps:
                gone = missing(frame[str(schema.counts)], schema.numerals)
                value, there = np.where(gone, np.nan, value), there | gone
            counts, fine = value, there & (state >= 0)
            fine = None if fine.all() else fine
        elif isinstance(schema.counts, str):
            counts, fine = lists(
                frame[schema.counts], len(schema.states), source, schema.numerals, schema.gaps
            )
        else:
            counts, fine = matrix([frame[c] for c in schema.counts], schema.numerals, schema.gaps)
        if fine is not None:
            good &= fine
            at = np.flatnonzero(good)
        if at is not None:
            counts, state = counts[at], None if state is None else state[at]
            columns, rows = [c.gather(at) for c in columns], batch.rows[at]
        else:
            rows = batch.rows
        columns = [c.rechunk() for c in columns]
        sizes = None if schema.population is None else columns.pop().to_numpy().astype(np.float64)
        if schema.shares:
            each = sizes[:, None] if sizes is not None and state is None else sizes
            counts = narrowed(counts_of(np.asarray(counts, np.float64), schema, each))
        return Tidy(rows, columns[:-1], columns[-1].to_numpy(), counts, state, sizes)

    def _names(self, column: pl.Series, is_json: bool) -> pl.Series:
        return names_of(column, self.name_kind, is_json)

    def _states(self, column: pl.Series, is_json: bool) -> np.ndarray:
        """The number of each row's state, -1 where it has none."""
        coded = names_of(column, self.name_kind, is_json)
        if coded.dtype == pl.Int64:
            coded = coded.cast(pl.String).cast(self.name_kind)
        code = coded.to_physical().fill_null(0).to_numpy()
        states = pl.Series(self.schema.states, dtype=pl.String).cast(self.name_kind).to_physical().to_numpy()
        table = np.full(max(int(code.max(initial=0)), int(states.max())) + 1, -1, np.int32)
        table[states] = np.arange(len(states))
        found = table[code]
        if coded.null_count():
            found[coded.is_null().to_numpy()] = -1
        return np.asarray(found)

    def _singly(self, batch: Batch, found: Tidy, left: np.ndarray) -> Read:
        """With the rows that are left, read one at a time."""
        records: list[Record] = []
        rows, refused, valid = [], [], 0
        for i in left.tolist():
            try:
                records.append(_record(batch, i, self.schema))
                rows.append(batch.rows[i])
                valid += 1
            except Spoiled as error:
                records.append(error.record)
                rows.append(batch.rows[i])
                refused.append(batch.rows[i])
            except Rejected:
                refused.append(batch.rows[i])
        if rows:
            found = self._joined(found, self._tidy(records, np.array(rows, np.int64)))
        return Read(len(batch.rows), found, np.array(refused, np.int64), valid)

    def _tidy(self, records: Sequence[Record], rows: np.ndarray) -> Tidy:
        names = [
            pl.Series([r.group[g] for r in records], dtype=pl.String)
            for g in range(len(self.schema.group_by))
        ]
        names.append(pl.Series([r.realization for r in records], dtype=pl.String))
        counts, state = np.array([r.counts for r in records]), None
        if self.schema.state is not None:
            state = np.array([-1 if r.state is None else r.state for r in records], np.int32)
            counts = counts[np.arange(len(counts)), np.maximum(state, 0)]
        population = None
        if self.schema.population is not None:
            population = np.array([r.population for r in records], np.float64)
        time = np.array([r.time for r in records], np.int64)
        return Tidy(rows, [n.cast(self.name_kind) for n in names], time, counts, state, population)

    def _joined(self, a: Tidy, b: Tidy) -> Tidy:
        both = join([a, b], self.name_kind)
        return both.part(np.argsort(both.rows, kind="stable"))


class Spoiled(Rejected):
    """A row of a long table that tells its record, but no count of a state. `record` has no counts."""

    def __init__(self, reason: str, record: Record) -> None:
        super().__init__(reason)
        self.record = record


def _record(batch: Batch, i: int, schema: Schema) -> Record:
    """The record in one row; `Rejected` with the reason, or `Spoiled` if it costs others too."""
    row = batch.raw(i)
    try:
        found = read_record(row, schema)
    except Rejected as error:
        if schema.state is None:
            raise
        group, realization, time = read_place(row, schema)
        # A population that is none costs its row alone, as one that differs from others does.
        nothing = np.full(len(schema.states), np.nan)
        raise Spoiled(str(error), Record(realization, time, nothing, 1.0, group)) from None
    if isinstance(row, Fields) and row.missing:
        raise Rejected("it has fewer fields than the header")
    return found


def reason_of(batch: Batch, i: int, schema: Schema) -> str | None:
    """Why a row is no record; None if it is one."""
    try:
        _record(batch, i, schema)
    except Rejected as error:
        return str(error)
    return None


def join(parts: Sequence[Tidy], kind: Any) -> Tidy:
    """The rows of several, one after the other."""
    if len(parts) == 1:
        return parts[0]
    names = []
    for columns in zip(*(part.names for part in parts), strict=True):
        types = {column.dtype for column in columns if len(column)}
        if len(types) > 1:
            columns = tuple(c.cast(pl.String).cast(kind) for c in columns)
        elif types:
            columns = tuple(c for c in columns if c.dtype in types)
        names.append(pl.concat(columns))

    def together(what: Callable[[Tidy], np.ndarray | None]) -> Any:
        arrays = [array for part in parts if (array := what(part)) is not None]
        return np.concatenate(arrays) if arrays else None

    return Tidy(
        together(lambda p: p.rows), names, together(lambda p: p.time), together(lambda p: p.counts),
        together(lambda p: p.state), together(lambda p: p.population),
    )  # fmt: skip


def distinct_names(batch: Batch, column: str) -> set[str]:
    """The names that a column has."""
    found = names_of(batch.frame[column], pl.Categorical(), batch.is_json)
    names = set(found.drop_nulls().cast(pl.String).unique().to_list())
    for i in np.flatnonzero(found.is_null().to_numpy()).tolist():
        try:
            names.add(identity(batch.raw(i).get(column)))
        except Rejected:
            continue
    return names
