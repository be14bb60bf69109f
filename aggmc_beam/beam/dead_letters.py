"""Dead letters: what is set aside, with the reason, in a form that any coder and sink can write."""

import json
from typing import Any, NamedTuple, Optional

import apache_beam as beam

from aggmc_beam.beam.rows import plain_value, rows
from aggmc_beam.records import Rejected

#: Longest payload that is kept, in characters.
MAX_PAYLOAD = 1000


class RejectedRow(NamedTuple):
    """A dead letter as a row that Beam knows the schema of. `record` is text, or JSON of what was no text; `file` and
    `row` tell where a row of a file stands."""

    record: str
    reason: str
    file: Optional[str]  # noqa: UP045
    row: Optional[int]  # noqa: UP045


def rejected_row(rejected: dict[str, Any]) -> RejectedRow:
    """An element of `.rejected` as a row.

    >>> rejected_row({"record": {"time": 3}, "reason": "realization is missing", "source": None}).record
    '{"time": 3}'
    """
    record, source = rejected["record"], rejected["source"] or {}
    text = record if isinstance(record, str) else json.dumps(record, default=str, ensure_ascii=False)
    return RejectedRow(writable(text), str(rejected["reason"]), source.get("file"), source.get("row"))


class WithErrorHandler(beam.PTransform):  # type: ignore[misc]
    """A transform whose dead letters may also go to an `ErrorHandler` of Beam, as `RejectedRow`s."""

    _handler: Any = None

    def with_error_handler(self, handler: Any) -> Any:
        """Give dead letters to `handler` too; None gives them to nobody else."""
        self._handler = handler
        return self

    def _handed_over(self, rejected: Any) -> Any:
        """The dead letters, which the handler has been given if there is one."""
        if self._handler is not None:
            rows = rejected | "Rejected rows" >> beam.Map(rejected_row).with_output_types(RejectedRow)
            self._handler.add_error_pcollection(rows)
        return rejected


def rejection(element: Any, reason: str) -> dict[str, Any]:
    """An element as `.rejected` has it."""
    return {"record": writable(payload(element)), "reason": writable(reason), "source": None}


def payload(element: Any) -> Any:
    """What arrived: JSON-able and not longer than `MAX_PAYLOAD`. Bytes that are no text stand as escapes.

    >>> payload(b"a\\xed\\xa0\\x80")
    'a\\\\xed\\\\xa0\\\\x80'
    """
    data = getattr(element, "data", None)
    if isinstance(data, bytes) and hasattr(element, "attributes"):
        element = data
    if isinstance(element, bytes):
        return element[:MAX_PAYLOAD].decode(errors="backslashreplace")[:MAX_PAYLOAD]
    if isinstance(element, str):
        return element[:MAX_PAYLOAD]
    plain: Any = next(iter(rows(element)), element)
    plain = element if isinstance(plain, Rejected) else {str(k): plain_value(v) for k, v in plain.items()}
    try:
        text = json.dumps(plain, default=str, ensure_ascii=False, allow_nan=False)
    except ValueError:  # NaN is no JSON; such a record is kept as text
        return json.dumps(plain, default=str, ensure_ascii=False)[:MAX_PAYLOAD]
    return json.loads(text) if len(text) <= MAX_PAYLOAD else text[:MAX_PAYLOAD]


def writable(value: Any) -> Any:
    """Plain values whose text is valid Unicode: an unpaired surrogate stands as its escape.

    >>> writable({"name": "a\\ud800"})
    {'name': 'a\\\\ud800'}
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {writable(k): writable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [writable(v) for v in value]
    return value
