"""Where estimates and rejections go: JSON lines, Parquet, Pub/Sub and BigQuery."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import uuid
from datetime import datetime, timezone
from typing import Any, get_args, get_type_hints

import apache_beam as beam
import polars as pl
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions

from aggmc_beam.beam.files import is_local
from aggmc_beam.config import Output
from aggmc_beam.durable import write_atomically
from aggmc_beam.errors import InputError
from aggmc_beam.result import Estimate
from aggmc_beam.tables import table_files
from aggmc_beam.uses.rows import Entry, EstimateRow

ESTIMATES, REJECTED = "estimates", "rejected"
#: Seconds between load jobs of a stream: BigQuery takes 1,500 a day for a table.
LOAD_EVERY = 60
#: How often rows that BigQuery refuses are sent again. Pauses double, three to seven minutes in all, since
#: a new table may be unknown to streaming inserts for two.
INSERT_RETRIES = 11
#: How BigQuery and Polars call the types of a row's fields, each of which may be missing.
_TYPES = {str: ("STRING", pl.String), float: ("FLOAT", pl.Float64), int: ("INTEGER", pl.Int64)}


def _columns(row: type) -> dict[str, tuple[str, Any]]:
    """The types of a row's plain fields, as `_TYPES` has them."""
    found = {name: (get_args(kind) or (kind,))[0] for name, kind in get_type_hints(row).items()}
    return {name: _TYPES[kind] for name, kind in found.items() if kind in _TYPES}


def table_row(estimate: Estimate) -> dict[str, Any]:
    """An estimate as a row of a table, a dictionary.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate(states=2, steps=50, seed=1)
    >>> row = table_row(am.estimate(y, states=["in", "out"]))
    >>> row["pairs"], row["entries"][1]["from_state"], row["entries"][1]["to_state"]
    (49, 'in', 'out')
    """
    row = estimate.to_row()
    return {**row._asdict(), "entries": [entry._asdict() for entry in row.entries]}


def table_schema() -> dict[str, Any]:
    """The schema of the BigQuery table: the columns of `table_row`, and when the row was `written`."""

    def nullable(columns: dict[str, str]) -> list[dict[str, Any]]:
        return [{"name": name, "type": kind, "mode": "NULLABLE"} for name, kind in columns.items()]

    plain, inner = ({n: kind for n, (kind, _) in _columns(row).items()} for row in (EstimateRow, Entry))
    entries = {"name": "entries", "type": "RECORD", "mode": "REPEATED", "fields": nullable(inner)}
    return {"fields": [*nullable(plain), entries, *nullable({"written": "TIMESTAMP"})]}


def parquet_frame(estimates: list[Estimate]) -> pl.DataFrame:
    """The rows of `table_row`, with the same types whatever is missing."""
    schema, entry = ({n: kind for n, (_, kind) in _columns(row).items()} for row in (EstimateRow, Entry))
    schema["entries"] = pl.List(pl.Struct(entry))
    return pl.DataFrame([table_row(e) for e in estimates], schema=schema, orient="row")


class Append(beam.DoFn):  # type: ignore[misc]
    """Elements to lines of files in a directory, a bundle at a time: on this machine they are added to one file,
    elsewhere each bundle makes a file of its own.

    A bundle that fails has written nothing. One that is repeated after it was written repeats its lines
    in a local file; files of estimates are named by their content, so they are only written over.
    """

    def __init__(self, directory: str, name: str = ESTIMATES) -> None:
        self.directory, self.name = directory, name

    def start_bundle(self) -> None:
        self.waiting: list[Any] = []

    def process(self, element: Any) -> None:
        self.waiting.append(element)

    def finish_bundle(self) -> None:
        if not self.waiting:
            return
        if is_local(self.directory):
            os.makedirs(self.directory, exist_ok=True)
        self.write("".join(f"{line(e)}\n" for e in self.waiting).encode(errors="backslashreplace"))

    def write(self, lines: bytes) -> None:
        """What waits, of which these are the lines."""
        if is_local(self.directory):
            append(os.path.join(self.directory, f"{self.name}.jsonl"), lines)
        else:
            # Two bundles may reject the same garbage, but no two make the same estimate.
            self.store(lines if self.name == ESTIMATES else uuid.uuid4().bytes, self.name, "jsonl", lines)

    def store(self, content: bytes, name: str, suffix: str, data: bytes) -> None:
        """A file of its own, named by what it holds."""
        unique = hashlib.sha256(content).hexdigest()[:32]
        store(FileSystems.join(self.directory, f"{name}-{unique}.{suffix}"), data)


class AppendParquet(Append):
    """Estimates to Parquet: each bundle makes a file of its own."""

    def write(self, lines: bytes) -> None:
        stream = io.BytesIO()
        parquet_frame(self.waiting).write_parquet(stream)
        self.store(lines, self.name, "parquet", stream.getvalue())


class AppendTables(Append):
    """Estimates to tables: each bundle makes files of its own."""

    def __init__(self, directory: str, formats: tuple[str, ...]) -> None:
        super().__init__(directory)
        self.formats = formats

    def write(self, lines: bytes) -> None:
        for table, format, data in table_files(self.waiting, self.formats, always=("refresh",)):
            self.store(lines, table, format, data)


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
            _ = estimates | "JSON lines" >> beam.ParDo(Append(output.directory))
        if self.files and output.parquet:
            _ = estimates | "Parquet" >> beam.ParDo(AppendParquet(output.directory))
        if self.files and output.tables:
            _ = estimates | "Tables" >> beam.ParDo(AppendTables(output.directory, output.tables))
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


def need_client(key: str, module: str) -> None:
    """Beam itself would miss the client on the workers only."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{key} needs Google's clients: pip install 'aggmc-beam[gcp]'") from error


def pubsub(topic: str) -> Any:
    """The sink of a topic: one message for each estimate, in the JSON that `Estimate.from_json` reads."""
    need_client("output.pubsub", "google.cloud.pubsub_v1")
    from apache_beam.io.gcp.pubsub import WriteToPubSub

    try:
        return WriteToPubSub(topic)
    except ValueError as error:
        raise InputError(f"output.pubsub is {topic!r}, not projects/P/topics/T: {error}") from error


def bigquery(output: Output, streaming: bool, options: GoogleCloudOptions) -> Any:
    """The sink of a table. Unless the config says how, rows of a stream are streamed, others loaded."""
    need_client("output.bigquery", "google.cloud.bigquery")
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
