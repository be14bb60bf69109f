"""What the columns of a table are, many values at once: names, counts and steps, as `records` reads single values.

Null or NaN, or a row that is not good, is what `records.read_record` is to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.clock import MAX_TIME, Clock
from aggmc_beam.errors import InputError, Rejected
from aggmc_beam.local.text import DIGITS
from aggmc_beam.numerals import SPACE, Numerals
from aggmc_beam.records import MAX_COUNT, WHOLE_AND_ZEROS, Schema, good_rows, identity, is_missing
from aggmc_beam.zones import NEVER

#: Rows of which so many are alike on average are looked at once for each run of equal ones.
RUN = 4
#: Larger whole numbers are not all exact as floats.
EXACT = 2**53


# Names


def names_of(column: pl.Series, kind: Any, is_json: bool = False) -> pl.Series:
    """What `records.identity` makes of each value: as integers if all are whole, else as categories of a kind;
    null where there is no name.

    >>> names_of(pl.Series([" a", "7.0", "", None, "b"]), pl.Categorical()).to_list()
    ['a', '7', None, None, 'b']
    """
    dtype = column.dtype
    if is_whole(dtype):
        return column.cast(pl.Int64)
    if dtype.is_float():
        column = column.set(~column.is_finite(), None)
        if ((column == column.round()) & (column.abs() < EXACT)).all():
            return column.cast(pl.Int64)
    if dtype in (pl.String, pl.Categorical, pl.Enum, pl.Boolean):
        text = column.cast(pl.String)
        at, distinct = distinct_values(text)
        return _canonical(distinct, is_json).cast(kind).gather(at)
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object, pl.Null, pl.Unknown):
        return pl.Series(column.name, [None], pl.Int64).new_from_index(0, len(column))
    values = column.unique()
    names = pl.Series("name", [_identity(value) for value in values.to_list()], pl.String).cast(kind)
    known = pl.DataFrame([values.alias("value"), names])
    return column.to_frame("value").join(known, on="value", how="left", maintain_order="left")["name"]


def _identity(value: Any) -> str | None:
    try:
        return identity(value)
    except Rejected:
        return None


def is_whole(dtype: Any) -> bool:
    """Whether values are integers that 64 bits with a sign can hold."""
    return bool(dtype.is_integer()) and dtype not in (pl.UInt64, pl.Int128, pl.UInt128)


def distinct_values(text: pl.Series) -> tuple[np.ndarray, pl.Series]:
    """Where each value is in a shorter series: one of runs of equal values if those are long, or of all that
    are different."""
    starts = text.ne_missing(text.shift())
    if len(text):
        starts[0] = True
    number = int(starts.sum())
    if RUN * number <= len(text):
        at = np.cumsum(starts.to_numpy(), dtype=np.int64) - 1
        return at, text.filter(starts)
    # The code of a null is that of no category.
    code = text.cast(pl.Categorical(pl.Categories.random())).to_physical()
    codes = code.fill_null((code.max() or 0) + 1).to_numpy()  # type: ignore[operator]
    first = np.full(int(codes.max(initial=0)) + 1, -1)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    met = np.flatnonzero(first >= 0)
    place = np.zeros(len(first), np.int64)
    place[met] = np.arange(len(met))
    return place[codes], text.gather(first[met])


def _canonical(text: pl.Series, is_json: bool) -> pl.Series:
    """The names that texts are, null where they are none."""
    c = pl.col("text").str.strip_chars(SPACE)
    whole = c.str.extract(f"^{WHOLE_AND_ZEROS.pattern}$")
    name = pl.coalesce(pl.when(whole == "-0").then(pl.lit("0")).otherwise(whole), c)
    is_name = (c != "") & ~c.str.contains("[\\x{FFFD}\\x00]")
    if is_json:
        # Polars makes text of what is none in JSON.
        is_name &= ~pl.col("text").str.contains(rf"^[\[{{]|^-?[0-9]{{{DIGITS},}}")
    return text.to_frame("text").select(pl.when(is_name).then(name)).to_series()


# Numbers


def numbers_of(column: pl.Series, numerals: Numerals = Numerals()) -> pl.Series:  # noqa: B008 - frozen
    """As integers or floats; null, NaN or infinite where a value is no number."""
    dtype = column.dtype
    if is_whole(dtype):
        return column
    if dtype == pl.String:
        return _from_text(column.str.strip_chars(SPACE), numerals)
    if dtype.is_numeric():
        return column.cast(pl.Float64)
    return pl.Series(column.name, [None], pl.Float64).new_from_index(0, len(column))


def missing(column: pl.Series, numerals: Numerals = Numerals()) -> np.ndarray:  # noqa: B008 - frozen
    """Which values say that there is none, as `records.is_missing`.

    >>> missing(pl.Series([None, " ", "NaN", "<5", "0", "x"])).tolist()
    [True, True, True, True, False, False]
    """
    found = column.is_null()
    if column.dtype == pl.String:
        texts = column.filter(column.is_not_null() & column.cast(pl.Float64, strict=False).is_null()).unique()
        marks = [text for text in texts.to_list() if is_missing(text, numerals)]
        nan = column.str.strip_chars(SPACE).str.to_lowercase() == "nan"
        found = found | (column.is_in(marks) | nan).fill_null(False)
    elif column.dtype.is_float():
        found = found | column.is_nan().fill_null(False)
    return found.to_numpy()


def _from_text(text: pl.Series, numerals: Numerals) -> pl.Series:
    """The numbers in texts. What Polars does not read is read by `Numerals`, once for each text."""
    plain = text if numerals.decimal == "." else text.set(text.str.contains("[.,]"), None)
    found = plain.cast(pl.Float64, strict=False)
    odd = found.is_null() & text.is_not_null() & (text != "")
    if not odd.any():
        return found
    values = text.filter(odd).unique()
    read = [None if numerals.is_mark(value) else numerals.number(value) for value in values.to_list()]
    return found.to_frame("found").select(
        pl.coalesce("found", text.replace_strict(values, pl.Series(read, dtype=pl.Float64), default=None))
    ).to_series()  # fmt: skip


def matrix(
    given: Sequence[pl.Series], numerals: Numerals, gaps: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Columns side by side, as integers where all are whole, and which rows are good (None: all)."""
    columns = [numbers_of(c, numerals) for c in given]
    gone = np.column_stack([missing(c, numerals) for c in given]) if gaps else None
    if gone is not None and gone.any():
        floats = [c.cast(pl.Float64).fill_null(np.nan).to_numpy() for c in columns]
        return _with_gaps(np.column_stack(floats), gone)
    frame = pl.DataFrame([c.alias(str(i)) for i, c in enumerate(columns)])
    lacking = [c for c in frame.columns if frame[c].null_count()]
    if all(is_whole(dtype) for dtype in frame.dtypes):
        there = None
        if lacking:
            there = frame.select(pl.all_horizontal(pl.col(lacking).is_not_null())).to_series().to_numpy()
            frame = frame.with_columns(pl.col(lacking).fill_null(0))
        return _integers(frame), there
    values = frame.cast(pl.Float64).with_columns(pl.col(lacking).fill_null(np.nan)).to_numpy(order="c")
    return _checked(values)


def _with_gaps(values: np.ndarray, gone: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Counts [n, S] with NaN where they are `gone`, and which rows are good (None: all)."""
    good = ((np.abs(values) < MAX_COUNT) | gone).all(1) & ~gone.all(1)
    values = np.where(gone, np.nan, values)
    values[~good] = 0
    return values, None if good.all() else good


def _integers(frame: pl.DataFrame) -> np.ndarray:
    """Whole numbers in as few bytes as hold them."""
    for dtype in (pl.Int16, pl.Int32):
        try:
            return frame.cast(dtype).to_numpy(order="c")
        except pl.exceptions.InvalidOperationError:  # a number is too large
            continue
    found = frame.to_numpy(order="c")
    return found if np.abs(found).max(initial=0) < EXACT else found.astype(np.float64)


def _checked(values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    good = good_rows(values)
    if good.all():
        return narrowed(values), None
    values[~good] = 0
    return narrowed(values), good


def narrowed(values: np.ndarray) -> np.ndarray:
    """Floats as integers if all are whole and small.

    >>> narrowed(np.array([1.0, 2.0])).dtype, narrowed(np.array([1.0, 0.5])).dtype
    (dtype('int32'), dtype('float64'))
    """
    start = values[:64]
    if not ((start == np.rint(start)).all() and np.abs(values).max(initial=0) < 2**31):
        return values
    found = values.astype(np.int32)
    return found if np.array_equal(found, values) else values


def lists(
    column: pl.Series,
    S: int,
    source: str,
    numerals: Numerals = Numerals(),  # noqa: B008 - frozen
    gaps: bool = False,
) -> tuple[np.ndarray, np.ndarray | None]:
    """The counts [n, S] in lists, and which rows are good (None: all)."""
    dtype = column.dtype
    if dtype == pl.String:
        split = pl.col("text").str.strip_chars("[]() \t").str.split(numerals.comma)
        column = column.to_frame("text").select(split).to_series()
    elif isinstance(dtype, pl.Array):
        column = column.arr.to_list()
    if column.dtype == pl.List(pl.Null):
        column = column.cast(pl.List(pl.Float64))
    inner = column.dtype.inner if isinstance(column.dtype, pl.List) else pl.Null()
    if not inner.is_numeric() and inner != pl.String:
        raise InputError(f"column {column.name!r} of {source} holds {dtype}, not lists of counts")
    fits = (column.list.len() == S).fill_null(False)
    all_fit = bool(fits.all())
    given = (column if all_fit else column.filter(fits)).list.explode()
    numbers = numbers_of(given, numerals)
    gone = missing(given, numerals).reshape(-1, S) if gaps else np.zeros(0, bool)
    if gone.any():
        found, good = _with_gaps(numbers.cast(pl.Float64).fill_null(np.nan).to_numpy().reshape(-1, S), gone)
    elif is_whole(numbers.dtype) and not numbers.null_count():
        found, good = _integers(numbers.to_frame()).reshape(-1, S), None
    else:
        values = numbers.cast(pl.Float64).fill_null(np.nan).to_numpy().reshape(-1, S)
        found, good = _checked(values.copy())
    if all_fit:
        return found, good
    at = np.flatnonzero(fits.to_numpy())
    whole, are_good = np.zeros((len(column), S), found.dtype), np.zeros(len(column), bool)
    whole[at], are_good[at] = found, True if good is None else good
    return whole, are_good


# Time


def time_column(frame: pl.DataFrame, schema: Schema) -> pl.Series:
    """The column of the time; several as one of text."""
    if isinstance(schema.time, str):
        return frame[schema.time]
    parts = [names_of(frame[c], pl.Categorical()).cast(pl.String) for c in schema.time]
    return pl.DataFrame([p.alias(str(i)) for i, p in enumerate(parts)]).select(
        pl.concat_str(pl.all(), separator=" ").alias(schema.time_name)
    ).to_series()  # fmt: skip


def steps(column: pl.Series, clock: Clock, source: str = "the input") -> pl.Series:
    """The whole number of steps; null where time is not on a step."""
    if not clock.stamps:
        return _whole_steps(column, clock, source)
    if column.dtype.is_integer() and clock.is_calendar:
        column = column.cast(pl.String)
    if column.dtype == pl.String:
        # The same times come again and again.
        at, distinct = distinct_values(column)
        return _stamp_texts(distinct, clock).gather(at)
    if not isinstance(column.dtype, pl.Datetime) and column.dtype != pl.Date:
        raise InputError(
            f"column {column.name!r} of {source} holds {column.dtype}, not time stamps; for integer times set "
            "input.step to a whole number"
        )
    are_local = getattr(column.dtype, "time_zone", None) is None
    return _stamp_steps(column.cast(pl.Datetime("us")).dt.epoch("us"), clock, are_local)


def _whole_steps(column: pl.Series, clock: Clock, source: str) -> pl.Series:
    frame = column.to_frame("time")
    found = frame.select(units=_units(column.dtype, column.name, source)).to_series()
    if clock.unit == 1:
        return found
    c = pl.col("units")
    return found.to_frame("units").select(pl.when(c % clock.unit == 0).then(c // clock.unit)).to_series()


def _units(dtype: Any, column: str, source: str) -> pl.Expr:
    c = pl.col("time")
    if dtype == pl.String:
        text = c.str.strip_chars(SPACE)
        return pl.coalesce(
            _near(text.cast(pl.Int64, strict=False)), _whole_floats(text.cast(pl.Float64, strict=False))
        )
    if dtype.is_integer():
        return _near(c.cast(pl.Int64, strict=False))
    if dtype.is_float():
        return _whole_floats(c.cast(pl.Float64))
    raise InputError(
        f"column {column!r} of {source} holds {dtype}, not whole numbers; for time stamps set input.step to "
        "a duration such as 1h, or to day, week, month, quarter or year"
    )


def _near(c: pl.Expr) -> pl.Expr:
    return pl.when(c.is_between(-MAX_TIME, MAX_TIME, "none")).then(c)


def _whole_floats(c: pl.Expr) -> pl.Expr:
    whole = c.is_finite() & (c == c.round()) & (c.abs() < MAX_TIME)
    return pl.when(whole).then(c).cast(pl.Int64, strict=False)


def _stamp_steps(micros: pl.Series, clock: Clock, are_local: bool) -> pl.Series:
    """The steps of microseconds since 1970, null where there is none."""
    found = pl.Series(micros.name, clock.steps(micros.fill_null(0).to_numpy(), are_local), pl.Int64)
    return found.set(micros.is_null() | (found == NEVER), None)


def _stamp_texts(text: pl.Series, clock: Clock) -> pl.Series:
    """The steps of time stamps in text: those of one shape together, all others by `Clock.read`."""
    if clock.format is None:
        # Date T time offset, seconds and offset being optional.
        parts = pl.col("text").str.strip_chars().str.extract_groups(
            r"^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d(?:\.\d{1,6})?)?\s*(Z|z|[+-]\d\d:?\d\d)?)?$"
        ).struct  # fmt: skip
        offset = parts.field("4").fill_null("+00:00").replace(["Z", "z"], "+00:00").str.replace(":", "")
        time, second = parts.field("2").fill_null("00:00"), parts.field("3").fill_null(":00")
        shape = pl.concat_str(parts.field("1"), pl.lit("T"), time, second, offset)
        read = text.to_frame("text").select(
            time=shape.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%z", time_unit="us", strict=False).dt.epoch("us"),
            local=parts.field("4").is_null(),
        )
        found = _stamp_steps(read["time"], clock, False)
        if not clock.zone.is_utc or clock.is_calendar:
            found = found.zip_with(~read["local"], _stamp_steps(read["time"], clock, True))
        rest = text.filter(read["time"].is_null() & text.is_not_null()).unique()
    else:
        found, rest = (
            pl.Series(text.name, [None], pl.Int64).new_from_index(0, len(text)),
            text.drop_nulls().unique(),
        )
    if not len(rest):
        return found
    read_singly = pl.Series([_step(value, clock) for value in rest.to_list()], dtype=pl.Int64)
    return pl.select(pl.coalesce(found, text.replace_strict(rest, read_singly, default=None))).to_series()


def _step(text: str, clock: Clock) -> int | None:
    try:
        return clock.read(text)
    except Rejected:
        return None
