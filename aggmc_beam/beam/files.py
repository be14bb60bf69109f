"""Files through Beam's filesystems, as batches. Reading is the local engine's, so both agree."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from apache_beam.io.filesystems import FileSystems
from pyarrow.parquet import ParquetFile

from aggmc_beam.beam.coverage import Coverage, Covering
from aggmc_beam.beam.former.accumulate import ONE
from aggmc_beam.beam.former.assemble import Long, Records, Refused, Rows, Wide, key_frame
from aggmc_beam.beam.former.engine import Plan
from aggmc_beam.beam.former.keys import Keys
from aggmc_beam.beam.former.layout import find_schema
from aggmc_beam.beam.former.rows import filled, whole_realizations
from aggmc_beam.beam.former.sources import ROW, Source, open_files
from aggmc_beam.beam.former.survey import BATCH, batches
from aggmc_beam.beam.former.tidy import FILE, KEY, TIME, group_columns, placed, readable, tidy
from aggmc_beam.beam.summing import take
from aggmc_beam.beam.values import ENOUGH, Batch, Group, Reach
from aggmc_beam.config import Config
from aggmc_beam.errors import InputError

#: Values that are held at once, rows times states.
VALUES = 8_000_000
#: Values of a Parquet file that one worker reads, about.
PIECE = 16_000_000


@dataclass(frozen=True)
class File:
    """A file of the input and its number, which orders it among the others."""

    number: int
    path: str


def is_local(path: str) -> bool:
    return FileSystems.get_scheme(path) is None


def find_files(config: Config) -> list[File]:
    """The files of a config, on any filesystem that Beam knows, sorted by name within each glob."""
    paths: list[str] = []
    for pattern in config.input.patterns:
        if is_local(pattern):
            found = [s.name for s in open_files([pattern], config.input.format, config.input.separator)]
        else:
            try:
                found = sorted(m.path for r in FileSystems.match([pattern]) for m in r.metadata_list)
            except Exception as error:
                raise InputError(f"cannot list {pattern!r}: {error}") from error
        if not found:
            raise InputError(f"no file matches {pattern!r}")
        paths += [p for p in found if p not in paths]
    return [File(number, path) for number, path in enumerate(paths)]


def open_plan(config: Config) -> tuple[Plan, list[File]]:
    """The plan of a run without its sources, which workers open; and the files."""
    files = find_files(config)
    if all(is_local(f.path) for f in files):
        input = config.input
        sources = open_files([f.path for f in files], input.format, input.separator)
        return Plan(config, [], find_schema(config, sources)), files
    # Far files are opened by workers; the first one with content shows the columns.
    for file in files:
        with opened(config, file) as source:
            if source is not None:
                return Plan(config, [], find_schema(config, [source])), files
    raise InputError(f"all input is empty: {', '.join(f.path for f in files[:3])}")


@contextmanager
def opened(config: Config, file: File) -> Iterator[Source | None]:
    """The file as a source, from a local copy if it is far away; None if it is empty."""
    if is_local(file.path):
        yield _source(config, file.path)
        return
    with tempfile.TemporaryDirectory(prefix="aggmc-") as directory:
        copy = os.path.join(directory, os.path.basename(file.path))
        with FileSystems.open(file.path) as far, open(copy, "wb") as near:
            shutil.copyfileobj(far, near, 1 << 20)
        try:
            yield _source(config, copy)
        except InputError as error:
            # Nobody knows the copy.
            raise InputError(str(error).replace(copy, file.path)) from error


def _source(config: Config, path: str) -> Source | None:
    if os.path.getsize(path) == 0:
        return None
    return open_files([path], config.input.format, config.input.separator)[0]


@dataclass(frozen=True)
class Piece:
    """A stretch of the rows of a file, which one worker reads; all of them where `rows` is None."""

    file: File
    start: int = 0
    rows: int | None = None


def split_file(plan: Plan, file: File) -> Iterator[Piece]:
    """The pieces of a file: row groups of Parquet on this machine, else the whole of it."""
    with opened(plan.config, file) if is_local(file.path) else nullcontext() as source:
        if source is None or source.format != "parquet":
            yield Piece(file)
            return
        metadata = ParquetFile(source.name).metadata
    enough = max(1, PIECE // len(plan.schema.states))
    start = rows = 0
    for i in range(metadata.num_row_groups):
        rows += metadata.row_group(i).num_rows
        if rows >= enough:
            yield Piece(file, start, rows)
            start, rows = start + rows, 0
    if rows or not start:
        yield Piece(file, start, rows)


@contextmanager
def piece_frame(plan: Plan, piece: Piece) -> Iterator[pl.LazyFrame | None]:
    """The tidy rows of a piece; None if its file is empty."""
    with opened(plan.config, piece.file) as source:
        if source is None:
            yield None
            return
        frame = tidy(source, piece.file.number, plan.schema, native=True)
        yield frame if piece.rows is None else frame.slice(piece.start, piece.rows)


def read_coverage(plan: Plan, piece: Piece) -> tuple[Keys, Coverage, dict[Group, Reach]]:
    """Which steps a piece holds, and how far each group reaches.

    Realizations whose records must meet in any case are told by `Coverage.meets`.
    """
    with piece_frame(plan, piece) as frame:
        if frame is None:
            return Keys([]), Coverage(), {}
        light = _light_coverage(plan, frame)
        return _coverage(plan, frame.filter(readable(plan.schema))) if light is None else light


def _light_coverage(plan: Plan, frame: pl.LazyFrame) -> tuple[Keys, Coverage, dict[Group, Reach]] | None:
    """Without a look at the counts, where they cannot matter: rows with bad counts are taken for good.

    That may only let more records meet. How far data reach matters below `ENOUGH` realizations, as in
    the local engine. None if there are not so many.
    """
    if plan.schema.group_by or plan.schema.state is not None:
        return None
    try:
        keys, coverage, reach = _coverage(plan, frame.filter(placed(plan.schema)))
    except InputError:  # a row that will be rejected may have an impossible time
        return None
    return (keys, coverage, reach) if len(keys) >= ENOUGH else None


def _coverage(plan: Plan, frame: pl.LazyFrame) -> tuple[Keys, Coverage, dict[Group, Reach]]:
    columns = group_columns(plan.schema)
    keys, covering = Keys(columns), Covering()
    reach: dict[Group, Reach] = {}
    for rows in batches(frame.select(*columns, KEY, TIME, FILE, ROW), 4 * BATCH):
        covering.add(keys.of(rows), rows[TIME].to_numpy())
        for group, one in _reach(rows, columns).items():
            reach[group] = reach[group] + one if group in reach else one
    if must_meet(plan):
        covering.meets[:] = True
    return keys, covering.coverage(keys.realizations), reach


def must_meet(plan: Plan) -> bool:
    """Whether all records of a realization must meet: rows of a long table make up records, and a
    population is that of the realization's first record."""
    return plan.schema.state is not None or plan.populations != ONE


def read_rows(plan: Plan, piece: Piece) -> Iterator[pl.DataFrame]:
    """The tidy rows of a piece, a bounded number at a time and, where they are records,
    cut between realizations."""
    with piece_frame(plan, piece) as frame:
        if frame is None:
            return
        size = max(1000, VALUES // len(plan.schema.columns))
        parts = filled(batches(frame, size), size)
        yield from parts if plan.schema.state is not None else whole_realizations(parts, size)


@dataclass
class Reading:
    """What some rows of a file hold: batches by group, and refused places."""

    batches: list[Batch]
    refused: np.ndarray
    rows: int


def read_file(plan: Plan, file: File) -> Iterator[Reading]:
    """A file, a bounded number of rows at a time."""
    for frame in read_rows(plan, Piece(file)):
        keys, refused = Keys(group_columns(plan.schema)), Refused()
        found = feed(plan, frame, keys, refused)
        places = np.concatenate([np.zeros((0, 2), np.int64), *refused.places])
        yield Reading(to_batches(keys, found), places, frame.height)


def feed(plan: Plan, rows: pl.DataFrame, keys: Keys, refused: Refused) -> Records | Rows:
    """The records in tidy rows, or the rows of a long table, not yet put together."""
    if plan.schema.state is None:
        return Wide(plan.schema, keys, refused).feed(rows)
    frame = key_frame(rows, keys.columns, refused)
    return Long(plan.schema, keys, refused, plan.config.input.absent or "zero").rows(frame)


def _reach(good: pl.DataFrame, columns: list[str]) -> dict[Group, Reach]:
    found: dict[Group, Reach] = {}
    if not good.height:
        return found
    if not columns:
        some, time = good[KEY].unique(maintain_order=True)[:ENOUGH], good[TIME].to_numpy()
        place = good[FILE][0], good[ROW][0]
        return {(): Reach(frozenset(map(str, some)), int(time.min()), int(time.max()), place)}
    parts = good.group_by(*columns, KEY, maintain_order=True).agg(
        pl.col(TIME).min().alias("first"),
        pl.col(TIME).max().alias("last"),
        pl.col(FILE).first().alias("file"),
        pl.col(ROW).first().alias("row"),
    )
    for *names, first, last, file, row in parts.iter_rows():
        group = tuple(names[:-1])
        one = Reach(frozenset([str(names[-1])]), first, last, (file, row))
        found[group] = found[group] + one if group in found else one
    return found


def to_batches(keys: Keys, records: Records | Rows) -> list[Batch]:
    """One batch for each group."""
    state = None
    if isinstance(records, Rows):
        values, state = records.count[:, None], records.state
    else:
        values = records.counts
    key = records.key
    whole = Batch(
        (),
        tuple(keys.realizations),
        key,
        records.time,
        values,
        np.asarray(records.place),
        records.population,
        state,
    )
    if len(keys.groups) == 1 and len(key) and np.bincount(key, minlength=len(keys)).all():
        return [replace(whole, group=keys.groups[0])]
    group = keys.group[key] if len(key) else np.zeros(0, int)
    parts = [(keys.groups[g], take(whole, np.flatnonzero(group == g))) for g in np.unique(group)]
    return [replace(part, group=name) for name, part in parts]
