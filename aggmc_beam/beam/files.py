"""The files of a config on any filesystem that Beam knows."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from aggmc_beam.config import Config
from aggmc_beam.errors import InputError
from aggmc_beam.local.decoded import unpacked
from aggmc_beam.local.sources import COMPRESSED, Dialect, Source, open_files

#: Bytes of a far text file that tell its columns, with states that are told by lists among them.
HEAD = 1 << 20


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


@contextmanager
def opened_head(config: Config, file: File) -> Iterator[Source | None]:
    """The first lines of a far text file as a source; None if it is empty. No more of it is read."""
    with tempfile.TemporaryDirectory(prefix="aggmc-") as directory:
        # What is unpacked has the name that it would have had.
        name = os.path.basename(file.path)
        stem = next((name.removesuffix(end) for end in COMPRESSED if name.lower().endswith(end)), name)
        copy = os.path.join(directory, stem)
        with FileSystems.open(file.path, compression_type=CompressionTypes.UNCOMPRESSED) as far:
            head = far.read(HEAD)
        data = (
            head if (stream := unpacked(io.BytesIO(head), head[:4])) is None else _as_far_as_it_goes(stream)
        )
        whole_lines = data[: data.rfind(b"\n") + 1] if len(head) == HEAD else data
        Path(copy).write_bytes(whole_lines or data)
        try:
            yield _source(config, copy)
        except InputError as error:
            raise InputError(str(error).replace(copy, file.path)) from error


def _as_far_as_it_goes(stream: Any) -> bytes:
    """The first bytes of what was packed, which may end in the middle."""
    data = b""
    with suppress(EOFError, OSError):
        while len(data) < HEAD and (more := stream.read(1 << 14)):
            data += more
    return data


def _source(config: Config, path: str) -> Source | None:
    if os.path.getsize(path) == 0:
        return None
    return open_files([path], Dialect.of(config.input))[0]
