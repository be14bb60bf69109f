"""From what arrives to records: JSON text, dictionaries, rows; one at a time, with reasons."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam

from aggmc_beam.beam.bounded import REJECTED, counter
from aggmc_beam.beam.values import MAX_PAYLOAD, Batch
from aggmc_beam.records import Record, Rejected, Schema, parse_json, read_json, read_record, shortened


def rows(element: Any) -> Iterator[Mapping[str, Any] | Rejected]:
    """The rows in an element: a dictionary, a Beam row, or text with a JSON record or an array of them."""
    if isinstance(element, bytes | str):
        yield from _json_rows(element)
    elif isinstance(element, Mapping):
        yield element
    elif isinstance(element, beam.Row):
        yield element.as_dict()
    elif hasattr(element, "_asdict"):
        yield element._asdict()
    else:
        yield Rejected(f"it is a {type(element).__name__}, not a record")


def _json_rows(text: bytes | str) -> Iterator[Mapping[str, Any] | Rejected]:
    if text[:1] not in (b"[", "["):
        try:
            yield parse_json(text)
        except Rejected as error:
            yield error
        return
    try:
        found = read_json(text)
    except Rejected as error:
        yield error
        return
    for row in found:
        yield row if isinstance(row, dict) else Rejected(f"{shortened(row)} is not a JSON object")


def payload(element: Any) -> Any:
    """What arrived, as the dead-letter output keeps it: JSON-able and not longer than `MAX_PAYLOAD`."""
    if isinstance(element, bytes):
        return element.decode(errors="replace")[:MAX_PAYLOAD]
    if isinstance(element, str):
        return element[:MAX_PAYLOAD]
    if isinstance(element, beam.Row):
        element = element.as_dict()
    plain = dict(element) if isinstance(element, Mapping) else element
    try:
        text = json.dumps(plain, default=str, ensure_ascii=False, allow_nan=False)
    except ValueError:  # NaN is no JSON; such a record is kept as text
        return json.dumps(plain, default=str, ensure_ascii=False)[:MAX_PAYLOAD]
    return json.loads(text) if len(text) <= MAX_PAYLOAD else text[:MAX_PAYLOAD]


def rejection(element: Any, reason: str) -> dict[str, Any]:
    return {"record": payload(element), "reason": reason, "source": None}


class Parse(beam.DoFn):  # type: ignore[misc]
    """Elements to records; what is none goes to `REJECTED` with the reason and the payload."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def process(self, element: Any) -> Iterator[Record | Any]:
        if isinstance(element, Batch):
            counter("rows").inc(len(element))
            yield from map(element.record, range(len(element)))
            return
        for row in rows(element):
            counter("rows").inc()
            try:
                if isinstance(row, Rejected):
                    raise row
                yield read_record(row, self.schema)
            except Rejected as error:
                counter("rejected").inc()
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
        parse = beam.ParDo(Parse(self.schema)).with_output_types(Record)
        found = arrivals | "Parse" >> parse.with_outputs(REJECTED, main="records")
        return Parsed(found.records, found[REJECTED])
