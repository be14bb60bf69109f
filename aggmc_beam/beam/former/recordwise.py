"""Whether the rows of a long table come record by record, with the same states in the same order in each.

Columns are looked at as they lie in memory, chunk by chunk. `over` is a map that may run its calls at once.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import polars as pl

from aggmc_beam.native import compiled
from aggmc_beam.panelsums import Map


def by_stretch(column: pl.Series, size: int, over: Map = map) -> pl.Series | None:
    """The value of each stretch of `size` rows; None if some stretch has several.

    >>> by_stretch(pl.Series([7, 7, 8, 8]), 2).to_list(), by_stretch(pl.Series([7, 8, 8, 8]), 2)
    ([7, 8], None)
    """
    if not column.dtype.is_numeric() or column.null_count() or not len(column):
        first = column.gather_every(size)
        at_ends = first.eq_missing(column.gather_every(size, size - 1)).all()
        return first if at_ends and _changes(column) == _changes(first) else None
    parts = [chunk.to_numpy() for chunk in column.get_chunks()]
    starts = list(accumulate((len(part) for part in parts), initial=0))[:-1]
    joints = zip(starts[1:], parts, parts[1:], strict=False)
    if any(start % size and before[-1] != after[0] for start, before, after in joints):
        return None

    def firsts(at: int) -> np.ndarray | None:
        part, skip = parts[at], -starts[at] % size
        if compiled is not None and part.dtype.kind == "i":
            found, rest = np.empty(-(-max(len(part) - skip, 0) // size), part.dtype), part[:skip]
            is_one = compiled.firsts(part[skip:], size, found) and bool((rest == rest[:1]).all())
            return found if is_one else None
        changed = part[1:] != part[:-1]
        # Where a stretch begins, it may.
        changed[(skip - 1) % size :: size] = False
        return None if changed.any() else part[skip::size].copy()

    found = [first for first in over(firsts, range(len(parts))) if first is not None]
    return pl.Series(column.name, np.concatenate(found)) if len(found) == len(parts) else None


def _changes(column: pl.Series) -> int:
    """How often a value is another one than that before it."""
    return int(column.ne_missing(column.shift(1)).slice(1).sum())


def repeats(column: pl.Series, size: int, over: Map = map) -> bool:
    """Whether the texts of the first `size` rows come again and again, in order.

    >>> repeats(pl.Series(["a", "b", "a", "b"]), 2), repeats(pl.Series(["a", "b", "b", "a"]), 2)
    (True, False)
    """
    if column.null_count() or column.dtype != pl.String:
        return bool(column.eq_missing(column.shift(size)).slice(size).all())
    chunks, first = column.get_chunks(), column.head(size).to_list()
    starts = list(accumulate((len(chunk) for chunk in chunks), initial=0))[:-1]

    def fits(at: int) -> bool:
        turn, chunk = starts[at] % size, chunks[at]
        expected = (first[turn:] + first[:turn])[: len(chunk)]
        return chunk.head(size).to_list() == expected and _comes_again(chunk, size)

    return all(over(fits, range(len(chunks))))


def _comes_again(chunk: pl.Series, size: int) -> bool:
    """Whether each text is that of `size` rows before.

    Arrow has 16 bytes for each text: the text itself, or where it is. So equal bytes are equal texts; texts
    that are not equal by their bytes are looked up."""
    array = chunk.to_arrow(compat_level=pl.CompatLevel.newest())
    views = array.buffers()[1]
    if views is not None and str(array.type) == "string_view":
        pairs = np.frombuffer(views, np.uint64)[2 * array.offset : 2 * (array.offset + len(array))]
        if compiled is not None:
            is_same = compiled.repeats(pairs, 16 * size)
        else:
            is_same = np.array_equal(pairs[2 * size :], pairs[: -2 * size])
        if is_same:
            return True
    return bool((chunk == chunk.shift(size)).slice(size).all())
