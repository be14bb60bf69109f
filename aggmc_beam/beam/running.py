"""The running sums of a stream: a snapshot at each refresh, and when a window ends or closes.

A snapshot holds all that was summed before it. So the newest of each shard is kept, and never added to an
older one of the same shard: refreshes, retries and late records count nothing twice.

Kept are the sums, in pieces, and beside them what came since they were written. The sums are written anew when
that is as much as they are: so every byte that comes is written about twice, however large the sums.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms import window
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from aggmc_beam.beam.dead_letters import rejection
from aggmc_beam.beam.exact import REJECTED
from aggmc_beam.beam.health import LEDGER, from_ledger
from aggmc_beam.beam.metrics import counter, distribution
from aggmc_beam.beam.stream_coders import DeltaCoder, SnapshotCoder, StatusCoder
from aggmc_beam.beam.stream_sums import StreamRule, without_late
from aggmc_beam.beam.stream_values import Delta, Snapshot, Status
from aggmc_beam.beam.timing import SUM_ENDS, Timing, panes
from aggmc_beam.ledger import Ledger
from aggmc_beam.local.plan import Plan
from aggmc_beam.records import Record, as_row

TOO_LATE = "it came too late: all windows of its step had closed"
#: Bytes that are worth summing.
WORTHWHILE = 1 << 18


class RunningSums(beam.DoFn):  # type: ignore[misc]
    """((group, shard), Delta) to ((group, window), (shard, version, final, Snapshot)), at each refresh. Of two
    snapshots of a shard that with the higher version is the newer.

    Of a chain of windows there is a snapshot for each window that changed, also when it ends, and a
    final one when it closes; only the panes of open windows are kept. What comes for a closed window
    is late. Other chains have one final snapshot, at the end of the stream.
    """

    SUMS = BagStateSpec("sums", SnapshotCoder())
    DELTAS = BagStateSpec("deltas", DeltaCoder())
    STATUS = ReadModifyWriteStateSpec("status", StatusCoder())
    # Names of timers are told apart in the whole pipeline: a runner may mix them up where stages are fused.
    REFRESH = TimerSpec("sum_refresh", TimeDomain.REAL_TIME)
    EDGE = TimerSpec("sum_edge", TimeDomain.WATERMARK)
    END = TimerSpec("sum_end", TimeDomain.WATERMARK)

    def __init__(self, plan: Plan, timing: Timing) -> None:
        self.plan, self.timing = plan, timing
        self.panes, self.rule = panes(plan, timing), StreamRule.of(plan)
        self.sizes = distribution("state_bytes")

    def process(
        self,
        element: tuple[str, Delta],
        at: Any = beam.DoFn.TimestampParam,
        sums: Any = beam.DoFn.StateParam(SUMS),
        deltas: Any = beam.DoFn.StateParam(DELTAS),
        state: Any = beam.DoFn.StateParam(STATUS),
        refresh: Any = beam.DoFn.TimerParam(REFRESH),
        edge: Any = beam.DoFn.TimerParam(EDGE),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> Iterator[Any]:
        key, delta = element
        group, shard = json.loads(key)
        status = _copy(state.read())
        if self.panes is not None:
            delta, late = without_late(delta, self.panes.floor(status.passed))
            if late is not None:
                yield from self._set_aside(group, late)
        counter("records").inc(self.rule.records(delta, shard))
        status.newest = max(status.newest, at.micros)
        if self.panes is None:
            status.changed = {0}
        elif len(delta.time):
            floor = self.panes.floor(status.passed)
            cells = set(self.panes.chain.cells(delta.time[delta.time >= floor]).tolist())
            status.cells |= cells
            status.changed |= cells
        if self.panes is not None:
            self._arm(edge, status)
        if status.changed and not status.pending:
            refresh.set(self.timing.soon(self.timing.refresh))
            status.pending = True
        end.set(SUM_ENDS)
        deltas.add(delta)
        status.waiting += delta.nbytes
        if status.waiting >= max(WORTHWHILE, status.summed):
            self._write(self._sums(shard, sums, deltas, status), sums, deltas, status)
        state.write(status)

    @on_timer(REFRESH)  # type: ignore[untyped-decorator]
    def refreshed(
        self,
        key: Any = beam.DoFn.KeyParam,
        sums: Any = beam.DoFn.StateParam(SUMS),
        deltas: Any = beam.DoFn.StateParam(DELTAS),
        state: Any = beam.DoFn.StateParam(STATUS),
    ) -> Iterator[Any]:
        if state.read() is None:
            return  # the stream has ended
        status = _copy(state.read())
        status.pending = False
        snapshot = self._sums(json.loads(key)[1], sums, deltas, status)
        for start in self._starts(status.changed, status):
            yield self._handed_on(key, snapshot, start, False, status.newest, status)
        status.changed = set()
        if 2 * status.waiting >= status.summed:
            self._write(snapshot, sums, deltas, status)
        state.write(status)

    @on_timer(EDGE)  # type: ignore[untyped-decorator]
    def edged(
        self,
        key: Any = beam.DoFn.KeyParam,
        at: Any = beam.DoFn.TimestampParam,
        sums: Any = beam.DoFn.StateParam(SUMS),
        deltas: Any = beam.DoFn.StateParam(DELTAS),
        state: Any = beam.DoFn.StateParam(STATUS),
        edge: Any = beam.DoFn.TimerParam(EDGE),
    ) -> Iterator[Any]:
        """Windows have ended, or closed: hand them on, and forget those that closed."""
        if state.read() is None:
            return  # the stream has ended
        status = _copy(state.read())
        assert self.panes is not None
        open = self.panes.windows(status.cells, status.passed)
        closing = [s for s in open if self.panes.closes(s) <= at.micros]
        ended = [
            s
            for s in self.panes.windows(status.changed, status.passed)
            if s not in closing and self.panes.ends(s) <= at.micros
        ]
        snapshot = self._sums(json.loads(key)[1], sums, deltas, status)
        for start in closing + ended:
            yield self._handed_on(key, snapshot, start, start in closing, at.micros, status)
        status.passed = at.micros
        floor, pane = self.panes.floor(status.passed), self.panes.chain.pane
        kept = {cell for cell in status.cells if cell * pane >= floor}
        # A pane is still to be handed on while one of its open windows was not.
        status.changed = {
            c for c in status.changed if set(self.panes.windows([c], status.passed)) - set(ended)
        }
        if kept != status.cells:
            status.cells = kept
            self._write(snapshot.between(floor, 2**62, pane), sums, deltas, status)
        self._arm(edge, status)
        state.write(status)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def ended(
        self,
        key: Any = beam.DoFn.KeyParam,
        sums: Any = beam.DoFn.StateParam(SUMS),
        deltas: Any = beam.DoFn.StateParam(DELTAS),
        state: Any = beam.DoFn.StateParam(STATUS),
    ) -> Iterator[Any]:
        """The stream has ended, or the job is drained."""
        if state.read() is None:
            return
        status = _copy(state.read())
        snapshot = self._sums(json.loads(key)[1], sums, deltas, status)
        for start in self._starts({0} if self.panes is None else status.cells, status):
            yield self._handed_on(key, snapshot, start, True, SUM_ENDS.micros, status)
        for kept in (sums, deltas, state):
            kept.clear()

    def _sums(self, shard: int, sums: Any, deltas: Any, status: Status) -> Snapshot:
        """All that came, without the panes that are closed."""
        found = self.rule.total([*sums.read(), self.rule.sums(list(deltas.read()), shard)])
        if self.panes is None:
            return found
        floor, pane = self.panes.floor(status.passed), self.panes.chain.pane
        if (found.sums.label[:, 1] * pane >= floor).all():
            return found
        return found.between(floor, 2**62, pane)

    def _write(self, snapshot: Snapshot, sums: Any, deltas: Any, status: Status) -> None:
        sums.clear()
        deltas.clear()
        for piece in snapshot.pieces():
            self.sizes.update(piece.nbytes)
            sums.add(piece)
        status.waiting, status.summed = 0, snapshot.nbytes

    def _starts(self, cells: set[int], status: Status) -> list[int | None]:
        """The windows to hand on for these cells; a chain without windows has a single one, None."""
        if self.panes is None:
            return [None] if cells else []
        return [*self.panes.windows(cells, status.passed)]

    def _handed_on(
        self, key: str, snapshot: Snapshot, start: int | None, final: bool, moment: int, status: Status
    ) -> Any:
        group, shard = json.loads(key)
        status.version += 1
        if start is not None:
            assert self.panes is not None
            chain = self.panes.chain
            snapshot = snapshot.between(start, start + chain.size, chain.pane)
        place = json.dumps([group, start], ensure_ascii=False)
        return window.TimestampedValue(
            (place, (shard, status.version, final, snapshot)), Timestamp(micros=moment)
        )

    def _arm(self, edge: Any, status: Status) -> None:
        """Be called when the next window closes, or ends with something that was not handed on."""
        assert self.panes is not None
        passed = -(2**63) if status.passed is None else status.passed
        moments = [self.panes.closes(s) for s in self.panes.windows(status.cells, status.passed)]
        moments += [self.panes.ends(s) for s in self.panes.windows(status.changed, status.passed)]
        ahead = [moment for moment in moments if moment > passed]
        if ahead:
            edge.set(Timestamp(micros=min(ahead)))

    def _set_aside(self, group: str, late: Delta) -> Iterator[Any]:
        """Late records to the dead-letter output, and from one column of the ledger to another."""
        names = tuple(json.loads(group))
        for i in range(number := len(late.time)):
            counter("late").inc()
            N = None if late.population is None else float(late.population[late.key[i]])
            counts = late.values[i].astype(float)
            record = Record(late.names[late.key[i]], int(late.time[i]), counts, N, names)
            row = as_row(record, self.plan.schema)
            yield beam.pvalue.TaggedOutput(REJECTED, rejection(row, TOO_LATE))
        yield beam.pvalue.TaggedOutput(LEDGER, from_ledger(Ledger(used=-number, late=number)))


def _copy(status: Status | None) -> Status:
    """A copy, since a runner may keep the value for its next bundle, also when this one fails."""
    if status is None:
        return Status()
    return Status(**{**vars(status), "changed": set(status.changed), "cells": set(status.cells)})
