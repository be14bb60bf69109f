"""CSV and JSON lines as batches of rows: pieces of whole lines, each parsed by Polars.

Polars makes null what is not of the type a column was seen to have, and refuses a whole piece for one line that
is no JSON. Lines that it cannot read are read by Python's own parsers: a broken line costs its row, never its
neighbours, and no field ever moves to another column.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from inspect import signature
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import polars as pl

from aggmc_beam.errors import InputError, Rejected
from aggmc_beam.local import csvrows
from aggmc_beam.local.batches import Batch
from aggmc_beam.local.csvrows import LINE, QUOTE, Row
from aggmc_beam.local.decoded import open_text
from aggmc_beam.logs import LOGGER
from aggmc_beam.records import MAX_BYTES, MAX_DEPTH, Schema, openings, parse_json

if TYPE_CHECKING:
    from aggmc_beam.local.sources import Source

#: Bytes of a piece: some ten thousand lines, parsed in a few hundredths of a second.
PIECE = 4 << 20
#: Longest line, and longest run of lines within quotation marks.
MAX_LINE = 64 << 20
#: Lines from which the types of columns are guessed.
SAMPLE = 100
#: With more than one in so many rows refused, columns have other types than the first lines had.
MISLED = 16
#: Longest whole number that Polars reads without rounding.
DIGITS = 30
#: What may stand between the fields of CSV, the first one where the header does not tell.
SEPARATORS = ",;\t|"
#: Rows may have more or fewer fields than the header. Polars 1 takes them without being told.
_RAGGED: dict[str, Any] = {
    name: value
    for name, value in (("extra_columns", "ignore"), ("missing_columns", "insert"))
    if name in signature(pl.scan_csv).parameters
}


@dataclass(frozen=True)
class Piece:
    """Some lines of a file, of which the first has this number; of CSV also the rows that Polars cannot read."""

    number: int
    data: bytes
    odd: tuple[Row, ...] = ()

    @cached_property
    def lines(self) -> list[bytes]:
        found = self.data.split(LINE)
        return found if found[-1] else found[:-1]

    def head(self, number: int) -> list[bytes]:
        """The first lines."""
        found = self.data.split(LINE, number)[:number]
        return found if found[-1] else found[:-1]

    @cached_property
    def height(self) -> int:
        """How many lines there are."""
        return self.data.count(LINE) + (not self.data.endswith(LINE))


def pieces(source: Source, used: Sequence[int] = ()) -> Iterator[Piece]:
    """The lines of a file in pieces, without those above the data; of CSV each ends where no field is open, and
    `used` are the fields that matter."""
    with open_text(source.name, source.encoding) as stream:
        skip = source.skip + (source.format == "csv")
        for _ in range(skip):
            _line(stream, source.name)
        yield from _pieces(stream, source, 1 + skip, used)


def _line(stream: IO[bytes], path: str) -> bytes:
    """The next line of a stream that is read to its end only."""
    found = bytearray()
    while byte := stream.read(1):
        found += byte
        if byte == LINE:
            break
        if len(found) > MAX_LINE:
            raise InputError(f"a line at the head of {path} is longer than {MAX_LINE >> 20} MB")
    return bytes(found)


def _pieces(stream: IO[bytes], source: Source, number: int, used: Sequence[int]) -> Iterator[Piece]:
    rest = b""
    while data := stream.read(PIECE):
        rest += data
        cut = rest.rfind(LINE) + 1
        piece = _piece(number, rest[:cut], source, used, is_last=False) if cut else None
        if piece is not None and piece.data:
            rest = rest[len(piece.data) :]
            number += piece.height
            yield piece
        elif len(rest) > MAX_LINE:
            raise InputError(f"line {number} of {source.name} is longer than {MAX_LINE >> 20} MB")
    if rest:
        yield _piece(number, rest, source, used, is_last=True)


def _piece(number: int, data: bytes, source: Source, used: Sequence[int], is_last: bool) -> Piece:
    """The lines but for those of a field that is open at their end."""
    if source.format != "csv" or QUOTE not in data:
        return Piece(number, data)
    odd = csvrows.odd_lines(data, source.separator)
    if not len(odd):
        return Piece(number, data)
    piece = Piece(number, data)
    rows, begin = csvrows.find_rows(
        piece.lines, odd.tolist(), source.separator, len(source.columns), used, is_last
    )
    if begin is not None:
        data = b"".join(line + LINE for line in piece.lines[:begin])
    return Piece(number, data, tuple(rows))


def columns_of(source: Source) -> dict[str, Any] | None:
    """The columns that the first lines tell, as text or lists of numbers; None if there are no lines."""
    if source.format == "jsonl":
        values = _json_sample(source)
        return None if values is None else {
            c: pl.List(pl.Float64) if any(isinstance(v, list) for v in found) else pl.String
            for c, found in values.items()
        }  # fmt: skip
    line = header_line(source)
    if line is None:
        return None
    names = [name.strip() for name in next(csv.reader([line], delimiter=source.separator), [])]
    if any("\ufffd" in name for name in names):
        raise InputError(
            f"the header of {source.name} is not UTF-8 text; set input.encoding, for example to latin-1"
        )
    twice = sorted({n for n in names if n and names.count(n) > 1})
    if twice:
        raise InputError(f"column {twice[0]!r} occurs twice in the header of {source.name}")
    # Columns without a name, as spreadsheets leave them, are told apart.
    return dict.fromkeys((name or f"column {i}" for i, name in enumerate(names, 1)), pl.String)


def header_line(source: Source) -> str | None:
    """The header of a CSV file; None if there is none."""
    with open_text(source.name, source.encoding) as stream:
        for _ in range(source.skip):
            _line(stream, source.name)
        line = _line(stream, source.name)
        if not line.strip(b"\r\n") and not stream.read(PIECE).strip(b"\r\n"):
            return None
    return line.decode(errors="replace")


def lines_above(source: Source, column: str) -> int:
    """How many lines stand above one that has this column, and looks like a header; 0 if none does."""
    with open_text(source.name, source.encoding) as stream:
        lines = [_line(stream, source.name).decode(errors="replace") for _ in range(source.skip + SAMPLE)]
    for above, line in enumerate(lines[source.skip + 1 :], 1):
        fields = [name.strip(' "\r\n') for name in line.split(separator_of(line))]
        if column in fields and len(fields) > 1:
            return above
    return 0


def separator_of(header: str) -> str:
    """What stands between the fields of a header: of commas, semicolons, tabs and bars the most frequent one.

    >>> separator_of('day;hour;"home, sweet, home";work'), separator_of("day")
    (';', ',')
    """
    outside = "".join(header.split('"')[::2])
    return max(SEPARATORS, key=outside.count)


def _json_sample(source: Source) -> dict[str, list[Any]] | None:
    """The values of each column in the first lines that hold any; None if there are no lines."""
    found: dict[str, list[Any]] = {}
    piece = None
    for piece in pieces(source):
        for line in piece.head(SAMPLE) if found else piece.lines:
            row = _row_of(line)
            for name, value in row.items():
                if value is not None:
                    found.setdefault(name, []).append(value)
            if found and len(max(found.values(), key=len)) >= SAMPLE:
                return found
        if found:
            break
    return None if piece is None else found


def _row_of(line: bytes) -> dict[str, Any]:
    try:
        return parse_json(line)
    except Rejected:
        return {}


def batches(source: Source, schema: Schema, columns: Sequence[str]) -> Iterator[Callable[[], Batch]]:
    """The rows of a text file, as functions that parse them."""
    reader = (Csv if source.format == "csv" else JsonLines)(source, schema, columns)
    found = pieces(source, reader.used)
    first = next(found, None)
    if first is None:
        return
    reader.look_at(first)
    for piece in itertools.chain([first], found):
        yield partial(reader.read, piece)


@dataclass
class _Reader:
    """What is known of the lines of a file. `kinds` are types of columns as the first lines have them, `wide`
    those that hold whatever the format can."""

    source: Source
    schema: Schema
    columns: Sequence[str]
    kinds: dict[str, Any] = field(default_factory=dict)
    wide: dict[str, Any] = field(default_factory=dict)
    told: bool = False

    #: The fields of CSV that matter, by position.
    used: tuple[int, ...] = ()

    def tell(self, piece: Piece, why: str) -> None:
        """Say in the log, once for a file, that lines are not read by Polars."""
        if not self.told:
            self.told = True
            LOGGER.info(
                f"{self.source.name}: lines from {piece.number} on are read one by one where Polars cannot "
                f"({why})"
            )

    def _types(self, values: Mapping[str, list[Any]], parse: Callable[[Any], Any]) -> dict[str, Any]:
        """Types by the first values of columns."""
        found = {}
        for column in self.columns:
            numbers = [parse(v) for v in values.get(column, [])]
            is_whole = bool(numbers) and all(type(v) is int and abs(v) < 2**62 for v in numbers)
            found[column] = pl.Int64 if is_whole else pl.Float64
        return found

    def read(self, piece: Piece) -> Batch:
        raise NotImplementedError

    def is_misled(self, frame: pl.DataFrame) -> bool:
        """Whether many rows lack a number, which they may hold in another type; or any, where what is lacking would
        be taken for a count that is missing."""
        lacking = 0
        for column in (frame[c] for c in self.columns if self.kinds[c] != self.wide[c]):
            lacking += column.null_count()
            if isinstance(column.dtype, pl.List):
                lacking += column.list.explode().null_count()
        return lacking * MISLED > frame.height or (self.schema.gaps and lacking > 0)

    def batch(self, frame: pl.DataFrame, rows: np.ndarray, raw: Any, broken: Any = ()) -> Batch:
        is_json = self.source.format == "jsonl"
        return Batch(frame, rows, raw, np.asarray(broken, np.int64), is_json)


class JsonLines(_Reader):
    """Reads objects, one on each line that is not blank."""

    def look_at(self, piece: Piece) -> None:
        values = _json_sample(self.source) or {}
        # Text among numbers is no number to Polars, but none that is missing.
        any_number = pl.String if self.schema.gaps else pl.Float64
        lists = self.schema.counts if self.schema.state is None else None
        inner = {c: [x for v in found for x in (v if isinstance(v, list) else [None])]
                 for c, found in values.items()}  # fmt: skip
        kinds = self._types({**values, **({lists: inner[lists]} if lists in inner else {})}, lambda v: v)
        for column in self.columns:
            is_list = column == lists and any(isinstance(v, list) for v in values.get(column, []))
            if is_list:
                kinds[column], self.wide[column] = pl.List(kinds[column]), pl.List(any_number)
            elif column in self.schema.numbers:
                self.wide[column] = any_number
            else:
                is_whole = kinds[column] == pl.Int64 and column in self.schema.names
                kinds[column] = pl.Int64 if is_whole else pl.String
                self.wide[column] = pl.String
        self.kinds = kinds

    def read(self, piece: Piece) -> Batch:
        """The rows of a piece."""
        lines: Sequence[int] | None = None
        frame = self._parse(piece, self.kinds)
        if frame is not None and self.is_misled(frame):
            frame = self._parse(piece, self.wide)
        if frame is None or frame.height != piece.height:
            lines = [i for i, line in enumerate(piece.lines) if line.strip()]
        if frame is None or (lines is not None and frame.height != len(lines)):
            self.tell(piece, "a line is no JSON")
            assert lines is not None
            return self._one_by_one(piece, lines)
        at = np.arange(frame.height) if lines is None else np.array(lines, np.int64)
        return self.batch(
            frame, piece.number + at, lambda i: _object(piece.lines[at[i]]), self._deep(piece, at)
        )

    def _parse(self, piece: Piece, kinds: dict[str, Any]) -> pl.DataFrame | None:
        if len(piece.data) > MAX_BYTES and max(map(len, piece.lines)) > MAX_BYTES:
            return None
        try:
            return pl.read_ndjson(piece.data, schema=kinds, ignore_errors=True)
        except pl.exceptions.PolarsError:
            return None

    def _deep(self, piece: Piece, at: np.ndarray) -> list[int]:
        """Rows that may be nested too deep, which only Python looks at."""
        usual = 1 if self.schema.state is not None or isinstance(self.schema.counts, tuple) else 2
        if openings(piece.data) == usual * len(at):
            return []
        return [i for i, line in enumerate(at.tolist()) if openings(piece.lines[line]) > MAX_DEPTH]

    def _one_by_one(self, piece: Piece, lines: Sequence[int]) -> Batch:
        """All rows are left to `read_record`."""
        frame = pl.DataFrame(schema=dict.fromkeys(self.columns, pl.Int64)).clear(len(lines))
        rows = piece.number + np.array(lines, np.int64)
        return self.batch(frame, rows, lambda i: _object(piece.lines[lines[i]]), range(len(lines)))


@dataclass
class Csv(_Reader):
    """Reads rows of fields, as many as the header has."""

    def __post_init__(self) -> None:
        names = list(self.source.columns)
        self._at = {c: names.index(c) for c in self.columns}
        self.used = tuple(self._at.values())

    def look_at(self, piece: Piece) -> None:
        names = list(self.source.columns)
        values: dict[str, list[str]] = {}
        for line in piece.head(SAMPLE):
            for name, value in zip(names, self._split(line) or [], strict=False):
                if value:
                    values.setdefault(name, []).append(value)
        kinds = self._types(values, _whole_number)
        numbers = self.schema.numbers
        if self.schema.numerals.decimal != ".":
            numbers = numbers & set(self.schema.times)
        for column in self.columns:
            if column not in numbers:
                kinds[column] = pl.String
            self.wide[column] = pl.String
        self.kinds = kinds

    def read(self, piece: Piece) -> Batch:
        """The rows of a piece."""
        if piece.odd:
            self.tell(piece, "quotation marks are within fields, or fields on several lines")
        data = self._without(piece)
        quotes = QUOTE in data
        frame = self._parse(data, self.kinds, quotes)
        if self.is_misled(frame):
            frame = self._parse(data, self.wide, quotes)
        if frame.height != piece.height:
            self.tell(piece, "Polars finds other rows")
            return self._one_by_one(piece)
        broken = np.zeros(frame.height, bool)
        broken[self._ragged(data, frame, quotes)] = True
        odd = {row.at: row for row in piece.odd}
        broken[list(odd)] = True
        return self._batch(piece, frame.select(self.columns), broken, odd)

    def _without(self, piece: Piece) -> bytes:
        """The lines, with empty fields in the place of those that Polars cannot read."""
        if not piece.odd:
            return piece.data
        lines = list(piece.lines)
        empty = self.source.separator.encode() * (len(self.source.columns) - 1)
        for row in piece.odd:
            lines[row.at : row.at + row.lines] = [empty] * row.lines
        return LINE.join(lines) + LINE

    def _batch(self, piece: Piece, frame: pl.DataFrame, broken: np.ndarray, odd: dict[int, Row]) -> Batch:
        # Rows that hold nothing, as spreadsheets leave them at the end, are no rows.
        nothing = [
            (pl.col(c).str.strip_chars_start(" ") == "").fill_null(True)
            if frame[c].dtype == pl.String
            else pl.col(c).is_null()
            for c in self.columns
        ]
        drop = frame.select(pl.all_horizontal(nothing)).to_series().to_numpy().copy()
        for i in np.flatnonzero(drop).tolist():
            # What is no number of its type looks empty too, and spaces after a separator are none of a field.
            drop[i] = i not in odd and self._is_empty(piece.lines[i])
        for row in odd.values():
            drop[row.at] = row.fields is not None and self._holds_nothing(row.fields)
            drop[row.at + 1 : row.at + row.lines] = True
        at = np.flatnonzero(~drop)
        frame = frame if len(at) == frame.height else frame[at]

        def raw(i: int) -> Mapping[str, Any]:
            row = odd.get(int(at[i]))
            line = piece.lines[at[i]]
            return (
                self._fields(self._split(line), line)
                if row is None
                else self._fields(row.fields, line, row.reason)
            )

        return self.batch(frame, piece.number + at, raw, np.flatnonzero(broken[at]))

    def _one_by_one(self, piece: Piece) -> Batch:
        """All rows are left to `read_record`."""
        continued = {row.at + i for row in piece.odd for i in range(1, row.lines)}
        odd = {row.at: row for row in piece.odd}
        for i, line in enumerate(piece.lines):
            if i not in odd and i not in continued:
                odd[i] = Row(i, 1, self._split(line), csvrows.NO_FIELDS)
        frame = pl.DataFrame(schema=dict.fromkeys(self.columns, pl.String)).clear(piece.height)
        return self._batch(piece, frame, np.ones(piece.height, bool), odd)

    def _is_empty(self, line: bytes) -> bool:
        fields = self._split(line)
        return fields is not None and self._holds_nothing(fields)

    def _split(self, line: bytes) -> list[str] | None:
        """The fields of one line; None if they cannot be told."""
        try:
            return csvrows.split(line, self.source.separator)
        except csv.Error:
            return None

    def _holds_nothing(self, fields: Sequence[str]) -> bool:
        own = [fields[i] for i in self.used if i < len(fields)]
        return not any((*own, *fields[len(self.source.columns) :]))

    def _parse(self, data: bytes, kinds: dict[str, Any], quotes: bool) -> pl.DataFrame:
        names = list(self.source.columns)
        # The last column shows whether a row has all its fields.
        wanted = [*self.columns, *([] if names[-1] in self.columns else [names[-1]])]
        lines = pl.scan_csv(
            data,
            has_header=False,
            schema={**dict.fromkeys(names, pl.String), **{c: kinds[c] for c in self.columns}},
            separator=self.source.separator,
            quote_char='"' if quotes else None,
            encoding="utf8-lossy",
            ignore_errors=True,
            truncate_ragged_lines=True,
            **_RAGGED,
            raise_if_empty=False,
        )
        return lines.select(wanted).collect()

    def _ragged(self, data: bytes, frame: pl.DataFrame, quotes: bool) -> np.ndarray:
        """The rows that have more or fewer fields than the header."""
        separator, width = self.source.separator.encode(), len(self.source.columns) - 1
        if len(separator) > 1:
            return np.flatnonzero(
                np.array([line.count(separator) for line in data.split(LINE)][: frame.height]) != width
            )
        marks = np.frombuffer(data, np.uint8)
        is_between = marks == separator[0]
        last = frame[list(self.source.columns)[-1]]
        if not last.null_count() and np.count_nonzero(is_between) == width * frame.height:
            return np.zeros(0, np.int64)
        at = np.flatnonzero(is_between)
        if quotes:
            at = at[np.searchsorted(np.flatnonzero(marks == QUOTE[0]), at) % 2 == 0]
        ends = np.append(np.flatnonzero(marks == LINE[0]), len(marks))[: frame.height]
        return np.flatnonzero(np.diff(np.searchsorted(at, ends), prepend=0) != width)

    def _fields(self, fields: Sequence[str] | None, line: bytes, reason: str = "") -> Mapping[str, Any]:
        if fields is None:
            raise Unreadable(reason or csvrows.NO_FIELDS, line.decode(errors="replace")[:1000])
        width = len(self.source.columns)
        found = {c: fields[i] for c, i in self._at.items() if i < len(fields)}
        if len(fields) > width:
            raise Unreadable("it has more fields than the header", found)
        return Fields(found, missing=width - len(fields))


class Unreadable(Rejected):
    """A row that cannot be taken apart; `shown` is what messages show of it."""

    def __init__(self, reason: str, shown: Any) -> None:
        super().__init__(reason)
        self.shown = shown


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        return parse_json(line)
    except Rejected as error:
        raise Unreadable(str(error), line.decode(errors="replace")[:1000]) from None


class Fields(dict[str, Any]):
    """The fields of a row of CSV, of which the last may be `missing`."""

    def __init__(self, fields: Any, missing: int) -> None:
        super().__init__(fields)
        self.missing = missing


def _whole_number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return None
