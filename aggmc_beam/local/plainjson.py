"""JSON lines that differ in nothing but whole numbers, as counts are mostly written: nearly as fast as CSV.

Between commas, each line has the same text before and after its numbers as the first one. So it is CSV, and
JSON, as long as numbers are written as JSON writes them: with no character more than they need.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.records import MAX_BYTES, Rejected, parse_json

CHUNK = 16 << 20
#: What is before a number, the number, and what closes it.
_FIELD = re.compile(rb"(.*?)(-?[0-9]+)([\]} ]*)", re.DOTALL)


class NotPlain(pl.exceptions.PolarsError):
    """The lines are not as plain as that; they may be good nevertheless."""


def frames(path: Path, kinds: dict[str, Any]) -> Iterator[pl.DataFrame]:
    """The columns `kinds` of all lines, whole numbers where they can be; `NotPlain` if some line is not like
    the first one, or has a number that JSON does not know."""
    template = None
    for block in _blocks(path):
        template = template or _Template.of(block[: block.index(b"\n")])
        if not kinds.keys() <= template.columns.keys():
            raise NotPlain("a column is missing")
        yield template.read(block).select(pl.col(name).cast(kind) for name, kind in kinds.items())


def _blocks(path: Path) -> Iterator[bytes]:
    """Whole lines, each with its end."""
    rest = b""
    with open(path, "rb") as stream:
        if stream.read(3) != b"\xef\xbb\xbf":
            stream.seek(0)
        while data := stream.read(CHUNK):
            cut = data.rfind(b"\n") + 1
            if cut:
                yield rest + data[:cut]
                rest = b""
            rest += data[cut:]
            if len(rest) > MAX_BYTES:
                raise NotPlain("a line is very long")
    if rest:
        yield rest + b"\n"


@dataclass(frozen=True)
class _Template:
    """`around` tells what is before and after each number of a line, `columns` where the numbers of each name
    are: at one place, or between two."""

    around: list[tuple[str, str]]
    columns: dict[str, int | tuple[int, int]]

    @classmethod
    def of(cls, line: bytes) -> _Template:
        try:
            row = parse_json(line)
        except Rejected:
            raise NotPlain("the first line is broken") from None
        fields = [_FIELD.fullmatch(field) for field in line.split(b",")]
        columns: dict[str, int | tuple[int, int]] = {}
        at, whole = 0, True
        for name, value in row.items():
            is_list = isinstance(value, list)
            whole &= {int}.issuperset(map(type, value if is_list else [value]))
            columns[name] = (at, at + len(value)) if is_list else at
            at += len(value) if is_list else 1
        # With a comma in a name, or a name twice, there are more fields.
        if not whole or at != len(fields) or not all(fields):
            raise NotPlain("there is more than whole numbers")
        return cls([(f[1].decode(), f[3].decode()) for f in fields if f], columns)

    def read(self, block: bytes) -> pl.DataFrame:
        """The columns of some lines."""
        lines, names = block.count(b"\n"), [str(i) for i in range(len(self.around))]
        kinds = {name: pl.String if any(a) else pl.Int64 for name, a in zip(names, self.around, strict=True)}
        table = pl.read_csv(io.BytesIO(block), has_header=False, schema=kinds, quote_char=None)
        table = table.select(_number(name, *a) for name, a in zip(names, self.around, strict=True))
        if table.height != lines or sum(table.null_count().row(0)):
            raise NotPlain("the lines are not alike")
        numbers = table.to_numpy()
        between = sum(len(before.encode()) + len(after) + 1 for before, after in self.around)
        if _characters(numbers) != len(block) - lines * between:
            raise NotPlain("a number has a character too many")
        found = {
            name: table[names[at]] if isinstance(at, int) else _lists(numbers[:, slice(*at)])
            for name, at in self.columns.items()
        }
        return pl.DataFrame(found)


def _number(name: str, before: str, after: str) -> pl.Expr:
    """The number in a column of text; null if the text around it is another."""
    text = pl.col(name)
    if not before and not after:
        return text
    fits = text.str.starts_with(before) & text.str.ends_with(after)
    inner = text.str.strip_prefix(before).str.strip_suffix(after)
    return pl.when(fits).then(inner).cast(pl.Int64, strict=False)


def _characters(numbers: np.ndarray) -> int:
    """How many it takes to write them."""
    below = int(np.count_nonzero(numbers < 0))
    size = np.abs(numbers) if below else numbers
    total, power, most = numbers.size + below, 10, int(size.max(initial=0))
    while power <= most:
        total += int(np.count_nonzero(size >= power))
        power *= 10
    return total


def _lists(numbers: np.ndarray) -> pl.Series:
    return pl.Series(np.ascontiguousarray(numbers)).arr.to_list()
