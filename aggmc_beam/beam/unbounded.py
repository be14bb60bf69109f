"""Unbounded data: estimates that are refreshed while records arrive, in any order.

    records -> Pair, by (group, realization): exact dedup -> Gather, by bundle -> Sum, by (group, shard):
    a snapshot at each refresh -> Pool, by (group, window): the newest snapshots -> estimates

Everything happens in Beam's global window, with timers of our own: Beam drops what is late for its
windows without a trace, whereas here it is counted and set aside. A snapshot holds all that was summed
before it. So the newest of each shard is kept, and never added to an older one of the same shard:
refreshes, retries and late records count nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam import coders
from apache_beam.transforms import window
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from aggmc_beam.beam.bounded import REJECTED, counter, estimates, group_key
from aggmc_beam.beam.coders import SnapshotCoder, StatusCoder
from aggmc_beam.beam.combiners import MomentsFn
from aggmc_beam.beam.health import Numbers, Watch, from_estimate, from_ledger
from aggmc_beam.beam.pair import Pair, by_realization
from aggmc_beam.beam.parsing import rejection
from aggmc_beam.beam.timing import LAST, POOL_ENDS, SUM_ENDS, Timing, panes, soon
from aggmc_beam.beam.values import Delta, Group, Snapshot, Status
from aggmc_beam.chain import Window
from aggmc_beam.digest import Replicates
from aggmc_beam.errors import InputError
from aggmc_beam.ledger import Ledger
from aggmc_beam.local.accumulate import rule
from aggmc_beam.local.engine import Plan
from aggmc_beam.moments import Counts
from aggmc_beam.records import Record, Rejected, identity
from aggmc_beam.result import Estimate

LEDGER = "ledger"
TOO_LATE = "it came too late: all windows of its step had closed"
#: Deltas that are handed on together.
TOGETHER = 1000
#: With several shards, how long a group waits for the others before it is estimated. Microseconds.
SETTLE = 2 * 10**6
#: The group of a rejected record that does not tell it.
NO_GROUP = ""


def stream_rule(plan: Plan) -> Replicates:
    """Jackknife groups that do not depend on how much data there will be."""
    uncertainty = plan.config.uncertainty
    return rule(plan.config.chain, 10**9, 1, 0, uncertainty.replicates, uncertainty.block)


def moments_fn(plan: Plan) -> MomentsFn:
    return MomentsFn(len(plan.schema.states), plan.config.chain, stream_rule(plan))


class Gather(beam.DoFn):  # type: ignore[misc]
    """(group, Delta) to ((group, shard), Delta), a bundle at a time: summing many at once is as quick as
    summing one. What came in a bundle goes to `LEDGER`. What has no group is
    in the ledger only."""

    def __init__(self, shards: int) -> None:
        self.shards = shards

    def start_bundle(self) -> None:
        self.waiting: dict[str, list[Delta]] = {}
        self.number, self.earliest, self.ledger = 0, LAST, Ledger()

    def process(self, element: tuple[str, Delta], at: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        group, delta = element
        if group != NO_GROUP:
            shard = int(delta.numbers[0]) % self.shards if len(delta.numbers) else 0
            key = json.dumps([group, shard], ensure_ascii=False)
            self.waiting.setdefault(key, []).append(delta)
        self.ledger += _ledger(delta)
        self.number += 1
        self.earliest = min(self.earliest, at)
        if self.number >= TOGETHER:
            yield from self.finish_bundle()
            self.start_bundle()

    def finish_bundle(self) -> Iterator[Any]:
        for key, deltas in self.waiting.items():
            yield self._at((key, Delta.joined(deltas)))
        if self.number:
            yield beam.pvalue.TaggedOutput(LEDGER, self._at(self.ledger))

    def _at(self, value: Any) -> WindowedValue:
        """As early as the earliest that it holds, so that no timer runs ahead of it."""
        return WindowedValue(value, self.earliest, [window.GlobalWindow()])


def _ledger(delta: Delta) -> Ledger:
    return Ledger.of({**vars(delta.counts), "records": int((delta.settled == 0).sum())})


class Sum(beam.DoFn):  # type: ignore[misc]
    """((group, shard), Delta) to ((group, window), (shard, final, Snapshot)), at each refresh.

    Of a chain of windows there is a snapshot for each window that changed, also when it ends, and a
    final one when it closes; only the panes of open windows are kept. What comes for a closed window
    is late. Other chains have one final snapshot, at the end of the stream.
    """

    SNAPSHOT = ReadModifyWriteStateSpec("snapshot", SnapshotCoder())
    STATUS = ReadModifyWriteStateSpec("status", StatusCoder())
    # Names of timers are told apart in the whole pipeline: a runner may mix them up where stages are fused.
    REFRESH = TimerSpec("sum_refresh", TimeDomain.REAL_TIME)
    EDGE = TimerSpec("sum_edge", TimeDomain.WATERMARK)
    END = TimerSpec("sum_end", TimeDomain.WATERMARK)

    def __init__(self, plan: Plan, timing: Timing) -> None:
        self.timing, self.panes, self.fn = timing, panes(plan, timing), moments_fn(plan)

    def process(
        self,
        element: tuple[str, Delta],
        at: Any = beam.DoFn.TimestampParam,
        sums: Any = beam.DoFn.StateParam(SNAPSHOT),
        state: Any = beam.DoFn.StateParam(STATUS),
        refresh: Any = beam.DoFn.TimerParam(REFRESH),
        edge: Any = beam.DoFn.TimerParam(EDGE),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> Iterator[Any]:
        _, delta = element
        status = state.read() or Status()
        snapshot = sums.read() or self.fn.create_accumulator()
        if self.panes is not None:
            delta, late = gated(delta, self.panes.floor(status.passed))
            yield from set_aside(late, at)
        counter("records").inc(int((delta.settled == 0).sum()))
        snapshot = self.fn.add_input(snapshot, delta)
        status.newest = max(status.newest, at.micros)
        if self.panes is None:
            status.changed = {0}
        else:
            floor = self.panes.floor(status.passed)
            snapshot = self._open(snapshot, floor)
            status.changed |= set(self.panes.chain.cells(delta.time[delta.time >= floor]).tolist())
            self._arm(edge, snapshot, status)
        if status.changed and not status.pending:
            refresh.set(soon(self.timing.refresh))
            status.pending = True
        end.set(SUM_ENDS)
        sums.write(snapshot)
        state.write(status)

    @on_timer(REFRESH)  # type: ignore[untyped-decorator]
    def refreshed(
        self,
        key: Any = beam.DoFn.KeyParam,
        sums: Any = beam.DoFn.StateParam(SNAPSHOT),
        state: Any = beam.DoFn.StateParam(STATUS),
    ) -> Iterator[Any]:
        status = state.read()
        if status is None:
            return  # the stream has ended
        status.pending = False
        yield from self._changed(key, sums.read(), status, status.newest)
        state.write(status)

    @on_timer(EDGE)  # type: ignore[untyped-decorator]
    def edged(
        self,
        key: Any = beam.DoFn.KeyParam,
        at: Any = beam.DoFn.TimestampParam,
        sums: Any = beam.DoFn.StateParam(SNAPSHOT),
        state: Any = beam.DoFn.StateParam(STATUS),
        edge: Any = beam.DoFn.TimerParam(EDGE),
    ) -> Iterator[Any]:
        """Windows have ended, or closed: hand them on, and forget those that closed."""
        status, snapshot = state.read(), sums.read()
        if status is None:
            return  # the stream has ended
        assert self.panes is not None
        cells = {cell for cell, _ in snapshot.parts}
        closing = [s for s in self.panes.windows(cells, status.passed) if self.panes.closes(s) <= at.micros]
        ended = [
            s
            for s in self.panes.windows(status.changed, status.passed)
            if s not in closing and self.panes.ends(s) <= at.micros
        ]
        for start in closing + ended:
            yield self._glance(key, snapshot, start, start in closing, at.micros)
        status.passed = at.micros
        snapshot = self._open(snapshot, self.panes.floor(status.passed))
        # A pane is still to be handed on while one of its open windows was not.
        status.changed = {
            c for c in status.changed if set(self.panes.windows([c], status.passed)) - set(ended)
        }
        self._arm(edge, snapshot, status)
        sums.write(snapshot)
        state.write(status)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def ended(
        self,
        key: Any = beam.DoFn.KeyParam,
        sums: Any = beam.DoFn.StateParam(SNAPSHOT),
        state: Any = beam.DoFn.StateParam(STATUS),
    ) -> Iterator[Any]:
        """The stream has ended, or the job is drained."""
        status, snapshot = state.read(), sums.read()
        starts: list[int | None] = [None]
        if self.panes is not None:
            starts = [*self.panes.windows({cell for cell, _ in snapshot.parts}, status.passed)]
        for start in starts:
            yield self._glance(key, snapshot, start, True, SUM_ENDS.micros)
        sums.clear()
        state.clear()

    def _changed(self, key: str, snapshot: Snapshot, status: Status, moment: int) -> Iterator[Any]:
        """What has changed since it was handed on last."""
        starts: list[int | None] = [None] if status.changed else []
        if self.panes is not None:
            starts = [*self.panes.windows(status.changed, status.passed)]
        for start in starts:
            yield self._glance(key, snapshot, start, False, moment)
        status.changed = set()

    def _glance(self, key: str, snapshot: Snapshot, start: int | None, final: bool, moment: int) -> Any:
        group, shard = json.loads(key)
        if start is not None:
            assert self.panes is not None
            chain = self.panes.chain
            snapshot = snapshot.between(start, start + chain.size, chain.pane)
        place = json.dumps([group, start], ensure_ascii=False)
        return window.TimestampedValue((place, (shard, final, snapshot)), Timestamp(micros=moment))

    def _open(self, snapshot: Snapshot, floor: int) -> Snapshot:
        """Without the panes before the floor."""
        assert self.panes is not None
        pane = self.panes.chain.pane
        if all(cell * pane >= floor for cell, _ in snapshot.parts):
            return snapshot
        return snapshot.between(floor, 2**62, pane)

    def _arm(self, edge: Any, snapshot: Snapshot, status: Status) -> None:
        """Be called when the next window closes, or ends with something that was not handed on."""
        assert self.panes is not None
        passed = -(2**63) if status.passed is None else status.passed
        cells = {cell for cell, _ in snapshot.parts}
        moments = [self.panes.closes(s) for s in self.panes.windows(cells, status.passed)]
        moments += [self.panes.ends(s) for s in self.panes.windows(status.changed, status.passed)]
        ahead = [moment for moment in moments if moment > passed]
        if ahead:
            edge.set(Timestamp(micros=min(ahead)))


def gated(delta: Delta, floor: int) -> tuple[Delta, list[str]]:
    """What is in time, and the payloads of what is late: new records before the floor."""
    arrival = delta.arrival
    late = np.zeros(len(delta.sizes), bool)
    late[arrival[(delta.settled == 0) & (delta.time < floor)]] = True
    if not late.any():
        return delta, []
    rows = ~late[arrival]
    kept = replace(
        delta,
        **{name: getattr(delta, name)[~late] for name in ("numbers", "sizes", "first")},
        **{name: getattr(delta, name)[rows] for name in ("time", "values", "settled")},
        weight=None if delta.weight is None else delta.weight[rows],
        counts=delta.counts + Counts(late=int(late.sum())),
        payloads=(),
    )
    return kept, [delta.payloads[i] for i in np.flatnonzero(late)]


def set_aside(late: list[str], at: Any) -> Iterator[Any]:
    """Late records to the dead-letter output, and from one column of the ledger to another."""
    for payload in late:
        counter("late").inc()
        yield beam.pvalue.TaggedOutput(REJECTED, rejection(json.loads(payload), TOO_LATE))
    if late:
        yield beam.pvalue.TaggedOutput(LEDGER, Ledger(used=-len(late), late=len(late)))


class Pool(beam.DoFn):  # type: ignore[misc]
    """((group, window), (shard, final, Snapshot)) to estimates, from the newest snapshot of every shard.

    A single shard is estimated at once; of several, the others are waited for a little.
    """

    NEWEST = BagStateSpec("newest", coders.TupleCoder([coders.VarIntCoder(), SnapshotCoder()]))
    REFRESH = ReadModifyWriteStateSpec("refresh", coders.VarIntCoder())
    SETTLED = TimerSpec("pool_settled", TimeDomain.REAL_TIME)
    END = TimerSpec("pool_end", TimeDomain.WATERMARK)

    def __init__(self, plan: Plan, shards: int) -> None:
        self.plan, self.shards = plan, shards

    def process(
        self,
        element: tuple[str, tuple[int, bool, Snapshot]],
        newest: Any = beam.DoFn.StateParam(NEWEST),
        refresh: Any = beam.DoFn.StateParam(REFRESH),
        settled: Any = beam.DoFn.TimerParam(SETTLED),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> Iterator[Estimate]:
        key, (shard, final, snapshot) = element
        if self.shards == 1:
            yield from self._estimates(key, [snapshot], refresh, final)
            if final:
                refresh.clear()
            return
        known = dict(newest.read())
        if shard in known and known[shard].age > snapshot.age:
            return
        newest.clear()
        for item in {**known, shard: snapshot}.items():
            newest.add(item)
        settled.set(soon(SETTLE))
        end.set(POOL_ENDS)

    @on_timer(SETTLED)  # type: ignore[untyped-decorator]
    def settle(
        self,
        key: Any = beam.DoFn.KeyParam,
        newest: Any = beam.DoFn.StateParam(NEWEST),
        refresh: Any = beam.DoFn.StateParam(REFRESH),
    ) -> Iterator[Estimate]:
        yield from self._estimates(key, [s for _, s in newest.read()], refresh, False)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def finish(
        self,
        key: Any = beam.DoFn.KeyParam,
        newest: Any = beam.DoFn.StateParam(NEWEST),
        refresh: Any = beam.DoFn.StateParam(REFRESH),
    ) -> Iterator[Estimate]:
        yield from self._estimates(key, [s for _, s in newest.read()], refresh, True)

    def _estimates(
        self, key: str, snapshots: list[Snapshot], refresh: Any, final: bool
    ) -> Iterator[Estimate]:
        group, start = json.loads(key)
        try:
            found = estimate_snapshots(self.plan, tuple(json.loads(group)), snapshots, start)
        except InputError:
            counter("too_little").inc()
            return
        number = (refresh.read() or 0) + 1
        refresh.write(number)
        counter("refreshes").inc()
        for e in found:
            yield replace(e, refresh=number, diagnostics={**e.diagnostics, "final": final})


@dataclass(frozen=True)
class OneWindow(Window):
    """Of all windows the one that starts here."""

    start: int = 0

    def groups(self, cells: list[int]) -> list[tuple[int, list[int]]]:
        return [(self.start, cells)]


def estimate_snapshots(
    plan: Plan, group: Group, snapshots: Iterable[Snapshot], start: int | None
) -> list[Estimate]:
    """The estimates from one snapshot of each shard; of a chain of windows, that from `start`."""
    whole = moments_fn(plan).merge_accumulators(snapshots)
    named = dict(zip(plan.schema.group_by, group, strict=True)) or None
    sums = whole.sums(named, stream_rule(plan))
    if start is None:
        return estimates(plan, sums)
    chain = plan.config.chain
    assert isinstance(chain, Window)
    found = estimates(
        replace(plan, chosen=replace(plan.settings, chain=OneWindow(chain.size, chain.every, start))), sums
    )
    # A realization is counted where it is met first, which need not be this window.
    return [replace(e, counts={**e.counts, "gaps": max(0, e.counts["gaps"])}) for e in found]


class Refreshed(NamedTuple):
    """What becomes of a stream: estimates, everything that was set aside, and how the stream is doing."""

    estimates: Any
    rejected: Any
    health: Any


class Refresh(beam.PTransform):  # type: ignore[misc]
    """`Parsed` records and rejections to `Refreshed`."""

    def __init__(self, plan: Plan, shards: int = 1) -> None:
        super().__init__()
        # The records of a window are summed under one key, which alone decides what is late.
        self.shards = 1 if isinstance(plan.config.chain, Window) else shards
        self.plan, self.timing = plan, Timing.of(plan)

    def expand(self, parsed: tuple[Any, Any]) -> Refreshed:
        records, rejected = parsed
        plan = self.plan
        paired = (
            records
            | "Global" >> beam.WindowInto(window.GlobalWindows())
            | "By realization" >> beam.Map(by_realization).with_output_types(tuple[str, Record])
            | "Pair"
            >> beam.ParDo(Pair(plan, self.timing))
            .with_output_types(tuple[str, Delta])
            .with_outputs(REJECTED, main="deltas")
        )
        refused = (
            rejected
            | "Rejected, global" >> beam.WindowInto(window.GlobalWindows())
            | "Count rejected" >> beam.Map(_refused, plan).with_output_types(tuple[str, Delta])
        )
        gathered = (
            (paired.deltas, refused)
            | "All deltas" >> beam.Flatten()
            | "Gather"
            >> beam.ParDo(Gather(self.shards))
            .with_output_types(tuple[str, Delta])
            .with_outputs(LEDGER, main="deltas")
        )
        summed = gathered.deltas | "Sum" >> beam.ParDo(Sum(plan, self.timing)).with_output_types(
            tuple[str, tuple[int, bool, Snapshot]]
        ).with_outputs(REJECTED, LEDGER, main="snapshots")
        estimates = summed.snapshots | "Pool" >> beam.ParDo(Pool(plan, self.shards)).with_output_types(
            Estimate
        )
        ledger = (gathered[LEDGER], summed[LEDGER]) | "Ledger" >> beam.Flatten()
        news = (
            ledger | "From ledger" >> beam.Map(from_ledger).with_output_types(Numbers),
            estimates | "From estimates" >> beam.Map(from_estimate).with_output_types(Numbers),
        )
        watch = beam.ParDo(Watch(self.timing, plan.config.max_rejected))
        return Refreshed(
            estimates,
            (rejected, paired[REJECTED], summed[REJECTED]) | "All rejected" >> beam.Flatten(),
            news | "News" >> beam.Flatten() | "Watch" >> watch,
        )


def _refused(rejection: dict[str, Any], plan: Plan) -> tuple[str, Delta]:
    """A rejected record is counted with its group, if it tells which."""
    row, names = rejection["record"], plan.schema.group_by
    group = NO_GROUP
    if not names:
        group = group_key(())
    elif isinstance(row, dict):
        with suppress(Rejected):
            group = group_key(tuple(identity(row.get(name), name) for name in names))
    return group, Delta.counted(len(plan.schema.states), Counts(rejected=1))
