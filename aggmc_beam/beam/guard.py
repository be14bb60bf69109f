"""The door of a stream: one record must not harm the state, the clock or the records of others."""

from __future__ import annotations

from collections.abc import Iterator
from json.encoder import encode_basestring
from typing import Any

import apache_beam as beam

from aggmc_beam.beam.dead_letters import rejection
from aggmc_beam.beam.exact import REJECTED
from aggmc_beam.beam.joining import group_key
from aggmc_beam.beam.metrics import counter
from aggmc_beam.beam.timing import Timing
from aggmc_beam.errors import InputError
from aggmc_beam.local.plan import Plan
from aggmc_beam.records import Record, as_row
from aggmc_beam.times import instant, iso

#: Characters of a realization and its group, as they stand in keys of state.
MAX_NAME = 1000
#: Whole-numbered times lie within this of 0: microseconds since 1970 do, until the year 2112.
MAX_STEP = 2**52
#: The first time that can be written in every zone, with a window before it.
EARLIEST = instant("0002-01-01")


def by_realization(record: Record) -> tuple[str, Record]:
    """A record under the key that it shares with the other records of its realization."""
    # As JSON has it, without an encoder for each record.
    return f"[{group_key(record.group)}, {encode_basestring(record.realization)}]", record


class ByRealization(beam.DoFn):  # type: ignore[misc]
    """Records under the key that they share with the others of their realization. What could do harm goes to
    `REJECTED`: names that are too long for a key, and times beyond what is sane."""

    def __init__(self, plan: Plan, timing: Timing) -> None:
        self.schema, self.timing = plan.schema, timing

    def start_bundle(self) -> None:
        self.ahead = self.timing.latest()
        clock = self.schema.clock
        self.first, self.last = -MAX_STEP, MAX_STEP
        if clock.stamps:
            self.first = clock.holding(EARLIEST - 1) + 1
            self.last = clock.holding(self.ahead)

    def process(self, record: Record) -> Iterator[tuple[str, Record] | Any]:
        keyed = by_realization(record)
        length = len(keyed[0])
        if self.first <= record.time <= self.last and length <= MAX_NAME:
            yield keyed
            return
        counter("rejected").inc()
        yield beam.pvalue.TaggedOutput(REJECTED, rejection(self._row(record), self._why(record, length)))

    def _why(self, record: Record, length: int) -> str:
        if length > MAX_NAME:
            return (
                f"its realization and group take {length:,} characters, of {MAX_NAME:,} that a name may have"
            )
        if record.time < self.first:
            return f"{self.schema.time_name} lies before all calendars"
        if record.time > self.last and not self.schema.clock.stamps:
            return f"{self.schema.time_name} is {record.time}, too far away for a time"
        return f"its time lies after {iso(self.ahead)}, further ahead of now than stream.max_ahead"

    def _row(self, record: Record) -> Any:
        try:
            return as_row(record, self.schema)
        except InputError:  # its time cannot be written
            return {"realization": record.realization, "step": record.time}
