"""Why rows were rejected: they are looked up again by their place, one reason each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.beam.former import jsonlines
from aggmc_beam.beam.former.sources import BROKEN, ROW, Source
from aggmc_beam.beam.former.survey import BATCH, batches
from aggmc_beam.records import Rejected, Schema, parse_json, read_record
from aggmc_beam.redact import redacted

CONFLICT = "its realization and time were met before, with other counts; the first record was kept"
UNKNOWN = "it cannot be read as a record"


@dataclass(frozen=True)
class Rejection:
    """A row that was not used, as it stands in its file, and why."""

    file: str
    row: int
    reason: str
    record: Any

    def to_dict(self) -> dict[str, Any]:
        return {
            "record": self.record,
            "reason": self.reason,
            "source": {"file": redacted(self.file), "row": self.row},
        }


def explain(
    sources: list[Source],
    schema: Schema,
    refused: list[np.ndarray],
    reasons: Mapping[tuple[int, int], str],
    conflicts: list[np.ndarray],
) -> Iterator[Rejection]:
    """The rejections in order of file and row. Files without any are not read again."""
    none = np.zeros((0, 2), np.int64)
    bad, repeated = np.concatenate([none, *refused]), np.concatenate([none, *conflicts])
    for number, source in enumerate(sources):
        known = {int(row): reasons.get((number, int(row)), "") for row in bad[bad[:, 0] == number, 1]}
        known |= {int(row): CONFLICT for row in repeated[repeated[:, 0] == number, 1]}
        if known:
            yield from _of_source(source, schema, known)


def _of_source(source: Source, schema: Schema, known: dict[int, str]) -> Iterator[Rejection]:
    if source.format == "jsonl":
        for row, line in jsonlines.lines(Path(source.name), set(known)):
            yield Rejection(source.name, row, known[row] or _json_reason(line, schema), _json(line))
        return
    columns = list(dict.fromkeys(schema.columns))
    rows = pl.Series(ROW, sorted(known), pl.UInt32)
    wanted = source.scan(columns).filter(pl.col(ROW).is_in(rows.implode()))
    for batch in batches(wanted, BATCH):
        for record in batch.iter_rows(named=True):
            row, broken = int(record.pop(ROW)), record.pop(BROKEN)
            reason = known[row] or (
                "it has more fields than the header" if broken else _reason(record, schema)
            )
            yield Rejection(source.name, row, reason, {k: _plain(v) for k, v in record.items()})


def _reason(record: Mapping[str, Any], schema: Schema) -> str:
    try:
        read_record(record, schema)
    except Rejected as error:
        return str(error)
    return UNKNOWN


def _json_reason(line: bytes, schema: Schema) -> str:
    try:
        return _reason(parse_json(line), schema)
    except Rejected as error:
        return str(error)


def _json(line: bytes) -> Any:
    try:
        return _plain(parse_json(line))
    except Rejected:
        return line.decode(errors="replace")[:1000]


def _plain(value: Any) -> Any:
    """JSON-able, numbers that JSON has not as text."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
