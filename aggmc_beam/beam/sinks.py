"""Where estimates and rejections go: JSON lines, Parquet, Pub/Sub and BigQuery."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import apache_beam as beam
import polars as pl
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions

from aggmc_beam.beam.files import is_local
from aggmc_beam.config import Output
from aggmc_beam.durable import write_atomically
from aggmc_beam.errors import InputError
from aggmc_beam.result import Estimate

ESTIMATES, REJECTED = "estimates", "rejected"
#: Seconds between load jobs of a stream: BigQuery takes 1,500 a day for a table.
LOAD_EVERY = 60
#: How often rows that BigQuery refuses are sent again. Pauses double, three to seven minutes in all, since
#: a new table may be unknown to streaming inserts for two.
INSERT_RETRIES = 11
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
    ("ground", "STRING"),
    ("warnings", "STRING"),
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
        "ground": plain["diagnostics"].get("ground", {}).get("name"),
        "warnings": " ".join(f"{w}." for w in plain["warnings"]) or None,
        "details": json.dumps(plain, ensure_ascii=False),
        **{name: plain["counts"][name] for name in ("records", "pairs", "rejected", "late")},
        **{name: plain[name] for name in ("cell", "estimator", "population", "level", "refresh")},
    }
    return {**{name: row[name] for name, _ in _COLUMNS}, "entries": entries}


def table_schema() -> dict[str, Any]:
    """The schema of the BigQuery table: the columns of `table_row`, and when the row was `written`."""

    def nullable(columns: tuple[tuple[str, str], ...]) -> list[dict[str, Any]]:
        return [{"name": name, "type": kind, "mode": "NULLABLE"} for name, kind in columns]

    entries = {"name": "entries", "type": "RECORD", "mode": "REPEATED", "fields": nullable(_ENTRY)}
    return {"fields": [*nullable(_COLUMNS), entries, *nullable((("written", "TIMESTAMP"),))]}


def parquet_frame(estimates: list[Estimate]) -> pl.DataFrame:
    """The rows of `table_row`, with the same types whatever is missing."""
    kinds = {"STRING": pl.String, "FLOAT": pl.Float64, "INTEGER": pl.Int64}
    schema: dict[str, Any] = {name: kinds[kind] for name, kind in _COLUMNS}
    schema["entries"] = pl.List(pl.Struct({name: kinds[kind] for name, kind in _ENTRY}))
    return pl.DataFrame([table_row(e) for e in estimates], schema=schema, orient="row")


class Append(beam.DoFn):  # type: ignore[misc]
    """Elements to files of a directory, a bundle at a time: lines are appended to one file on this
    machine; elsewhere, and for Parquet, each bundle makes a file of its own.

    A bundle that fails has written nothing. One that is repeated after it was written repeats its lines
    in a local file; files of estimates are named by their content, so they are only written over.
    """

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
        data = "".join(f"{line(e)}\n" for e in self.waiting).encode(errors="backslashreplace")
        if is_local(self.directory) and not self.parquet:
            append(os.path.join(self.directory, f"{self.name}.jsonl"), data)
            return
        # Two bundles may reject the same garbage, but no two make the same estimate.
        name = hashlib.sha256(data).hexdigest()[:32] if self.name == ESTIMATES else uuid.uuid4().hex
        suffix = "parquet" if self.parquet else "jsonl"
        if self.parquet:
            stream = io.BytesIO()
            parquet_frame(self.waiting).write_parquet(stream)
            data = stream.getvalue()
        store(FileSystems.join(self.directory, f"{self.name}-{name}.{suffix}"), data)


def append(path: str, data: bytes) -> None:
    """Add to the end of a file: all of the data, or nothing and an error."""
    with open(path, "ab", buffering=0) as stream:
        end = stream.seek(0, os.SEEK_END)
        try:
            written = stream.write(data)
            if written != len(data):
                raise OSError(f"{path}: only {written} of {len(data)} bytes could be written")
            os.fsync(stream.fileno())
        except OSError:
            stream.truncate(end)
            raise


def store(path: str, data: bytes) -> None:
    """A whole file, on any filesystem that Beam knows; one on this machine is never seen half written."""
    if not is_local(path):
        with FileSystems.create(path) as stream:
            stream.write(data)
        return
    write_atomically(path, data)


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
            messages = estimates | "Messages" >> beam.Map(_message).with_output_types(bytes)
            _ = messages | "Pub/Sub" >> pubsub(output.pubsub)
        if output.bigquery is not None:
            sink = bigquery(output, self.streaming, estimates.pipeline.options.view_as(GoogleCloudOptions))
            result = estimates | "Rows" >> beam.Map(_stamped_row) | "BigQuery" >> sink
            if sink.method == sink.Method.STREAMING_INSERTS:
                _ = result.failed_rows_with_errors | "Refused" >> beam.Map(_refuse)
        return estimates


def _message(estimate: Estimate) -> bytes:
    return line(estimate).encode(errors="backslashreplace")


def _stamped_row(estimate: Estimate) -> dict[str, Any]:
    return {**table_row(estimate), "written": datetime.now(timezone.utc).isoformat()}


def _refuse(failed: tuple[str, dict[str, Any], list[dict[str, Any]]]) -> None:
    table, _, errors = failed
    why = errors if isinstance(errors, str) else "; ".join(str(e.get("message", e)) for e in errors)
    raise InputError(
        f"BigQuery refused a row of {table}: {why}; the table must have the columns of "
        "aggmc_beam.beam.sinks.table_schema(), or not exist yet"
    )


def _need_client(key: str, module: str) -> None:
    """Beam itself would miss the client on the workers only."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"output.{key} needs Google's clients: pip install 'aggmc-beam[gcp]'") from error


def pubsub(topic: str) -> Any:
    """The sink of a topic: one message for each estimate, in the JSON that `Estimate.from_json` reads."""
    _need_client("pubsub", "google.cloud.pubsub_v1")
    from apache_beam.io.gcp.pubsub import WriteToPubSub

    try:
        return WriteToPubSub(topic)
    except ValueError as error:
        raise InputError(f"output.pubsub is {topic!r}, not projects/P/topics/T: {error}") from error


def bigquery(output: Output, streaming: bool, options: GoogleCloudOptions) -> Any:
    """The sink of a table. Unless the config says how, rows of a stream are streamed, others loaded."""
    _need_client("bigquery", "google.cloud.bigquery")
    from apache_beam.io.gcp.bigquery import BigQueryDisposition, WriteToBigQuery

    load = output.bigquery_method == "load" or (output.bigquery_method == "auto" and not streaming)
    if load and not (options.temp_location or "").startswith("gs://"):
        raise InputError(
            "load jobs of output.bigquery need Cloud Storage: add --temp_location=gs://BUCKET/PATH to Beam's "
            "options, or set output.bigquery_method: stream"
        )
    try:
        sink = WriteToBigQuery(
            output.bigquery,
            schema=table_schema(),
            method=WriteToBigQuery.Method.FILE_LOADS if load else WriteToBigQuery.Method.STREAMING_INSERTS,
            triggering_frequency=LOAD_EVERY if streaming and load else None,
            max_retries=INSERT_RETRIES,
            create_disposition=BigQueryDisposition.CREATE_IF_NEEDED,
            write_disposition=BigQueryDisposition.WRITE_APPEND,
        )
    except ValueError as error:
        raise InputError(f"output.bigquery is {output.bigquery!r}, not project:dataset.table") from error
    if sink.table_reference.projectId is None and options.project is None:
        raise InputError(
            f"output.bigquery names no project: write project:{output.bigquery}, or add --project=PROJECT to "
            "Beam's options"
        )
    return sink


class WriteRejected(beam.PTransform):  # type: ignore[misc]
    """Rejections to the dead-letter file."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.directory = directory

    def expand(self, rejected: Any) -> Any:
        return rejected | "Append" >> beam.ParDo(Append(self.directory, REJECTED))


def each(found: tuple[str, list[Estimate]]) -> Iterator[Estimate]:
    yield from found[1]
