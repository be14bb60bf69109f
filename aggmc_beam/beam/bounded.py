"""Bounded data: every record of a realization meets at one key, so nothing depends on the order.

batches -> by (group, shard, stretch of time): put together, drop repeated, sum -> digests | tracks
tracks, also those of records that need not meet -> by (group, shard): the pairs between them -> digests
digests -> by group -> estimate

A group whose records all meet in one bundle has its sums at once, and nothing more travels.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from aggmc_beam.beam.combiners import GroupFn, TrackFn
from aggmc_beam.beam.former.accumulate import Accumulator
from aggmc_beam.beam.former.engine import Plan
from aggmc_beam.beam.former.explain import CONFLICT
from aggmc_beam.beam.summing import Meeting, Noticed, counted, digests_of, split, tracks_of, whole_of
from aggmc_beam.beam.values import Batch, Group, Reach, without_tracks
from aggmc_beam.chain import Chain
from aggmc_beam.records import as_row
from aggmc_beam.saved import Sums

NAMESPACE = "aggmc"
#: Keys over which the realizations of a group are spread.
SHARDS = 16
#: Values that must meet and are summed together; in small portions they take longer.
VALUES = 8_000_000
REJECTED, PLACES, NOTICED, REACH, SKIPPED = "rejected", "places", "noticed", "reach", "skipped"
DIGESTS, TRACKS, WHOLE = "digests", "tracks", "whole"
#: Types of the outputs beside the main one that are shuffled.
ASIDE: dict[str, Any] = {
    NOTICED: dict[str, int],
    PLACES: tuple[int, tuple[int, str]],
    DIGESTS: tuple[str, Sums],
    TRACKS: tuple[str, Sums],
}


@cache
def counter(name: str) -> Any:
    return Metrics.counter(NAMESPACE, name)


@lru_cache(10_000)
def group_key(group: Group) -> str:
    return json.dumps(group, ensure_ascii=False)


def bucket(group: Group, shard: int) -> str:
    """The key of a shard of a group."""
    return json.dumps([group, shard], ensure_ascii=False)


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


def handed_on(total: Accumulator, shards: int) -> Iterator[Any]:
    """The sums of an accumulator that is settled, as outputs: digests for their groups, and what realizations
    must remember for their shards."""
    for group, sums in digests_of(total):
        yield beam.pvalue.TaggedOutput(DIGESTS, (group_key(group), sums))
    for group, shard, sums in tracks_of(total, shards):
        yield beam.pvalue.TaggedOutput(TRACKS, (bucket(group, shard), sums))


def at_the_end(outputs: Iterable[Any]) -> Iterator[Any]:
    """Outputs of a bundle that has ended."""
    window = GlobalWindow()
    for made in outputs:
        tagged = isinstance(made, beam.pvalue.TaggedOutput)
        value = WindowedValue(made.value if tagged else made, window.max_timestamp(), [window])
        yield beam.pvalue.TaggedOutput(made.tag, value) if tagged else value


class SumKeys(beam.DoFn):  # type: ignore[misc]
    """All batches of each key to sums, those of a group together as far as a bundle holds them."""

    def __init__(self, plan: Plan, files: bool, tracks: bool, shards: int) -> None:
        self.plan, self.files, self.tracks, self.shards = plan, files, tracks, shards

    def start_bundle(self) -> None:
        self.reach: dict[str, Reach] = {}
        self.waiting: dict[Group, list[Batch]] = {}
        self.meetings: dict[Group, Meeting] = {}

    def process(
        self, element: tuple[str, Iterable[Batch]], reach: Iterable[tuple[str, Reach]]
    ) -> Iterator[Any]:
        self.reach = self.reach or joined(reach)
        key, found = element
        group = tuple(json.loads(key)[0])
        batches = [*self.waiting.pop(group, ()), *found]
        if sum(batch.values.size for batch in batches) < VALUES:
            self.waiting[group] = batches
        else:
            yield from self._add(group, batches)

    def finish_bundle(self) -> Iterator[Any]:
        for group, batches in self.waiting.items():
            yield from at_the_end(self._add(group, batches))
        for meeting in self.meetings.values():
            yield from at_the_end(self._settled(meeting))

    def _add(self, group: Group, batches: list[Batch]) -> Iterator[Any]:
        meeting = self.meetings.pop(group, None)
        if meeting is None:
            meeting = Meeting(self.plan, group, self._reach(group).extent)
        noticed = meeting.add(batches, self.files)
        count_noticed(noticed.counts)
        yield beam.pvalue.TaggedOutput(NOTICED, noticed.counts)
        yield from self._set_aside(batches, noticed)
        if meeting.is_full:
            yield from self._settled(meeting)
        else:
            self.meetings[group] = meeting

    def _settled(self, meeting: Meeting) -> Iterator[Any]:
        total = meeting.settle()
        if meeting.rows != self._reach(meeting.group).rows:
            yield from handed_on(total, self.shards)
            return
        for group, sums in whole_of(total):
            kept = sums if self.tracks else without_tracks(sums)
            yield beam.pvalue.TaggedOutput(WHOLE, (group_key(group), kept))

    def _reach(self, group: Group) -> Reach:
        return self.reach.get(group_key(group), Reach())

    def _set_aside(self, batches: list[Batch], noticed: Noticed) -> Iterator[Any]:
        if self.files:
            yield from unused_rows(noticed)
            return
        reasons = {(at, i): noticed.reasons.get((at, i), "") for at, i in noticed.refused.tolist()}
        reasons |= dict.fromkeys(map(tuple, noticed.conflicts.tolist()), CONFLICT)
        for (at, i), reason in reasons.items():
            record = as_row(batches[at].record(i), self.plan.schema)
            yield beam.pvalue.TaggedOutput(REJECTED, {"record": record, "reason": reason, "source": None})


def unused_rows(noticed: Noticed) -> Iterator[Any]:
    """The places of rows of files that were not used, as outputs."""
    for file, row in noticed.refused.tolist():
        reason = noticed.reasons.get((file, row), "")
        yield beam.pvalue.TaggedOutput(PLACES, (file, (row, reason)))
    for file, row in noticed.conflicts.tolist():
        yield beam.pvalue.TaggedOutput(PLACES, (file, (row, CONFLICT)))


def count_noticed(noticed: Mapping[str, int]) -> None:
    """Add what was noticed to Beam's counters."""
    counter("rows").inc(noticed.get("rows", 0))
    counter("records").inc(noticed.get("used", 0))
    counter("duplicates").inc(noticed.get("duplicate", 0))
    counter("rejected").inc(noticed.get("rejected", 0))


def add_counts(found: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in found:
        total.update(one)
    return dict(total)


class SumRecords(beam.PTransform):  # type: ignore[misc]
    """PCollections of batches as `spread` hands them on, of (group, Reach) and, if there are any, of the
    digests and tracks of other realizations as `handed_on` gives them, to sums by group: `Outcome`.

    A digest goes straight to its group. Only tracks meet first, by shard, for the pairs between them.
    """

    def __init__(self, plan: Plan, files: bool, tracks: bool, shards: int = SHARDS) -> None:
        super().__init__()
        self.plan, self.files, self.tracks, self.shards = plan, files, tracks, shards

    def expand(self, inputs: tuple[Any, ...]) -> Outcome:
        batches, reach, *known = inputs
        S, chain = len(self.plan.schema.states), self.plan.config.chain
        # Types come before outputs: later they are dropped, and Beam would pickle what it shuffles.
        fn = SumKeys(self.plan, self.files, self.tracks, self.shards)
        step = beam.ParDo(fn, beam.pvalue.AsIter(reach))
        step = step.with_output_types(Any, **ASIDE, **{REJECTED: Any, WHOLE: tuple[str, Sums]})
        summed = (
            batches
            | "Meet" >> beam.GroupByKey()
            | "Sum" >> step.with_outputs(NOTICED, PLACES, REJECTED, DIGESTS, TRACKS, WHOLE)
        )
        tracks = summed[TRACKS]
        if known:
            tracks = (tracks, known[1]) | "Tracks" >> beam.Flatten()
        # Sums come as few as there are bundles: to combine them before they are shuffled would only cost.
        join = beam.ParDo(JoinTracks(S, chain, self.tracks)).with_output_types(tuple[str, Sums])
        add = (TrackFn if self.tracks else GroupFn)(S, chain)
        between = tracks | "By shard" >> beam.GroupByKey() | "Join" >> join
        added = (
            (summed[DIGESTS], between, *known[:1])
            | "Parts" >> beam.Flatten()
            | "By group" >> beam.GroupByKey()
            | "Groups" >> beam.MapTuple(partial(_added, add)).with_output_types(tuple[str, Sums])
        )
        groups = (summed[WHOLE], added) | "All groups" >> beam.Flatten()
        return Outcome(groups, summed[NOTICED], summed[PLACES], summed[REJECTED], reach)


def _added(fn: TrackFn, group: str, parts: Iterable[Sums]) -> tuple[str, Sums]:
    return group, fn.merge_accumulators(parts)


class JoinTracks(beam.DoFn):  # type: ignore[misc]
    """The tracks of each shard, complete, to the pairs between them and the number of realizations, those of
    a group added as far as a bundle holds them."""

    def __init__(self, states: int, chain: Chain, tracks: bool) -> None:
        self.join, self.tracks = TrackFn(states, chain), tracks
        self.add = self.join if tracks else GroupFn(states, chain)

    def start_bundle(self) -> None:
        self.found: dict[str, Sums] = {}

    def process(self, element: tuple[str, Iterable[Sums]]) -> None:
        key, parts = element
        sums = counted(self.join.merge_accumulators(parts), self.join.chain)
        sums = sums if self.tracks else without_tracks(sums)
        group = group_key(tuple(json.loads(key)[0]))
        known = self.found.get(group)
        self.found[group] = sums if known is None else self.add.add_input(known, sums)

    def finish_bundle(self) -> Iterator[Any]:
        yield from at_the_end(self.found.items())


def joined(found: Iterable[tuple[str, Reach]]) -> dict[str, Reach]:
    """How far each group reaches, from the reaches of its parts."""
    whole: dict[str, Reach] = {}
    for key, reach in found:
        whole[key] = whole[key] + reach if key in whole else reach
    return whole
