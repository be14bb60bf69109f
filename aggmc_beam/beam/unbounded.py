"""Unbounded data: estimates that are refreshed while records arrive, in any order.

    records -> by (group, realization): Track, exact dedup -> deltas -> windows and refresh trigger ->
    MomentsFn -> the newest snapshot of each shard -> estimate

Each firing hands on all that was summed so far. So snapshots are kept, the newest for each shard,
and never added to an older one of the same shard: refires and late firings count nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam import coders
from apache_beam.transforms import trigger, window
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.utils.timestamp import Duration, Timestamp

from aggmc_beam.beam.bounded import REJECTED, counter, estimates, group_key
from aggmc_beam.beam.coders import SnapshotCoder, TrackCoder
from aggmc_beam.beam.combiners import MomentsFn
from aggmc_beam.beam.parsing import rejection
from aggmc_beam.beam.values import Delta, Group, Snapshot
from aggmc_beam.chain import Window
from aggmc_beam.digest import Replicates
from aggmc_beam.durations import microseconds
from aggmc_beam.errors import InputError
from aggmc_beam.local.accumulate import COLUMN, ONE, rule
from aggmc_beam.local.engine import Plan, accumulator
from aggmc_beam.moments import Counts
from aggmc_beam.noise import Exact
from aggmc_beam.records import Clock, Record, realization_number
from aggmc_beam.result import Estimate
from aggmc_beam.track import Track

#: The far end of a pair is at most this many steps after its near end.
REACH = 2


@dataclass(frozen=True)
class Timing:
    """When things happen in a stream. Microseconds."""

    refresh: int = 60 * 10**6
    lateness: int = 600 * 10**6
    ttl: int = 7 * 86400 * 10**6

    @classmethod
    def of(cls, plan: Plan) -> Timing:
        stream = plan.config.stream
        if stream is None:
            return cls()
        return cls(*(microseconds(t) for t in (stream.refresh, stream.allowed_lateness, stream.state_ttl)))


def stream_rule(plan: Plan) -> Replicates:
    """Jackknife groups that do not depend on how much data there will be."""
    uncertainty = plan.config.uncertainty
    return rule(plan.config.chain, 10**9, 1, 0, uncertainty.replicates, uncertainty.block)


@dataclass(frozen=True)
class Panes:
    """Event-time windows for a chain of windows.

    The last pair of a window is complete up to two steps after its end. So everything is stamped, and
    the windows are shifted, by two steps: no output is earlier than its input, none is late by that,
    and a window closes when its last pair can be there.
    """

    chain: Window
    clock: Clock

    def moment(self, step: int) -> int:
        """Event time of a step, in microseconds."""
        return self.clock.origin + step * self.clock.unit

    def windows(self) -> Any:
        unit, every = self.clock.unit, self.chain.every or self.chain.size
        offset = (self.clock.origin + REACH * unit) % (every * unit)
        return window.SlidingWindows(
            Duration(micros=self.chain.size * unit),
            Duration(micros=every * unit),
            Timestamp(micros=offset),
        )

    def start(self, found: Any) -> int:
        """The first step of a Beam window."""
        return int((found.start.micros - self.clock.origin) // self.clock.unit) - REACH

    def stamp(self, cell: int) -> Timestamp:
        """When what belongs to a pane happens: two steps after its last one."""
        return Timestamp(micros=self.moment((cell + 1) * self.chain.pane - 1 + REACH))

    def closes(self, step: int, lateness: int) -> tuple[int, int]:
        """The first step that is still open when all windows of `step` have closed, and when that is."""
        every = self.chain.every or self.chain.size
        first = step // every * every
        return first + every, self.moment(first + self.chain.size + REACH) + lateness


def panes(plan: Plan) -> Panes | None:
    chain = plan.config.chain
    if not isinstance(chain, Window):
        return None
    if not plan.schema.clock.stamps:
        raise InputError(
            "windows of a stream close by event time, so its records need time stamps; set input.step to a "
            "duration such as 1h"
        )
    return Panes(chain, plan.schema.clock)


class Pair(beam.DoFn):  # type: ignore[misc]
    """((group, realization), Record) to deltas, each record counted once however often it comes.

    A realization that is silent for the time to live is forgotten, but for the step up to which it was
    known: what comes for earlier steps could be a repetition, and is set aside as late. So is what
    comes when all windows of its step have closed.
    """

    TRACK = ReadModifyWriteStateSpec("track", TrackCoder())
    FLOOR = ReadModifyWriteStateSpec("floor", coders.VarIntCoder())
    POPULATION = ReadModifyWriteStateSpec("population", coders.FloatCoder())
    NEWEST = ReadModifyWriteStateSpec("newest", coders.VarIntCoder())
    CLOSING = ReadModifyWriteStateSpec("closing", coders.VarIntCoder())
    EXPIRY = TimerSpec("expiry", TimeDomain.WATERMARK)
    CLOSE = TimerSpec("close", TimeDomain.WATERMARK)

    def __init__(self, plan: Plan, timing: Timing) -> None:
        self.plan, self.timing, self.panes = plan, timing, panes(plan)
        self.preparation = accumulator(plan).preparation

    def process(
        self,
        element: tuple[str, Record],
        at: Any = beam.DoFn.TimestampParam,
        track_state: Any = beam.DoFn.StateParam(TRACK),
        floor: Any = beam.DoFn.StateParam(FLOOR),
        population: Any = beam.DoFn.StateParam(POPULATION),
        newest: Any = beam.DoFn.StateParam(NEWEST),
        closing: Any = beam.DoFn.StateParam(CLOSING),
        expiry: Any = beam.DoFn.TimerParam(EXPIRY),
        close: Any = beam.DoFn.TimerParam(CLOSE),
    ) -> Iterator[Any]:
        _, record = element
        least = floor.read()
        if least is not None and record.time < least:
            counter("late").inc()
            reason = "it came too late: all of its windows have closed, or its realization was forgotten"
            yield beam.pvalue.TaggedOutput(REJECTED, rejection(self._row(record), reason))
            yield from self._deltas(record, _nothing(self.plan, record, Counts(late=1)))
            return
        known = population.read()
        try:
            N = self._population(record, known)
        except InputError as error:
            counter("rejected").inc()
            yield beam.pvalue.TaggedOutput(REJECTED, rejection(self._row(record), str(error)))
            return
        if known is None and N is not None:
            population.write(N)
        track = track_state.read() or Track(len(self.plan.schema.states))
        delta = self._take(track, record, N, known)
        if delta.counts.duplicates:
            counter("duplicates").inc()
        track_state.write(track)
        latest = max(at.micros, newest.read() or at.micros)
        newest.write(latest)
        expiry.set(Timestamp(micros=latest + self.timing.ttl))
        if self.panes is not None:
            first, moment = self.panes.closes(record.time, self.timing.lateness)
            pending = closing.read()
            if pending is None or first < pending:
                closing.write(first)
                close.set(Timestamp(micros=moment))
        yield from self._deltas(record, delta)

    @on_timer(EXPIRY)  # type: ignore[untyped-decorator]
    def expire(
        self,
        track_state: Any = beam.DoFn.StateParam(TRACK),
        floor: Any = beam.DoFn.StateParam(FLOOR),
    ) -> None:
        track = track_state.read()
        if track is None:
            return
        counter("expired").inc()
        floor.write(max(floor.read() or track.covered.stops[-1] + 1, track.covered.stops[-1] + 1))
        track_state.clear()

    @on_timer(CLOSE)  # type: ignore[untyped-decorator]
    def shut(
        self,
        track_state: Any = beam.DoFn.StateParam(TRACK),
        floor: Any = beam.DoFn.StateParam(FLOOR),
        closing: Any = beam.DoFn.StateParam(CLOSING),
        close: Any = beam.DoFn.TimerParam(CLOSE),
    ) -> None:
        first, track = closing.read(), track_state.read()
        assert self.panes is not None
        if first is None:
            return
        floor.write(max(first, floor.read() or first))
        closing.clear()
        ahead = [] if track is None else [a for a, b in track.covered.intervals() if b >= first]
        if ahead:
            after, moment = self.panes.closes(max(first, ahead[0]), self.timing.lateness)
            closing.write(after)
            close.set(Timestamp(micros=moment))

    def _population(self, record: Record, known: float | None) -> float | None:
        """The population of the record's realization; `InputError` if the record contradicts it."""
        plan, total = self.plan, float(record.counts.sum())
        if plan.populations == ONE:
            N = plan.config.population
            if (
                isinstance(N, float)
                and isinstance(plan.config.noise, Exact)
                and not plan.config.open_population
            ):
                _check_total(total, N)
            return None
        found = record.population if plan.populations == COLUMN else total
        assert found is not None
        expected = found if known is None else known
        if not np.isclose(found, expected, rtol=1e-9, atol=0) or found <= 0:
            raise InputError(
                f"population {found:g} differs from {expected:g}, given before for its realization"
            )
        if plan.populations == COLUMN and isinstance(plan.config.noise, Exact):
            _check_total(total, expected)
        return expected

    def _take(self, track: Track, record: Record, N: float | None, known: float | None) -> Delta:
        time = np.array([record.time])
        population = None if N is None else np.array([N])
        values = self.preparation.values(record.counts[None], time, population)
        weight = population if self.preparation.weighted else None
        block, counts = track.take(time, values, weight)
        settled = np.zeros(len(block.time), np.int64) if block.settled is None else block.settled
        number = realization_number(record.realization)
        met = N if known is None else None
        return Delta(number, block.time, block.values, settled, block.weight, counts, met)

    def _deltas(self, record: Record, delta: Delta) -> Iterator[Any]:
        key = group_key(record.group)
        if self.panes is None:
            yield key, delta
            return
        cells = np.unique(self.panes.chain.cells(np.append(delta.time, record.time)))
        for i, cell in enumerate(cells.tolist()):
            part = replace(delta, cell=cell)
            if i:
                part = replace(part, counts=Counts(), population=None)
            yield window.TimestampedValue((key, part), self.panes.stamp(cell))

    def _row(self, record: Record) -> dict[str, Any]:
        schema = self.plan.schema
        row: dict[str, Any] = dict(zip(schema.group_by, record.group, strict=True))
        row[schema.realization] = record.realization
        row[schema.time] = schema.clock.label(record.time)
        row["counts"] = record.counts.tolist()
        return row


def _nothing(plan: Plan, record: Record, counts: Counts) -> Delta:
    S, none = len(plan.schema.states), np.zeros(0, np.int64)
    return Delta(realization_number(record.realization), none, np.zeros((0, S)), none, None, counts)


def _check_total(total: float, population: float) -> None:
    if total > population * (1 + 1e-9):
        raise InputError(f"it counts {total:g} individuals, more than the population {population:g}")


class Pool(beam.DoFn):  # type: ignore[misc]
    """(group, (shard, Snapshot)) to estimates, from the newest snapshot of every shard."""

    NEWEST = BagStateSpec("newest", coders.TupleCoder([coders.VarIntCoder(), SnapshotCoder()]))
    REFRESH = ReadModifyWriteStateSpec("refresh", coders.VarIntCoder())

    def __init__(self, plan: Plan) -> None:
        self.plan, self.panes = plan, panes(plan)

    def process(
        self,
        element: tuple[str, tuple[int, Snapshot]],
        at: Any = beam.DoFn.WindowParam,
        newest: Any = beam.DoFn.StateParam(NEWEST),
        refresh: Any = beam.DoFn.StateParam(REFRESH),
    ) -> Iterator[Estimate]:
        key, (shard, snapshot) = element
        known = dict(newest.read())
        if shard in known and known[shard].age > snapshot.age:
            return
        known[shard] = snapshot
        newest.clear()
        for item in known.items():
            newest.add(item)
        start = None if self.panes is None else self.panes.start(at)
        try:
            found = pooled(self.plan, tuple(json.loads(key)), known.values(), start)
        except InputError:
            counter("too_little").inc()
            return
        number = (refresh.read() or 0) + 1
        refresh.write(number)
        counter("refreshes").inc()
        for estimate in found:
            yield replace(estimate, refresh=number)


def pooled(plan: Plan, group: Group, snapshots: Iterable[Snapshot], start: int | None) -> list[Estimate]:
    """The estimates from one snapshot of each shard; of a chain of windows, only that from `start`."""
    whole = Snapshot(len(plan.schema.states))
    for snapshot in snapshots:
        whole.merge(snapshot)
    named = dict(zip(plan.schema.group_by, group, strict=True)) or None
    found = estimates(plan, whole.sums(named, stream_rule(plan)))
    if start is None:
        return found
    # A realization is counted where it is met first, which need not be this window.
    return [
        replace(e, counts={**e.counts, "gaps": max(0, e.counts["gaps"])}) for e in found if e.cell == start
    ]


class Refresh(beam.PTransform):  # type: ignore[misc]
    """PCollection of Record to (estimates, rejected), refreshed while it grows."""

    def __init__(self, plan: Plan, timing: Timing, shards: int = 1) -> None:
        super().__init__()
        self.plan, self.timing, self.shards = plan, timing, shards

    def expand(self, records: Any) -> tuple[Any, Any]:
        plan, shards = self.plan, self.shards
        paired = (
            records
            | "Global" >> beam.WindowInto(window.GlobalWindows())
            | "By realization" >> beam.Map(_keyed).with_output_types(tuple[str, Record])
            | "Pair"
            >> beam.ParDo(Pair(plan, self.timing))
            .with_outputs(REJECTED, main="deltas")
            .with_output_types(tuple[str, Delta])
        )
        fn = MomentsFn(len(plan.schema.states), plan.config.chain, stream_rule(plan))
        estimates = (
            paired.deltas
            | "Shard"
            >> beam.MapTuple(lambda key, d: _shard(key, d, shards)).with_output_types(tuple[str, Delta])
            | "Window" >> self._windowed()
            | "Sum" >> beam.CombinePerKey(fn)
            | "Unshard" >> beam.MapTuple(_unshard).with_output_types(tuple[str, tuple[int, Snapshot]])
            | "Pool" >> beam.ParDo(Pool(plan)).with_output_types(Estimate)
        )
        return estimates, paired[REJECTED]

    def _windowed(self) -> Any:
        often: Any = trigger.AfterProcessingTime(max(1, self.timing.refresh // 10**6))
        found = panes(self.plan)
        if found is not None:
            often = trigger.AfterAny(often, trigger.AfterWatermark())
        return beam.WindowInto(
            window.GlobalWindows() if found is None else found.windows(),
            trigger=trigger.Repeatedly(often),
            accumulation_mode=trigger.AccumulationMode.ACCUMULATING,
            # A realization that is new is not known to be late; its records still find their window.
            allowed_lateness=Duration(micros=self.timing.lateness + self.timing.ttl),
        )


def _keyed(record: Record) -> tuple[str, Record]:
    return json.dumps([record.group, record.realization], ensure_ascii=False), record


def _shard(key: str, delta: Delta, shards: int) -> tuple[str, Delta]:
    return json.dumps([key, delta.number % shards], ensure_ascii=False), delta


def _unshard(key: str, snapshot: Snapshot) -> tuple[str, tuple[int, Snapshot]]:
    group, shard = json.loads(key)
    return group, (shard, snapshot)
