"""Files through Beam's filesystems, as batches. Reading is the local engine's, so both agree."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from apache_beam.io.filesystems import FileSystems

from aggmc_beam.beam.summing import take
from aggmc_beam.beam.values import Batch, Group, Reach
from aggmc_beam.config import Config
from aggmc_beam.errors import InputError
from aggmc_beam.local.assemble import Long, Refused, Wide, key_frame
from aggmc_beam.local.engine import Plan
from aggmc_beam.local.keys import Keys
from aggmc_beam.local.layout import find_schema
from aggmc_beam.local.sources import ROW, Source, open_files
from aggmc_beam.local.survey import BATCH, batches
from aggmc_beam.local.tidy import FILE, KEY, TIME, group_columns, readable, tidy

#: Values that are held at once, rows times states.
VALUES = 2_000_000


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


@dataclass
class Reading:
    """What a piece of a file holds: batches by group, how far they reach, and refused places."""

    batches: list[Batch]
    reach: dict[Group, Reach]
    refused: np.ndarray
    rows: int


def read_file(plan: Plan, file: File) -> Iterator[Reading]:
    """A file, a bounded number of rows at a time."""
    with opened(plan.config, file) as source:
        if source is None:
            return
        frame = tidy(source, file.number, plan.schema)
        size = max(1000, min(BATCH, VALUES // len(plan.schema.states)))
        for rows in batches(frame, size):
            yield _read(plan, rows)


def _read(plan: Plan, rows: pl.DataFrame) -> Reading:
    schema, columns = plan.schema, group_columns(plan.schema)
    keys, refused = Keys(columns), Refused()
    reach = _reach(rows.filter(readable(schema)), columns)
    state = None
    if schema.state is None:
        found = Wide(schema, keys, refused).feed(rows)
        arrays = found.key, found.time, found.counts, found.place, found.population
    else:
        frame = key_frame(rows, columns, refused)
        long = Long(schema, keys, refused, plan.config.input.absent or "zero").rows(frame)
        arrays = long.key, long.time, long.count[:, None], long.place, long.population
        state = long.state
    places = np.concatenate([np.zeros((0, 2), np.int64), *refused.places])
    return Reading(_batches(keys, *arrays, state), reach, places, rows.height)


def _reach(good: pl.DataFrame, columns: list[str]) -> dict[Group, Reach]:
    found: dict[Group, Reach] = {}
    parts = good.group_by(*columns, KEY, maintain_order=True).agg(
        pl.col(TIME).min().alias("first"),
        pl.col(TIME).max().alias("last"),
        pl.col(FILE).first().alias("file"),
        pl.col(ROW).first().alias("row"),
    )
    for *names, first, last, file, row in parts.iter_rows():
        group = tuple(names[:-1])
        one = Reach(frozenset([names[-1]]), first, last, (file, row))
        found[group] = found[group] + one if group in found else one
    return found


def _batches(
    keys: Keys,
    key: np.ndarray,
    time: np.ndarray,
    values: np.ndarray,
    place: np.ndarray,
    population: np.ndarray | None,
    state: np.ndarray | None,
) -> list[Batch]:
    """One batch for each group."""
    whole = Batch((), tuple(keys.realizations), key, time, values, place, population, state)
    group = keys.group[key] if len(key) else np.zeros(0, int)
    parts = [(keys.groups[g], take(whole, np.flatnonzero(group == g))) for g in np.unique(group)]
    return [replace(part, group=name) for name, part in parts]
