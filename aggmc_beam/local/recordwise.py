"""Whether the rows of a long table come record by record, with the same states in the same order in each.

Columns are looked at as they lie in memory, chunk by chunk. `over` is a map that may run its calls at once.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import polars as pl

from aggmc_beam.panelsums import Map


def is_constant(column: pl.Series, size: int, over: Map = map) -> bool:
    """Whether there is one value all over each stretch of `size` rows.

    >>> is_constant(pl.Series([7, 7, 8, 8]), 2), is_constant(pl.Series([7, 8, 8, 8]), 2)
    (True, False)
    """
    if not column.dtype.is_numeric() or column.null_count():
        first = column.gather_every(size)
        at_ends = first.eq_missing(column.gather_every(size, size - 1)).all()
        return bool(at_ends) and _changes(column) == _changes(first)
    parts, starts = _parts(column)

    def within(at: int) -> bool:
        part = parts[at]
        changed = part[1:] != part[:-1]
        # Where a stretch begins, it may.
        changed[(-starts[at] - 1) % size :: size] = False
        return not changed.any()

    joints = zip(starts[1:], parts, parts[1:], strict=False)
    if any(start % size and before[-1] != after[0] for start, before, after in joints):
        return False
    return all(over(within, range(len(parts))))


def every(column: pl.Series, size: int) -> pl.Series:
    """The first value of each stretch of `size` rows.

    >>> every(pl.Series([7, 7, 8, 8]), 2).to_list()
    [7, 8]
    """
    if not column.dtype.is_integer() or column.null_count():
        return column.gather_every(size)
    # Much faster than Polars where there are many chunks.
    picked = (part[-start % size :: size] for part, start in zip(*_parts(column), strict=True))
    return pl.Series(column.name, np.concatenate(list(picked)))


def _parts(column: pl.Series) -> tuple[list[np.ndarray], list[int]]:
    """The values of each chunk as they lie in memory, and the row of the first one."""
    parts = [chunk.to_numpy() for chunk in column.get_chunks()]
    return parts, list(accumulate((len(part) for part in parts), initial=0))[:-1]


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
        if np.array_equal(pairs[2 * size :], pairs[: -2 * size]):
            return True
    return bool((chunk == chunk.shift(size)).slice(size).all())
