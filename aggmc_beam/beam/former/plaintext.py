"""Text whose lines differ in nothing but whole numbers, as counts are mostly written.

Compiled loops compare what is between the numbers and read these, each core a stretch of the file at a time.
Numbers must be written with no character more than they need, so that nothing is read which another reader
would take for something else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from aggmc_beam.beam.former.threads import on_all_cores
from aggmc_beam.native import compiled
from aggmc_beam.records import MAX_BYTES, Rejected, parse_json

#: Bytes that are read at once, by each core.
STRETCH = 4 << 20
#: Bytes beyond them in which the last line mostly ends.
AHEAD = 4 << 10
#: Stretches that are handed on together.
TOGETHER = 32
#: Numbers of at most so many characters are expected to stay within 32 bits.
SHORT = 7
#: What is before a number, the number, and what closes it.
_FIELD = re.compile(rb"(.*?)(-?[0-9]+)([\]} ]*)", re.DOTALL)
_NUMBER = re.compile(rb"-?[0-9]+")
_BOM, _LINE = b"\xef\xbb\xbf", ord("\n")


class NotPlain(pl.exceptions.PolarsError):
    """The lines are not as plain as that; they may be good nevertheless."""


class Column(NamedTuple):
    """The numbers of one name: the fields that hold them, whether as a list, and their type."""

    first: int
    stop: int
    is_list: bool
    type: np.dtype[Any]

    @classmethod
    def of(cls, first: int, numbers: Sequence[bytes], is_list: bool = False) -> Column:
        """By what is in the first line; others are expected to be like that."""
        kind = np.int32 if max(map(len, numbers), default=0) <= SHORT else np.int64
        return cls(first, first + len(numbers), is_list, np.dtype(kind))

    @property
    def kind(self) -> Any:
        """The type in a frame."""
        one = pl.Int32 if self.type == np.int32 else pl.Int64
        return pl.List(one) if self.is_list else one


@dataclass(frozen=True)
class Template:
    """What lines look like: `around` is what is before each field, and at the end. Fields that are in none of
    the `columns` may hold any text. The first line begins at the byte `start` of a file."""

    start: int
    around: tuple[bytes, ...]
    columns: Mapping[str, Column]

    @classmethod
    def of_json(cls, path: str) -> Template:
        """That of JSON lines, by the first one; `NotPlain` if it has more than whole numbers."""
        start, line, end = _first_line(path)
        try:
            row = parse_json(line)
        except Rejected:
            raise NotPlain("the first line is broken") from None
        found = [_FIELD.fullmatch(field) for field in line.split(b",")]
        before, numbers, closing = zip(*(f.groups() if f else (b"", b"", b"") for f in found), strict=True)
        columns: dict[str, Column] = {}
        at, whole = 0, all(found)
        for name, value in row.items():
            values = value if isinstance(value, list) else [value]
            whole &= {int}.issuperset(map(type, values))
            columns[name] = Column.of(at, numbers[at : at + len(values)], isinstance(value, list))
            at += len(values)
        # With a comma in a name, or a name twice, there are more fields.
        if not whole or at != len(numbers):
            raise NotPlain("there is more than whole numbers")
        around = [a + b"," + b for a, b in zip(closing, before[1:], strict=False)]
        return cls(start, (before[0], *around, closing[-1] + end), columns)

    @classmethod
    def of_csv(cls, path: str, names: Sequence[str], wanted: Sequence[str], separator: str) -> Template:
        """That of CSV with columns of these names; `NotPlain` if those that are wanted have more than whole
        numbers in the first row."""
        start, header, end = _first_line(path)
        start, line, end = _first_line(path, start + len(header) + len(end))
        fields = line.split(separator.encode())
        if b'"' in header or len(fields) != len(names):
            raise NotPlain("there is more than whole numbers")
        at = {name: names.index(name) for name in wanted}
        if not all(_NUMBER.fullmatch(fields[i]) for i in at.values()):
            raise NotPlain("there is more than whole numbers")
        columns = {name: Column.of(i, fields[i : i + 1]) for name, i in at.items()}
        return cls(start, (b"", *[separator.encode()] * (len(names) - 1), end), columns)

    def read(self, lines: memoryview) -> pl.DataFrame:
        """The columns of some lines, the last of which ends."""
        assert compiled is not None
        rows = compiled.count_lines(lines)
        numbers = sum(column.stop - column.first for column in self.columns.values())
        # What is made for the numbers must not be larger than what such lines can hold.
        if rows * (numbers + sum(map(len, self.around))) > len(lines):
            raise NotPlain("a line is too short")
        found = self._space(rows)
        out: list[np.ndarray | None] = [None] * (len(self.around) - 1)
        for name, (first, stop, *_) in self.columns.items():
            out[first:stop] = found[name].T
        if not compiled.parse_lines(lines, list(self.around), out):
            raise NotPlain("a line is not like the first one")
        series = {name: pl.Series(values) for name, values in found.items()}
        return pl.DataFrame(
            {n: s.arr.to_list() if self.columns[n].is_list else s.reshape((rows,)) for n, s in series.items()}
        )

    def _space(self, rows: int) -> dict[str, np.ndarray]:
        """An array [rows, fields] for each column. All are parts of one: large ones are made of large pages,
        which are fetched much quicker."""
        sizes = {name: rows * (c.stop - c.first) * c.type.itemsize for name, c in self.columns.items()}
        space, found = np.empty(sum(sizes.values()), np.uint8), {}
        # Those of more bytes first, so that each begins where such numbers can.
        for name, column in sorted(self.columns.items(), key=lambda item: -item[1].type.itemsize):
            part, space = space[: sizes[name]], space[sizes[name] :]
            found[name] = part.view(column.type).reshape(rows, column.stop - column.first)
        return found


def _first_line(path: str, start: int = 0) -> tuple[int, bytes, bytes]:
    """Where the line begins that is at this byte, after a mark of UTF-8; the line; and how it ends."""
    with open(path, "rb") as stream:
        stream.seek(start)
        if start == 0 and stream.read(len(_BOM)) == _BOM:
            start = len(_BOM)
        stream.seek(start)
        line = stream.readline(MAX_BYTES)
    if not line:
        raise NotPlain("there are no lines")
    end = b"\r\n" if line.endswith(b"\r\n") else b"\n"
    return start, line.removesuffix(b"\n").removesuffix(b"\r"), end


def frames(template: Template, path: str, kinds: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
    """The columns `kinds` of all lines; `NotPlain` if some line is not as the template tells."""
    if not kinds.keys() <= template.columns.keys():
        raise NotPlain("a column is missing")
    with closing(_File(path)) as file:
        starts = range(template.start, file.size, STRETCH)

        def read(start: int) -> pl.DataFrame | None:
            lines = file.lines(start, start == template.start)
            return None if not lines else template.read(lines).select(
                pl.col(name).cast(kind) for name, kind in kinds.items()
            )  # fmt: skip

        for at in range(0, len(starts), TOGETHER):
            parts = [part for part in on_all_cores(read, starts[at : at + TOGETHER]) if part is not None]
            if parts:
                yield pl.concat(parts, rechunk=False)


class _File:
    """Stretches of a file, on any number of threads."""

    def __init__(self, path: str) -> None:
        self.number = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self.number).st_size

    def close(self) -> None:
        os.close(self.number)

    def lines(self, start: int, is_first: bool) -> memoryview:
        """The lines that begin from `start` on within a stretch, the last with its end."""
        before = 0 if is_first else 1
        last = before + STRETCH - 1
        for ahead in (AHEAD, MAX_BYTES):
            data, is_last = self._read(start - before, last + ahead)
            begin = 0 if is_first else _after_line(data, 0)
            if begin is None or begin > last:
                return memoryview(b"")  # a line of before goes on
            end = _after_line(data, last)
            if end is not None or is_last:
                return data[begin:end]
        raise NotPlain("a line is very long")

    def _read(self, start: int, size: int) -> tuple[memoryview, bool]:
        """So many bytes, and whether they are the last; these end with the end of a line."""
        # An array, as it is made of large pages.
        space = np.empty(size + 1, np.uint8).data
        found = os.preadv(self.number, [space[:size]], start)
        if found == size:
            return space[:size], False
        if start + found < self.size:
            raise NotPlain("the file has become shorter")
        if found and space[found - 1] != _LINE:
            space[found] = _LINE
            found += 1
        return space[:found], True


def _after_line(data: memoryview, start: int) -> int | None:
    """Where the line that is at `start` has ended, if it does."""
    for size in (AHEAD, len(data)):
        found = bytes(data[start : start + size]).find(b"\n")
        if found >= 0:
            return start + found + 1
    return None
