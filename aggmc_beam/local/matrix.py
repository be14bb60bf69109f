"""Columns of a frame side by side: one array, row by row, in few bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from aggmc_beam.panel import compact, narrowest
from aggmc_beam.panelsums import Map

#: Up to so many columns are written one by one; more are written faster out of one array.
NARROW = 32
#: Rows of them that are written at once: long enough for threads not to wait for each other.
ROWS = 1 << 16


def matrix(frame: pl.DataFrame, columns: list[str], over: Map = map) -> np.ndarray:
    """[n, S]: the values of the columns, NaN for nulls. Whole numbers are in as few bytes as hold them all.
    `over` may run its calls at once.

    >>> found = matrix(pl.DataFrame({"a": [1, 2], "b": [3, 40_000]}), ["a", "b"])
    >>> found.tolist(), found.dtype.name
    ([[1, 3], [2, 40000]], 'int32')
    """
    found = frame.select(columns)
    if not all(kind.is_integer() for kind in found.dtypes) or any(c.null_count() for c in found):
        return found.to_numpy()
    if len(columns) > NARROW or not found.height:
        return compact(found.to_numpy(), over)
    pieces = [piece for chunk in _chunks(found) for piece in _pieces(chunk)]
    starts = np.cumsum([0, *(len(piece[0]) for piece in pieces)]).tolist()

    def written(dtype: np.dtype[np.generic], limits: tuple[int, int] | None) -> np.ndarray | None:
        out = np.empty(found.shape, dtype)

        def write(at: int) -> bool:
            rows = out[starts[at] : starts[at + 1]]
            for i, column in enumerate(pieces[at]):
                if limits is not None and (column.min() < limits[0] or column.max() > limits[1]):
                    return False
                rows[:, i] = column
            return True

        return out if all(over(write, range(len(pieces)))) else None

    return narrowest(np.result_type(*(column.dtype for column in pieces[0])), written)


def _chunks(frame: pl.DataFrame) -> Iterator[list[np.ndarray]]:
    """The columns of each chunk, as they lie in memory."""
    lengths = {tuple(column.chunk_lengths()) for column in frame}
    frame = frame if len(lengths) == 1 else frame.rechunk()
    for chunks in zip(*(column.get_chunks() for column in frame), strict=True):
        yield [chunk.to_numpy() for chunk in chunks]


def _pieces(columns: list[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """The same rows, not more than `ROWS` at once."""
    for start in range(0, len(columns[0]), ROWS):
        yield [column[start : start + ROWS] for column in columns]
