"""A watched folder: files that appear, or change, become records of a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.fileio import MatchContinuously

from aggmc_beam.beam.blocks import Block, join_blocks, records_of
from aggmc_beam.beam.dead_letters import rejection
from aggmc_beam.beam.exact import REJECTED, whole_records
from aggmc_beam.beam.files import File, opened
from aggmc_beam.beam.metrics import counter
from aggmc_beam.beam.outputs import outputs, typed
from aggmc_beam.beam.parsing import Parsed
from aggmc_beam.beam.pieces import Piece, read_blocks
from aggmc_beam.errors import InputError
from aggmc_beam.local.blocks import Place, RowCounts
from aggmc_beam.local.explain import explain
from aggmc_beam.local.plan import Plan
from aggmc_beam.records import Record
from aggmc_beam.times import microseconds


class WatchFiles(beam.PTransform):  # type: ignore[misc]
    """The records of all files that match the config's patterns now or later, and the rejected rows.

    A file that changes is read again; what was read before is dropped further on, as a duplicate.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def expand(self, pipeline: Any) -> Parsed:
        every = microseconds(self.plan.config.input.watch or "60s") / 10**6
        found = [
            pipeline
            | f"Match {number}" >> MatchContinuously(pattern, interval=every, match_updated_files=True)
            for number, pattern in enumerate(self.plan.config.input.patterns)
        ]
        paths = (
            found
            | "All files" >> beam.Flatten()
            | "Paths" >> beam.Map(lambda match: match.path).with_output_types(str)
            | "Spread files" >> beam.Reshuffle()
        )
        types = {"records": Record, REJECTED: dict[str, Any]}
        read = typed(paths | "Read files" >> outputs(ReadRecords(self.plan), types, main="records"), types)
        return Parsed(read.records, read[REJECTED])


class ReadRecords(beam.DoFn):  # type: ignore[misc]
    """A path to the records in the file. A file that cannot be read goes to `REJECTED`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def process(self, path: str) -> Iterator[Any]:
        counter("files").inc()
        try:
            yield from self._records(File(0, path))
        except (InputError, OSError) as error:
            counter("rejected").inc()
            yield beam.pvalue.TaggedOutput(REJECTED, rejection(path, f"the file cannot be read: {error}"))

    def _records(self, file: File) -> Iterator[Any]:
        plan, rows = self.plan, Counter[str]()
        blocks: list[Block] = []
        places: list[Place] = []
        for block, noticed, refused in read_blocks(plan, Piece(file)):
            rows.update(noticed)
            places += [] if refused is None else [refused]
            if block is not None and plan.schema.state is None:
                yield from records_of(block)
            elif block is not None:
                blocks.append(block)
        counts = RowCounts(places=places)
        if blocks:
            aside: list[tuple[Place, str]] = []
            yield from records_of(whole_records(plan, join_blocks(blocks), rows, aside))
            for place, reason in aside:
                counts.reject(place, reason)
        counter("rows").inc(rows["rows"])
        if not counts.places:
            return
        with opened(plan.config, file) as source:
            assert source is not None
            for r in explain([source], plan.schema, counts):
                counter("rejected").inc()
                where = {"file": file.path, "row": r.row}
                yield beam.pvalue.TaggedOutput(REJECTED, {**rejection(r.record, r.reason), "source": where})
