"""Files and frames as lazy Polars frames, each row with its place, nothing interpreted yet."""

from __future__ import annotations

import csv
import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from aggmc_beam.beam.former import jsonlines
from aggmc_beam.errors import InputError

#: Columns that sources add: the row's number and whether it could not be taken apart into fields.
ROW, BROKEN = "__row", "__broken"
_EXTRA = "__extra"
_FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """One file or frame. `columns` maps names to a dtype, as far as it is known before reading: text in CSV
    files, so that one broken field costs its row and not the file."""

    name: str
    format: str
    columns: dict[str, Any]
    separator: str = ","
    frame: pl.LazyFrame | None = field(default=None, compare=False)

    @property
    def height(self) -> int:
        """How many rows there are; of text, they would have to be read."""
        return int(self.scan([]).select(pl.len()).collect().item())

    def scan(self, columns: Sequence[str]) -> pl.LazyFrame:
        """These columns, the row's number as a reader of the file counts, and `BROKEN`."""
        if self.format == "jsonl":
            lists = frozenset(c for c in columns if isinstance(self.columns.get(c), pl.List))
            return jsonlines.scan(Path(self.name), lists, list(columns), ROW, BROKEN)
        if self.format == "csv":
            return self._scan_csv(columns)
        if self.frame is not None:
            frame = self.frame.with_row_index(ROW, offset=1)
        else:
            frame = pl.scan_parquet(self.name, glob=False, row_index_name=ROW, row_index_offset=1)
        return frame.select(*columns, ROW, pl.lit(False).alias(BROKEN))

    def _scan_csv(self, columns: Sequence[str]) -> pl.LazyFrame:
        # A column more than the header has, so that rows with too many fields are noticed.
        schema = {**self.columns, _EXTRA: pl.String}
        frame = pl.scan_csv(
            self.name,
            has_header=False,
            skip_rows=1,
            schema=schema,
            separator=self.separator,
            encoding="utf8-lossy",
            truncate_ragged_lines=True,
            missing_columns="insert",
            raise_if_empty=False,
            row_index_name=ROW,
            row_index_offset=2,
            glob=False,
        )
        blank = pl.all_horizontal(pl.col(c).is_null() for c in [*columns, _EXTRA])
        return frame.filter(~blank).select(*columns, ROW, pl.col(_EXTRA).is_not_null().alias(BROKEN))


def open_files(patterns: Sequence[str], format: str = "auto", separator: str = ",") -> list[Source]:
    """The files of some globs, sorted by name within each; empty files are left out."""
    paths: list[str] = []
    for pattern in patterns:
        found = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else [pattern]
        if os.path.isdir(pattern):
            raise InputError(
                f"{pattern!r} is a directory; name its files, such as {pattern.rstrip('/')}/*.csv"
            )
        if not found:
            raise InputError(f"no file matches {pattern!r} (in {os.getcwd()})")
        paths += [p for p in found if p not in paths]
    sources = [_open(path, format, separator) for path in paths]
    kept = [s for s in sources if s is not None]
    if not kept:
        raise InputError(f"all input is empty: {', '.join(paths[:3])}{' ...' if len(paths) > 3 else ''}")
    return kept


def open_frame(frame: pl.DataFrame | pl.LazyFrame, name: str = "the frame") -> Source:
    lazy = frame.lazy()
    return Source(name, "frame", dict(lazy.collect_schema()), frame=lazy)


def _open(path: str, format: str, separator: str) -> Source | None:
    try:
        size = os.stat(path).st_size
        with open(path, "rb") as stream:
            head = stream.read(4)
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror}") from error
    if size == 0 or head in (b"\xef\xbb\xbf", b"\n", b"\r\n"):
        return None
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{path} is UTF-16 text; save it as UTF-8")
    if head[:2] == b"\x1f\x8b":
        raise InputError(f"{path} is compressed by gzip; unpack it first, or convert it to Parquet")
    if format == "auto":
        format = _FORMATS.get(Path(path).suffix.lower(), "")
        if head == b"PAR1":
            format = "parquet"
    if not format:
        raise InputError(
            f"the format of {path!r} cannot be told from its name; set input.format to csv, jsonl or parquet"
        )
    if format == "csv":
        separator = "\t" if path.lower().endswith(".tsv") and separator == "," else separator
        return Source(path, format, _header(path, separator), separator)
    if format == "jsonl":
        found = {
            k: pl.List(pl.Float64) if isinstance(v, list) else pl.String
            for k, v in jsonlines.peek(Path(path)).items()
        }
        return Source(path, format, found)
    try:
        return Source(path, format, dict(pl.read_parquet_schema(path)))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}") from None


def _header(path: str, separator: str) -> dict[str, Any]:
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as stream:
        line = stream.readline(1 << 20)
    names = next(csv.reader([line], delimiter=separator), [])
    names = [name.strip() for name in names]
    if any("�" in name for name in names):
        raise InputError(f"the header of {path} is not UTF-8 text; save the file as UTF-8")
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise InputError(f"column {twice[0]!r} occurs twice in the header of {path}")
    return dict.fromkeys(names, pl.String)
