"""Estimates of a stream, from the newest snapshot of every shard."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam import coders
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer

from aggmc_beam.beam.bounded import counter
from aggmc_beam.beam.coders import SnapshotCoder
from aggmc_beam.beam.estimating import estimates
from aggmc_beam.beam.former.engine import Plan
from aggmc_beam.beam.running import moments_fn, stream_rule
from aggmc_beam.beam.timing import POOL_ENDS, soon
from aggmc_beam.beam.values import Group, Snapshot
from aggmc_beam.chain import Window
from aggmc_beam.errors import InputError
from aggmc_beam.result import Estimate

#: With several shards, how long a group waits for the others before it is estimated. Microseconds.
SETTLE = 2 * 10**6


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
