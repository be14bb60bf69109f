"""Where estimates and rejections go: JSON lines, Parquet, Pub/Sub and BigQuery."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import polars as pl
from apache_beam.io.filesystems import FileSystems

from aggmc_beam.beam.files import is_local
from aggmc_beam.config import Output
from aggmc_beam.result import Estimate

ESTIMATES, REJECTED = "estimates", "rejected"
_ENTRY = (
    ("from_state", "STRING"),
    ("to_state", "STRING"),
    ("probability", "FLOAT"),
    ("standard_error", "FLOAT"),
    ("lower", "FLOAT"),
    ("upper", "FLOAT"),
)
_COLUMNS = (
    ("group", "STRING"),
    ("window_start", "STRING"),
    ("window_end", "STRING"),
    ("cell", "INTEGER"),
    ("estimator", "STRING"),
    ("population", "FLOAT"),
    ("level", "FLOAT"),
    ("records", "INTEGER"),
    ("pairs", "INTEGER"),
    ("rejected", "INTEGER"),
    ("late", "INTEGER"),
    ("refresh", "INTEGER"),
    ("details", "STRING"),
)


def table_row(estimate: Estimate) -> dict[str, Any]:
    """An estimate as a row of a table: one entry for each pair of states; `details` is all of it, in JSON.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate(states=2, steps=50, seed=1)
    >>> row = table_row(am.estimate(y, states=["in", "out"]))
    >>> row["pairs"], row["entries"][1]["from_state"], row["entries"][1]["to_state"]
    (49, 'in', 'out')
    """
    plain = estimate.to_dict()
    entries = [
        {
            "from_state": a,
            "to_state": b,
            "probability": plain["transition_matrix"][i][j],
            "standard_error": plain["standard_error"][i][j],
            "lower": plain["lower"][i][j],
            "upper": plain["upper"][i][j],
        }
        for i, a in enumerate(estimate.states)
        for j, b in enumerate(estimate.states)
    ]
    window = plain["window"] or {}
    row = {
        "group": None if plain["group"] is None else json.dumps(plain["group"], ensure_ascii=False),
        "window_start": None if not window else str(window["start"]),
        "window_end": None if not window else str(window["end"]),
        "details": json.dumps(plain, ensure_ascii=False),
        **{name: plain["counts"][name] for name in ("records", "pairs", "rejected", "late")},
        **{name: plain[name] for name in ("cell", "estimator", "population", "level", "refresh")},
    }
    return {**{name: row[name] for name, _ in _COLUMNS}, "entries": entries}


def table_schema() -> dict[str, Any]:
    """The BigQuery schema of `table_row`."""
    entry = [{"name": n, "type": t, "mode": "NULLABLE"} for n, t in _ENTRY]
    fields: list[dict[str, Any]] = [{"name": n, "type": t, "mode": "NULLABLE"} for n, t in _COLUMNS]
    return {"fields": [*fields, {"name": "entries", "type": "RECORD", "mode": "REPEATED", "fields": entry}]}


def parquet_frame(estimates: list[Estimate]) -> pl.DataFrame:
    """The rows of `table_row`, with the same types whatever is missing."""
    kinds = {"STRING": pl.String, "FLOAT": pl.Float64, "INTEGER": pl.Int64}
    schema: dict[str, Any] = {name: kinds[kind] for name, kind in _COLUMNS}
    schema["entries"] = pl.List(pl.Struct({name: kinds[kind] for name, kind in _ENTRY}))
    return pl.DataFrame([table_row(e) for e in estimates], schema=schema, orient="row")


class Append(beam.DoFn):  # type: ignore[misc]
    """Elements to files of a directory, a bundle at a time: lines are appended to one file on this
    machine; elsewhere, and for Parquet, each bundle makes a file of its own."""

    def __init__(self, directory: str, name: str, parquet: bool = False) -> None:
        self.directory, self.name, self.parquet = directory, name, parquet

    def start_bundle(self) -> None:
        self.waiting: list[Any] = []

    def process(self, element: Any) -> None:
        self.waiting.append(element)

    def finish_bundle(self) -> None:
        if not self.waiting:
            return
        if is_local(self.directory):
            os.makedirs(self.directory, exist_ok=True)
        if self.parquet:
            self._write_parquet()
            return
        data = "".join(f"{line(e)}\n" for e in self.waiting).encode()
        if is_local(self.directory):
            with open(os.path.join(self.directory, f"{self.name}.jsonl"), "ab") as stream:
                stream.write(data)
            return
        with FileSystems.create(self._fresh("jsonl")) as stream:
            stream.write(data)

    def _write_parquet(self) -> None:
        with FileSystems.create(self._fresh("parquet")) as stream:
            parquet_frame(self.waiting).write_parquet(stream)

    def _fresh(self, suffix: str) -> str:
        return str(FileSystems.join(self.directory, f"{self.name}-{uuid.uuid4().hex}.{suffix}"))


def line(element: Any) -> str:
    if isinstance(element, Estimate):
        return json.dumps(element.to_dict(), allow_nan=False, ensure_ascii=False)
    return json.dumps(element, default=str, ensure_ascii=False)


class WriteEstimates(beam.PTransform):  # type: ignore[misc]
    """Estimates to all sinks that a config names; `files` leaves out those that a bounded run writes."""

    def __init__(self, output: Output, streaming: bool, files: bool = True) -> None:
        super().__init__()
        self.output, self.streaming, self.files = output, streaming, files

    def expand(self, estimates: Any) -> Any:
        output = self.output
        if self.files:
            _ = estimates | "JSON lines" >> beam.ParDo(Append(output.directory, ESTIMATES))
        if self.files and output.parquet:
            _ = estimates | "Parquet" >> beam.ParDo(Append(output.directory, ESTIMATES, parquet=True))
        if output.pubsub is not None:
            from apache_beam.io.gcp.pubsub import WriteToPubSub

            messages = estimates | "Messages" >> beam.Map(_message).with_output_types(bytes)
            _ = messages | "Pub/Sub" >> WriteToPubSub(output.pubsub)
        if output.bigquery is not None:
            _ = estimates | "Rows" >> beam.Map(table_row) | "BigQuery" >> bigquery(output, self.streaming)
        return estimates


def _message(estimate: Estimate) -> bytes:
    return line(estimate).encode()


def bigquery(output: Output, streaming: bool) -> Any:
    """The sink of a table: rows are streamed from a stream, and loaded from files."""
    from apache_beam.io.gcp.bigquery import BigQueryDisposition, WriteToBigQuery

    way = WriteToBigQuery.Method
    chosen = {"auto": way.STREAMING_INSERTS if streaming else way.FILE_LOADS, "load": way.FILE_LOADS}
    chosen["stream"] = way.STREAMING_INSERTS
    method = chosen[output.bigquery_method]
    load_every = 60 if streaming and method == way.FILE_LOADS else None
    return WriteToBigQuery(
        output.bigquery,
        schema=table_schema(),
        method=method,
        triggering_frequency=load_every,
        create_disposition=BigQueryDisposition.CREATE_IF_NEEDED,
        write_disposition=BigQueryDisposition.WRITE_APPEND,
    )


class WriteRejected(beam.PTransform):  # type: ignore[misc]
    """Rejections to the dead-letter file."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.directory = directory

    def expand(self, rejected: Any) -> Any:
        return rejected | "Append" >> beam.ParDo(Append(self.directory, REJECTED))


def each(found: tuple[str, list[Estimate]]) -> Iterator[Estimate]:
    yield from found[1]
