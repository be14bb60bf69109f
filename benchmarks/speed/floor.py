"""What must be paid by anybody: the columns of a sorted file into numpy, and one pass over them."""

from __future__ import annotations

import numpy as np
import polars as pl


def read_and_multiply(paths: list[str], states: list[str], **_: object) -> None:
    """Neighbours and labels are not looked for."""
    values = pl.read_parquet(paths, columns=["realization", "time", *states]).select(states).to_numpy()
    values = values.astype(np.float64)
    values[:-1].T @ values[1:]
