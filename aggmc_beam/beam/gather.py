"""Elements of a PCollection to blocks of records, by the shard at which their realizations meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from aggmc_beam.beam.blocks import Block, narrowed, spread
from aggmc_beam.beam.exact import BLOCKS, NOTICED, REJECTED
from aggmc_beam.beam.frames import ElementReader, Found
from aggmc_beam.beam.metrics import counter
from aggmc_beam.local.plan import Plan
from aggmc_beam.sums.records import Records, joined_records

#: Elements that are read together, and values that are held before they are handed on.
WAITING, HELD_VALUES = 4096, 4_000_000


class Gather(beam.DoFn):  # type: ignore[misc]
    """Elements of the global window to (shard, block) pairs; also what was rejected, and counts."""

    def __init__(self, plan: Plan, shards: int) -> None:
        self.plan, self.shards = plan, shards
        self.reader = ElementReader(plan.schema)

    def start_bundle(self) -> None:
        self.waiting: dict[Any, list[Any]] = {}
        self.held: dict[Any, list[Records]] = {}
        self.size = 0
        # Beam gives a window to each element only where it is asked for, which takes time.
        self._everything = self.waiting.setdefault(GlobalWindow(), [])

    def process(self, element: Any) -> Iterable[Any]:
        self._everything.append(element)
        return self._read(GlobalWindow()) if len(self._everything) >= WAITING else ()

    def finish_bundle(self) -> Iterator[Any]:
        for window in list(self.waiting):
            yield from self._in_window(window, self._read(window))
        yield from self._flush()

    def _read(self, window: Any) -> Iterator[Any]:
        elements = self.waiting[window]
        found = self.reader.read(elements)
        elements.clear()
        records = [narrowed(one) for one in found.records]
        if records:
            self.held.setdefault(window, []).extend(records)
            self.size += sum(one.counts.size for one in records)
        yield from noticed(found)
        if self.size >= HELD_VALUES:
            yield from self._flush()

    def _flush(self) -> Iterator[Any]:
        held, self.held, self.size = self.held, {}, 0
        for window, records in held.items():
            yield from self._in_window(window, self._keyed(joined_records(records)))

    def _keyed(self, records: Records) -> Iterator[Any]:
        for keyed in spread(Block(records), self.shards):
            yield beam.pvalue.TaggedOutput(BLOCKS, keyed)

    @staticmethod
    def _in_window(window: Any, made: Iterable[Any]) -> Iterator[Any]:
        for one in made:
            if isinstance(one, WindowedValue):
                yield one
            elif isinstance(one, beam.pvalue.TaggedOutput):
                inner = one.value
                if not isinstance(inner, WindowedValue):
                    inner = WindowedValue(inner, window.max_timestamp(), [window])
                yield beam.pvalue.TaggedOutput(one.tag, inner)
            else:
                yield WindowedValue(one, window.max_timestamp(), [window])


class GatherInWindows(Gather):
    """The same in the windows that elements have."""

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterable[Any]:
        waiting = self.waiting.setdefault(window, [])
        waiting.append(element)
        return self._in_window(window, self._read(window)) if len(waiting) >= WAITING else ()


def noticed(found: Found) -> Iterator[Any]:
    """What was noticed of elements, as outputs."""
    if not found.rows:
        return
    counter("rows").inc(found.rows - found.read_before)
    counter("rejected").inc(len(found.rejected))
    yield beam.pvalue.TaggedOutput(NOTICED, {"rows": found.rows, "rejected": len(found.rejected)})
    for one in found.rejected:
        yield beam.pvalue.TaggedOutput(REJECTED, one)
