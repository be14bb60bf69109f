"""Which files and frames are read, what format and columns they have, and their rows in batches."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.budget import check_memory
from aggmc_beam.config import Input
from aggmc_beam.errors import InputError
from aggmc_beam.local import text
from aggmc_beam.local.batches import Batch
from aggmc_beam.records import Schema

FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".parquet": "parquet", ".pq": "parquet", ".xlsx": "excel", ".xlsm": "excel", ".xls": "excel", ".ods": "excel",
}  # fmt: skip
#: Endings of compressed text, after the one that tells the format.
COMPRESSED = (".gz", ".zst", ".bz2", ".zip")
#: Values (rows times columns) of a batch of a Parquet file or frame: large enough for its arrays to be worth
#: making, and a few of them fit into memory.
BATCH_VALUES = 1 << 21


#: Bytes of a value while it is decoded and read: as it is in Arrow, and as a number of ours.
VALUE_BYTES = 16


@dataclass(frozen=True)
class Source:
    """One file or frame. `columns` maps names to types; what text holds is only known when it is read."""

    name: str
    format: str
    columns: dict[str, Any]
    separator: str = ","
    encoding: str | None = None
    skip: int = 0
    frame: pl.LazyFrame | None = field(default=None, compare=False)

    @property
    def is_text(self) -> bool:
        return self.format in ("csv", "jsonl")

    @property
    def is_compressed(self) -> bool:
        return self.is_text and self.name.lower().endswith(COMPRESSED)

    @cached_property
    def height(self) -> int:
        """How many rows a Parquet file or a frame has."""
        if self.frame is not None:
            return int(self.frame.select(pl.len()).collect().item())
        return int(self.metadata.num_rows)

    @cached_property
    def metadata(self) -> Any:
        """What a Parquet file says of its row groups, by Arrow: a query of Polars takes five times as long."""
        from pyarrow import ArrowException
        from pyarrow.parquet import read_metadata

        try:
            return read_metadata(self.name)
        except (ArrowException, OSError) as error:
            raise InputError(f"{self.name} cannot be read as Parquet: {error}") from None

    def batches(self, schema: Schema, columns: Sequence[str]) -> Iterator[Callable[[], Batch]]:
        """The rows in their order, as functions that make the batches: several may be called at once."""
        if self.is_text:
            yield from text.batches(self, schema, columns)
            return
        first, size = 1, max(1, BATCH_VALUES // len(schema.states or columns))
        for frame in self._scan().select(columns).collect_batches(chunk_size=size, maintain_order=True):
            rows = np.arange(first, first + frame.height)
            first += frame.height
            yield lambda frame=frame, rows=rows: Batch(frame, rows, lambda i: frame.row(i, named=True))  # type: ignore[misc]

    def _scan(self) -> pl.LazyFrame:
        return pl.scan_parquet(self.name, glob=False) if self.frame is None else self.frame


@contextmanager
def reading(source: Source) -> Iterator[None]:
    """Errors of Polars and of the system while a source is read, as an `InputError` that names it."""
    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{source.name} cannot be read: {str(error).splitlines()[0]}") from error


@dataclass(frozen=True)
class Dialect:
    """How files are written, as far as they do not tell: see the keys of `input`."""

    format: str = "auto"
    separator: str | None = None
    encoding: str | None = None
    skip: int = 0
    sheet: str | None = None

    @classmethod
    def of(cls, input: Input) -> Dialect:
        return cls(input.format, input.separator, input.encoding, input.skip_lines, input.sheet)


def open_files(patterns: Sequence[str], dialect: Dialect = Dialect()) -> list[Source]:  # noqa: B008 - frozen
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
    sources = [_open(path, dialect) for path in paths]
    kept = [s for s in sources if s is not None]
    if not kept:
        raise InputError(f"all input is empty: {', '.join(paths[:3])}{' ...' if len(paths) > 3 else ''}")
    return kept


def open_frame(frame: pl.DataFrame | pl.LazyFrame, name: str = "the frame") -> Source:
    """A frame as a source."""
    lazy = frame.lazy()
    return Source(name, "frame", dict(lazy.collect_schema()), frame=lazy)


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that the name of a file tells, or nothing."""
    path = Path(path)
    ending = path.suffixes[-2] if path.suffix.lower() in COMPRESSED and path.suffixes[1:] else path.suffix
    return FORMATS.get(ending.lower(), "")


def _open(path: str, dialect: Dialect) -> Source | None:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise InputError(
                f"{path!r} is not a file with contents that stay (it is {_what(status.st_mode)})"
            )
        with open(path, "rb") as stream:
            head = stream.read(4)
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror}") from error
    if status.st_size == 0:
        return None
    format = dialect.format
    if format == "auto":
        format = "parquet" if head == b"PAR1" else format_of(path)
    if not format:
        raise InputError(
            f"the format of {path!r} cannot be told from its name; set input.format to csv, jsonl, parquet or excel"
        )
    if format == "excel":
        return _open_sheet(path, dialect)
    if format == "parquet":
        try:
            return Source(path, format, dict(pl.read_parquet_schema(path)))
        except (pl.exceptions.PolarsError, OSError) as error:
            raise InputError(f"{path} cannot be read as Parquet: {error}") from None
    source = Source(path, format, {}, dialect.separator or ",", dialect.encoding, dialect.skip)
    if format == "csv" and dialect.separator is None:
        source = replace(source, separator=text.separator_of(text.header_line(source) or ""))
    columns = text.columns_of(source)
    return None if columns is None else replace(source, columns=columns)


def check_row_groups(source: Source, columns: Sequence[str], memory: int) -> None:
    """`InputError` if a row group of a Parquet file, which is decoded at once, takes too much memory: a small file
    may hold many equal values."""
    has_lists = any(isinstance(source.columns[c], pl.List | pl.Array) for c in columns)
    if not has_lists and source.height * len(columns) * VALUE_BYTES <= memory:
        return
    check_metadata(source.metadata, source.name, columns, memory)


def check_metadata(metadata: Any, name: str, columns: Sequence[str], memory: int) -> None:
    """The same, of the metadata that Arrow reads."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = (group.column(i) for i in range(group.num_columns))
        values = sum(chunk.num_values for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns)
        what = f"row group {number} of {name}, with {values:,} values,"
        check_memory(values * VALUE_BYTES, memory, what, "write the file with smaller row groups")


def _what(mode: int) -> str:
    kinds = {stat.S_ISDIR: "a directory", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
    return next((name for test, name in kinds.items() if test(mode)), "a device")


def _open_sheet(path: str, dialect: Dialect) -> Source:
    """A sheet of a workbook, the first one by default; its cells keep their types."""
    try:
        frame = pl.read_excel(
            path,
            sheet_name=dialect.sheet,
            read_options={"header_row": dialect.skip} if dialect.skip else None,
        )
    except ModuleNotFoundError:
        raise InputError(f"{path}: workbooks need fastexcel: pip install 'aggmc-beam[excel]'") from None
    except Exception as error:  # of any kind, from the reader of workbooks
        hint = "; see input.sheet" if dialect.sheet else ""
        raise InputError(f"{path} cannot be read as a workbook: {str(error).splitlines()[0]}{hint}") from None
    return replace(open_frame(frame, path), format="excel")
