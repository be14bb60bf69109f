"""What a Parquet file says of itself at its end, as Arrow tells it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import polars as pl

#: Smaller files are not worth the import of Arrow.
LARGE = 4 << 20
#: What holds whole numbers that nothing is known of, if they fit.
_UNKNOWN = pl.Int32()


class NotArrow(pl.exceptions.PolarsError):
    """Arrow cannot read the file, or is not there; Polars may."""


@contextmanager
def arrow() -> Iterator[Any]:
    """Arrow's reader of Parquet, whose errors are `NotArrow`."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise NotArrow("Arrow is not installed") from None
    try:
        yield pq
    except (pa.ArrowException, OSError) as error:
        raise NotArrow(str(error)) from None


def rows_of(about: Any) -> list[int]:
    """How many rows each row group has."""
    return [about.row_group(i).num_rows for i in range(about.num_row_groups)]


def whole_kind(path: str, column: str) -> pl.DataType:
    """The type of fewest bytes that holds all whole numbers which a file says are in a column, or in its
    lists; one that may be too narrow where it says nothing, or they are very large."""
    with arrow() as pq:
        about = pq.read_metadata(path)
        groups = [about.row_group(i) for i in range(about.num_row_groups)]
        parts = [group.column(i) for group in groups for i in range(group.num_columns)]
        found = [part.statistics for part in parts if part.path_in_schema.split(".")[0] == column]
    if not found or not all(part is not None and part.has_min_max for part in found):
        return _UNKNOWN
    low, high = min(part.min for part in found), max(part.max for part in found)
    return pl.Int16() if -(1 << 15) <= low and high < 1 << 15 else _UNKNOWN
