"""Lists out of Parquet files by way of Arrow, which takes half of the time that Polars does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

#: Smaller files are not worth the import.
LARGE = 4 << 20


class NotArrow(pl.exceptions.PolarsError):
    """Arrow cannot read the file, or is not there; Polars may."""


def is_for_lists(columns: Mapping[str, Any]) -> bool:
    """Whether these are columns that Arrow reads quicker, lists of whole numbers among them."""
    lists = [kind.inner for kind in columns.values() if isinstance(kind, pl.List)]
    # With a point in its name, Arrow would look for a column within a column.
    return any(inner.is_integer() for inner in lists) and not any("." in name for name in columns)


def frames(path: str, kinds: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
    """The columns `kinds` of a file, one piece after the other as they lie in memory; `NotArrow` if that
    cannot be."""
    try:
        import pyarrow as pa
        from pyarrow import dataset
    except ImportError:
        raise NotArrow("Arrow is not installed") from None
    # Arrow's own allocator takes a quarter longer for arrays of this size.
    pool = pa.jemalloc_memory_pool() if "jemalloc" in pa.supported_memory_backends() else None
    try:
        found = dataset.dataset(path, format="parquet").to_table(columns=list(kinds), memory_pool=pool)
    except (pa.ArrowException, OSError) as error:
        raise NotArrow(str(error)) from None
    # Columns in pieces of different lengths would be copied by Polars.
    for piece in found.to_batches():
        part = pl.DataFrame(piece)
        yield part.select(pl.col(name).cast(kind) for name, kind in kinds.items())
