"""Records per second of the Beam engine: files as blocks, and one record at a time.

`make bench` prints them for Beam's own runner in one process, beside the local engine on the same file.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import numpy as np
import polars as pl

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions
from aggmc_beam.beam import run as beam_run
from aggmc_beam.config import read_config
from aggmc_beam.local import run as run_locally

STATES = [f"s{i}" for i in range(10)]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main(records: int) -> None:
    logging.disable(logging.WARNING)
    K = 1000
    y = am.simulate(states=10, steps=records // K, realizations=K, population=1000, seed=1).counts
    key, step = (a.ravel() for a in np.mgrid[:K, : records // K])
    values = y.reshape(-1, 10)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "data.parquet"
        columns = {name: values[:, i] for i, name in enumerate(STATES)}
        pl.DataFrame({"realization": key, "time": step, **columns}).write_parquet(path)
        plain = {
            "states": STATES,
            "input": {"files": str(path)},
            "population": 1000,
            "output": {"directory": directory},
        }
        config = read_config({**plain, "estimator": "mom"})
        taken = {
            "local engine": (records, seconds(lambda: run_locally(config))),
            "Beam, blocks": (records, seconds(lambda: beam_run.run(config, plain))),
        }
    few = min(records, 20_000)
    lines = [
        json.dumps({"realization": int(k), "time": int(t), "counts": row.tolist()})
        for k, t, row in zip(key[:few], step[:few], values[:few], strict=True)
    ]

    def one_by_one() -> None:
        with beam.Pipeline("FnApiRunner") as pipeline:
            _ = pipeline | beam.Create(lines) | EstimateTransitions(STATES, population=1000, estimator="mom")

    taken["Beam, one JSON record at a time"] = few, seconds(one_by_one)
    for name, (number, time_taken) in taken.items():
        print(f"{name:<34}{number:>10,} records {time_taken:7.2f} s {number / time_taken:>12,.0f} records/s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
