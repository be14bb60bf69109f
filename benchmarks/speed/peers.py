"""What users would write instead. Runs in the peers' environment, where the product is not."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.speed import user_script
from benchmarks.speed.sums import Sums


def script(**options: Any) -> Any:
    found = user_script.script(**options)
    return lambda: Sums(*found)


def pandas_shift(paths: list[str], states: list[str], **_: Any) -> Any:
    """Sort, shift within each realization, keep the neighbours, multiply."""
    import pandas as pd

    frame = pd.read_parquet(paths).sort_values(["realization", "time"])
    after = frame.groupby("realization")[["time", *states]].shift(-1)
    near = (after["time"] == frame["time"] + 1).to_numpy()
    left = frame[states].to_numpy(np.float64)[near]
    right = after[states].to_numpy(np.float64)[near]
    return _one(int(near.sum()), left.T @ left, left.T @ right)


def plain_polars(paths: list[str], states: list[str], **_: Any) -> Any:
    """Sort, shift within each realization, keep the neighbours, multiply as one matrix by another."""
    import polars as pl

    frame = pl.read_parquet(paths).sort("realization", "time")
    shifted = pl.col("time", *states).shift(-1).over("realization").name.suffix("_after")
    pairs = frame.with_columns(shifted).filter(pl.col("time_after") == pl.col("time") + 1)
    left = pairs.select(pl.col(states).cast(pl.Float64)).to_numpy()
    right = pairs.select(pl.col([f"{s}_after" for s in states]).cast(pl.Float64)).to_numpy()
    return _one(pairs.height, left.T @ left, left.T @ right)


def polars_deeptime(paths: list[str], states: list[str], **_: Any) -> Any:
    """Polars sorts and cuts into realizations, deeptime's running covariances take one after the other."""
    import polars as pl
    from deeptime.covariance import Covariance

    frame = pl.read_parquet(paths).sort("realization", "time")
    values = frame.select(states).to_numpy().astype(np.float64)
    starts = np.flatnonzero(np.diff(frame["realization"].to_numpy())) + 1
    estimator = Covariance(lagtime=1, compute_c0t=True, bessels_correction=False)
    for part in np.split(values, starts):
        if len(part) > 1:
            estimator.partial_fit((part[:-1], part[1:]))
    model = estimator.fetch_model()
    pairs = len(values) - len(starts) - 1
    return _one(pairs, model.cov_00 * pairs, model.cov_0t * pairs)


def _one(pairs: int, gram: np.ndarray, cross: np.ndarray) -> Any:
    return lambda: Sums(np.array([pairs]), gram[None], cross[None])
