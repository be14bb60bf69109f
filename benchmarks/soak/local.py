"""A long run of the local engine: `make soak`. Are the sums exact, and do memory and files stay bounded?

50 million distinct records of 100,000 realizations, all alive at once, as Parquet files in a temporary
directory, with disorder and duplicates (see feed.py). They are written by a process of their own, which
also keeps the exact sums; the run is watched in this one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

import polars as pl
from feed import STATES, Exact, Feed
from watch import Watch, resident

PIECE = 500_000


def write(directory: str, records: int, realizations: int) -> None:
    """The feed as files, and beside them what a run must find."""
    feed = Feed(records, realizations)
    for number, (key, step, values) in enumerate(feed.pieces(PIECE)):
        columns = {name: values[:, i].astype("int32") for i, name in enumerate(STATES)}
        frame = pl.DataFrame({"realization": key, "time": step, **columns})
        frame.write_parquet(f"{directory}/{number:05}.parquet")
    sums = {
        name: [e.pairs, e.left.tolist(), e.right.tolist(), e.product.tolist()]
        for name, e in feed.sums.items()
    }
    about = {"rows": feed.rows, "distinct": feed.distinct, "sums": sums}
    Path(directory, "expected.json").write_text(json.dumps(about))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=50_000_000)
    options.add_argument("--realizations", type=int, default=100_000)
    options.add_argument("--growth", type=float, default=1.25, help="fail if memory grows by more than this")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="aggmc-soak-") as directory:
        writer = multiprocessing.get_context("spawn").Process(
            target=write, args=(directory, given.records, given.realizations)
        )
        writer.start()
        writer.join()
        if writer.exitcode:
            return 1
        return soak(directory, given.growth)


def soak(directory: str, limit: float) -> int:
    import numpy as np

    from aggmc_beam.config import read_config
    from aggmc_beam.local import run

    expected = json.loads(Path(directory, "expected.json").read_text())
    config = {
        "states": STATES,
        "input": {"files": f"{directory}/*.parquet"},
        "noise": {"model": "binomial", "alpha": 0.5},
        "population": 400,
        "estimator": "mom",
    }
    looking, summing = Watch(), Watch()

    def progress(stage: str, done: int, total: int | None) -> None:
        (looking if total is None else summing)(done / expected["rows"])

    began, cpu = time.monotonic(), time.process_time()
    result = run(read_config(config), progress)
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    ledger, total = result.ledger, result.saved.groups[0].digest.total
    exact = {
        name: Exact(pairs, *(np.array(x, np.int64) for x in rest))
        for name, (pairs, *rest) in expected["sums"].items()
    }
    errors = {name: e.error(getattr(total, name)) for name, e in exact.items()}
    rows = {"read": expected["rows"], "used": expected["distinct"]}
    rows["duplicate"] = expected["rows"] - expected["distinct"]
    found = {
        "ledger as generated": ledger["rows"] == {**rows, "rejected": 0, "late": 0},
        "pairs as generated": ledger["pairs"] == exact["lag1"].pairs,
        "sums within 1e-12": max(errors.values()) < 1e-12,
        "not sorted": not ledger["sorted"],
        f"memory flat (below x{limit})": summing.growth() < limit,
        "open files bounded": max(s[2] for s in summing.samples) <= summing.samples[0][2] + 16,
    }
    print(f"local engine: {ledger['records']:,} records of {ledger['realizations']:,} realizations in")
    again = ledger["rows"]["duplicate"]
    print(f"  {ledger['files']} files, {ledger['rows']['read']:,} rows; {again:,} duplicates,")
    print(f"  {ledger['gaps']:,} gaps; {seconds:,.0f} s, {cpu:,.0f} s of processor time")
    print("  greatest relative error of a sum: " + ", ".join(f"{n} {e:.1e}" for n, e in errors.items()))
    print(f"  memory: x{summing.growth():.2f} in the second half; {resident():,.0f} MB at the end")
    print("\n".join(f"  {line}" for line in summing.table()))
    for name, holds in found.items():
        print(f"  {'ok  ' if holds else 'FAIL'} {name}")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
