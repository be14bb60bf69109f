"""Unbounded data: estimates that are refreshed while records arrive, in any order.

    records -> Pair, by (group, realization): exact dedup -> JoinDeltas, by bundle
    -> RunningSums, by (group, shard): a snapshot at each refresh
    -> Pool, by (group, window): the newest snapshots -> estimates

Everything happens in Beam's global window, with timers of our own: Beam drops what is late for its
windows without a trace, whereas here it is counted and set aside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.transforms import window
from apache_beam.utils.windowed_value import WindowedValue

from aggmc_beam.beam.bounded import REJECTED, group_key
from aggmc_beam.beam.health import LEDGER, NEVER, Health, Numbers, from_estimate, from_ledger
from aggmc_beam.beam.pair import Pair, by_realization
from aggmc_beam.beam.pool import Pool
from aggmc_beam.beam.running import RunningSums
from aggmc_beam.beam.timing import LAST, Timing
from aggmc_beam.beam.values import Delta, Snapshot
from aggmc_beam.chain import Window
from aggmc_beam.ledger import Ledger
from aggmc_beam.local.engine import Plan
from aggmc_beam.moments import Counts
from aggmc_beam.records import Record, Rejected, identity
from aggmc_beam.result import Estimate

#: Deltas that are handed on together.
TOGETHER = 1000
_Glance = tuple[str, tuple[int, bool, Snapshot]]
#: The group of a rejected record that does not tell it.
NO_GROUP = ""


class JoinDeltas(beam.DoFn):  # type: ignore[misc]
    """(group, Delta) to ((group, shard), Delta), a bundle at a time: summing many at once is as quick as
    summing one. What came in a bundle goes to `LEDGER`; what has no group goes there only."""

    def __init__(self, shards: int) -> None:
        self.shards = shards

    def start_bundle(self) -> None:
        self.waiting: dict[str, list[Delta]] = {}
        self.number, self.ledger = 0, Ledger()
        self.earliest, self.newest = LAST, NEVER

    def process(self, element: tuple[str, Delta], at: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        group, delta = element
        if group != NO_GROUP:
            shard = int(delta.numbers[0]) % self.shards if len(delta.numbers) else 0
            key = json.dumps([group, shard], ensure_ascii=False)
            self.waiting.setdefault(key, []).append(delta)
        self.ledger += _ledger(delta)
        self.number += 1
        self.earliest = min(self.earliest, at)
        self.newest = max(self.newest, at.micros)
        if self.number >= TOGETHER:
            yield from self.finish_bundle()
            self.start_bundle()

    def finish_bundle(self) -> Iterator[Any]:
        for key, deltas in self.waiting.items():
            yield self._at((key, Delta.joined(deltas)))
        if self.number:
            yield beam.pvalue.TaggedOutput(LEDGER, self._at(from_ledger(self.ledger, self.newest)))

    def _at(self, value: Any) -> WindowedValue:
        """As early as the earliest that it holds, so that no timer runs ahead of it."""
        return WindowedValue(value, self.earliest, [window.GlobalWindow()])


def _ledger(delta: Delta) -> Ledger:
    return Ledger.of({**vars(delta.counts), "records": int((delta.settled == 0).sum())})


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
        joined = (
            (paired.deltas, refused)
            | "All deltas" >> beam.Flatten()
            | "Join"
            >> beam.ParDo(JoinDeltas(self.shards))
            .with_output_types(tuple[str, Delta], **{LEDGER: Numbers})
            .with_outputs(LEDGER, main="deltas")
        )
        summed = joined.deltas | "Sum" >> (
            beam.ParDo(RunningSums(plan, self.timing))
            .with_output_types(_Glance, **{LEDGER: Numbers, REJECTED: Any})
            .with_outputs(REJECTED, LEDGER, main="snapshots")
        )
        pool = beam.ParDo(Pool(plan, self.shards)).with_output_types(Estimate)
        estimates = summed.snapshots | "Pool" >> pool
        refreshes = estimates | "From estimates" >> beam.Map(from_estimate).with_output_types(Numbers)
        news = (joined[LEDGER], summed[LEDGER], refreshes)
        health = beam.ParDo(Health(self.timing, plan.config.max_rejected))
        return Refreshed(
            estimates,
            (rejected, paired[REJECTED], summed[REJECTED]) | "All rejected" >> beam.Flatten(),
            news | "News" >> beam.Flatten() | "Health" >> health,
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
