"""Where rows of CSV begin and end, also in files with quotation marks that are astray.

A row is a line, unless a field within quotation marks goes on over several. A mark that is opened and not closed, or
over lines that are rows by themselves, costs its own line only: it is rejected, and reading goes on at the next.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Lines that a field may have.
MAX_LINES = 100
QUOTE, LINE = b'"', b"\n"
ASTRAY = "a quotation mark is opened and not closed"
NO_FIELDS = "it cannot be taken apart into fields"


@dataclass(frozen=True)
class Row:
    """A row that begins at a line, counted from 0, and has so many; its fields, or why it has none."""

    at: int
    lines: int
    fields: list[str] | None
    reason: str = ""


def split(line: bytes, separator: str) -> list[str] | None:
    """The fields of one line; None if one is open at its end.

    >>> split(b'1,"a, b",2', ","), split(b'1,"a', ",")
    (['1', 'a, b', '2'], None)
    """
    return _split([line], separator, strict=False)


def _split(lines: Sequence[bytes], separator: str, strict: bool) -> list[str] | None:
    text = [line.decode(errors="replace") + "\n" for line in lines]
    # An open field takes the last line, too.
    reader = csv.reader([*text, "end"], delimiter=separator, strict=strict, skipinitialspace=separator != " ")
    rows = list(reader)
    return rows[0] if len(rows) == 2 and rows[1] == ["end"] else ([] if text == ["\n"] else None)


def find_rows(
    lines: Sequence[bytes],
    odd: Sequence[int],
    separator: str,
    width: int,
    used: Sequence[int],
    is_last: bool = True,
) -> tuple[list[Row], int | None]:
    """The rows that begin at the `odd` lines, which have quotation marks other than around whole fields; and the line
    from which a field is open, if more lines may close it (None if all are closed, or `is_last`).

    `used` are the fields that records are made of, which have no line ends in them.

    >>> rows, _ = find_rows([b'1,"a', b'2,b', b'3,"c', b'd"'], [0, 2, 3], ",", 2, [0])
    >>> [(row.at, row.lines, row.fields) for row in rows]
    [(0, 1, None), (2, 2, ['3', 'c\\nd'])]
    """
    found: list[Row] = []
    after = 0
    for at in odd:
        if at < after:
            continue
        try:
            fields = split(lines[at], separator)
        except csv.Error:
            found.append(Row(at, 1, None, NO_FIELDS))
            continue
        if fields is not None:
            found.append(Row(at, 1, fields))
            continue
        row, is_open = _joined(lines, at, separator, width, used)
        if is_open and not is_last:
            return found, at
        found.append(row)
        after = at + row.lines
    return found, None


def _joined(
    lines: Sequence[bytes], at: int, separator: str, width: int, used: Sequence[int]
) -> tuple[Row, bool]:
    """The row of a line at whose end a field is open; and whether the lines end before it can be told."""
    alone = Row(at, 1, None, ASTRAY)
    for end in range(at + 1, min(at + MAX_LINES, len(lines))):
        marks = lines[end].count(QUOTE)
        if marks % 2 == 0:
            if (
                lines[end].count(separator.encode()) >= width - 1
                and len(_quiet(lines[end], separator)) == width
            ):
                return alone, False
            continue
        try:
            fields = _split(lines[at : end + 1], separator, strict=True)
        except csv.Error:
            return alone, False
        if fields is None:
            continue
        if any("\n" in fields[i].rstrip("\n") for i in used if i < len(fields)):
            return alone, False
        is_row = len(_quiet(lines[end], separator)) >= width and "\n" not in fields[0]
        return (alone if is_row else Row(at, end + 1 - at, fields)), False
    return alone, len(lines) - at < MAX_LINES


def _quiet(line: bytes, separator: str) -> list[str]:
    try:
        return split(line, separator) or []
    except csv.Error:
        return []


def odd_lines(data: bytes, separator: str) -> np.ndarray:
    """The lines that have quotation marks other than around whole fields.

    >>> odd_lines(b'1,"a, b"\\n2,a"b\\n"3","', ",").tolist()
    [1, 2]
    """
    marks = np.frombuffer(data, np.uint8)
    at = np.flatnonzero(marks == QUOTE[0])
    ends = np.flatnonzero(marks == LINE[0])
    bounds = np.zeros(256, bool)
    bounds[[LINE[0], ord("\r"), separator.encode()[0]]] = True
    before, after = bounds[marks[at - 1]], bounds[marks[np.minimum(at + 1, len(marks) - 1)]]
    before[at == 0] = after[at == len(marks) - 1] = True
    if (
        before[::2].all()
        and after[1::2].all()
        and len(at) % 2 == 0
        and not (np.searchsorted(at, ends) % 2).any()
    ):
        return np.zeros(0, np.int64)
    line = np.searchsorted(ends, at)
    _, first, number = np.unique(line, return_index=True, return_counts=True)
    opens = (np.arange(len(at)) - np.repeat(first, number)) % 2 == 0
    wrong = np.where(opens, ~before, ~after) | np.repeat(number % 2 == 1, number)
    return np.unique(line[wrong])
