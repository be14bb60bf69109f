"""The schema of an observation, and why a row is not one. Plain Python and numpy, for every engine.

A record is a realization, a time step, one count per state, and optionally a population and groups.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np

from aggmc_beam.clock import Clock as Clock
from aggmc_beam.errors import Rejected as Rejected
from aggmc_beam.numerals import SPACE, Numerals
from aggmc_beam.text import shortened as shortened

#: Longest record or message in bytes, and how deep its lists and objects may be nested.
MAX_BYTES, MAX_DEPTH = 10 << 20, 32
#: The column of realizations, unless something else is said.
REALIZATION = "realization"
#: The realization of all rows where no column tells it.
SERIES = "0"
#: Counts and populations lie below this, so that their products stay finite.
MAX_COUNT = 1e30
#: What decoders leave where there was no text: the replacement character, NUL, half of a pair.
_NO_TEXT = re.compile("[\ufffd\0\ud800-\udfff]")
_NUMBERS = frozenset({int, float})
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,14})")
#: A whole number in text, which may have a fraction of zeros.
WHOLE_AND_ZEROS = re.compile(r"(-?(?:0|[1-9][0-9]*))(?:\.0+)?")


@dataclass(frozen=True)
class Schema:
    """Where a row holds what. `counts` is one column of lists or one column per state (wide), or the
    column of the one count (long, where `state` names the state's column). Without a column of the realization all
    rows are of one series. A time may be in several columns, such as day and hour, read as one text with spaces."""

    states: tuple[str, ...]
    counts: str | tuple[str, ...]
    state: str | None = None
    realization: str | None = "realization"
    time: str | tuple[str, ...] = "time"
    clock: Clock = Clock()
    group_by: tuple[str, ...] = ()
    population: str | None = None
    gaps: bool = False
    """Whether counts may be missing: null, NaN, empty or a mark."""
    unit: float = 1.0
    """What values are multiplied by to become counts, besides the population of their row if that is a column and
    they are `shares`."""
    shares: bool = False
    numerals: Numerals = Numerals()

    @property
    def columns(self) -> list[str]:
        """All columns of a row that matter."""
        counts = [self.counts] if isinstance(self.counts, str) else list(self.counts)
        more = [c for c in (self.state, self.population) if c is not None]
        return [*self.keys, *self.times, *counts, *more]

    @property
    def keys(self) -> list[str]:
        """The columns that tell groups and realizations apart."""
        return [*self.group_by, *([] if self.realization is None else [self.realization])]

    @property
    def times(self) -> list[str]:
        """The columns that tell the time."""
        return [self.time] if isinstance(self.time, str) else list(self.time)

    @cached_property
    def time_name(self) -> str:
        """The time as messages call it."""
        return " ".join(self.times)

    @property
    def numbers(self) -> set[str]:
        """The columns that hold a number, and no name."""
        found = {self.counts} if isinstance(self.counts, str) else set(self.counts)
        if self.state is None and isinstance(self.counts, str):
            found = set()  # a column of lists
        if not self.clock.stamps and isinstance(self.time, str):
            found.add(self.time)
        if self.population is not None:
            found.add(self.population)
        return found - self.names

    @property
    def names(self) -> set[str]:
        """The columns that hold names."""
        return {*self.keys, *([] if self.state is None else [self.state])}


@dataclass(frozen=True)
class Record:
    """One row that fits its schema. `counts` [S], NaN where missing; of a long row, all but that of `state`."""

    realization: str
    time: int
    counts: np.ndarray
    population: float | None = None
    group: tuple[str, ...] = ()
    state: int | None = None


def read_record(row: Mapping[str, Any], schema: Schema) -> Record:
    """The record in a row; `Rejected` with the reason if there is none.

    >>> schema = Schema(("home", "away"), "counts")
    >>> read_record({"realization": 7, "time": 3, "counts": [5, 1e1]}, schema).counts
    array([ 5., 10.])
    >>> read_record({"realization": 7, "time": 3, "counts": [5, "x"]}, schema)
    Traceback (most recent call last):
    aggmc_beam.errors.Rejected: the count of 'away' is 'x', not a number
    """
    group, realization, time = read_place(row, schema)
    counts = _counts(row, schema)
    population = None
    if schema.population is not None:
        population = _number(row.get(schema.population), schema.population, schema.numerals)
        if population <= 0:
            raise Rejected(f"{schema.population} is {population:g}; a population is above 0")
    counts = counts_of(counts, schema, population)
    state = None if schema.state is None else schema.states.index(identity(row.get(schema.state)))
    return Record(realization, time, counts, population, group, state)


def counts_of(values: np.ndarray, schema: Schema, population: Any = None) -> np.ndarray:
    """The counts [n, S] or [S] that values are, which may be shares of a population [n, 1] or of one.

    >>> counts_of(np.array([25.0, 75.0]), Schema(("in", "out"), "counts", unit=2.0, shares=True))
    array([ 50., 150.])
    """
    if not schema.shares:
        return values
    return values * schema.unit if schema.population is None else values * (schema.unit * population)


def read_place(row: Mapping[str, Any], schema: Schema) -> tuple[tuple[str, ...], str, int]:
    """The group, realization and step of a row; `Rejected` with the reason if it does not tell them."""
    group = tuple(identity(row.get(c), c) for c in schema.group_by)
    realization = SERIES
    if schema.realization is not None:
        realization = identity(row.get(schema.realization), schema.realization)
    return group, realization, schema.clock.read(_time(row, schema), schema.time_name)


def _time(row: Mapping[str, Any], schema: Schema) -> Any:
    if isinstance(schema.time, str):
        return row.get(schema.time)
    return " ".join(identity(row.get(column), column) for column in schema.time)


def as_row(record: Record, schema: Schema) -> dict[str, Any]:
    """The row that `read_record` would read the record from.

    >>> schema = Schema(("home", "away"), "counts")
    >>> as_row(Record("7", 3, np.array([5.0, 10.0])), schema)
    {'realization': '7', 'time': 3, 'counts': [5.0, 10.0]}
    """
    row: dict[str, Any] = dict(zip(schema.group_by, record.group, strict=True))
    if schema.realization is not None:
        row[schema.realization] = record.realization
    row[schema.time_name] = schema.clock.label(record.time)
    counts = [None if n != n else n for n in record.counts.tolist()]
    if isinstance(schema.counts, str):
        row[schema.counts] = counts
    else:
        row |= dict(zip(schema.counts, counts, strict=True))
    if schema.population is not None and record.population is not None:
        row[schema.population] = record.population
    return row


def parse_json(line: str | bytes) -> dict[str, Any]:
    """The row in a line of JSON; `Rejected` if it is none."""
    row = read_json(line)
    if not isinstance(row, dict):
        raise Rejected(f"the line holds {shortened(row)}, not a JSON object")
    return row


def read_json(text: str | bytes) -> Any:
    """The value in JSON text; `Rejected` if it is none, or too long or too deep to be records.

    Of a key that is given twice the first counts, as it does for Polars.

    >>> read_json('{"time": 1, "time": 2}')
    {'time': 1}
    """
    if len(text) > MAX_BYTES:
        raise Rejected(f"it is longer than {MAX_BYTES >> 20} MB")
    try:
        found = _read_json(text)
    except UnicodeDecodeError as error:
        raise Rejected(f"the line is not UTF-8 text ({error.reason})") from None
    except (ValueError, RecursionError) as error:  # also integers of thousands of digits
        raise Rejected(f"the line is not JSON: {error}") from None
    if openings(text) > MAX_DEPTH and _is_deep(found):
        raise Rejected(f"it is nested more than {MAX_DEPTH} deep")
    return found


def _first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else dict(reversed(pairs))


_DECODER = json.JSONDecoder(object_pairs_hook=_first)


def _read_json(text: str | bytes) -> Any:
    """As `json.loads`, which makes a decoder for each text and guesses its encoding: here once that fails."""
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode())
    except ValueError:
        return json.loads(text, object_pairs_hook=_first)


def openings(text: str | bytes) -> int:
    """How many lists and objects begin in the text, or seem to; it cannot be deeper than that."""
    if isinstance(text, str):
        return text.count("[") + text.count("{")
    return text.count(b"[") + text.count(b"{")


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = (v.values() if isinstance(v, dict) else v for v in level)
        level = [x for values in inner for x in values if isinstance(x, list | dict)]
        if not level:
            return False
    return True


def identity(value: Any, column: str = "name") -> str:
    """The canonical name of a realization or group, the same in every format and engine; `Rejected` if the
    value names nothing.

    Numbers are written out in full, as few digits as tell them apart. Text stands for itself without the
    white space around it, but a whole number with a fraction of zeros is that number.

    >>> [identity(value) for value in (7, 7.0, "7", " 7.00 ", "007", -0.0, 1e25, 0.1, True, "north")]
    ['7', '7', '7', '7', '007', '0', '10000000000000000000000000', '0.1', 'true', 'north']
    """
    if value is None:
        raise Rejected(f"{column} is missing")
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float | np.floating):
        if not math.isfinite(value):
            raise Rejected(f"{column} is {value}")
        value = format(Decimal(repr(float(value))), "f")
    if not isinstance(value, str | int | Decimal | date | time_of_day | timedelta | np.integer):
        raise Rejected(f"{column} is {shortened(value)}, not a name or a number")
    try:
        found = str(value).strip(SPACE)
    except ValueError:  # too many digits
        raise Rejected(f"{column} is {shortened(value)}") from None
    if _NO_TEXT.search(found):
        raise Rejected(f"{column} is not UTF-8 text")
    if not found:
        raise Rejected(f"{column} is missing")
    return _without_fraction(found)


def _without_fraction(name: str) -> str:
    whole = WHOLE_AND_ZEROS.fullmatch(name)
    if whole is None:
        return name
    return "0" if whole[1] == "-0" else whole[1]


def realization_number(name: str) -> int:
    """The number by which a realization is dealt into jackknife groups; the same on every engine.

    >>> realization_number("12"), realization_number("north")
    (12, 3693752514)
    """
    return int(name) if _WHOLE.fullmatch(name) else zlib.crc32(name.encode())


def good_rows(counts: np.ndarray) -> np.ndarray:
    """Which rows of an array [n, S] are finite throughout, and not beyond `MAX_COUNT`."""
    return np.asarray((np.abs(counts) < MAX_COUNT).all(1))


def is_missing(value: Any, numerals: Numerals) -> bool:
    """Whether a value says that there is none: null, NaN, empty or a mark.

    >>> [is_missing(value, Numerals()) for value in (None, " ", float("nan"), "<5", 0, "x")]
    [True, True, True, True, False, False]
    """
    if isinstance(value, str):
        return numerals.is_mark(value) or value.strip(SPACE).lower() == "nan"
    return value is None or (isinstance(value, float | np.floating) and value != value)


def _counts(row: Mapping[str, Any], schema: Schema) -> np.ndarray:
    if schema.state is not None:
        return _long_count(row, schema)
    values: Sequence[Any]
    if isinstance(schema.counts, str):
        found = row.get(schema.counts)
        if isinstance(found, str) and not found.strip():
            found = None
        if isinstance(found, str):
            found = [part.strip() for part in found.strip("[]() \t").split(schema.numerals.comma)]
        if found is None:
            raise Rejected(f"{schema.counts} is missing")
        if isinstance(found, dict) or not hasattr(found, "__len__"):
            raise Rejected(f"{schema.counts} is {shortened(found)}, not a list of counts")
        if len(found) != len(schema.states):
            raise Rejected(f"{schema.counts} has {len(found)} values for {len(schema.states)} states")
        values = list(found)
    else:
        values = [row.get(c) for c in schema.counts]
    plain = _plain_numbers(values)
    if plain is not None:
        return plain
    named = zip(schema.states, values, strict=True)
    counts = np.array([_count(v, f"the count of {name!r}", schema) for name, v in named])
    if np.isnan(counts).all():
        raise Rejected("all its counts are missing")
    return counts


def _count(value: Any, what: str, schema: Schema) -> float:
    if schema.gaps and is_missing(value, schema.numerals):
        return float("nan")
    return _number(value, what, schema.numerals)


def _plain_numbers(values: Sequence[Any]) -> np.ndarray | None:
    """Counts of Python's own numbers, all good; None if `_number` is to look at each."""
    if not _NUMBERS.issuperset(map(type, values)):
        return None
    try:
        found = np.array(values, np.float64)
    except OverflowError:
        return None
    # Neither is true where one is NaN.
    return found if len(found) and found.max() < MAX_COUNT and found.min() > -MAX_COUNT else None


def _long_count(row: Mapping[str, Any], schema: Schema) -> np.ndarray:
    assert schema.state is not None
    assert isinstance(schema.counts, str)
    state = identity(row.get(schema.state), schema.state)
    counts = np.full(len(schema.states), np.nan)
    if state not in schema.states:
        raise Rejected(f"state {state!r} is not declared; its record is not used")
    counts[schema.states.index(state)] = _count(row.get(schema.counts), f"the count of {state!r}", schema)
    return counts


def _number(value: Any, what: str, numerals: Numerals) -> float:
    if isinstance(value, str):
        if numerals.is_mark(value):
            raise Rejected(f"{what} is missing" + (f" ({shortened(value)})" if value.strip(SPACE) else ""))
        number = numerals.number(value)
        value = _Text(value) if number is None else number
    if value is None:
        raise Rejected(f"{what} is missing")
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | np.integer | np.floating):
        raise Rejected(f"{what} is {shortened(value)}, not a number")
    try:
        found = float(value)
    except OverflowError:
        raise Rejected(f"{what} is too large") from None
    if not math.isfinite(found):
        raise Rejected(f"{what} is {'NaN' if found != found else 'infinite'}")
    if abs(found) >= MAX_COUNT:
        raise Rejected(f"{what} is {found:g}, too large")
    return found


class _Text:
    """Text that is no number, shown as it was."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return repr(self.text)
