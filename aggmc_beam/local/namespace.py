"""`df.aggmc.estimate(...)` for Polars frames; registered when `aggmc_beam.local` is imported."""

from __future__ import annotations

from typing import Any

import polars as pl

from aggmc_beam.estimation import estimate


@pl.api.register_dataframe_namespace("aggmc")
@pl.api.register_lazyframe_namespace("aggmc")
class Namespace:
    """What `aggmc_beam` adds to a frame.

    >>> import aggmc_beam.local
    >>> frame = pl.DataFrame({"realization": 0, "time": range(6), "in": [3, 4, 2, 5, 4, 3],
    ...                       "out": [7, 6, 8, 5, 6, 7]})
    >>> frame.aggmc.estimate(states=["in", "out"], population=10, estimator="simplex").states
    ('in', 'out')
    """

    def __init__(self, frame: pl.DataFrame | pl.LazyFrame) -> None:
        self._frame = frame

    def estimate(self, **options: Any) -> Any:
        """As `am.estimate`, on this frame; see `estimate_table` for the options that name columns."""
        return estimate(self._frame, **options)
