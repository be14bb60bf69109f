"""What the product is measured against: reading alone, the sums of arrays in memory, and one full collect."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl

import aggmc_beam as am
from aggmc_beam.digest import jackknife_groups
from aggmc_beam.local.engine import PANEL
from aggmc_beam.local.rows import FEW_VALUES
from aggmc_beam.local.threads import spread
from aggmc_beam.panelsums import PanelSums
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
    _held[path] = key[order], time[order], np.asfortranarray(values[order])


def kernel(path: str, states: list[str]) -> Sums:
    """The sums of sorted arrays in memory: moments by replicate and step means."""
    key, time, values = _held[path]
    heads = np.flatnonzero(np.diff(key, prepend=-1))
    # As much at once as the engine takes.
    size = len(key) if values.size <= FEW_VALUES else PANEL // len(states)
    blocks = np.append(heads[:: max(1, len(heads) * size // len(key))], len(key))
    groups = jackknife_groups(len(states))
    with spread() as threads:
        total = PanelSums(len(states), groups, int(time.min()), int(np.ptp(time)) + 1, threads)
        for a, b in pairwise(blocks):
            assert total.add(key[a:b], time[a:b], values[a:b], lambda k: k % groups)
        return sums_of(total.digest.total)


def collect(path: str, states: list[str]) -> Sums:
    """All rows in one frame. They are in order, and are summed some at a time, with no other copy of them."""
    frame = pl.read_parquet(path)
    T = int(frame["time"].max()) + 1
    total = am.Moments.zero(len(states))
    for part in frame.iter_slices(100 * T):
        y = part.select(states).to_numpy().astype(np.float64)
        total += am.Moments.of(y.reshape(-1, T, len(states)))
    return sums_of(total)
