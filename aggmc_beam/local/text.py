"""CSV and JSON lines as batches of rows: pieces of whole lines, each parsed by Polars.

Polars makes null what is not of the type a column was seen to have, and refuses a whole piece for one line that
is no JSON or a quotation mark that is astray. Such a piece is read again by Python's own parsers, and the log
says so: a broken line costs its row, never its neighbours, and no field ever moves to another column.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from inspect import signature
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import polars as pl

from aggmc_beam.errors import InputError
from aggmc_beam.local.batches import Batch
from aggmc_beam.logs import LOGGER
from aggmc_beam.records import MAX_BYTES, MAX_DEPTH, Rejected, Schema, openings, parse_json

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
#: Rows may have more or fewer fields than the header. Polars 1 takes them without being told.
_RAGGED: dict[str, Any] = {
    name: value
    for name, value in (("extra_columns", "ignore"), ("missing_columns", "insert"))
    if name in signature(pl.scan_csv).parameters
}
_BOM, _QUOTE, _LINE = b"\xef\xbb\xbf", b'"', b"\n"


@dataclass(frozen=True)
class Piece:
    """Some lines of a file, of which the first has this number."""

    number: int
    data: bytes

    @cached_property
    def lines(self) -> list[bytes]:
        found = self.data.split(_LINE)
        return found if found[-1] else found[:-1]

    def head(self, number: int) -> list[bytes]:
        """The first lines."""
        found = self.data.split(_LINE, number)[:number]
        return found if found[-1] else found[:-1]

    @cached_property
    def height(self) -> int:
        """How many lines there are."""
        return self.data.count(_LINE) + (not self.data.endswith(_LINE))


def open_text(path: str) -> IO[bytes]:
    """The bytes of a text file, unpacked if it is compressed by gzip, bzip2 or zstd."""
    with open(path, "rb") as stream:
        first = stream.read(4)
    return unpacked(path, first) or open(path, "rb")


def unpacked(file: Any, first: bytes) -> Any:
    """A file, or one that is open, whose first four bytes are these, unpacked; None if it is not compressed."""
    if first[:2] == b"\x1f\x8b":
        return gzip.open(file, "rb")
    if first[:3] == b"BZh":
        return bz2.open(file, "rb")
    if first == b"\x28\xb5\x2f\xfd":
        import pyarrow as pa

        return pa.input_stream(file, compression="zstd")
    return None


def pieces(path: str, separator: str | None = None) -> Iterator[Piece]:
    """The lines of a file in pieces; with the separator of CSV, each ends where no field is open."""
    try:
        with open_text(path) as stream:
            yield from _pieces(stream, path, separator)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} cannot be read; it is compressed by gzip and damaged ({error})") from None


def _pieces(stream: IO[bytes], path: str, separator: str | None) -> Iterator[Piece]:
    number, rest, is_first = 1, b"", True
    while data := stream.read(PIECE):
        if is_first:
            data, is_first = data.removeprefix(_BOM), False
        rest += data
        cut = rest.rfind(_LINE) + 1
        if separator is not None and _is_open(rest[:cut], separator):
            cut = 0
        if cut:
            piece = Piece(number, rest[:cut])
            rest = rest[cut:]
            number += piece.height
            yield piece
        elif len(rest) > MAX_LINE:
            if separator is not None and _QUOTE in rest:
                raise InputError(_open_quote(path))
            raise InputError(f"line {number} of {path} is longer than {MAX_LINE >> 20} MB")
    if separator is not None and _is_open(rest, separator):
        raise InputError(_open_quote(path))
    if rest:
        yield Piece(number, rest)


def _is_open(data: bytes, separator: str) -> bool:
    """Whether a field within quotation marks is open at the end of lines of CSV."""
    if data.count(_QUOTE) % 2 == 0:
        return False
    return _csv_rows(Piece(1, data).lines, separator) is None


def _csv_rows(lines: Sequence[bytes], separator: str) -> list[tuple[int, list[str] | None]] | None:
    """The rows in lines of CSV, with the number of lines before each, as Python's own reader finds them (None: not
    at all). No rows if a field is open at the end."""
    text = [line.decode(errors="replace") + "\n" for line in lines]
    # An open field takes the last line, too.
    reader = csv.reader([*text, "end"], delimiter=separator)
    found: list[tuple[int, list[str] | None]] = []
    number = 0
    while True:
        try:
            fields = next(reader, None)
        except csv.Error:
            fields = []
            found.append((number, None))
        else:
            if fields is None:
                return found[:-1] if found[-1] == (len(text), ["end"]) else None
            found.append((number, fields))
        number = reader.line_num


def _open_quote(path: str) -> str:
    return f"{path}: a quotation mark is opened and not closed"


def columns_of(path: str, format: str, separator: str) -> dict[str, Any] | None:
    """The columns that the first lines tell, as text or lists of numbers; None if there are no lines."""
    try:
        with open_text(path) as stream:
            start = stream.read(1 << 16)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error} (is it compressed by gzip, and damaged?)") from None
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{path} is UTF-16 text; save it as UTF-8")
    start = start.removeprefix(_BOM)
    if not start.strip(b"\r\n"):
        return None
    if format == "jsonl":
        first = next(pieces(path), None)
        values = {} if first is None else _json_sample(first)
        return {c: pl.List(pl.Float64) if any(isinstance(v, list) for v in found) else pl.String
                for c, found in values.items()}  # fmt: skip
    names = _header(start, separator)
    if any("\ufffd" in name for name in names):
        raise InputError(f"the header of {path} is not UTF-8 text; save the file as UTF-8")
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise InputError(f"column {twice[0]!r} occurs twice in the header of {path}")
    return dict.fromkeys(names, pl.String)


def _header(start: bytes, separator: str) -> list[str]:
    line = start.split(_LINE, 1)[0].decode(errors="replace")
    return [name.strip() for name in next(csv.reader([line], delimiter=separator), [])]


def _json_sample(piece: Piece) -> dict[str, list[Any]]:
    """The values of each column in the first lines."""
    found: dict[str, list[Any]] = {}
    for line in piece.head(SAMPLE):
        try:
            row = parse_json(line)
        except Rejected:
            continue
        for name, value in row.items():
            if value is not None:
                found.setdefault(name, []).append(value)
    return found


def batches(source: Source, schema: Schema, columns: Sequence[str]) -> Iterator[Callable[[], Batch]]:
    """The rows of a text file, as functions that parse them."""
    found = pieces(source.name, source.separator if source.format == "csv" else None)
    first = next(found, None)
    if first is None:
        return
    if source.format == "csv":
        _, _, data = first.data.partition(_LINE)
        first = Piece(first.number + 1, data)
    reader = (Csv if source.format == "csv" else JsonLines)(source, schema, columns)
    reader.look_at(first)
    for piece in itertools.chain([first] if first.data else [], found):
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
        """Whether many rows lack a number, which they may hold in another type."""
        lacking = 0
        for column in (frame[c] for c in self.columns if self.kinds[c] != self.wide[c]):
            lacking += column.null_count()
            if isinstance(column.dtype, pl.List):
                lacking += column.list.explode().null_count()
        return lacking * MISLED > frame.height

    def batch(self, frame: pl.DataFrame, rows: np.ndarray, raw: Any, broken: Any = ()) -> Batch:
        is_json = self.source.format == "jsonl"
        return Batch(frame, rows, raw, np.asarray(broken, np.int64), is_json)


class JsonLines(_Reader):
    """Reads objects, one on each line that is not blank."""

    def look_at(self, piece: Piece) -> None:
        values = _json_sample(piece)
        lists = self.schema.counts if self.schema.state is None else None
        inner = {c: [x for v in found for x in (v if isinstance(v, list) else [None])]
                 for c, found in values.items()}  # fmt: skip
        kinds = self._types({**values, **({lists: inner[lists]} if lists in inner else {})}, lambda v: v)
        for column in self.columns:
            is_list = column == lists and any(isinstance(v, list) for v in values.get(column, []))
            if is_list:
                kinds[column], self.wide[column] = pl.List(kinds[column]), pl.List(pl.Float64)
            elif column in self.schema.numbers:
                self.wide[column] = pl.Float64
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


class Csv(_Reader):
    """Reads rows of fields, as many as the header has."""

    def look_at(self, piece: Piece) -> None:
        names = list(self.source.columns)
        values: dict[str, list[str]] = {}
        for line in piece.head(SAMPLE):
            for _, row in _csv_rows([line], self.source.separator) or []:
                for name, value in zip(names, row or [], strict=False):
                    if value:
                        values.setdefault(name, []).append(value)
        kinds = self._types(values, _whole_number)
        for column in self.columns:
            if column not in self.schema.numbers:
                kinds[column] = pl.String
            self.wide[column] = pl.String
        self.kinds = kinds

    def read(self, piece: Piece) -> Batch:
        """The rows of a piece."""
        quotes = _QUOTE in piece.data
        if quotes and not self._is_plain(piece.data):
            self.tell(piece, "quotation marks are within fields, or fields on several lines")
            return self._one_by_one(piece)
        frame = self._parse(piece, self.kinds, quotes)
        if self.is_misled(frame):
            frame = self._parse(piece, self.wide, quotes)
        if frame.height != piece.height:
            self.tell(piece, "Polars finds other rows")
            return self._one_by_one(piece)
        broken = self._ragged(piece, frame, quotes)
        # Rows that hold nothing, as spreadsheets leave them at the end, are no rows.
        texts = [c for c in self.columns if frame[c].dtype == pl.String]
        empty = [
            *(pl.col(c).is_null() for c in self.columns if c not in texts),
            *((pl.col(c) == "").fill_null(True) for c in texts),
        ]
        blank = frame.select(pl.all_horizontal(empty))
        return self._without_blank(piece, frame.select(self.columns), broken, blank.to_series().to_numpy())

    def _without_blank(
        self, piece: Piece, frame: pl.DataFrame, broken: np.ndarray, blank: np.ndarray
    ) -> Batch:
        at = np.arange(frame.height)
        if blank.any():
            # What is no number of its type looks empty too.
            for i in np.flatnonzero(blank):
                blank[i] = self._is_empty(piece.lines[i])
            at = np.flatnonzero(~blank)
            frame, broken = frame[at], np.searchsorted(at, broken[~blank[broken]])
        return self.batch(frame, piece.number + at, lambda i: self._row(piece.lines[at[i]]), broken)

    def _is_empty(self, line: bytes) -> bool:
        fields = self._split(line)
        return fields is not None and self._holds_nothing(fields)

    def _split(self, line: bytes) -> list[str] | None:
        """The fields of one line; None if they cannot be told."""
        found = _csv_rows([line], self.source.separator)
        return found[0][1] if found else None

    def _holds_nothing(self, fields: Sequence[str]) -> bool:
        own = [fields[i] for i in self._at.values() if i < len(fields)]
        return not any((*own, *fields[len(self.source.columns) :]))

    @cached_property
    def _at(self) -> dict[str, int]:
        """Where the columns are."""
        return {c: list(self.source.columns).index(c) for c in self.columns}

    def _parse(self, piece: Piece, kinds: dict[str, Any], quotes: bool) -> pl.DataFrame:
        names = list(self.source.columns)
        # The last column shows whether a row has all its fields.
        wanted = [*self.columns, *([] if names[-1] in self.columns else [names[-1]])]
        lines = pl.scan_csv(
            piece.data,
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

    def _is_plain(self, data: bytes) -> bool:
        """Whether every quotation mark begins or ends a field, and no field has several lines."""
        marks = np.frombuffer(data, np.uint8)
        at = np.flatnonzero(marks == _QUOTE[0])
        if len(at) % 2:
            return False
        around = {ord(self.source.separator[0]), _LINE[0]}
        before, after = marks[at[::2] - 1], marks[np.minimum(at[1::2] + 1, len(marks) - 1)]
        is_begin = np.isin(before, list(around)) | (at[::2] == 0)
        is_end = np.isin(after, [*around, ord("\r")]) | (at[1::2] == len(marks) - 1)
        lines = np.flatnonzero(marks == _LINE[0])
        within = np.searchsorted(at, lines) % 2
        return bool(is_begin.all() and is_end.all() and not within.any())

    def _ragged(self, piece: Piece, frame: pl.DataFrame, quotes: bool) -> np.ndarray:
        """The rows that have more or fewer fields than the header."""
        separator, width = self.source.separator.encode(), len(self.source.columns) - 1
        if len(separator) > 1:
            return np.flatnonzero(np.array([line.count(separator) for line in piece.lines]) != width)
        marks = np.frombuffer(piece.data, np.uint8)
        is_between = marks == separator[0]
        last = frame[list(self.source.columns)[-1]]
        if not last.null_count() and np.count_nonzero(is_between) == width * frame.height:
            return np.zeros(0, np.int64)
        at = np.flatnonzero(is_between)
        if quotes:
            at = at[np.searchsorted(np.flatnonzero(marks == _QUOTE[0]), at) % 2 == 0]
        ends = np.append(np.flatnonzero(marks == _LINE[0]), len(marks))[: frame.height]
        return np.flatnonzero(np.diff(np.searchsorted(at, ends), prepend=0) != width)

    def _one_by_one(self, piece: Piece) -> Batch:
        """Rows as Python's own reader finds them; their numbers are those of the lines they begin on."""
        everything = _csv_rows(piece.lines, self.source.separator)
        if everything is None:
            raise InputError(_open_quote(self.source.name))
        found = [(number, row) for number, row in everything if row is None or not self._holds_nothing(row)]
        rows = np.array([piece.number + number for number, _ in found], np.int64)
        frame = pl.DataFrame(schema=dict.fromkeys(self.columns, pl.String)).clear(len(rows))
        return self.batch(frame, rows, lambda i: self._fields(found[i][1]), range(len(rows)))

    def _row(self, line: bytes) -> Mapping[str, Any]:
        return self._fields(self._split(line), line)

    def _fields(self, fields: Sequence[str] | None, line: bytes = b"") -> Mapping[str, Any]:
        if fields is None:
            raise Unreadable("it cannot be taken apart into fields", line.decode(errors="replace")[:1000])
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
