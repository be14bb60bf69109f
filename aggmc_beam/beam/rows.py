"""What arrives in a pipeline, as plain rows: one function for every type that sources of Beam hand over."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import apache_beam as beam
import numpy as np
from apache_beam.utils.timestamp import Timestamp

from aggmc_beam.records import Rejected, parse_json, read_json, shortened

#: Types of values that need no change.
PLAIN = frozenset({int, float, str, bool, type(None), date})


def rows(element: Any) -> Iterator[Mapping[str, Any] | Rejected]:
    """The rows in an element: a dictionary, a Beam row, a named tuple, a dataclass, JSON text with a record or
    an array of them, a Pub/Sub message, or a (key, record) pair, of which the key is left out.

    >>> list(rows(("a key", b'{"time": 3}')))
    [{'time': 3}]
    >>> [str(row) for row in rows(7)]
    ['it is a int, not a record']
    """
    if isinstance(element, bytes | str):
        yield from _json_rows(element)
    elif isinstance(element, Mapping):
        yield element
    elif isinstance(element, beam.Row):
        yield from _fields(element.as_dict())
    elif hasattr(element, "_asdict"):
        yield from _fields(element._asdict())
    elif dataclasses.is_dataclass(element) and not isinstance(element, type):
        yield {f.name: getattr(element, f.name) for f in dataclasses.fields(element)}
    elif type(element) is tuple and len(element) == 2:
        yield from rows(element[1])
    elif isinstance(getattr(element, "data", None), bytes) and hasattr(element, "attributes"):
        yield from _json_rows(element.data)
    else:
        yield Rejected(f"it is a {type(element).__name__}, not a record")


def _fields(row: dict[str, Any]) -> Iterator[Mapping[str, Any] | Rejected]:
    """A row; one with nothing but bytes, as Kafka and Pub/Sub hand over in the format RAW, holds JSON."""
    values = list(row.values())
    if len(values) == 1 and isinstance(values[0], bytes):
        yield from _json_rows(values[0])
    else:
        yield row


def _json_rows(text: bytes | str) -> Iterator[Mapping[str, Any] | Rejected]:
    try:
        if text[:1] not in (b"[", "["):
            yield parse_json(text)
            return
        found = read_json(text)
    except Rejected as error:
        yield error
        return
    for row in found:
        yield row if isinstance(row, dict) else Rejected(f"{shortened(row)} is not a JSON object")


def plain_row(row: Mapping[str, Any], columns: list[str]) -> dict[str, Any]:
    """The columns of a row that matter, as values of plain Python."""
    return {c: plain_value(row[c]) for c in columns if c in row}


def plain_value(value: Any) -> Any:
    """A value as plain Python has it: scalars of numpy and Arrow, times of Beam, bytes that are text.

    >>> plain_value(Timestamp(3600)), plain_value(np.int16(7)), plain_value(b"north"), plain_value(Decimal("5.0"))
    (datetime.datetime(1970, 1, 1, 1, 0, tzinfo=datetime.timezone.utc), 7, 'north', 5)
    """
    if type(value) in PLAIN:
        return value
    if type(value) is list and PLAIN.issuperset(map(type, value)):
        return value
    if isinstance(value, list | tuple):
        return [plain_value(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.kind in "iufb" else [plain_value(v) for v in value]
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else value
    if isinstance(value, datetime):
        return value if value.tzinfo is None else value.astimezone(timezone.utc)
    if isinstance(value, Timestamp):
        moment = _moment(value.micros)
        return moment if isinstance(moment, str) else moment.replace(tzinfo=timezone.utc)
    if isinstance(value, np.datetime64):
        return _moment(int(value.astype("datetime64[us]").astype(np.int64)))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="surrogateescape")
    if isinstance(value, UUID):
        return str(value)
    if hasattr(value, "as_py"):
        return plain_value(value.as_py())
    return value


def _moment(micros: int) -> Any:
    try:
        return datetime(1970, 1, 1) + timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} microseconds since 1970"
