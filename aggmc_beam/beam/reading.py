"""Files to sums: what can be summed where it is read is; only the rest travels.

pieces -> coverage -> which realizations must meet
pieces -> their sums, by (group, shard) | batches of the realizations that must meet
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np

from aggmc_beam.beam.bounded import (
    ASIDE,
    DIGESTS,
    NOTICED,
    PLACES,
    REACH,
    SHARDS,
    TRACKS,
    Outcome,
    SumRecords,
    at_the_end,
    bucket,
    count_noticed,
    group_key,
    handed_on,
    spread,
)
from aggmc_beam.beam.combiners import CoverageFn
from aggmc_beam.beam.coverage import Coverage, Verdict
from aggmc_beam.beam.files import (
    File,
    Piece,
    feed,
    must_meet,
    read_coverage,
    read_rows,
    split_file,
    to_batches,
)
from aggmc_beam.beam.former.accumulate import Accumulator
from aggmc_beam.beam.former.assemble import Records
from aggmc_beam.beam.former.engine import Plan, accumulator
from aggmc_beam.beam.small import SumSmall, is_small
from aggmc_beam.beam.summing import OPEN, narrowed
from aggmc_beam.beam.values import Batch, Group, Reach
from aggmc_beam.blas import one_blas_thread
from aggmc_beam.records import realization_number
from aggmc_beam.saved import Sums


class SumFiles(beam.PTransform):  # type: ignore[misc]
    """A pipeline to the sums of its files by group: `Outcome`."""

    def __init__(self, plan: Plan, files: list[File], tracks: bool, shards: int = SHARDS) -> None:
        super().__init__()
        self.plan, self.files, self.tracks, self.shards = plan, files, tracks, shards

    def expand(self, pipeline: Any) -> Outcome:
        pieces = [piece for file in self.files for piece in split_file(self.plan, file)]
        return self._at_once(pipeline) if is_small(self.plan, pieces) else self._spread(pipeline, pieces)

    def _at_once(self, pipeline: Any) -> Outcome:
        step = beam.ParDo(SumSmall(self.plan, self.files, self.tracks)).with_output_types(
            tuple[str, Sums], **ASIDE, **{REACH: tuple[str, Reach]}
        )
        read = step.with_outputs(NOTICED, PLACES, REACH, main="sums")
        found = pipeline | "Once" >> beam.Impulse() | "Read" >> read
        return Outcome(found.sums, found[NOTICED], found[PLACES], None, found[REACH])

    def _spread(self, pipeline: Any, given: list[Piece]) -> Outcome:
        plan = self.plan
        # Of several pieces, `Create` itself makes bundles that may go to different workers.
        pieces = pipeline | "Pieces" >> beam.Create(given)
        look = beam.ParDo(Look(plan, self.shards)).with_output_types(tuple[str, Coverage])
        verdicts = (
            pieces
            | "Look" >> look
            | "Cover" >> beam.CombinePerKey(CoverageFn()).with_output_types(tuple[str, Verdict])
        )
        step = beam.ParDo(SumPiece(plan, self.shards), beam.pvalue.AsIter(verdicts)).with_output_types(
            tuple[str, Batch], **ASIDE
        )
        read = pieces | "Read" >> step.with_outputs(DIGESTS, TRACKS, PLACES, NOTICED, main="batches")
        reach = verdicts | "Reach" >> beam.MapTuple(_reach).with_output_types(tuple[str, Reach])
        sums = SumRecords(plan, True, self.tracks, self.shards)
        found: Outcome = (read.batches, reach, read[DIGESTS], read[TRACKS]) | "Sums" >> sums
        noticed = (read[NOTICED], found.noticed) | "All noticed" >> beam.Flatten()
        places = (read[PLACES], found.places) | "All places" >> beam.Flatten()
        return found._replace(noticed=noticed, places=places)


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
            yield bucket(group, one % self.shards), part.reaching(reach[group])


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
                yield from spread(self.plan, replace(batch, values=narrowed(batch.values)), self.shards)
            if here is None:
                continue
            self._add_rules(total)
            yield from self._take(total, here, noticed)
        count_noticed(noticed)
        yield beam.pvalue.TaggedOutput(NOTICED, noticed)

    def finish_bundle(self) -> Iterator[Any]:
        yield from at_the_end(self._flush())

    def _take(self, total: Accumulator, records: Records, noticed: dict[str, int]) -> Iterator[Any]:
        """Add records to the sums; what the sums are, once they hold too much."""
        known = total.kept, total.used, total.duplicate
        with one_blas_thread():
            total.take(records)
        noticed["kept"] += total.kept - known[0]
        noticed["used"] += total.used - known[1]
        noticed["duplicate"] += total.duplicate - known[2]
        if total.open_values > OPEN:
            yield from self._flush()

    def _begin(self) -> Accumulator:
        total = accumulator(self.plan)
        if len(self.verdicts) == 1:
            ((group, _),) = self.verdicts.items()
            total.keys.add_group(group)
            self._add_rules(total)
        return total

    def _learn(self, verdicts: Iterable[tuple[str, Verdict]]) -> None:
        for key, verdict in verdicts:
            names, shard = json.loads(key)
            reach, known = self.verdicts.setdefault(tuple(names), (Reach(), {}))
            known[shard] = verdict
            self.verdicts[tuple(names)] = reach + verdict.reach, known

    def _parted(self, total: Accumulator, records: Any) -> tuple[Records | None, Any]:
        """The records that are summed here, and those that must meet others elsewhere."""
        if must_meet(self.plan):
            return None, records
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

    def _flush(self) -> Iterator[Any]:
        total, self.total, self.meets = self.total, None, np.zeros(0, bool)
        if total is not None:
            yield from handed_on(total, self.shards)
