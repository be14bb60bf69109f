"""JSON lines as a lazy Polars source that survives broken lines and knows their numbers."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from aggmc_beam.errors import InputError
from aggmc_beam.records import MAX_BYTES, Rejected, parse_json

CHUNK = 4 << 20
MAX_LINE = 64 << 20
_FEW = 32


def peek(path: Path, lines: int = 100) -> dict[str, Any]:
    """A value of every column that the first lines have."""
    found: dict[str, Any] = {}
    for _, chunk in _chunks(path, 1 << 16):
        for line in chunk[:lines]:
            try:
                row = parse_json(line)
            except Rejected:
                continue
            for name, value in row.items():
                if found.get(name) is None:
                    found[name] = value
        break
    return found


def scan(path: Path, lists: frozenset[str], columns: list[str], row: str, broken: str) -> pl.LazyFrame:
    """`columns` of a file: those in `lists` as lists of numbers, others as text; also the line's
    number and whether it is broken."""
    kinds: dict[str, Any] = {c: pl.List(pl.Float64) if c in lists else pl.String for c in columns}

    def frames(part: dict[str, Any]) -> Iterator[pl.DataFrame]:
        for number, chunk in _chunks(path):
            lines = [i for i, line in enumerate(chunk, number) if line.strip()]
            yield _parse(chunk, part, broken).with_columns(pl.Series(row, lines, pl.UInt32))

    return as_source(frames, kinds, {**kinds, row: pl.UInt32, broken: pl.Boolean})


def as_source(
    frames: Callable[[dict[str, Any]], Iterator[pl.DataFrame]], kinds: dict[str, Any], schema: dict[str, Any]
) -> pl.LazyFrame:
    """A lazy frame from a function that reads some of the columns `kinds`."""

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted = list(schema) if with_columns is None else with_columns
        left = n_rows
        for frame in frames({c: kind for c, kind in kinds.items() if c in wanted}):
            frame = frame.select(wanted)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield frame if predicate is None else frame.filter(predicate)
            if left == 0:
                return

    return register_io_source(read, schema=schema)


def _chunks(path: Path, size: int = CHUNK) -> Iterator[tuple[int, list[bytes]]]:
    """(number of the first line, lines) of stretches of a file."""
    number, rest = 1, b""
    with open(path, "rb") as stream:
        if stream.read(3) != b"\xef\xbb\xbf":
            stream.seek(0)
        while data := stream.read(size):
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            if len(rest) > MAX_LINE:
                raise InputError(f"line {number + len(lines)} of {path} is longer than {MAX_LINE >> 20} MB")
            if lines:
                yield number, lines
            number += len(lines)
    if rest:
        yield number, [rest]


def _parse(lines: list[bytes], kinds: dict[str, Any], broken: str) -> pl.DataFrame:
    """One row for each line that is not blank."""
    lines = [line for line in lines if line.strip()]
    if not kinds:  # only the line numbers are wanted
        return pl.DataFrame({broken: [_is_broken(line) for line in lines]}, schema={broken: pl.Boolean})
    try:
        fits = max(map(len, lines), default=MAX_BYTES + 1) <= MAX_BYTES
        frame = pl.read_ndjson(io.BytesIO(b"\n".join(lines)), schema=kinds) if fits else None
    except pl.exceptions.PolarsError:
        frame = None
    if frame is not None and frame.height == len(lines):
        return frame.with_columns(pl.lit(False).alias(broken))
    if len(lines) <= _FEW:
        return _one_by_one(lines, kinds, broken)
    half = len(lines) // 2
    return pl.concat([_parse(lines[:half], kinds, broken), _parse(lines[half:], kinds, broken)])


def _is_broken(line: bytes) -> bool:
    try:
        parse_json(line)
    except Rejected:
        return True
    return False


def _one_by_one(lines: list[bytes], kinds: dict[str, Any], broken: str) -> pl.DataFrame:
    rows = []
    for line in lines:
        try:
            row = parse_json(line)
        except Rejected:
            rows.append({**dict.fromkeys(kinds), broken: True})
            continue
        values = {
            c: _numbers(row.get(c)) if kind != pl.String else _text(row.get(c)) for c, kind in kinds.items()
        }
        rows.append({**values, broken: False})
    return pl.DataFrame(rows, schema={**kinds, broken: pl.Boolean}, orient="row")


def _numbers(value: Any) -> list[float] | None:
    """A list of floats, NaN standing for what is no number; None if it is no list."""
    if not isinstance(value, list):
        return None
    plain = (v if isinstance(v, int | float) and not isinstance(v, bool) else float("nan") for v in value)
    return [_float(v) for v in plain]


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, list | dict):
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def lines(path: Path, numbers: set[int]) -> Iterator[tuple[int, bytes]]:
    """The lines with these numbers, as they stand in the file."""
    for first, chunk in _chunks(path):
        for number, line in enumerate(chunk, first):
            if number in numbers:
                yield number, line
