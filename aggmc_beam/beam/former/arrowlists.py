"""Lists out of Parquet files by way of Arrow, which takes less time for them than Polars.

Row groups are read on all cores, some rows at a time, and counts are made compact while they are in a core's
cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.beam.former.footer import NotArrow, arrow, rows_of, whole_kind
from aggmc_beam.beam.former.threads import on_all_cores
from aggmc_beam.narrow import fitted

#: Counts that are read at once.
TOGETHER = 1 << 17


def is_for_lists(columns: Mapping[str, Any]) -> bool:
    """Whether these are columns that Arrow reads quicker: one of lists of whole numbers among them."""
    lists = [kind.inner for kind in columns.values() if isinstance(kind, pl.List)]
    # With a point in its name, Arrow would look for a column within a column.
    return len(lists) == 1 and lists[0].is_integer() and not any("." in name for name in columns)


def kind_of(path: str, column: str, size: int) -> pl.Array:
    """What `frames` makes of lists: arrays of `size` numbers."""
    return pl.Array(whole_kind(path, column), size)


def frames(path: str, kinds: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
    """The columns `kinds` of a file at once; those that are to be arrays are lists there. `NotArrow` if that
    cannot be."""
    with arrow() as pq:
        about = pq.read_metadata(path)
        if not about.num_row_groups:
            raise NotArrow(f"{path} has no rows")
        starts = np.cumsum([0, *rows_of(about)])
        arrays = {name: _space(about.num_rows, kind) for name, kind in kinds.items() if _is_whole(kind)}

        def read(group: int) -> pl.DataFrame:
            with pq.ParquetFile(path, metadata=about) as file:
                for name, array in arrays.items():
                    write = _write_counts if array.ndim == 2 else _write_numbers
                    write(file, group, name, array[starts[group] : starts[group + 1]])
                rest = [name for name in kinds if name not in arrays]
                return pl.DataFrame(file.read_row_group(group, rest, use_threads=False) if rest else None)

        others = pl.concat(on_all_cores(read, range(about.num_row_groups)), rechunk=True)
    found = pl.DataFrame([pl.Series(name, array) for name, array in arrays.items()])
    found = found.hstack(others) if others.width else found
    yield found.select(pl.col(name).cast(kind) for name, kind in kinds.items())


def _is_whole(kind: Any) -> bool:
    return isinstance(kind, pl.Array) or kind.is_integer()


def _space(rows: int, kind: Any) -> np.ndarray:
    """Memory for the numbers of a column, to which all cores write: one after the other would take longer."""
    shape, inner = ((rows, kind.size), kind.inner) if isinstance(kind, pl.Array) else (rows, kind)
    return np.empty(shape, str(inner).lower())


def _write_numbers(file: Any, group: int, name: str, numbers: np.ndarray) -> None:
    """Write the numbers [rows] of a row group; `NotArrow` if some are missing."""
    column = file.read_row_group(group, [name], use_threads=False).column(0)
    if column.null_count:
        raise NotArrow(f"something is missing in {name!r}")
    numbers[:] = column


def _write_counts(file: Any, group: int, name: str, counts: np.ndarray) -> None:
    """Write the counts [rows, S] of a row group's lists; `NotArrow` if not all lists are S whole numbers that
    fit."""
    S, done = counts.shape[1], 0
    for batch in file.iter_batches(max(1, TOGETHER // S), [group], [name], use_threads=False):
        lists = batch.column(0)
        stop = done + len(lists)
        offsets = np.asarray(lists.offsets)
        if lists.null_count or (np.diff(offsets) != S).any():
            raise NotArrow(f"some lists do not have {S} numbers")
        values = lists.values.slice(int(offsets[0]), len(lists) * S)
        if values.null_count or not fitted(np.asarray(values), counts[done:stop].reshape(-1)):
            raise NotArrow(f"some numbers are missing, or do not fit into {counts.dtype}")
        done = stop
