"""Long Parquet tables whose rows come record by record, put together without being made tidy first.

Where nothing but the order of rows can be wrong, columns are compared as they were read. They are read one
after the other, so that each has the memory of the one before: fetching new memory takes as long as reading.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import polars as pl

from aggmc_beam.beam.former.footer import LARGE
from aggmc_beam.beam.former.matrix import of_rows
from aggmc_beam.beam.former.recordwise import by_stretch, repeats
from aggmc_beam.beam.former.sources import BROKEN, ROW, Source
from aggmc_beam.beam.former.threads import on_all_cores
from aggmc_beam.beam.former.tidy import FILE, KEY, TIME, VALUES
from aggmc_beam.records import MAX_TIME, Schema
from aggmc_beam.stretches import are_in_order, heads_of, limits_of


class NotTogether(pl.exceptions.PolarsError):
    """Rows do not come record by record, or hold something unusual; they may be good nevertheless."""


def is_together(frame: pl.DataFrame, schema: Schema) -> bool:
    """Whether tidy rows are records of long tables, and not the rows that they are made of."""
    return schema.state is not None and VALUES in frame.columns


def put_together(sources: Sequence[Source], schema: Schema) -> pl.DataFrame:
    """The records of long tables as tidy rows of lists, each at the place of its first row; `NotTogether` if
    rows do not make such records, in order and with the same order of all states."""
    if not all(_is_plain(source, schema) for source in sources):
        raise NotTogether("there is more in it than whole numbers and names of states")
    parts = [_records(source, number, schema) for number, source in enumerate(sources)]
    whole = pl.concat(parts, how="vertical_relaxed")
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


def _records(source: Source, number: int, schema: Schema) -> pl.DataFrame:
    """The records of the file of this number as tidy rows."""
    S = len(schema.states)
    order = _order(_column(source, str(schema.state)), schema)
    heads = {KEY: schema.realization, TIME: schema.time}
    found = {name: by_stretch(_column(source, c), S, on_all_cores) for name, c in heads.items()}
    counts = of_rows(_column(source, str(schema.counts)), S, on_all_cores)
    if counts is None or any(column is None for column in found.values()):
        raise NotTogether("some record has several realizations or times")
    if order != list(range(S)):
        counts = np.ascontiguousarray(counts[:, order])
    rows = pl.int_range(1, counts.size + 1, S, dtype=pl.UInt32, eager=True)
    place = pl.lit(number, pl.UInt32).alias(FILE), pl.lit(False).alias(BROKEN)
    whole = pl.DataFrame({**found, VALUES: counts, ROW: rows})
    return whole.with_columns(pl.col(KEY, TIME).cast(pl.Int64), pl.col(VALUES).arr.to_list(), *place)


def _column(source: Source, name: str) -> pl.Series:
    """A column without nulls."""
    found = pl.scan_parquet(source.name, glob=False).select(name).collect().to_series()
    if found.null_count():
        raise NotTogether(f"something is missing in {name!r}")
    return found


def _order(states: pl.Series, schema: Schema) -> list[int]:
    """At which place of each record the first, second, ... state is, if that is the same in all."""
    S = len(schema.states)
    names = [text.strip() for text in states.head(S).to_list()]
    if sorted(names) != sorted(schema.states) or len(states) % S or not repeats(states, S, on_all_cores):
        raise NotTogether("records do not have all states in the same order")
    return [names.index(state) for state in schema.states]
