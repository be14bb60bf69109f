"""What a user would write instead, each in about ten lines. Runs in the peers' environment."""

from __future__ import annotations

import numpy as np

from benchmarks.speed.sums import Sums


def pandas_shift(path: str, states: list[str]) -> Sums:
    """Sort, shift within each realization, keep the neighbours, multiply."""
    import pandas as pd

    frame = pd.read_parquet(path).sort_values(["realization", "time"])
    after = frame.groupby("realization")[["time", *states]].shift(-1)
    near = (after["time"] == frame["time"] + 1).to_numpy()
    left = frame[states].to_numpy(np.float64)[near]
    right = after[states].to_numpy(np.float64)[near]
    return Sums(int(near.sum()), frame[states].mean().to_numpy(), left.T @ right)


def plain_polars(path: str, states: list[str]) -> Sums:
    """Sort, shift within each realization, keep the neighbours, multiply as one matrix by another."""
    import polars as pl

    frame = pl.read_parquet(path).sort("realization", "time")
    shifted = pl.col("time", *states).shift(-1).over("realization").name.suffix("_after")
    pairs = frame.with_columns(shifted).filter(pl.col("time_after") == pl.col("time") + 1)
    left = pairs.select(pl.col(states).cast(pl.Float64))
    right = pairs.select(pl.col([f"{s}_after" for s in states]).cast(pl.Float64))
    cross = left.to_numpy().T @ right.to_numpy()
    return Sums(pairs.height, frame.select(pl.col(states).mean()).to_numpy()[0], cross)


def polars_deeptime(path: str, states: list[str]) -> Sums:
    """Polars sorts and cuts into realizations, deeptime's running covariances take one after the other."""
    import polars as pl
    from deeptime.covariance import Covariance

    frame = pl.read_parquet(path).sort("realization", "time")
    values = frame.select(states).to_numpy().astype(np.float64)
    starts = np.flatnonzero(np.diff(frame["realization"].to_numpy())) + 1
    estimator = Covariance(lagtime=1, compute_c0t=True, bessels_correction=False)
    for part in np.split(values, starts):
        if len(part) > 1:
            estimator.partial_fit((part[:-1], part[1:]))
    model = estimator.fetch_model()
    pairs = len(values) - len(starts) - 1
    return Sums(pairs, values.mean(0), model.cov_0t * pairs)
