"""Files to sums: what can be summed where it is read is; only the rest travels.

pieces -> coverage -> which realizations must meet
pieces -> their sums, by (group, shard) | batches of the realizations that must meet
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from aggmc_beam.beam.bounded import (
    ASIDE,
    NOTICED,
    PLACES,
    SHARDS,
    Outcome,
    SumRecords,
    counter,
    group_key,
    spread,
)
from aggmc_beam.beam.combiners import CoverageFn
from aggmc_beam.beam.coverage import Coverage, Verdict
from aggmc_beam.beam.files import (
    PIECE,
    File,
    Piece,
    feed,
    read_coverage,
    read_rows,
    split_file,
    to_batches,
)
from aggmc_beam.beam.summing import shared_out
from aggmc_beam.beam.values import Batch, Group, Reach
from aggmc_beam.local.accumulate import Accumulator
from aggmc_beam.local.assemble import Records
from aggmc_beam.local.engine import Plan, accumulator
from aggmc_beam.local.rows import arranged, is_disordered, joined
from aggmc_beam.local.survey import BATCH
from aggmc_beam.local.threads import one_blas_thread
from aggmc_beam.records import realization_number
from aggmc_beam.saved import Sums

SUMS = "sums"
#: Values of open records that a bundle holds before it hands on what it has.
OPEN = 4_000_000


class SumFiles(beam.PTransform):  # type: ignore[misc]
    """A pipeline to the sums of its files by group: `Outcome`."""

    def __init__(self, plan: Plan, files: list[File], tracks: bool, shards: int = SHARDS) -> None:
        super().__init__()
        self.plan, self.files, self.tracks, self.shards = plan, files, tracks, shards

    def expand(self, pipeline: Any) -> Outcome:
        plan = self.plan
        # Of several pieces, `Create` itself makes bundles that may go to different workers.
        pieces = pipeline | "Pieces" >> beam.Create([p for f in self.files for p in split_file(plan, f)])
        look = beam.ParDo(Look(plan, self.shards)).with_output_types(tuple[str, Coverage])
        verdicts = (
            pieces
            | "Look" >> look
            | "Cover" >> beam.CombinePerKey(CoverageFn()).with_output_types(tuple[str, Verdict])
        )
        step = beam.ParDo(SumPiece(plan, self.shards), beam.pvalue.AsIter(verdicts)).with_output_types(
            tuple[str, Batch], **ASIDE, **{SUMS: tuple[str, Sums]}
        )
        read = pieces | "Read" >> step.with_outputs(SUMS, PLACES, NOTICED, main="batches")
        reach = verdicts | "Reach" >> beam.MapTuple(_reach).with_output_types(tuple[str, Reach])
        found: Outcome = (read.batches, reach, read[SUMS]) | "Sums" >> SumRecords(plan, True, self.tracks)
        noticed = (read[NOTICED], found.noticed) | "All noticed" >> beam.Flatten()
        places = (read[PLACES], found.places) | "All places" >> beam.Flatten()
        return found._replace(noticed=noticed, places=places)


def _bucket(group: Group, shard: int) -> str:
    return json.dumps([group, shard], ensure_ascii=False)


def _reach(key: str, verdict: Verdict) -> tuple[str, Reach]:
    return group_key(tuple(json.loads(key)[0])), verdict.reach


class Look(beam.DoFn):  # type: ignore[misc]
    """Pieces to what they cover, by (group, shard)."""

    def __init__(self, plan: Plan, shards: int) -> None:
        self.plan, self.shards = plan, shards

    def process(self, piece: Piece) -> Iterator[tuple[str, Coverage]]:
        keys, coverage, reach = read_coverage(self.plan, piece)
        if not len(keys):
            return
        label = keys.group * self.shards + keys.numbers % self.shards
        for one, part in coverage.split(label):
            group = keys.groups[one // self.shards]
            yield _bucket(group, one % self.shards), part.reaching(reach[group])


class SumPiece(beam.DoFn):  # type: ignore[misc]
    """Pieces to sums, one for each bundle, group and shard; records that must meet leave as batches."""

    def __init__(self, plan: Plan, shards: int) -> None:
        self.plan, self.shards = plan, shards

    def start_bundle(self) -> None:
        self.total: Accumulator | None = None
        self.verdicts: dict[Group, tuple[Reach, dict[int, Verdict]]] = {}
        self.meets = np.zeros(0, bool)

    def process(self, piece: Piece, verdicts: Iterable[tuple[str, Verdict]]) -> Iterator[Any]:
        if not self.verdicts:
            self._learn(verdicts)
        noticed = dict.fromkeys(("rows", "rejected", "kept", "used", "duplicate"), 0)
        # Records out of order, which are put in order once the piece is read.
        held: list[Records] = []
        for frame in read_rows(self.plan, piece):
            total = self.total = self.total or self._begin()
            refused = total.refused
            before = len(refused.places)
            records = feed(self.plan, frame, total.keys, refused)
            for file, row in np.concatenate([np.zeros((0, 2), int), *refused.places[before:]]).tolist():
                noticed["rejected"] += 1
                yield beam.pvalue.TaggedOutput(PLACES, (file, (row, "")))
            noticed["rows"] += frame.height
            here, away = self._parted(total, records)
            for batch in [] if away is None else to_batches(total.keys, away):
                yield from spread(self.plan, batch, self.shards)
            if here is None:
                continue
            self._add_rules(total)
            if total.panel is None or not (held or is_disordered(here)):
                yield from self._take(total, [here], noticed)
                continue
            held.append(here)
            if sum(records.counts.size for records in held) > PIECE:
                yield from self._take(total, arranged(joined(held), BATCH), noticed)
                held = []
        if held:
            assert self.total is not None
            yield from self._take(self.total, arranged(joined(held), BATCH), noticed)
        counter("rows").inc(noticed["rows"])
        counter("records").inc(noticed["used"])
        counter("duplicates").inc(noticed["duplicate"])
        counter("rejected").inc(noticed["rejected"])
        yield beam.pvalue.TaggedOutput(NOTICED, noticed)

    def finish_bundle(self) -> Iterator[Any]:
        window = GlobalWindow()
        for found in self._flush():
            value = WindowedValue(found, window.max_timestamp(), [window])
            yield beam.pvalue.TaggedOutput(SUMS, value)

    def _take(self, total: Accumulator, parts: Iterable[Records], noticed: dict[str, int]) -> Iterator[Any]:
        """Add records to the sums; what the sums are, once they hold too much."""
        for records in parts:
            known = total.kept, total.used, total.duplicate
            with one_blas_thread():
                total.take(records)
            noticed["kept"] += total.kept - known[0]
            noticed["used"] += total.used - known[1]
            noticed["duplicate"] += total.duplicate - known[2]
        if total.open_values > OPEN:
            yield from (beam.pvalue.TaggedOutput(SUMS, part) for part in self._flush())

    def _begin(self) -> Accumulator:
        total = accumulator(self.plan)
        if len(self.verdicts) == 1:
            ((group, (reach, _)),) = self.verdicts.items()
            total.keys.add_group(group)
            self._add_rules(total)
            total.expect_panel({group: reach.extent}, map)
        return total

    def _learn(self, verdicts: Iterable[tuple[str, Verdict]]) -> None:
        for key, verdict in verdicts:
            names, shard = json.loads(key)
            reach, known = self.verdicts.setdefault(tuple(names), (Reach(), {}))
            known[shard] = verdict
            self.verdicts[tuple(names)] = reach + verdict.reach, known

    def _parted(self, total: Accumulator, records: Any) -> tuple[Records | None, Any]:
        """The records that are summed here, and those that must meet others elsewhere."""
        keys = total.keys
        if len(keys) > len(self.meets):
            known = len(self.meets)
            named = zip(keys.group[known:].tolist(), keys.realizations[known:], strict=True)
            new = [self._must_meet(keys.groups[group], name) for group, name in named]
            self.meets = np.concatenate([self.meets, np.array(new, bool)])
        if not self.meets.any():
            return records, None
        away = self.meets[records.key]
        if away.all():
            return None, records
        return records.part(np.flatnonzero(~away)), records.part(np.flatnonzero(away))

    def _must_meet(self, group: Group, name: str) -> bool:
        meets = self.verdicts[group][1][realization_number(name) % self.shards].meets
        return meets is None or name in meets

    def _add_rules(self, total: Accumulator) -> None:
        """Rules for the groups that this bundle has met; there may be many others."""
        uncertainty = self.plan.config.uncertainty
        for group in total.keys.groups[len(total.rules) :]:
            extent = self.verdicts[group][0].extent
            total.add_rule(extent, uncertainty.replicates, uncertainty.block)

    def _flush(self) -> Iterator[tuple[str, Sums]]:
        total, self.total, self.meets = self.total, None, np.zeros(0, bool)
        if total is None:
            return
        with one_blas_thread():
            total.settle()
        for group, shard, part in shared_out(total, self.shards):
            yield _bucket(group, shard), part
