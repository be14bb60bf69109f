"""Estimates of a stream, from the newest snapshot of every shard."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam import coders
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer

from aggmc_beam.beam.metrics import counter, distribution
from aggmc_beam.beam.stream_coders import SnapshotCoder
from aggmc_beam.beam.stream_sums import StreamRule
from aggmc_beam.beam.stream_values import Snapshot
from aggmc_beam.beam.timing import POOL_ENDS, Timing
from aggmc_beam.chain import Window
from aggmc_beam.errors import InputError
from aggmc_beam.fit.groups import estimate_group, labelled
from aggmc_beam.local.plan import Plan
from aggmc_beam.result import Estimate
from aggmc_beam.sums.state import AggregationState
from aggmc_beam.sums.tracks import Tracks

#: How long a group waits for the others before it is estimated. Microseconds.
SETTLE = 2 * 10**6


class Pool(beam.DoFn):  # type: ignore[misc]
    """((group, window), (shard, version, final, Snapshot)) to estimates, from the newest snapshot of every shard.

    Where there are several shards, the others are waited for a little. A window has a single one, and is
    estimated at once.
    """

    #: Shard, version, whether it is final, and a piece of the snapshot.
    NEWEST = BagStateSpec(
        "newest",
        coders.TupleCoder(
            [coders.VarIntCoder(), coders.VarIntCoder(), coders.BooleanCoder(), SnapshotCoder()]
        ),
    )
    REFRESH = ReadModifyWriteStateSpec("refresh", coders.VarIntCoder())
    SETTLED = TimerSpec("pool_settled", TimeDomain.REAL_TIME)
    END = TimerSpec("pool_end", TimeDomain.WATERMARK)

    def __init__(self, plan: Plan, timing: Timing) -> None:
        self.plan, self.timing, self.rule = plan, timing, StreamRule.of(plan)
        self.seconds = distribution("milliseconds_per_estimate")

    def process(
        self,
        element: tuple[str, tuple[int, int, bool, Snapshot]],
        newest: Any = beam.DoFn.StateParam(NEWEST),
        refresh: Any = beam.DoFn.StateParam(REFRESH),
        settled: Any = beam.DoFn.TimerParam(SETTLED),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> Iterator[Estimate]:
        key, (shard, version, final, snapshot) = element
        if self.rule.shards == 1:
            yield from self._estimates(key, snapshot, refresh, final)
            if final:
                refresh.clear()
            return
        for piece in snapshot.pieces():
            newest.add((shard, version, final, piece))
        if not final:
            settled.set(self.timing.soon(SETTLE))
        end.set(POOL_ENDS)

    @on_timer(SETTLED)  # type: ignore[untyped-decorator]
    def settle(
        self,
        key: Any = beam.DoFn.KeyParam,
        newest: Any = beam.DoFn.StateParam(NEWEST),
        refresh: Any = beam.DoFn.StateParam(REFRESH),
    ) -> Iterator[Estimate]:
        kept = newest_pieces(newest.read())
        if not kept or all(final for _, _, final, _ in kept):
            return  # the stream has ended
        newest.clear()
        for item in kept:
            newest.add(item)
        yield from self._estimates(key, self.rule.total(piece for *_, piece in kept), refresh, False)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def finish(
        self,
        key: Any = beam.DoFn.KeyParam,
        newest: Any = beam.DoFn.StateParam(NEWEST),
        refresh: Any = beam.DoFn.StateParam(REFRESH),
    ) -> Iterator[Estimate]:
        kept = newest_pieces(newest.read())
        if not kept or not all(final for _, _, final, _ in kept):
            return  # each one that comes sets the timer anew
        yield from self._estimates(key, self.rule.total(piece for *_, piece in kept), refresh, True)
        newest.clear()
        refresh.clear()

    def _estimates(self, key: str, snapshot: Snapshot, refresh: Any, final: bool) -> Iterator[Estimate]:
        group, start = json.loads(key)
        begun = time.perf_counter()
        try:
            found = estimate_snapshot(self.plan, self.rule, tuple(json.loads(group)), snapshot, start)
        except InputError:
            counter("too_little").inc()
            return
        self.seconds.update(int(1000 * (time.perf_counter() - begun)))
        number = (refresh.read() or 0) + 1
        refresh.write(number)
        counter("refreshes").inc()
        for e in found:
            yield replace(e, refresh=number, diagnostics={**e.diagnostics, "final": final})


_Piece = tuple[int, int, bool, Snapshot]


def newest_pieces(stored: Iterable[_Piece]) -> list[_Piece]:
    """Of each shard, the pieces of its newest snapshot."""
    pieces = list(stored)
    newest: dict[int, int] = {}
    for shard, version, *_ in pieces:
        newest[shard] = max(version, newest.get(shard, 0))
    return [piece for piece in pieces if piece[1] == newest[piece[0]]]


@dataclass(frozen=True)
class OneWindow(Window):
    """Of all windows the one that starts here."""

    start: int = 0

    def groups(self, cells: list[int]) -> list[tuple[int, list[int]]]:
        return [(self.start, cells)]


def estimate_snapshot(
    plan: Plan, rule: StreamRule, group: tuple[str, ...], snapshot: Snapshot, start: int | None
) -> list[Estimate]:
    """The estimates from the sums of a group; of a chain of windows, that from `start`."""
    settings = plan.settings
    if start is not None:
        chain = plan.config.chain
        assert isinstance(chain, Window)
        settings = replace(settings, chain=OneWindow(chain.size, chain.every, start))
    named = dict(zip(plan.schema.group_by, group, strict=True)) or None
    found = labelled(estimate_group(_state(rule, snapshot), 0, settings), named, plan.schema.clock)
    listed = [found] if isinstance(found, Estimate) else list(found)
    if start is None:
        return listed
    # A realization is counted where it is met first, which need not be this window.
    return [replace(e, counts={**e.counts, "gaps": max(0, e.counts["gaps"])}) for e in listed]


def _state(rule: StreamRule, snapshot: Snapshot) -> AggregationState:
    """The sums as those of a state, whose realizations are told no more of than estimates ask: their span, and
    of populations two that have the mean of all, and differ if any do."""
    state = AggregationState(rule.spec)
    state.groups, state.rules = [()], [rule.replicates]
    state.sums, state.of_shares = snapshot.sums, rule.weighted
    one, none = np.zeros(1, np.int64), np.zeros(0, np.int64)
    state.tracks = Tracks(
        rule.states, one, one + snapshot.first, one + snapshot.last, none, none,
        np.zeros((0, rule.states)), np.zeros(0),
    )  # fmt: skip
    number, total, low, high = snapshot.populations
    half = 0.0 if low == high or not number else (high - low) / 2
    mean = low if low == high or not number else total / number
    state.group_of = np.zeros(2, np.int64)
    state.population = np.array([mean - half, mean + half]) if number else np.full(2, np.nan)
    return state
