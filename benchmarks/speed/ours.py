"""The product's contestants, and what they are measured against: reading, and the sums in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

import aggmc_beam as am
from aggmc_beam.config import Config, read_config
from aggmc_beam.local import run
from benchmarks.speed.sums import Sums


def sums_of(moments: am.Moments) -> Sums:
    zero = np.zeros(moments.states)
    return Sums(moments.pairs, moments.lag0.left, moments.lag1.product_about(zero, zero))


def config_of(path: str, states: list[str], layout: str) -> Config:
    plain: dict[str, Any] = {
        "input": {"files": path, "layout": "long" if layout == "long" else "wide"},
        "states": states,
        "noise": {"model": "poisson", "alpha": 1.0},
        "population": 1000,
        "estimator": "mom",
    }
    return read_config(plain)


def whole_run(path: str, states: list[str], layout: str = "parquet") -> Sums:
    """Files in, estimates with intervals out."""
    found = run(config_of(path, states, layout))
    return sums_of(found.saved.groups[0].digest.total)


def read(path: str, states: list[str]) -> None:
    """The needed columns of a Parquet file into numpy."""
    frame = pl.read_parquet(path, columns=["realization", "time", *states])
    frame["realization"].to_numpy()
    frame["time"].to_numpy()
    frame.select(states).to_numpy()
