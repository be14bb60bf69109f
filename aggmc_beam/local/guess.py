"""A first config from a look at the data: what `aggmc init` writes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from aggmc_beam.dates import DAY, INSTANT, MONTH, QUARTER, WEEK, YEAR, Stamp, read_stamp
from aggmc_beam.errors import InputError
from aggmc_beam.local.columns import missing, numbers_of
from aggmc_beam.local.sources import Dialect, Source, open_files
from aggmc_beam.numerals import Numerals, may_be_thousands
from aggmc_beam.records import Schema
from aggmc_beam.times import microseconds

#: Rows that are looked at, and lines of titles above a header.
ROWS, TITLES = 20_000, 20
#: More values than this of a column are no states or groups; and distinct times that are looked at.
MOST, MOST_TIMES = 300, 5000
TIMES = ("time", "timestamp", "datetime", "date", "step", "hour", "t", "ds", "period", "minute", "week", "month",
         "quarter", "year", "day", "wave", "round", "term")  # fmt: skip
RUNS = ("realization", "run", "series", "unit", "id", "site", "area", "district", "tract", "station", "panel", "day",
        "date", "region", "group", "code", "fips")  # fmt: skip
STATES = ("state", "category", "class", "status", "party", "zone", "place", "kind", "name")
COUNTS = ("count", "counts", "n", "number", "value", "total", "people", "devices", "individuals")
TOTALS = ("total", "all", "sum", "population", "pop")
STEPS = ("1m", "5m", "10m", "15m", "30m", "1h", "2h", "3h", "6h", "12h", "1d", "1w")
#: Days between dates, and the step of the calendar that these are.
CALENDAR = ((1, 6, DAY), (7, 27, WEEK), (28, 31, MONTH), (90, 92, QUARTER), (365, 366, YEAR))
_DAY = 86_400 * 10**6


@dataclass(frozen=True)
class Guess:
    """What the columns seem to hold. `time` is one column or two, `total` one that adds up the others, `missing` how
    many counts are missing of how many."""

    pattern: str
    columns: tuple[str, ...]
    realization: str | None
    time: tuple[str, ...]
    step: str | int
    states: tuple[str, ...]
    state: str | None
    count: str | None
    total: str | None
    groups: tuple[str, ...]
    negative: bool
    totals_vary: bool
    missing: tuple[int, int]
    skip: int = 0
    decimal: str | None = None
    time_format: str | None = None


@dataclass(frozen=True)
class Column:
    """Values of a column: numbers if all are, those of the calendar or a clock if all are, or texts."""

    name: str
    values: pl.Series
    numbers: pl.Series | None
    stamps: tuple[Stamp, ...] | None


def guess(pattern: str) -> Guess:
    """Look at the first rows of files; `InputError` if they hold no times or counts."""
    source, skip = _opened(pattern)
    frame = _head(source)
    decimal = _decimal(frame)
    columns = {c: _column(frame[c], Numerals(decimal or ".")) for c in frame.columns}
    names, listed = list(columns), _listed(list(columns))
    time = _time(columns)
    if time is None:
        raise InputError(f"no column of {source.name} looks like a time; its columns are {listed}")
    rest = [c for c in names if c not in time]
    numbers = [c for c in rest if columns[c].numbers is not None]
    lists = [c for c in rest if isinstance(frame[c].dtype, pl.List)]
    texts = [c for c in rest if c not in numbers and c not in lists]
    state = _named(texts, STATES) if not lists else None
    count = _named(numbers, COUNTS) if state is not None else None
    if state is not None and count is None:
        state = None
    keys = [*time, *([] if state is None else [state])]
    realization = _realization(frame, keys, [c for c in rest if c not in (state, count, *lists)], numbers)
    counted = [c for c in numbers if c != realization and not _is_called(c, RUNS)]
    total = None
    if state is not None:
        states = tuple(str(s) for s in frame[state].unique(maintain_order=True).drop_nulls().head(MOST + 1))
        table = pl.DataFrame([columns[str(count)].numbers])
    elif lists:
        states, table = (), pl.DataFrame([frame[lists[0]].explode().cast(pl.Float64, strict=False)])
    elif counted:
        table = pl.DataFrame([columns[c].numbers for c in counted])
        total = _total(table)
        table = table.drop(total) if total else table
        states = tuple(table.columns)
    else:
        raise InputError(f"no column of {source.name} looks like counts; its columns are {listed}")
    if len(states) > MOST:
        raise InputError(f"column {state!r} has more than {MOST} values, too many for states")
    groups = tuple(c for c in texts if c not in (state, realization) and 1 < frame[c].n_unique() <= MOST)
    whole = table.drop_nulls()
    sums = whole.select(pl.sum_horizontal(pl.all())).to_series()
    step, time_format = _step([columns[c] for c in time])
    return Guess(
        pattern, tuple(names), realization, time, step, states, state, count, total, groups,
        negative=any(bool((values < 0).any()) for values in table),
        totals_vary=state is None and not lists and sums.n_unique() > 1,
        missing=(sum(values.null_count() for values in table), table.height * table.width),
        skip=skip, decimal=decimal, time_format=time_format,
    )  # fmt: skip


def config_text(found: Guess, name: str, directory: str) -> str:
    """The guess as a commented config."""
    columns = [] if found.realization is None else [f"realization: {_plain(found.realization)}"]
    time = _plain(found.time[0]) if len(found.time) == 1 else f"[{', '.join(map(_plain, found.time))}]"
    columns.append(f"time: {time}")
    if found.state is not None:
        columns += [f"state: {_plain(found.state)}", f"counts: {_plain(str(found.count))}"]
    told = _beside
    lines = [
        f"# Written from a look at {found.pattern}: check every line that ends in a question mark.",
        f"# Its columns: {', '.join(found.columns)}",
        "version: 1",
        f"name: {_plain(name)}",
        f"states: [{', '.join(map(_plain, found.states))}]" if found.states else "states: from-data",
        *([] if found.total is None else [f"# {found.total} is the total of the others, so it is no state."]),
        "",
        "input:",
        f"  files: {_plain(found.pattern)}",
        *([told(f"  skip_lines: {found.skip}", "titles above the header")] if found.skip else []),
        *([told("  layout: long", "a row for each state")] if found.state is not None else []),
        *([] if found.realization is not None else
          ["  # All rows are one series: no column tells several apart. If one does, name it as `realization`."]),
        told(f"  columns: {{{', '.join(columns)}}}", "is this what they hold?"),
        told(f"  step: {found.step}", "from one record to the next?"),
        *([] if found.time_format is None else [f"  time_format: {_plain(found.time_format)}"]),
        *([told('  decimal: ","', "is 1.234 one thousand?")] if found.decimal == "," else []),
        *([told("  absent: zero", "what a state without a row means: zero, or missing?")]
          if found.state is not None else []),
        *_missing(found),
        *([told("  # timezone: Europe/Berlin", "whose clocks, where times have no offset; UTC if none is named")]
          if re.fullmatch(r"\d+[mh]", str(found.step)) else []),
    ]  # fmt: skip
    groups = [g for g in found.groups if g != found.realization]
    if groups:
        lines += [
            "",
            "# One matrix for each value of these columns?",
            f"# group_by: [{', '.join(map(_plain, groups))}]",
        ]
    return "\n".join([*lines, "", *_assumptions(found), "", *_output(directory), ""])


def _beside(line: str, comment: str) -> str:
    """A line with a comment, below those of others."""
    return f"{line:<31}  # {comment}"


def _missing(found: Guess) -> list[str]:
    gone, of = found.missing
    if not gone:
        return []
    return [
        f"  # {gone:,} of {of:,} counts are missing or hidden. If they are missing at random:",
        _beside("  missing: pairwise", "or else see `suppressed` noise, for small counts that are hidden"),
    ]


def _assumptions(found: Guess) -> list[str]:
    if found.negative:
        noise = ["# Counts below 0: noise was added to them. How much?", "noise: {model: laplace, scale: 1}"]
    else:
        noise = [
            "# How the counts came about? exact: everyone is counted. Others: {model: binomial, alpha: 0.5}, each",
            "# is seen with probability alpha; {model: panel}, one sample at all steps; {model: laplace, scale: 2}.",
            "noise: {model: exact}",
        ]
        if found.totals_vary:
            noise.insert(
                0, "# Totals change from row to row, so they are hardly exact counts of a closed population."
            )
    season = {"1h": "{cycle: 24} for hour of day", MONTH: "{cycle: 12} for month of year",
              QUARTER: "{cycle: 4} for quarter of year"}.get(str(found.step))  # fmt: skip
    return [
        *noise,
        _beside("population: estimate", "a number if it is known"),
        _beside("chain: stationary", f"one matrix for all times?{f' Try {season}' if season else ''}"),
        "estimator: auto",
    ]


def _output(directory: str) -> list[str]:
    return ["output:", f"  directory: {_plain(directory)}", "  report: true", "  tables: [csv]"]


def _opened(pattern: str) -> tuple[Source, int]:
    """The first file, and how many lines of titles stand above its header."""
    source = open_files([pattern])[0]
    if source.format != "csv" or _is_header(source):
        return source, 0
    for skip in range(1, TITLES):
        try:
            found = open_files([source.name], Dialect(skip=skip))[0]
        except InputError:
            break
        if _is_header(found):
            return found, skip
    return source, 0


def _is_header(source: Source) -> bool:
    """Whether the first line names several columns, all of them."""
    return len(source.columns) > 1 and all(not c.startswith("column ") for c in source.columns)


def _head(source: Source) -> pl.DataFrame:
    """The first rows, as a run reads them."""
    if source.frame is not None:
        return source.frame.head(ROWS).collect()
    batch = next(source.batches(Schema((), ""), list(source.columns)))()
    return batch.frame.head(ROWS)


def _decimal(frame: pl.DataFrame) -> str | None:
    """A comma, if that is what numbers have before their fraction, or points stand for thousands."""
    for column in frame:
        if column.dtype != pl.String:
            continue
        texts = [t for t in column.drop_nulls().head(ROWS).to_list() if not Numerals().is_mark(t)]
        if not texts or all(read_stamp(t) is not None for t in texts[:50]):
            continue
        if may_be_thousands(texts) is not None and all(Numerals(",").number(t) is not None for t in texts):
            return ","
        plain = all(Numerals().number(t) is not None for t in texts)
        if not plain and all(Numerals(",").number(t) is not None for t in texts):
            return ","
    return None


def _column(values: pl.Series, numerals: Numerals) -> Column:
    if isinstance(values.dtype, pl.List | pl.Array | pl.Struct):
        return Column(values.name, values, None, None)
    numbers = None
    if values.dtype == pl.String or values.dtype.is_numeric():
        gone = missing(values, numerals)
        found = numbers_of(values, numerals).cast(pl.Float64)
        found = found.set(pl.Series(gone), None).fill_nan(None)
        if found.null_count() == gone.sum() < len(values):
            numbers = found.alias(values.name)
    return Column(values.name, values, numbers, _stamps(values, numbers))


def _stamps(values: pl.Series, numbers: pl.Series | None) -> tuple[Stamp, ...] | None:
    """The times of a column, if all are; of numbers such as 202401 and 20240131, for months and days."""
    if values.dtype.is_temporal():
        if isinstance(values.dtype, pl.Datetime):
            values = values.dt.replace_time_zone(None)
    elif numbers is not None:
        if not ((numbers >= 190_001) & (numbers < 21_000_101)).all():
            return None
        values = numbers.drop_nulls().cast(pl.Int64).cast(pl.String)
    elif values.dtype != pl.String:
        return None
    found = [read_stamp(v) for v in values.drop_nulls().unique().sort().head(MOST_TIMES).to_list()]
    known = tuple(s for s in found if s is not None)
    return known if known and len(known) == len(found) else None


def _time(columns: dict[str, Column]) -> tuple[str, ...] | None:
    """The column of the time, or the two of a date and an hour, or of a year and a month."""
    names = list(columns)
    dates = [c for c in names if (s := columns[c].stamps) and all(x.unit == DAY for x in s)]
    hours = [c for c in names if _is_called(c, ("hour", "hr")) and _within(columns[c], 0, 24)]
    if dates and hours:
        return dates[0], hours[0]
    years = [c for c in names if _is_called(c, ("year",)) and _within(columns[c], 1800, 2200)]
    months = [c for c in names if _is_called(c, ("month",)) and _within(columns[c], 1, 12)]
    if years and months:
        return years[0], months[0]
    stamped = [c for c in names if columns[c].stamps]
    found = _named(stamped, TIMES) or next(iter(stamped), None)
    found = found or _named([c for c in names if columns[c].numbers is not None], TIMES)
    return None if found is None else (found,)


def _within(column: Column, low: float, high: float) -> bool:
    values = column.numbers
    return values is not None and bool(((values >= low) & (values <= high)).all())


def _realization(
    frame: pl.DataFrame, keys: Sequence[str], candidates: Sequence[str], numbers: Sequence[str]
) -> str | None:
    """The column with which rows are told apart, of those with the fewest values; None if the time does already."""
    if not frame.select(keys).is_duplicated().any():
        return _named([c for c in candidates if _is_called(c, ("realization",))], RUNS)
    fitting = [
        c
        for c in candidates
        if (c not in numbers or _is_called(c, RUNS)) and not frame.select([*keys, c]).is_duplicated().any()
    ]
    if fitting:
        return min(fitting, key=lambda c: (c not in numbers or not _is_called(c, RUNS), frame[c].n_unique()))
    return _named(candidates, RUNS)


def _total(table: pl.DataFrame) -> str | None:
    """The column that holds the sum of the others, or is called so."""
    if table.width < 3:
        return None
    sums = table.fill_null(0).to_numpy().sum(1)
    for column in table:
        twice = 2 * column.fill_null(0).to_numpy()
        if np.allclose(twice, sums, rtol=1e-6) or _is_called(column.name, TOTALS):
            return column.name
    return None


def _is_called(column: str, words: Iterable[str]) -> bool:
    return _named([column], tuple(words)) is not None


def _named(columns: Sequence[str], words: Sequence[str]) -> str | None:
    """The column that is called like the first word that one is called like."""
    for word in words:
        for column in columns:
            if word in re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column).lower()):
                return column
    return None


def _step(columns: Sequence[Column]) -> tuple[str | int, str | None]:
    """From one time to the next, and how times are written if that must be told."""
    if len(columns) == 2:
        return ("1h", None) if columns[0].stamps else (MONTH, "%Y %m")
    stamps, numbers = columns[0].stamps, columns[0].numbers
    if stamps is None:
        assert numbers is not None
        gaps = np.diff(np.unique(numbers.drop_nulls().to_numpy()))
        return (max(int(gaps.min()), 1) if len(gaps) else 1), None
    for unit in (YEAR, QUARTER, MONTH, WEEK):
        if any(s.unit == unit for s in stamps):
            return unit, None
    times = np.unique([s.time for s in stamps])
    gaps = np.diff(times)
    if not len(gaps):
        return DAY, None
    gap = int(gaps.min())
    if all(s.unit == DAY or (s.unit == INSTANT and s.time % _DAY == 0) for s in stamps):
        for low, high, unit in CALENDAR:
            if low * _DAY <= gap <= high * _DAY and (unit != WEEK or gap % (7 * _DAY) == 0):
                return unit, None
        return (DAY if gap < 28 * _DAY else MONTH), None
    fitting = [step for step in STEPS if gap % microseconds(step) == 0]
    return (_multiple(gap, fitting[-1]) if fitting else f"{max(gap // 10**6, 1)}s"), None


def _multiple(gap: int, unit: str) -> str:
    return f"{gap // microseconds(unit) * int(unit[:-1])}{unit[-1]}"


def _plain(text: str) -> str:
    """A YAML scalar; quoted unless it is a plain word."""
    bare = re.fullmatch(r"[A-Za-z_./][\w./*-]*", text) and text.lower() not in _WORDS
    return text if bare else json.dumps(text, ensure_ascii=False)


_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (" ..." if len(names) > 12 else "")


def config_name(pattern: str) -> str:
    """What a run over these files may be called."""
    stem = os.path.basename(pattern).split(".")[0]
    return re.sub(r"\W+", "-", stem).strip("-") or "run"
