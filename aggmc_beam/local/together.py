"""Long Parquet tables whose rows come record by record, put together while they are read.

Where nothing but the order of rows can be wrong, nothing is to be made tidy: columns are compared as they
were read, on all cores, and what is kept of them is written once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from aggmc_beam.local.footer import LARGE, whole_kind
from aggmc_beam.local.recordwise import firsts, takes_turns
from aggmc_beam.local.sources import BROKEN, ROW, Source
from aggmc_beam.local.threads import on_all_cores
from aggmc_beam.local.tidy import FILE, KEY, TIME, VALUES
from aggmc_beam.narrow import fitted
from aggmc_beam.records import MAX_TIME, Schema
from aggmc_beam.stretches import are_in_order, heads_of, limits_of

#: Rows that are compared at once.
ROWS = 1 << 19


class NotTogether(pl.exceptions.PolarsError):
    """Rows do not come record by record, or hold something unusual; they may be good nevertheless."""


class Rest(NamedTuple):
    """The first rows of a part, which belong to a record that began before: its number, realization, time."""

    record: int
    key: int
    time: int


def is_together(frame: pl.DataFrame, schema: Schema) -> bool:
    """Whether tidy rows are records of long tables, and not the rows that they are made of."""
    return schema.state is not None and VALUES in frame.columns


def put_together(sources: Sequence[Source], schema: Schema) -> pl.DataFrame:
    """The records of long tables as tidy rows of lists, each at the place of its first row; `NotTogether` if
    rows do not make such records, in order and with the same order of all states."""
    if not all(_is_plain(source, schema) for source in sources):
        raise NotTogether("there is more in it than whole numbers and names of states")
    kinds = {whole_kind(source.name, str(schema.counts)) for source in sources}
    kind = kinds.pop() if len(kinds) == 1 else pl.Int32()
    frames = [_read(source, schema, kind).frame(number) for number, source in enumerate(sources)]
    whole = pl.concat(frames)
    key, time = whole[KEY].to_numpy(), whole[TIME].to_numpy()
    low, high = limits_of(time)
    if not are_in_order(key, time, heads_of(key)) or low <= -MAX_TIME or high >= MAX_TIME:
        raise NotTogether("records are not in order of realization and time")
    return whole


def _is_plain(source: Source, schema: Schema) -> bool:
    """Whether a file is large, and its columns are such that nothing but their order can be wrong."""
    kinds = [source.columns.get(c) for c in (schema.realization, schema.time, str(schema.counts))]
    return (
        source.format == "parquet"
        and os.path.getsize(source.name) > LARGE
        and all(kind in (pl.Int64, pl.Int32, pl.Int16, pl.Int8) for kind in kinds)
        and source.columns.get(str(schema.state)) == pl.String
        and not schema.group_by
        and schema.population is None
        and not schema.clock.stamps
        and schema.clock.unit == 1
        and len(set(schema.columns)) == len(schema.columns)
    )


def _read(source: Source, schema: Schema, kind: pl.DataType) -> _Table:
    """The records of a file."""
    frame = pl.scan_parquet(source.name, glob=False).select(schema.columns).collect()
    table = _Table.empty(frame, schema, kind)
    rests = on_all_cores(lambda part: table.take(*part), _parts(frame))
    if not all(table.goes_on(rest) for rest in rests if rest is not None):
        raise NotTogether("some record has rows of another realization or time")
    return table


def _parts(frame: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows of a frame, each part with the number of its first one and in one piece of memory."""
    cuts = {0, frame.height}
    for column in frame:
        cuts.update(accumulate(column.chunk_lengths()))
    for a, b in pairwise(sorted(cuts)):
        for start in range(a, b, ROWS):
            yield start, frame[start : min(start + ROWS, b)]


@dataclass(frozen=True)
class _Table:
    """The n records of a file: `key` and `time` [n], and `counts` [n * S], whose states are in the order of
    `texts` [S]; these are the names of the states of the numbers `codes` [S]."""

    schema: Schema
    texts: list[str]
    codes: list[int]
    key: np.ndarray
    time: np.ndarray
    counts: np.ndarray

    @classmethod
    def empty(cls, frame: pl.DataFrame, schema: Schema, kind: pl.DataType) -> _Table:
        """For the rows of a frame."""
        rows, S = frame.height, len(schema.states)
        number = {name: i for i, name in enumerate(schema.states)}
        texts = frame[str(schema.state)].head(S).to_list()
        codes = [number.get(str(text).strip(), -1) for text in texts]
        if sorted(codes) != list(range(S)) or rows % S:
            raise NotTogether("the first record has not all states once")
        key, time = (np.empty(rows // S, np.int64) for _ in range(2))
        return cls(schema, texts, codes, key, time, np.empty(rows, str(kind).lower()))

    def take(self, start: int, batch: pl.DataFrame) -> Rest | None:
        """Take the rows from number `start` on, and tell what the first of them go on with."""
        if any(column.null_count() for column in batch):
            raise NotTogether("something is missing")
        S, skip = len(self.texts), -start % len(self.texts)
        at = (start + skip) // S
        heads = []
        for name, out in ((self.schema.realization, self.key), (self.schema.time, self.time)):
            values = batch[name].to_numpy()
            found = firsts(values, S, skip)
            if found is None:
                raise NotTogether("some record has several realizations or times")
            out[at : at + len(found)] = found
            heads.append(int(values[0]))
        counts = batch[str(self.schema.counts)].to_numpy()
        if not fitted(counts, self.counts[start : start + len(counts)]):
            raise NotTogether(f"some counts do not fit into {self.counts.dtype}")
        if not takes_turns(batch[str(self.schema.state)], self.texts, start):
            raise NotTogether("some record has other states, or in another order")
        return Rest(at - 1, *heads) if skip else None

    def goes_on(self, rest: Rest) -> bool:
        """Whether rows belong to the record that they go on with."""
        return bool(self.key[rest.record] == rest.key and self.time[rest.record] == rest.time)

    def frame(self, number: int) -> pl.DataFrame:
        """The records as tidy rows of the file of this number."""
        S = len(self.texts)
        counts = self.counts.reshape(-1, S)
        if self.codes != list(range(S)):
            counts = np.ascontiguousarray(counts[:, np.argsort(self.codes)])
        rows = pl.int_range(1, len(self.counts) + 1, S, dtype=pl.UInt32, eager=True)
        found = pl.DataFrame({KEY: self.key, TIME: self.time, VALUES: counts, ROW: rows})
        place = pl.lit(number, pl.UInt32).alias(FILE), pl.lit(False).alias(BROKEN)
        return found.with_columns(pl.col(VALUES).arr.to_list(), *place)
