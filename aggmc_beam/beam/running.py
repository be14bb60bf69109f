"""The running sums of a stream: a snapshot at each refresh, and when a window ends or closes.

A snapshot holds all that was summed before it. So the newest of each shard is kept, and never added to an
older one of the same shard: refreshes, retries and late records count nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms import window
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from aggmc_beam.beam.bounded import REJECTED, counter
from aggmc_beam.beam.coders import SnapshotCoder, StatusCoder
from aggmc_beam.beam.combiners import MomentsFn
from aggmc_beam.beam.former.accumulate import rule
from aggmc_beam.beam.former.engine import Plan
from aggmc_beam.beam.health import LEDGER, from_ledger
from aggmc_beam.beam.parsing import rejection
from aggmc_beam.beam.timing import SUM_ENDS, Timing, panes, soon
from aggmc_beam.beam.values import Delta, Snapshot, Status
from aggmc_beam.digest import Replicates, jackknife_groups
from aggmc_beam.ledger import Ledger
from aggmc_beam.moments import Counts

TOO_LATE = "it came too late: all windows of its step had closed"


def stream_rule(plan: Plan) -> Replicates:
    """Jackknife groups that do not depend on how much data there will be."""
    uncertainty = plan.config.uncertainty
    groups = jackknife_groups(len(plan.schema.states), uncertainty.replicates)
    return rule(plan.config.chain, 10**9, 1, 0, groups, uncertainty.block)


def moments_fn(plan: Plan) -> MomentsFn:
    return MomentsFn(len(plan.schema.states), plan.config.chain, stream_rule(plan))


class RunningSums(beam.DoFn):  # type: ignore[misc]
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
            yield from set_aside(late)
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
        for start in self._starts(status.changed, status):
            yield self._glance(key, sums.read(), start, False, status.newest)
        status.changed = set()
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
        if status is None:
            return
        cells = {0} if self.panes is None else {cell for cell, _ in snapshot.parts}
        for start in self._starts(cells, status):
            yield self._glance(key, snapshot, start, True, SUM_ENDS.micros)
        sums.clear()
        state.clear()

    def _starts(self, cells: set[int], status: Status) -> list[int | None]:
        """The windows to hand on for these cells; a chain without windows has a single one, None."""
        if self.panes is None:
            return [None] if cells else []
        return [*self.panes.windows(cells, status.passed)]

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


def set_aside(late: list[str]) -> Iterator[Any]:
    """Late records to the dead-letter output, and from one column of the ledger to another."""
    for payload in late:
        counter("late").inc()
        yield beam.pvalue.TaggedOutput(REJECTED, rejection(json.loads(payload), TOO_LATE))
    if late:
        yield beam.pvalue.TaggedOutput(LEDGER, from_ledger(Ledger(used=-len(late), late=len(late))))
