"""From a source's columns to those of records, as lazy Polars expressions of fixed types.

Whatever cannot be read becomes null; `records.read_record` tells later why.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.beam.former.sources import BROKEN, ROW, Source
from aggmc_beam.errors import InputError, nearest
from aggmc_beam.records import MAX_COUNT, MAX_TIME, Clock, Schema

KEY, TIME, VALUES, STATE, COUNT, POPULATION, FILE = (
    "__key", "__time", "__values", "__state", "__count", "__population", "__file",
)  # fmt: skip


def group_columns(schema: Schema) -> list[str]:
    return [f"__group{i}" for i in range(len(schema.group_by))]


def value_columns(schema: Schema) -> list[str]:
    """Names of the tidy columns that hold counts."""
    if schema.state is not None:
        return [STATE, COUNT]
    if isinstance(schema.counts, str):
        return [VALUES]
    return [f"__value{i}" for i in range(len(schema.counts))]


def placed(schema: Schema) -> pl.Expr:
    """Whether a tidy row tells its groups, realization and time."""
    needed = [*group_columns(schema), KEY, TIME]
    return pl.all_horizontal([pl.col(c).is_not_null() for c in needed] + [~pl.col(BROKEN)])


def readable(schema: Schema) -> pl.Expr:
    """Whether a tidy row holds a record, or part of one; exact but for lists with nulls or NaN."""
    good = [placed(schema)]
    if schema.population is not None:
        good.append(pl.col(POPULATION).is_between(0, MAX_COUNT, "none"))
    if value_columns(schema) == [VALUES]:
        good.append(pl.col(VALUES).list.len() == len(schema.states))
        good.append(pl.col(VALUES).list.sum().is_finite())
    else:
        for c in value_columns(schema):
            if c != STATE:
                good.append(pl.col(c).abs() < MAX_COUNT)
    return pl.all_horizontal(good).fill_null(False)


def tidy(source: Source, number: int, schema: Schema, native: bool = False) -> pl.LazyFrame:
    """The rows of one source, with groups, key, time, counts, population and place.

    With `native`, realizations and counts that are whole numbers stay so, and names of states are as they
    are written; else they are text and floats, and clean.
    """
    missing = [c for c in schema.columns if c not in source.columns]
    if missing:
        raise InputError(_missing(source, missing[0]))
    dtype = source.columns
    names = schema.group_by
    columns = [name_of(c, dtype[c]).alias(f"__group{i}") for i, c in enumerate(names)]
    columns.append(_key(schema.realization, dtype[schema.realization], native).alias(KEY))
    columns.append(_time(schema.time, dtype[schema.time], schema.clock, source.name).alias(TIME))
    if schema.population is not None:
        columns.append(_number(schema.population, dtype[schema.population]).alias(POPULATION))
    columns += _values(schema, source, native)
    columns += [pl.lit(number, pl.UInt32).alias(FILE), pl.col(ROW).cast(pl.UInt32), pl.col(BROKEN)]
    return source.scan(list(dict.fromkeys(schema.columns))).select(columns)


def _key(column: str, dtype: Any, native: bool) -> pl.Expr:
    if native and _is_whole(dtype):
        return pl.col(column)
    if native and dtype == pl.String:
        return pl.col(column).map_batches(_named, return_dtype=pl.String, is_elementwise=True)
    return name_of(column, dtype)


def _named(texts: pl.Series) -> pl.Series:
    """What `name_of` tells of texts. Rows of a realization mostly follow each other, and are looked at once.

    >>> _named(pl.Series([" a ", " a ", "", None, "b"])).to_list()
    ['a', 'a', None, None, 'b']
    """
    stretches = texts.rle().struct.unnest()
    few = 2 * stretches.height < len(texts)
    names = (stretches["value"] if few else texts).to_frame("text").select(name_of("text", pl.String))
    if not few:
        return names.to_series()
    return names.to_series().gather(np.repeat(np.arange(stretches.height), stretches["len"]))


def _values(schema: Schema, source: Source, native: bool) -> list[pl.Expr]:
    dtype = source.columns

    def number(column: str) -> pl.Expr:
        whole = native and _is_whole(dtype[column])
        return pl.col(column) if whole else _number(column, dtype[column])

    if schema.state is not None:
        assert isinstance(schema.counts, str)
        raw = native and dtype[schema.state] == pl.String
        state = pl.col(schema.state) if raw else name_of(schema.state, dtype[schema.state])
        return [state.alias(STATE), number(schema.counts).alias(COUNT)]
    if isinstance(schema.counts, str):
        return [_list(schema.counts, dtype[schema.counts], source, native).alias(VALUES)]
    return [number(c).alias(f"__value{i}") for i, c in enumerate(schema.counts)]


def _is_whole(dtype: Any) -> bool:
    """Whether values are integers that 64 bits with a sign can hold."""
    return bool(dtype.is_integer()) and dtype not in (pl.UInt64, pl.Int128, pl.UInt128)


def name_of(column: str, dtype: Any) -> pl.Expr:
    """A realization, group or state as text; 7, 7.0 and "7" are the same."""
    c = pl.col(column)
    if dtype.is_float():
        whole = c.is_finite() & (c == c.round()) & (c.abs() < 2**53)
        return pl.when(whole).then(c.cast(pl.Int64, strict=False).cast(pl.String)).otherwise(
            pl.when(c.is_finite()).then(c.cast(pl.String))
        )  # fmt: skip
    if isinstance(dtype, pl.List | pl.Array | pl.Struct) or dtype == pl.Binary:
        return pl.lit(None, pl.String)
    text = c.cast(pl.String).str.strip_chars()
    return pl.when((text != "") & ~text.str.contains(r"[\x{FFFD}\x00]")).then(text)


def _number(column: str, dtype: Any) -> pl.Expr:
    c = pl.col(column)
    if dtype == pl.String:
        return c.str.strip_chars().cast(pl.Float64, strict=False)
    return c.cast(pl.Float64) if dtype.is_numeric() else pl.lit(None, pl.Float64)


def _list(column: str, dtype: Any, source: Source, native: bool) -> pl.Expr:
    c = pl.col(column)
    if dtype == pl.String:
        part = pl.element().str.strip_chars().cast(pl.Float64, strict=False)
        return c.str.strip_chars("[]() \t").str.split(",").list.eval(part)
    if isinstance(dtype, pl.Array):
        c, dtype = c.arr.to_list(), pl.List(dtype.inner)
    if not isinstance(dtype, pl.List) or not dtype.inner.is_numeric():
        raise InputError(f"column {column!r} of {source.name} holds {dtype}, not lists of counts")
    return c if native and _is_whole(dtype.inner) else c.cast(pl.List(pl.Float64))


def _time(column: str, dtype: Any, clock: Clock, source: str) -> pl.Expr:
    """The whole number of steps; null where time is not on a step."""
    units = _moment(column, dtype, source) - clock.origin if clock.stamps else _units(column, dtype, source)
    if clock.unit == 1:
        return units
    return pl.when(units % clock.unit == 0).then(units // clock.unit)


def _units(column: str, dtype: Any, source: str) -> pl.Expr:
    c = pl.col(column)
    if dtype == pl.String:
        text = c.str.strip_chars()
        return pl.coalesce(
            _near(text.cast(pl.Int64, strict=False)), _whole(text.cast(pl.Float64, strict=False))
        )
    if dtype.is_integer():
        return _near(c.cast(pl.Int64, strict=False))
    if dtype.is_float():
        return _whole(c.cast(pl.Float64))
    raise InputError(
        f"column {column!r} of {source} holds {dtype}, not whole numbers; for time stamps set input.step to "
        "a duration such as 1h"
    )


def _near(c: pl.Expr) -> pl.Expr:
    return pl.when(c.is_between(-MAX_TIME, MAX_TIME, "none")).then(c)


def _whole(c: pl.Expr) -> pl.Expr:
    whole = c.is_finite() & (c == c.round()) & (c.abs() < MAX_TIME)
    return pl.when(whole).then(c).cast(pl.Int64, strict=False)


def _moment(column: str, dtype: Any, source: str) -> pl.Expr:
    """Microseconds since 1970, UTC unless there is an offset."""
    c = pl.col(column)
    if isinstance(dtype, pl.Datetime):
        return c.dt.epoch("us")
    if dtype == pl.Date:
        return c.cast(pl.Datetime("us")).dt.epoch("us")
    if dtype != pl.String:
        raise InputError(
            f"column {column!r} of {source} holds {dtype}, not time stamps; for integer times set input.step "
            "to a whole number"
        )
    # One shape for all: date T time offset, seconds and offset being optional.
    parts = c.str.strip_chars().str.extract_groups(
        r"^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d(?:\.\d{1,9})?)?\s*(Z|z|[+-]\d\d:?\d\d)?)?$"
    ).struct  # fmt: skip
    offset = parts.field("4").fill_null("+00:00").replace(["Z", "z"], "+00:00").str.replace(":", "")
    shape = pl.concat_str(
        parts.field("1"),
        pl.lit("T"),
        parts.field("2").fill_null("00:00"),
        parts.field("3").fill_null(":00"),
        offset,
    )
    found = shape.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%z", time_unit="us", strict=False)
    return found.dt.epoch("us")


def _missing(source: Source, column: str) -> str:
    hint = nearest(column, source.columns) if source.columns else "it has none"
    return f"{source.name} has no column {column!r}; {hint}"
