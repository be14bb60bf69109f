"""Flows, forecasts and alarms of a run of a config: its records once more, and the files they are written to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems

from aggmc_beam.beam.blocks import Block, join_blocks
from aggmc_beam.beam.exact import BLOCKS, NOTICED, PLACE, PLACES, SHARDS, whole_records
from aggmc_beam.beam.files import File
from aggmc_beam.beam.follow_up import ALARMS, CHANGES, FLOWS, FORECASTS, SCORES, Followed, FollowUp
from aggmc_beam.beam.outputs import outputs
from aggmc_beam.beam.pieces import ReadPieces, SplitFile
from aggmc_beam.beam.sinks import Append
from aggmc_beam.local.plan import Plan
from aggmc_beam.records import Record
from aggmc_beam.sums.records import Records

_NUMBERS = {
    FLOWS: ("mean", "lower", "upper"),
    FORECASTS: ("mean", "standard_error", "lower", "upper"),
    ALARMS: ("p_value",),
}
_TEXT = {FLOWS: ("from", "to"), FORECASTS: ("state",), ALARMS: ("state",)}
#: Names of files, as those of the local engine.
_FILES = {FLOWS: "flows", FORECASTS: "forecast", ALARMS: "alarms"}

#: The file of realizations without flows, with the reason.
WITHOUT = "without_flows"


class FollowFiles(beam.PTransform):  # type: ignore[misc]
    """Estimates of a bounded run to files of what its config asks for, `flows-00000-of-00001.parquet`."""

    def __init__(self, plan: Plan, files: list[File]) -> None:
        super().__init__()
        self.plan, self.files = plan, files

    def expand(self, estimates: Any) -> Any:
        types = {BLOCKS: tuple[int, Block], NOTICED: dict[str, int], PLACES: PLACE}
        read = (
            estimates.pipeline
            | "Files" >> beam.Create(self.files)
            | "Split" >> beam.ParDo(SplitFile(self.plan)).with_output_types(str)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> outputs(ReadPieces(self.plan, SHARDS), types)
        )
        records = (
            read[BLOCKS]
            | "Shards" >> beam.GroupByKey()
            | "Records" >> beam.MapTuple(self._records).with_output_types(Records)
        )
        found: Followed = (records, estimates) | "Tell" >> FollowUp.of_plan(self.plan)
        output = self.plan.config.output
        asked = {FLOWS: output.flows, FORECASTS: output.forecast, ALARMS: output.alarms}
        for tag, name in ((tag, name) for tag, name in _FILES.items() if asked[tag]):
            path = FileSystems.join(output.directory, name)
            _ = getattr(found, tag) | f"Write {name}" >> self._sink(tag, path, output.form)
        return found.rejected | "Write others" >> beam.ParDo(Append(output.directory, WITHOUT))

    def _records(self, shard: int, blocks: Iterable[Block]) -> Records:
        block = join_blocks(list(blocks))
        if block.state is not None:
            block = whole_records(self.plan, block, Counter())
        return block.records

    def _sink(self, tag: str, path: str, form: str) -> Any:
        schema = self._schema(tag)
        if form == "parquet":
            return beam.io.WriteToParquet(path, schema, file_name_suffix=".parquet")
        return _WriteCsv(path, schema.names)

    def _schema(self, tag: str) -> pa.Schema:
        schema = self.plan.schema
        text = (*schema.group_by, "realization")
        time = pa.string() if schema.clock.stamps else pa.int64()
        fields = [pa.field(name, pa.string()) for name in text] + [pa.field("time", time)]
        states = [pa.field(name, pa.string()) for name in _TEXT[tag]]
        numbers = [pa.field(name, pa.float64()) for name in _NUMBERS[tag]]
        if tag == ALARMS:
            return pa.schema([*fields, *numbers, *states, pa.field("rate", pa.float64())])
        return pa.schema([*fields, *states, *numbers])


class _WriteCsv(beam.PTransform):  # type: ignore[misc]
    def __init__(self, path: str, names: list[str]) -> None:
        super().__init__()
        self.path, self.names = path, names

    def expand(self, rows: Any) -> Any:
        lines = rows | "Lines" >> beam.Map(self._line).with_output_types(str)
        header = ",".join(map(_cell, self.names))
        return lines | beam.io.WriteToText(self.path, file_name_suffix=".csv", header=header)

    def _line(self, row: dict[str, Any]) -> str:
        return ",".join(_cell(row[name]) for name in self.names)


def _cell(value: Any) -> str:
    """A field of CSV.

    >>> _cell("a, b"), _cell(0.5)
    ('"a, b"', '0.5')
    """
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n\r') else text


def follow_stream(plan: Plan, records: Any, estimates: Any) -> None:
    """Of a stream, rows as JSON lines: flows, forecast, forecast_scores, alarms and changes."""
    directory = plan.config.output.directory
    single = records | "As blocks" >> beam.Map(_single).with_output_types(Records)
    found: Followed = (single, estimates) | "Follow up" >> FollowUp.of_plan(plan)
    names = {**_FILES, SCORES: "forecast_scores", CHANGES: "changes"}
    for tag, name in names.items():
        _ = getattr(found, tag) | f"Write {name}" >> beam.ParDo(Append(directory, name))
    _ = found.rejected | "Write others" >> beam.ParDo(Append(directory, WITHOUT))


def _single(record: Record) -> Records:
    one = np.zeros(1, np.int64)
    name = np.array([record.realization], object)
    population = None if record.population is None else np.array([record.population])
    return Records(one, one + record.time, record.counts[None], name, one, (record.group,), population)
