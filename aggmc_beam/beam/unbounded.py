"""Unbounded data: estimates that are refreshed while records arrive, in any order.

    records -> Pair, by (group, realization): exact dedup; what a bundle adds is joined
    -> RunningSums, by (group, shard): a snapshot at each refresh
    -> Pool, by (group, window): the newest snapshots -> estimates

Everything happens in Beam's global window, with timers of our own: Beam drops what is late for its
windows without a trace, whereas here it is counted and set aside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.transforms import window

from aggmc_beam.beam.exact import REJECTED
from aggmc_beam.beam.guard import MAX_NAME, ByRealization
from aggmc_beam.beam.health import LEDGER, Health, Numbers, from_estimate
from aggmc_beam.beam.joining import NO_GROUP, Joining, group_key
from aggmc_beam.beam.outputs import outputs, typed
from aggmc_beam.beam.pair import Pair
from aggmc_beam.beam.pool import Pool
from aggmc_beam.beam.running import RunningSums
from aggmc_beam.beam.stream_sums import StreamRule
from aggmc_beam.beam.stream_values import Delta, Snapshot
from aggmc_beam.beam.timing import Timing, has_simulated_clock
from aggmc_beam.local.plan import Plan
from aggmc_beam.records import Record, Rejected, identity
from aggmc_beam.result import Estimate

_HandedOn = tuple[str, tuple[int, int, bool, Snapshot]]


class CountRefused(beam.DoFn):  # type: ignore[misc]
    """Rejections to ((group, shard), Delta): a rejected record is counted with its group, if it tells which,
    and in the ledger."""

    def __init__(self, plan: Plan, timing: Timing) -> None:
        self.plan, self.timing = plan, timing

    def start_bundle(self) -> None:
        self.joining = Joining(StreamRule.of(self.plan))
        self.latest = self.timing.latest()

    def process(self, refused: dict[str, Any], at: Any = beam.DoFn.TimestampParam) -> None:
        self.joining.arrivals(_group(refused["record"], self.plan)).counts["rejected"] += 1
        self.joining.came(min(at.micros, self.latest))

    def finish_bundle(self) -> Iterator[Any]:
        return self.joining.handed_on()


def _group(row: Any, plan: Plan) -> str:
    names = plan.schema.group_by
    if not names:
        return group_key(())
    if isinstance(row, dict):
        with suppress(Rejected):
            found = group_key(tuple(identity(row.get(name), name) for name in names))
            return found if len(found) <= MAX_NAME else NO_GROUP
    return NO_GROUP


def _whole(elements: Any, label: str) -> Any:
    """Elements in the global window; Beam takes as long to put one there as to parse it."""
    if isinstance(elements.windowing.windowfn, window.GlobalWindows):
        return elements
    return elements | label >> beam.WindowInto(window.GlobalWindows())


class Refreshed(NamedTuple):
    """What becomes of a stream: estimates, everything that was set aside, and how the stream is doing."""

    estimates: Any
    rejected: Any
    health: Any


class Refresh(beam.PTransform):  # type: ignore[misc]
    """`Parsed` records and rejections to `Refreshed`."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan, self.timing = plan, Timing.of(plan)

    def expand(self, parsed: tuple[Any, Any]) -> Refreshed:
        records, rejected = parsed
        plan = self.plan
        timing = replace(self.timing, simulated=has_simulated_clock(records))
        aside = dict[str, Any]
        types: dict[str, Any] = {"records": tuple[str, Record], REJECTED: aside}
        door = outputs(ByRealization(plan, timing), types, main="records")
        keyed = typed(_whole(records, "Global") | "By realization" >> door, types)
        rejected = (
            _whole(rejected, "Rejected, global"),
            keyed[REJECTED],
        ) | "Before pairing" >> beam.Flatten()
        types = {"deltas": tuple[str, Delta], REJECTED: aside, LEDGER: Numbers}
        pair = outputs(Pair(plan, timing), types, main="deltas")
        paired = typed(keyed.records | "Pair" >> pair, types)
        types = {"deltas": tuple[str, Delta], LEDGER: Numbers}
        count = outputs(CountRefused(plan, timing), types, main="deltas")
        refused = typed(rejected | "Count rejected" >> count, types)
        deltas = (paired.deltas, refused.deltas) | "All deltas" >> beam.Flatten()
        types = {"snapshots": _HandedOn, REJECTED: aside, LEDGER: Numbers}
        running = outputs(RunningSums(plan, timing), types, main="snapshots")
        summed = typed(deltas | "Sum" >> running, types)
        pool = beam.ParDo(Pool(plan, timing)).with_output_types(Estimate)
        estimates = summed.snapshots | "Pool" >> pool
        refreshes = estimates | "From estimates" >> beam.Map(from_estimate).with_output_types(Numbers)
        news = (paired[LEDGER], refused[LEDGER], summed[LEDGER], refreshes)
        health = beam.ParDo(Health(timing, plan.config.max_rejected))
        return Refreshed(
            estimates,
            (rejected, paired[REJECTED], summed[REJECTED]) | "All rejected" >> beam.Flatten(),
            news | "News" >> beam.Flatten() | "Health" >> health,
        )
