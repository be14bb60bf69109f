"""Files of any filesystem that Beam knows, in pieces that workers read: row groups of Parquet, whole files of text.

Text is not cut: a field of CSV may hold line ends, so only who has read a file from its beginning knows where its
rows begin, and rows are told by their numbers. Many files of text are read by as many workers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import polars as pl
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.window import GlobalWindow
from pyarrow import ArrowException
from pyarrow.parquet import ParquetFile

from aggmc_beam.beam.blocks import Block, join_blocks, narrowed, spread
from aggmc_beam.beam.exact import (
    BLOCKS,
    NOTICED,
    PLACE,
    PLACES,
    SHARDS,
    SumBlocks,
    Summed,
    placed,
)
from aggmc_beam.beam.files import File, is_local, opened
from aggmc_beam.beam.gather import Gather
from aggmc_beam.beam.metrics import counter
from aggmc_beam.beam.outputs import outputs, typed
from aggmc_beam.config import Config
from aggmc_beam.errors import InputError
from aggmc_beam.local.blocks import BlockReader, Place, index_names
from aggmc_beam.local.plan import Plan
from aggmc_beam.local.sources import Source, check_metadata, format_of, open_frame
from aggmc_beam.local.tidy import Tidy, join
from aggmc_beam.sums.records import Records

#: Values of a Parquet file that one worker reads at once, about; and values that are held before they are sent.
PIECE, HELD_VALUES = 8_000_000, 4_000_000


@dataclass(frozen=True)
class Piece:
    """What one worker reads: some row groups of a Parquet file, before which there are `start` rows, or a file."""

    file: File
    start: int = 0
    groups: tuple[int, ...] | None = None

    def to_text(self) -> str:
        """As Beam sends it to a worker."""
        return json.dumps([self.file.number, self.file.path, self.start, self.groups])

    @classmethod
    def from_text(cls, text: str) -> Piece:
        number, path, start, groups = json.loads(text)
        return cls(File(number, path), start, None if groups is None else tuple(groups))


class SumFiles(beam.PTransform):  # type: ignore[misc]
    """A pipeline to the exact sums of files: `Summed`."""

    def __init__(self, plan: Plan, files: list[File], shards: int = SHARDS) -> None:
        super().__init__()
        self.plan, self.files, self.shards = plan, files, shards

    def expand(self, pipeline: Any) -> Summed:
        types = {BLOCKS: tuple[int, Block], NOTICED: dict[str, int], PLACES: PLACE}
        pieces = (
            pipeline
            | "Files" >> beam.Create(self.files)
            | "Split" >> beam.ParDo(SplitFile(self.plan)).with_output_types(str)
            | "Spread" >> beam.Reshuffle()
        )
        read = typed(pieces | "Read" >> outputs(ReadPieces(self.plan, self.shards), types), types)
        found: Summed = read[BLOCKS] | "Sum" >> SumBlocks(self.plan)
        counts = (read[NOTICED], found.noticed) | "All noticed" >> beam.Flatten()
        places = (read[PLACES], found.places) | "All places" >> beam.Flatten()
        return found._replace(noticed=counts, places=places)


class SplitFile(beam.DoFn):  # type: ignore[misc]
    """A file to its pieces, as text."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def process(self, file: File) -> Iterator[str]:
        counter("files").inc()
        yield from (piece.to_text() for piece in self._pieces(file))

    def _pieces(self, file: File) -> Iterator[Piece]:
        if not is_parquet(self.plan.config, file):
            yield Piece(file)
            return
        with opened_parquet(file) as parquet:
            metadata = parquet.metadata
        check_metadata(metadata, file.path, self.plan.schema.columns, self.plan.config.limits.memory)
        enough = max(1, PIECE // len(self.plan.schema.columns))
        start = rows = 0
        groups: tuple[int, ...] = ()
        for i in range(metadata.num_row_groups):
            rows += metadata.row_group(i).num_rows
            groups += (i,)
            if rows >= enough:
                yield Piece(file, start, groups)
                start, rows, groups = start + rows, 0, ()
        if groups:
            yield Piece(file, start, groups)


def is_parquet(config: Config, file: File) -> bool:
    """Whether a file is Parquet, as its name or its first bytes tell."""
    if config.input.format != "auto":
        return config.input.format == "parquet"
    if is_local(file.path):
        with open(file.path, "rb") as stream:
            return stream.read(4) == b"PAR1"
    return format_of(file.path) == "parquet"


@contextmanager
def opened_parquet(file: File) -> Iterator[ParquetFile]:
    """A Parquet file; of one far away only those bytes are read that are asked for."""
    try:
        with FileSystems.open(file.path, compression_type=CompressionTypes.UNCOMPRESSED) as stream:
            yield ParquetFile(stream)
    except (ArrowException, OSError) as error:
        raise InputError(f"{file.path} cannot be read as Parquet: {str(error).splitlines()[0]}") from error


@contextmanager
def opened_piece(plan: Plan, piece: Piece) -> Iterator[Source | None]:
    """A piece as a source; None if there is nothing in it."""
    if piece.groups is None:
        with opened(plan.config, piece.file) as source:
            yield source
        return
    with opened_parquet(piece.file) as parquet:
        names = set(parquet.schema_arrow.names)
        missing = [c for c in plan.schema.columns if c not in names]
        if missing:
            raise InputError(
                f"{piece.file.path} has no column {missing[0]!r}; its columns are {', '.join(names)}"
            )
        columns = list(dict.fromkeys(plan.schema.columns))
        table = parquet.read_row_groups(list(piece.groups), columns=columns)
    yield open_frame(pl.DataFrame(pl.from_arrow(table)), piece.file.path)


def read_blocks(plan: Plan, piece: Piece) -> Iterator[tuple[Block | None, dict[str, int], Place | None]]:
    """The records of a piece, a bounded number at a time, or rows if it is of a long table; at the end what was
    noticed of its rows, and the places of those that are no records."""
    with opened_piece(plan, piece) as source:
        if source is None:
            return
        reader = BlockReader([source], plan.schema, plan.config.input.absent or "zero")
        held: list[Tidy] = []
        size = 0
        for _, tidy in reader.tidy():
            held.append(tidy)
            size += tidy.counts.size
            if size >= HELD_VALUES:
                yield _block(held, piece), {}, None
                held, size = [], 0
        if held:
            yield _block(held, piece), {}, None
        counts = reader.counts
        number = np.concatenate([np.zeros(0, np.int64), *(p.row for p in counts.places)])
        refused = _place(number, piece) if len(number) else None
        yield None, {"rows": counts.read, "rejected": counts.rejected}, refused


def _place(rows: np.ndarray, piece: Piece) -> Place:
    return Place(np.full(len(rows), piece.file.number, np.int64), rows + piece.start)


def _block(held: list[Tidy], piece: Piece) -> Block:
    kinds = [name.dtype for part in held for name in part.names if name.dtype != pl.Int64]
    tidy = join(held, kinds[0] if kinds else pl.Categorical())
    realization, names, group_of, groups = index_names(tidy.names)
    records = Records(realization, tidy.time, tidy.counts, names, group_of, groups, tidy.population)
    return Block(narrowed(records), _place(tidy.rows, piece), tidy.state)


class ReadPieces(beam.DoFn):  # type: ignore[misc]
    """Pieces to (shard, block) pairs; also what was noticed, and the places of rows that are no records."""

    def __init__(self, plan: Plan, shards: int) -> None:
        self.plan, self.shards = plan, shards

    def start_bundle(self) -> None:
        self.held: list[Block] = []

    def process(self, text: str) -> Iterator[Any]:
        piece = Piece.from_text(text)
        for block, noticed, refused in read_blocks(self.plan, piece):
            if block is not None and len(block):
                self.held.append(block)
                if sum(one.records.counts.size for one in self.held) >= HELD_VALUES:
                    yield from self._flush()
            if noticed:
                counter("rows").inc(noticed["rows"])
                counter("rejected").inc(noticed["rejected"])
                yield beam.pvalue.TaggedOutput(NOTICED, noticed)
            if refused is not None:
                yield from placed(refused, "")

    def finish_bundle(self) -> Iterator[Any]:
        yield from Gather._in_window(GlobalWindow(), self._flush())

    def _flush(self) -> Iterator[Any]:
        held, self.held = self.held, []
        if held:
            # Parts of one number of columns: a long table never meets a wide one.
            for keyed in spread(join_blocks(held), self.shards):
                yield beam.pvalue.TaggedOutput(BLOCKS, keyed)
