"""The files of a config on any filesystem that Beam knows, and the plan of a run over them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from aggmc_beam.config import Config
from aggmc_beam.errors import InputError
from aggmc_beam.local.plan import Plan
from aggmc_beam.local.schema import find_schema
from aggmc_beam.local.sources import Dialect, Source, open_files


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
            found = [s.name for s in open_files([pattern], Dialect.of(config.input))]
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
        sources = open_files([f.path for f in files], Dialect.of(config.input))
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
        with (
            FileSystems.open(file.path, compression_type=CompressionTypes.UNCOMPRESSED) as far,
            open(copy, "wb") as near,
        ):
            shutil.copyfileobj(far, near, 1 << 20)
        try:
            yield _source(config, copy)
        except InputError as error:
            # Nobody knows the copy.
            raise InputError(str(error).replace(copy, file.path)) from error


def _source(config: Config, path: str) -> Source | None:
    if os.path.getsize(path) == 0:
        return None
    return open_files([path], Dialect.of(config.input))[0]
