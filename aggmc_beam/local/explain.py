"""Why rows were rejected: they are read again at their place, and `read_record` tells one reason each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggmc_beam.local.batches import Batch
from aggmc_beam.local.blocks import Place, RowCounts
from aggmc_beam.local.sources import Source, reading
from aggmc_beam.local.text import Unreadable
from aggmc_beam.local.tidy import reason_of
from aggmc_beam.records import Schema
from aggmc_beam.text import redacted

CONFLICT = "its realization and time were met before, with other counts; the first record was kept"
UNKNOWN = "it cannot be read as a record"


@dataclass(frozen=True)
class Rejection:
    """A row that was not used, as it stands in its file, and why."""

    file: str
    row: int | None  #: None where rows have no numbers
    reason: str
    record: Any

    def to_dict(self) -> dict[str, Any]:
        return {
            "record": self.record,
            "reason": self.reason,
            "source": {"file": redacted(self.file), "row": self.row},
        }


def explain(sources: Sequence[Source], schema: Schema, counts: RowCounts) -> Iterator[Rejection]:
    """The rejections in order of file and row. Files without any are not read again."""
    for number, source in enumerate(sources):
        known = dict.fromkeys(_rows(counts.places, number), "")
        known |= {row: counts.reasons.get((number, row), "") for row in known}
        known |= dict.fromkeys(_rows(counts.conflicts, number), CONFLICT)
        if known:
            yield from _of_source(source, schema, known)


def _rows(places: Sequence[Place], number: int) -> list[int]:
    return [row for place in places for row in place.row[place.file == number].tolist()]


def _of_source(source: Source, schema: Schema, known: dict[int, str]) -> Iterator[Rejection]:
    wanted = np.sort(np.fromiter(known, np.int64))
    with reading(source):
        for make in source.batches(schema, list(dict.fromkeys(schema.columns))):
            batch = make()
            for i in np.flatnonzero(np.isin(batch.rows, wanted)).tolist():
                row = int(batch.rows[i])
                reason = known[row] or reason_of(batch, i, schema) or UNKNOWN
                yield Rejection(source.name, row, reason, _shown(batch, i))


def _shown(batch: Batch, i: int) -> Any:
    try:
        return _plain(batch.raw(i))
    except Unreadable as error:
        return error.shown


def _plain(value: Any) -> Any:
    """JSON-able, numbers that JSON has not as text."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
