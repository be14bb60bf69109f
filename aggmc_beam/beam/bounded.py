"""Bounded data: every record of a realization meets at one key, so nothing depends on the order.

batches -> by (group, shard, stretch of time): put together, drop repeated, sum ->
TrackFn by (group, shard), with the sums of records that need not meet -> by group -> estimate
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics

from aggmc_beam.beam.combiners import GroupFn, TrackFn
from aggmc_beam.beam.summing import Summed, counted, split, sum_batches
from aggmc_beam.beam.values import Batch, Group, Reach, without_tracks
from aggmc_beam.chain import Chain
from aggmc_beam.errors import InputError
from aggmc_beam.limit import check_rejected
from aggmc_beam.local.engine import Plan, accumulator, labelled
from aggmc_beam.local.explain import CONFLICT
from aggmc_beam.moments import Counts
from aggmc_beam.records import as_row
from aggmc_beam.result import Estimate
from aggmc_beam.saved import Saved, Sums, estimate_sums

NAMESPACE = "aggmc"
#: Keys over which the realizations of a group are spread.
SHARDS = 16
REJECTED, PLACES, NOTICED, REACH, SKIPPED = "rejected", "places", "noticed", "reach", "skipped"
#: Types of the outputs beside the main one that are shuffled.
ASIDE: dict[str, Any] = {NOTICED: dict[str, int], PLACES: tuple[int, tuple[int, str]]}


@cache
def counter(name: str) -> Any:
    return Metrics.counter(NAMESPACE, name)


@lru_cache(10_000)
def group_key(group: Group) -> str:
    return json.dumps(group, ensure_ascii=False)


class Outcome(NamedTuple):
    """What summing leaves: sums by group, what was noticed (one dictionary of counts), the rows that
    were not used (places in files, or whole rejections where there are no files), and how far groups
    reach, in one or more parts for each."""

    sums: Any
    noticed: Any
    places: Any
    rejected: Any
    reach: Any


def spread(plan: Plan, batch: Batch, shards: int) -> Iterator[tuple[str, Batch]]:
    """A batch of a group to the keys at which its records meet."""
    for (shard, stretch), part in split(plan, batch, shards):
        yield json.dumps([batch.group, shard, stretch], ensure_ascii=False), part


class SumKey(beam.DoFn):  # type: ignore[misc]
    """All batches of a key to its sums."""

    def __init__(self, plan: Plan, files: bool) -> None:
        self.plan, self.files = plan, files

    def start_bundle(self) -> None:
        self.reach: dict[str, Reach] = {}

    def process(
        self, element: tuple[str, Iterable[Batch]], reach: Iterable[tuple[str, Reach]]
    ) -> Iterator[tuple[str, Sums] | Any]:
        self.reach = self.reach or joined(reach)
        key, found = element
        names, shard, _ = json.loads(key)
        group = tuple(names)
        batches = list(found)
        summed = sum_batches(self.plan, group, batches, self.reach[group_key(group)].extent, self.files)
        yield json.dumps([group, shard], ensure_ascii=False), summed.sums
        counter("records").inc(summed.noticed["used"])
        counter("duplicates").inc(summed.noticed["duplicate"])
        counter("rejected").inc(summed.noticed["rejected"])
        yield beam.pvalue.TaggedOutput(NOTICED, summed.noticed)
        yield from self._set_aside(batches, summed)

    def _set_aside(self, batches: list[Batch], summed: Summed) -> Iterator[Any]:
        if self.files:
            for file, row in summed.refused.tolist():
                reason = summed.reasons.get((file, row), "")
                yield beam.pvalue.TaggedOutput(PLACES, (file, (row, reason)))
            for file, row in summed.conflicts.tolist():
                yield beam.pvalue.TaggedOutput(PLACES, (file, (row, CONFLICT)))
            return
        reasons = {(at, i): summed.reasons.get((at, i), "") for at, i in summed.refused.tolist()}
        reasons |= dict.fromkeys(map(tuple, summed.conflicts.tolist()), CONFLICT)
        for (at, i), reason in reasons.items():
            record = as_row(batches[at].record(i), self.plan.schema)
            yield beam.pvalue.TaggedOutput(REJECTED, {"record": record, "reason": reason, "source": None})


def add_counts(found: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in found:
        total.update(one)
    return dict(total)


class SumRecords(beam.PTransform):  # type: ignore[misc]
    """PCollections of batches as `spread` hands them on, of (group, Reach) and, if there are any, of the
    sums of other realizations by (group, shard), to sums by group: `Outcome`."""

    def __init__(self, plan: Plan, files: bool, tracks: bool) -> None:
        super().__init__()
        self.plan, self.files, self.tracks = plan, files, tracks

    def expand(self, inputs: tuple[Any, ...]) -> Outcome:
        batches, reach, *sums = inputs
        S, chain = len(self.plan.schema.states), self.plan.config.chain
        summed = (
            batches
            | "Meet" >> beam.GroupByKey()
            | "Sum"
            # Types come before outputs: later they are dropped, and Beam would pickle what it shuffles.
            >> beam.ParDo(SumKey(self.plan, self.files), beam.pvalue.AsIter(reach))
            .with_output_types(tuple[str, Sums], **ASIDE, **{REJECTED: Any})
            .with_outputs(NOTICED, PLACES, REJECTED, main="sums")
        )
        parts = summed.sums
        if sums:
            parts = (parts, *sums) | "Parts" >> beam.Flatten()
        groups = (
            parts
            | "Join" >> beam.CombinePerKey(TrackFn(S, chain))
            | "To groups" >> beam.ParDo(ToGroup(chain, self.tracks)).with_output_types(tuple[str, Sums])
            | "Groups" >> beam.CombinePerKey((TrackFn if self.tracks else GroupFn)(S, chain))
        )
        return Outcome(groups, summed[NOTICED], summed[PLACES], summed[REJECTED], reach)


class ToGroup(beam.DoFn):  # type: ignore[misc]
    """The sums of a shard, complete, to those of its group; without tracks if they are not asked for."""

    def __init__(self, chain: Chain, tracks: bool) -> None:
        self.chain, self.tracks = chain, tracks

    def process(self, element: tuple[str, Sums]) -> Iterator[tuple[str, Sums]]:
        key, sums = element
        sums = counted(sums, self.chain)
        group = group_key(tuple(json.loads(key)[0]))
        yield group, sums if self.tracks else without_tracks(sums)


def joined(found: Iterable[tuple[str, Reach]]) -> dict[str, Reach]:
    """How far each group reaches, from the reaches of its parts."""
    whole: dict[str, Reach] = {}
    for key, reach in found:
        whole[key] = whole[key] + reach if key in whole else reach
    return whole


class EstimateGroup(beam.DoFn):  # type: ignore[misc]
    """The sums of a group to its estimates; a group with too little data goes to `SKIPPED`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def process(
        self, element: tuple[str, Sums], noticed: dict[str, int], reach: Iterable[tuple[str, Reach]]
    ) -> Iterator[tuple[str, list[Estimate]] | Any]:
        key, sums = element
        check_limit(self.plan, noticed)
        if all(group == key for group, _ in reach):
            sums = with_noticed(sums, noticed)
        try:
            yield key, estimates(self.plan, sums)
        except InputError as error:
            counter("skipped_groups").inc()
            yield beam.pvalue.TaggedOutput(SKIPPED, (key, str(error)))


def with_noticed(sums: Sums, noticed: dict[str, int]) -> Sums:
    """What belongs to no record, counted with the only group there is."""
    if not sums.digest.parts:
        return sums
    return replace(sums, digest=sums.digest.counted(Counts(rejected=noticed.get("rejected", 0))))


def estimates(plan: Plan, sums: Sums) -> list[Estimate]:
    """The estimates of one group, cell by cell, labelled with its group and times."""
    found = labelled(estimate_sums(header(plan), sums, plan.settings), sums.group, plan.schema.clock)
    return [found] if isinstance(found, Estimate) else list(found)


def header(plan: Plan) -> Saved:
    """How the sums of a plan are made, without sums."""
    return accumulator(plan).saved()


def check_limit(plan: Plan, noticed: dict[str, int]) -> None:
    rejected = noticed.get("rejected", 0)
    read = rejected + noticed.get("used", 0) + noticed.get("duplicate", 0)
    check_rejected(rejected, read, plan.config.max_rejected)
