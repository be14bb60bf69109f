"""Plain JSON lines where nothing was compiled: read as CSV with some text in its fields, nearly as fast.

Between commas, each line has the same text before and after its numbers as the first one. So it is CSV, and
JSON, as long as numbers are written as JSON writes them: with no character more than they need.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.beam.former.plaintext import NotPlain, Template
from aggmc_beam.records import MAX_BYTES

CHUNK = 16 << 20


def frames(template: Template, path: str, kinds: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
    """As `plaintext.frames`, of JSON lines."""
    if not kinds.keys() <= template.columns.keys():
        raise NotPlain("a column is missing")
    for block in _blocks(path, template.start):
        yield _read(template, block).select(pl.col(name).cast(kind) for name, kind in kinds.items())


def _blocks(path: str, start: int) -> Iterator[bytes]:
    """Whole lines, each with its end."""
    rest = b""
    with open(path, "rb") as stream:
        stream.seek(start)
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


def _read(template: Template, block: bytes) -> pl.DataFrame:
    """The columns of some lines."""
    first, *between, last = [text.decode() for text in template.around]
    closing, opening = zip(*(text.split(",", 1) for text in between), strict=True) if between else ((), ())
    around = list(zip([first, *opening], [*closing, last.rstrip("\n")], strict=True))
    lines, names = block.count(b"\n"), [str(i) for i in range(len(around))]
    kinds = {name: pl.String if any(a) else pl.Int64 for name, a in zip(names, around, strict=True)}
    table = pl.read_csv(io.BytesIO(block), has_header=False, schema=kinds, quote_char=None)
    table = table.select(_number(name, *a) for name, a in zip(names, around, strict=True))
    if table.height != lines or sum(table.null_count().row(0)):
        raise NotPlain("the lines are not alike")
    numbers = table.to_numpy()
    if _characters(numbers) != len(block) - lines * sum(map(len, template.around)):
        raise NotPlain("a number has a character too many")
    found = {
        name: _lists(numbers[:, c.first : c.stop]) if c.is_list else table[names[c.first]]
        for name, c in template.columns.items()
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
