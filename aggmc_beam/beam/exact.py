"""Exact sums: all records of a realization meet, so that each counts once, whatever the order they come in.

blocks -> by shard of realizations -> how much each group holds -> the jackknife rules
                                   -> sums of the groups of a bundle -> by bucket of groups: added
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.utils.windowed_value import WindowedValue

from aggmc_beam.beam.blocks import Block, BlockCoder, hash_group, join_blocks, records_of
from aggmc_beam.beam.metrics import counter, distribution
from aggmc_beam.beam.outputs import outputs, typed
from aggmc_beam.local.blocks import Place
from aggmc_beam.local.explain import CONFLICT
from aggmc_beam.local.longtable import join_rows
from aggmc_beam.local.plan import Plan
from aggmc_beam.records import Schema, as_row
from aggmc_beam.sums.jackknife import FEW_REALIZATIONS, Extent
from aggmc_beam.sums.records import Group, Records, extents_of
from aggmc_beam.sums.state import AggregationState
from aggmc_beam.sums.sums import add_sums

beam.coders.registry.register_coder(Block, BlockCoder)

#: Keys over which realizations are spread, and over which groups are.
SHARDS, BUCKETS = 16, 64
#: Values that are summed together; in small portions they take longer.
VALUES = 1 << 24
BLOCKS, STATES, NOTICED, PLACES, REJECTED = "blocks", "states", "noticed", "places", "rejected"
#: The number of a file, a row of it, and why it was not used.
PLACE: Any = tuple[int, tuple[int, str]]
#: How much a group holds, and the place of its first record: the number of its file and row.
Reach = tuple[Group, tuple[int, int, int, int], tuple[int, int]]


class Summed(NamedTuple):
    """PCollections: (bucket, state) pairs, in which each group is in one state; counts of what was noticed; places
    of rows of files that were not used, with the reason; other such records; and how much groups hold."""

    states: Any
    noticed: Any
    places: Any
    rejected: Any
    reaches: Any


class SumBlocks(beam.PTransform):  # type: ignore[misc]
    """(shard, block) pairs to `Summed`."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def expand(self, blocks: Any) -> Summed:
        met = blocks | "Meet" >> beam.GroupByKey()
        reaches = met | "Look" >> beam.ParDo(Look(self.plan)).with_output_types(list)
        types = {
            STATES: tuple[int, AggregationState],
            NOTICED: dict[str, int],
            PLACES: PLACE,
            REJECTED: dict[str, Any],
        }
        summing = outputs(SumShards(self.plan), types, beam.pvalue.AsIter(reaches))
        summed = typed(met | "Sum" >> summing, types)
        states = (
            summed[STATES]
            | "By group" >> beam.GroupByKey()
            | "Add" >> beam.MapTuple(added).with_output_types(tuple[int, AggregationState])
        )
        return Summed(states, summed[NOTICED], summed[PLACES], summed[REJECTED], reaches)


def added(bucket: int, states: Iterable[AggregationState]) -> tuple[int, AggregationState]:
    """The states of a bucket as one."""
    return bucket, reduce(add, states)


class Look(beam.DoFn):  # type: ignore[misc]
    """The blocks of a shard to what its groups hold: a list of `Reach`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def process(self, element: tuple[int, Iterable[Block]]) -> Iterator[list[Reach]]:
        block = join_blocks(list(element[1]))
        firsts = first_places(block)
        if block.state is not None:
            block = whole_records(self.plan, block, Counter())
        yield [
            (group, (e.realizations, e.records, e.first, e.last), firsts.get(group, (0, 0)))
            for group, e in distinct_extents(block.records).items()
        ]


def distinct_extents(records: Records) -> dict[Group, Extent]:
    """How much each group holds; of repeated records, one counts."""
    if not len(records):
        return {}
    low = int(records.time.min())
    width = int(records.time.max()) - low + 1
    if len(records.names) * width < 2**62:
        _, at = np.unique(records.realization * width + (records.time - low), return_index=True)
    else:
        _, at = np.unique(np.column_stack([records.realization, records.time]), axis=0, return_index=True)
    found = extents_of(records.realization[at], records.time[at], records.group[at])
    return {records.groups[g]: extent for g, extent in found.items()}


def first_places(block: Block) -> dict[Group, tuple[int, int]]:
    """The file and row of the first record of each group."""
    if block.place is None or not len(block):
        return {}
    numbers, at = np.unique(block.records.group, return_index=True)
    groups, place = block.records.groups, block.place
    return {groups[g]: (int(place.file[i]), int(place.row[i])) for g, i in zip(numbers, at, strict=True)}


def join_reaches(found: Iterable[list[Reach]]) -> dict[Group, tuple[Extent, tuple[int, int]]]:
    """What the groups of all shards hold, in order of their first records, or of their names where there is none."""
    total: dict[Group, tuple[Extent, tuple[int, int]]] = {}
    for part in found:
        for group, numbers, place in part:
            extent = Extent(*numbers)
            if group in total:
                known, first = total[group]
                extent = Extent(
                    min(FEW_REALIZATIONS, known.realizations + extent.realizations),
                    known.records + extent.records,
                    min(known.first, extent.first),
                    max(known.last, extent.last),
                )
                place = min(place, first)
            total[group] = extent, place
    return dict(sorted(total.items(), key=lambda item: (item[1][1], item[0])))


class SumShards(beam.DoFn):  # type: ignore[misc]
    """All blocks of each shard to the states of a bundle, by bucket of groups."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.sizes = distribution("state_bytes")
        self.numbers = distribution("records_per_bundle")

    def start_bundle(self) -> None:
        self.held: dict[Any, list[Block]] = {}
        self.states: dict[Any, AggregationState] = {}
        self.extents: dict[Any, dict[Group, Extent]] = {}
        self.records = 0

    def process(
        self,
        element: tuple[int, Iterable[Block]],
        reaches: Iterable[list[Reach]],
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterator[Any]:
        if window not in self.extents:
            self.extents[window] = {group: one[0] for group, one in join_reaches(reaches).items()}
        held = self.held.setdefault(window, [])
        held.append(first_of_repeated(join_blocks(list(element[1]))))
        if sum(block.records.counts.size for block in held) >= VALUES:
            yield from self._sum(window)

    def finish_bundle(self) -> Iterator[Any]:
        for window in list(self.held):
            for made in self._sum(window):
                value = WindowedValue(made.value, window.max_timestamp(), [window])
                yield beam.pvalue.TaggedOutput(made.tag, value)
        for window, state in self.states.items():
            for bucket, part in by_bucket(state):
                self.sizes.update(
                    sum(a.nbytes for a in (part.sums.product, part.sums.ends, part.sums.steps.total))
                )
                value = WindowedValue((bucket, part), window.max_timestamp(), [window])
                yield beam.pvalue.TaggedOutput(STATES, value)
        if self.records:
            self.numbers.update(self.records)

    def _sum(self, window: Any) -> Iterator[Any]:
        held, self.held[window] = self.held[window], []
        if not held:
            return
        plan, noticed = self.plan, Counter[str]()
        block = join_blocks(held)
        places: list[tuple[Place, str]] = []
        again_by_group: Counter[Group] = Counter()
        if block.state is not None:
            block = whole_records(plan, block, noticed, places, again_by_group)
        records = block.records
        state = self.states.setdefault(window, AggregationState(plan.spec))
        extents = self.extents[window]
        state.expect({group: extents[group] for group in records.groups if group in extents})
        found = state.add(records)
        for group, number in again_by_group.items():
            state.count(group, duplicates=number)
        refused = np.fromiter(found.refused, np.int64)
        again, bad = records.number_of_rows(found.repeated), records.number_of_rows(refused)
        noticed.update(
            used=records.number_of_rows() - again - bad,
            duplicate=again,
            rejected=bad,
            conflicting=len(found.conflicting),
            records=len(records) - len(found.repeated) - len(refused),
        )
        self.records += noticed["records"]
        count_noticed(noticed)
        yield beam.pvalue.TaggedOutput(NOTICED, dict(noticed))
        reasons = {**found.refused, **dict.fromkeys(found.conflicting.tolist(), CONFLICT)}
        for place, reason in places:
            yield from placed(place, reason)
        for at, reason in reasons.items():
            if block.place is not None:
                yield from placed(block.place.at(np.array([at])), reason)
            else:
                shown = shown_record(records, at, plan.schema)
                yield beam.pvalue.TaggedOutput(REJECTED, {"record": shown, "reason": reason, "source": None})


def placed(place: Place, reason: str) -> Iterator[Any]:
    """The places of rows that were not used, as outputs."""
    for file, row in zip(place.file.tolist(), place.row.tolist(), strict=True):
        yield beam.pvalue.TaggedOutput(PLACES, (file, (row, reason)))


def whole_records(
    plan: Plan,
    block: Block,
    noticed: Counter[str],
    places: list[tuple[Place, str]] | None = None,
    again: Counter[Group] | None = None,
) -> Block:
    """The records that the rows of a long table make. What is noticed is added to the rest."""
    rows, state, place = block.records, block.state, block.place
    assert state is not None
    assert place is not None
    absent = plan.config.input.absent or "zero"
    S = len(plan.schema.states)
    found = join_rows(rows.realization, rows.time, state, rows.counts, rows.population, S, absent)
    for at, reason in found.rejected:
        noticed["rejected"] += len(at)
        if places is not None:
            places.append((place.at(at), reason))
    noticed.update(
        duplicate=found.duplicate,
        filled=found.filled,
        incomplete=found.incomplete,
        conflicting=found.conflicting,
    )
    if again is not None:
        again.update(rows.groups[g] for g in rows.group_of[found.again].tolist())
    at = found.first
    population = None if rows.population is None else rows.population[at]
    records = Records(
        rows.realization[at],
        rows.time[at],
        found.counts,
        rows.names,
        rows.group_of,
        rows.groups,
        population,
        found.rows,
    )
    return Block(records, place.at(at))


def first_of_repeated(block: Block) -> Block:
    """With records in an order that depends on nothing but them, if some are repeated: the first one counts. Those
    of files have their order."""
    records = block.records
    if block.place is not None or len(records) == sum(e.records for e in distinct_extents(records).values()):
        return block
    return block.take(np.lexsort((checksums(records.counts), records.time, records.realization)))


def checksums(values: np.ndarray) -> np.ndarray:
    """A number [n] for each row of values [n, S], which depends on nothing else: by it, small counts are first no
    more often than large ones."""
    bits = np.ascontiguousarray(values + 0.0, np.float64).view(np.uint64)
    odd = (np.arange(1, values.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    mixed = bits ^ (bits >> np.uint64(29))
    return np.asarray((mixed * odd).sum(1, dtype=np.uint64))


def shown_record(records: Records, at: int, schema: Schema) -> dict[str, Any]:
    """A record of a block as a row."""
    [record] = records_of(Block(records.take(np.array([at]))))
    return as_row(record, schema)


def by_bucket(state: AggregationState) -> Iterator[tuple[int, AggregationState]]:
    """A state by bucket of its groups."""
    bucket = np.array([hash_group(group) % BUCKETS for group in state.groups], np.int64)
    for one in np.unique(bucket).tolist():
        yield one, of_groups(state, np.flatnonzero(bucket == one))


def of_groups(state: AggregationState, numbers: np.ndarray) -> AggregationState:
    """What a state holds of some groups."""
    if len(numbers) == len(state.groups):
        return state
    new = np.full(len(state.groups), -1)
    new[numbers] = np.arange(len(numbers))
    members = np.flatnonzero(new[state.group_of] >= 0)
    keys = np.full(len(state.names), -1)
    keys[members] = np.arange(len(members))
    part = AggregationState(state.spec)
    part.groups, part.rules = [state.groups[g] for g in numbers], [state.rules[g] for g in numbers]
    part.names, part.group_of = state.names[members], new[state.group_of[members]]
    part.numbers, part.population = state.numbers[members], state.population[members]
    part.tracks, part.of_shares = state.tracks.renumbered(keys), state.of_shares
    sums = state.sums
    part.sums = add_sums(sums.states, [sums.of_group(g, i) for i, g in enumerate(numbers.tolist())])
    part.index_groups()
    return part


def count_noticed(noticed: Mapping[str, int]) -> None:
    """Add what was noticed of records to Beam's counters."""
    counter("records").inc(noticed.get("used", 0))
    counter("duplicates").inc(noticed.get("duplicate", 0))
    counter("rejected").inc(noticed.get("rejected", 0))


def add_counts(found: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts added."""
    total: Counter[str] = Counter()
    for one in found:
        total.update(one)
    return dict(total)
