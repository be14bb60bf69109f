"""Counts out of a frame's columns as one array [n, S], whole numbers in as few bytes as hold them all.

Columns are read as they lie in memory, chunk by chunk, on all cores: joining chunks first would take as long.
`over` is a map that may run its calls at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.beam.former.narrow import fitted, narrowest
from aggmc_beam.beam.former.threads import Map

#: Without compiled loops, up to so many columns are made compact as they are copied.
NARROW = 32
#: Values of a column that are written at once: enough for threads not to wait for each other.
PIECE = 1 << 16
#: Fewer values are written sooner than threads begin to.
MANY = 1 << 18

#: Where to write, and what.
Piece = tuple[Any, np.ndarray]


def side_by_side(frame: pl.DataFrame, columns: list[str], over: Map = map) -> np.ndarray:
    """The values of several columns, NaN for nulls.

    >>> found = side_by_side(pl.DataFrame({"a": [1, 2], "b": [3, 40_000]}), ["a", "b"])
    >>> found.tolist(), found.dtype.name
    ([[1, 3], [2, 40000]], 'int32')
    """
    found = frame[columns]
    are_whole = all(_is_whole(column) for column in found)
    if not are_whole and not all(column.dtype.is_numeric() and not column.null_count() for column in found):
        return found.to_numpy()
    if not are_whole:
        # Column by column, as they are summed.
        blocks: Any = [
            [(np.s_[i, start : start + len(part)], part)]
            for i, column in enumerate(found)
            for start, part in _parts(_arrays(column), PIECE)
        ]
        return _written(found.shape[::-1], blocks, over, are_whole).T
    if len(columns) > NARROW:
        return found.to_numpy()
    found = found if len({tuple(column.chunk_lengths()) for column in found}) == 1 else found.rechunk()
    blocks = [
        [(np.s_[start : start + len(part), i], part) for i, (start, part) in enumerate(parts)]
        for parts in zip(*(_parts(_arrays(column), PIECE) for column in found), strict=True)
    ]
    return _written(found.shape, blocks, over)


def of_lists(column: pl.Series, S: int, over: Map = map) -> np.ndarray | None:
    """The values of lists; None if not all of them are S whole numbers.

    >>> of_lists(pl.Series([[1, 2, 3], [4, 5, 6]]), 3).tolist(), of_lists(pl.Series([[1, 2], [3]]), 2)
    ([[1, 2, 3], [4, 5, 6]], None)
    """
    if not isinstance(column.dtype, pl.List) or not column.dtype.inner.is_integer() or column.null_count():
        return None
    try:
        arrays = [chunk.list.to_array(S).to_numpy() for chunk in column.get_chunks()]
    except pl.exceptions.ComputeError:  # another length
        return None
    if any(array.dtype.kind not in "iu" for array in arrays):  # nulls
        return None
    return _joined((len(column), S), arrays, max(1, PIECE // S), over)


def of_rows(column: pl.Series, S: int, over: Map = map) -> np.ndarray | None:
    """The values of a column, S of them in each row; None if not all are whole numbers.

    >>> of_rows(pl.Series([1, 2, 3, 4]), 2).tolist()
    [[1, 2], [3, 4]]
    """
    if not _is_whole(column):
        return None
    return _joined((len(column),), _arrays(column), PIECE, over).reshape(-1, S)


def in_one(column: pl.Series, over: Map = map) -> np.ndarray:
    """The numbers of a column, where they lie if it has one chunk.

    >>> in_one(pl.concat([pl.Series([1, 2]), pl.Series([3])], rechunk=False)).tolist()
    [1, 2, 3]
    """
    if column.n_chunks() == 1 or not _is_whole(column):
        return column.to_numpy()
    arrays = _arrays(column)
    out = np.empty(len(column), arrays[0].dtype)

    def write(piece: tuple[int, np.ndarray]) -> None:
        start, part = piece
        out[start : start + len(part)] = part

    for _ in _worth(over, out)(write, _parts(arrays, PIECE)):
        pass
    return out


def _worth(over: Map, out: np.ndarray) -> Map:
    """The map to write an array with."""
    return over if out.size >= MANY else map


def _is_whole(column: pl.Series) -> bool:
    return column.dtype.is_integer() and not column.null_count() and len(column) > 0


def _arrays(column: pl.Series) -> list[np.ndarray]:
    """The values of each chunk, as they lie in memory."""
    return [chunk.to_numpy() for chunk in column.get_chunks()]


def _parts(arrays: list[np.ndarray], most: int) -> list[tuple[int, np.ndarray]]:
    """The same values, not more than so many at once, with the place of the first."""
    found, place = [], 0
    for array in arrays:
        found += [(place + a, array[a : a + most]) for a in range(0, len(array), most)]
        place += len(array)
    return found


def _joined(shape: tuple[int, ...], arrays: list[np.ndarray], most: int, over: Map) -> np.ndarray:
    """One after the other; without a copy if they are in one array, and few bytes."""
    if len(arrays) == 1 and arrays[0].dtype == np.int16:
        return arrays[0]
    parts = _parts(arrays, most)
    return _written(shape, [[(np.s_[start : start + len(part)], part)] for start, part in parts], over)


def _written(
    shape: tuple[int, ...], blocks: list[list[Piece]], over: Map, are_whole: bool = True
) -> np.ndarray:
    """All pieces of all blocks where they belong, whole numbers in as few bytes as hold them."""

    def written(dtype: np.dtype[Any], checked: bool) -> np.ndarray | None:
        out = np.empty(shape, dtype)

        def write(block: list[Piece]) -> bool:
            for place, part in block:
                if not checked:
                    out[place] = part
                elif not fitted(part, out[place]):
                    return False
            return True

        return out if all(_worth(over, out)(write, blocks)) else None

    if not are_whole:
        found = written(np.dtype(np.float64), False)
        assert found is not None
        return found
    kinds = {part.dtype for block in blocks for _, part in block}
    return narrowest(np.result_type(*kinds, np.int16), written)
