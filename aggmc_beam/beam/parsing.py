"""From what arrives in a stream to records, one at a time, with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam

from aggmc_beam.beam.blocks import Block, records_of
from aggmc_beam.beam.dead_letters import rejection
from aggmc_beam.beam.exact import REJECTED
from aggmc_beam.beam.metrics import counter
from aggmc_beam.beam.outputs import outputs, typed
from aggmc_beam.beam.rows import plain_row, rows
from aggmc_beam.records import Record, Rejected, Schema, read_record
from aggmc_beam.sums.records import Records


class Parse(beam.DoFn):  # type: ignore[misc]
    """Elements to records; what is none goes to `REJECTED` with the reason and the payload."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.columns = list(dict.fromkeys(schema.columns))
        self.found = Counter[str]()

    def start_bundle(self) -> None:
        self.found.clear()

    def finish_bundle(self) -> None:
        # Beam takes longer to count a record than is needed here to read one.
        counter("rows").inc(self.found["rows"])
        counter("rejected").inc(self.found["rejected"])

    def process(self, element: Any) -> Iterator[Record | Any]:
        if isinstance(element, Records):
            self.found["rows"] += element.number_of_rows()
            yield from records_of(Block(element))
            return
        for row in rows(element):
            self.found["rows"] += 1
            try:
                if isinstance(row, Rejected):
                    raise row
                yield read_record(plain_row(row, self.columns), self.schema)
            except Rejected as error:
                self.found["rejected"] += 1
                kept = element if isinstance(row, Rejected) else row
                yield beam.pvalue.TaggedOutput(REJECTED, rejection(kept, str(error)))


class Parsed(NamedTuple):
    """PCollections of `Record`, and of rejections: the record, the reason and the source."""

    records: Any
    rejected: Any


class ParseRecords(beam.PTransform):  # type: ignore[misc]
    """Whatever arrives to `Parsed`."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.schema = schema

    def expand(self, arrivals: Any) -> Parsed:
        types = {"records": Record, REJECTED: dict[str, Any]}
        found = typed(arrivals | "Parse" >> outputs(Parse(self.schema), types, main="records"), types)
        return Parsed(found.records, found[REJECTED])
