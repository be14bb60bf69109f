"""What the product is measured against: reading alone, the sums of arrays in memory, and one full collect."""

from __future__ import annotations

import numpy as np
import polars as pl

from aggmc_beam.chain import Stationary
from aggmc_beam.noise import Poisson
from aggmc_beam.sums.records import Records
from aggmc_beam.sums.state import AggregationState, SumSpec
from benchmarks.speed.ours import sums_of
from benchmarks.speed.sums import Sums


def read(path: str, states: list[str]) -> None:
    """The needed columns of a Parquet file into numpy."""
    _read(path, states)


def _read(path: str, states: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    frame = pl.read_parquet(path, columns=["realization", "time", *states])
    return frame["realization"].to_numpy(), frame["time"].to_numpy(), frame.select(states).to_numpy()


_held: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}


def hold(path: str, states: list[str]) -> None:
    """Keep one data set in memory, sorted, for `kernel`."""
    key, time, values = _read(path, states)
    order = np.lexsort((time, key))
    _held.clear()
    _held[path] = key[order], time[order], np.ascontiguousarray(values[order])


def kernel(path: str, states: list[str]) -> Sums:
    """The sums of sorted arrays in memory: moments by replicate and step means."""
    key, time, values = _held[path]
    names = np.arange(int(key.max()) + 1)
    records = Records(key, time, values, names, np.zeros_like(names))
    state = AggregationState(SumSpec(tuple(states), Stationary(), Poisson(1.0), population=1000.0))
    state.add(records)
    return sums_of(state.sums.total)


def collect(path: str, states: list[str]) -> Sums:
    """All rows in one frame, which are in order, and one pass of numpy."""
    frame = pl.read_parquet(path)
    key, time = frame["realization"].to_numpy(), frame["time"].to_numpy()
    y = frame.select(states).to_numpy().astype(np.float64)
    pairs = np.flatnonzero((key[1:] == key[:-1]) & (time[1:] == time[:-1] + 1))
    return Sums(len(pairs), y.mean(0), y[pairs].T @ y[pairs + 1])
