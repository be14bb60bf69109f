"""Memory and time of the local engine against reading everything at once: `make bench`.

Each contestant runs in a process of its own. Seconds are of processor time, over all threads; memory is
the peak less that of the imports.
Wide Parquet, S = 8 states; `collect` reads the file into one frame and sums it as one block.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

S, REALIZATIONS = 8, 200
STATES = [f"s{i}" for i in range(S)]
SIZES = (200_000, 2_000_000)


def write(directory: Path, rows: int) -> None:
    """Records in order, and the same in random order, and as CSV."""
    rng = np.random.default_rng(0)
    key, step = np.divmod(np.arange(rows), rows // REALIZATIONS)
    frame = pl.DataFrame({"realization": key, "time": step} | {s: rng.poisson(100, rows) for s in STATES})
    frame.write_parquet(directory / "ordered.parquet")
    frame.write_csv(directory / "ordered.csv")
    frame.sort("time", "realization").write_parquet(directory / "bytime.parquet")
    frame.sample(fraction=1, shuffle=True, seed=1).write_parquet(directory / "shuffled.parquet")


def stream(path: str) -> int:
    from aggmc_beam.config import read_config
    from aggmc_beam.local import run

    noise = {"model": "poisson", "alpha": 1.0}
    config = {
        "input": {"files": path},
        "states": STATES,
        "noise": noise,
        "population": 800,
        "estimator": "mom",
    }
    return int(run(read_config(config)).ledger["pairs"])


def collect(path: str) -> int:
    import aggmc_beam as am

    frame = pl.read_parquet(path).sort("realization", "time")
    y = frame.select(STATES).to_numpy().astype(float).reshape(REALIZATIONS, -1, S)
    est = am.estimate(y, noise=am.Poisson(1.0), population=800, estimator="mom")
    return int(est.counts["pairs"])


def measure(what: str, path: Path) -> tuple[float, float, int]:
    """Seconds, MB beyond the imports, pairs."""
    done = subprocess.run(
        [sys.executable, __file__, what, str(path)], capture_output=True, text=True, check=True
    ).stdout.split()
    return float(done[0]), float(done[1]), int(done[2])


def child(what: str, path: str) -> None:
    import aggmc_beam.local  # noqa: F401

    before, started = peak(), time.process_time()
    pairs = {"stream": stream, "collect": collect}[what](path)
    print(time.process_time() - started, peak() - before, pairs)


def peak() -> float:
    """MB; of this process alone, not of the one that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    print("| records | input | how | CPU seconds | records/s | peak memory, MB |")
    print("| --- | --- | --- | --- | --- | --- |")
    for rows in SIZES:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            write(directory, rows)
            found = set()
            for file, what in (
                ("ordered.parquet", "stream"),
                ("bytime.parquet", "stream"),
                ("shuffled.parquet", "stream"),
                ("ordered.csv", "stream"),
                ("ordered.parquet", "collect"),
            ):
                seconds, memory, pairs = measure(what, directory / file)
                found.add(pairs)
                print(
                    f"| {rows:,} | {file} | {what} | {seconds:.1f} | {rows / seconds:,.0f} | {memory:,.0f} |",
                    flush=True,
                )
            assert len(found) == 1, found


if __name__ == "__main__":
    child(*sys.argv[1:]) if len(sys.argv) > 1 else main()
