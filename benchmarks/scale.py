"""What a record costs as data grow: shuffled bytes, kept state and processor time, of files and of streams.

    python benchmarks/scale.py                            # prints Markdown
    python benchmarks/scale.py --json scale.json          # also writes all numbers
    python benchmarks/scale.py --write docs/scale.md docs/dataflow.md    # rewrites the tables there

Both paths run on Beam's FnApiRunner, whose workers are those of Dataflow. Bytes are those of the coders: a
branch on each collection that is grouped or goes to a stateful step encodes what passes. State is what the
runner is given to keep. Processor time is that of the process. Bytes and time of a record are the difference
of a run and one with a quarter of the steps, so that what a run costs once is told apart. In a stream,
reading and writing the state of a realization for each record is added.
Prices are assumptions, and options.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

# Of this process alone: more threads would make processor time hard to compare.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import apache_beam as beam
import numpy as np
import polars as pl
from apache_beam.coders.coder_impl import create_InputStream
from bill import Prices, rewritten, sections
from watching import State, kept, refreshed_once, watched

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions
from aggmc_beam.beam import run as beam_run
from aggmc_beam.config import read_config
from aggmc_beam.config.model import Stream

#: States, realizations, steps: a middle size for each path, and three of each.
MIDDLE = {"bounded": {"S": 30, "K": 200, "T": 800}, "stream": {"S": 30, "K": 200, "T": 24}}
SIZES = {
    "bounded": {"S": (10, 30, 100), "K": (100, 200, 400), "T": (400, 800, 1600)},
    "stream": {"S": (10, 30, 100), "K": (100, 200, 400), "T": (12, 24, 48)},
}
POPULATION = 10_000


def counts(S: int, K: int, T: int) -> np.ndarray:
    # Noise on a constant mean: sums do not care, and it is quick to draw.
    mean = np.full(S, POPULATION / S)
    return np.random.default_rng(1).multinomial(POPULATION, mean / mean.sum(), (K, T))


def names(S: int) -> list[str]:
    return [f"s{i}" for i in range(S)]


@contextmanager
def bounded(S: int, K: int, T: int) -> Iterator[Callable[[], None]]:
    """The path of files: a run of a config over one Parquet file, treated as a large one is."""
    values = counts(S, K, T).reshape(-1, S)
    key, step = (a.ravel() for a in np.mgrid[:K, :T])
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "data.parquet"
        columns = {name: values[:, i] for i, name in enumerate(names(S))}
        pl.DataFrame({"realization": key, "time": step, **columns}).write_parquet(path)
        plain = {
            "states": names(S),
            "input": {"files": str(path)},
            "population": POPULATION,
            "estimator": "mom",
            "output": {"directory": f"{directory}/out"},
        }
        yield lambda: beam_run.run(read_config(plain), plain)


def message(k: int, t: int, row: np.ndarray) -> bytes:
    return json.dumps({"realization": f"area-{k}", "time": t, "counts": row.tolist()}).encode()


@contextmanager
def unbounded(S: int, K: int, T: int) -> Iterator[Callable[[], None]]:
    """The path of streams: JSON records one by one, in the order of time, refreshed once."""
    y = counts(S, K, T)
    lines = [message(k, t, y[k, t]) for t in range(T) for k in range(K)]

    def run() -> None:
        with refreshed_once(), beam.Pipeline("FnApiRunner") as pipeline:
            read = pipeline | beam.Create(lines, reshuffle=False)
            read.is_bounded = False
            _ = read | EstimateTransitions(
                names(S), am.Exact(), POPULATION, "mom", stream=Stream(state_ttl="1h")
            )

    yield run


PATHS = {"bounded": bounded, "stream": unbounded}


def processor(work: Callable[[], object], runs: int = 3) -> float:
    """Seconds of processor time, the least of some runs."""

    def once() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return min(once() for _ in range(runs))


def measure(path: str, S: int, K: int, T: int) -> dict[str, float]:
    """Per record at one size. What a run costs once, such as its sums, is told apart: the difference to a
    run with a quarter of the steps counts."""
    few = max(1, T // 4)
    less, more = (watch(path, S, K, steps) for steps in (few, T))
    found = {"S": S, "K": K, "T": T}
    found |= {name: (more[name] - less[name]) / (K * (T - few)) for name in ("shuffle_bytes", "cpu_us")}
    found["once_bytes"] = more["shuffle_bytes"] - found["shuffle_bytes"] * K * T
    if path == "stream":
        found |= {name: more[name] for name in ("state_bytes", "group_bytes", "state_us")}
        found["cpu_us"] += found["state_us"]
        found["message_bytes"] = len(message(123_456, 123_456, counts(S, 1, 1)[0, 0]))
    return found


def watch(path: str, S: int, K: int, T: int) -> dict[str, float]:
    """Bytes and processor time of a run; once for the time alone, and once to count."""
    seen: dict[str, Any] = {}
    state: State = {}
    with PATHS[path](S, K, T) as run:
        found = {"cpu_us": processor(run) * 1e6}
        with watched(seen), kept(state):
            run()
    found["shuffle_bytes"] = sum(m["bytes"] for m in seen["metrics"].values())
    return found | (of_state(state, seen["coders"], K) if path == "stream" else {})


def of_state(state: State, known: list[dict[str, Any]], K: int) -> dict[str, float]:
    """Bytes that are kept for a realization, and beside them; and the time to read and write the former."""
    keys: dict[str, set[bytes]] = defaultdict(set)
    for step, _, key in state:
        keys[step].add(key)
    mine = {step for step, found in keys.items() if len(found) >= K}
    own = [(name, data) for (step, name, _), data in state.items() if step in mine]
    used = {name for name, _ in own}
    states = next(found for found in known if used <= set(found))

    def through() -> None:
        for name, data in own:
            coder, stream = states[name].get_impl(), create_InputStream(data)
            while stream.size():
                coder.encode(coder.decode_from_stream(stream, True))

    return {
        "state_bytes": sum(len(data) for _, data in own) / K,
        "group_bytes": sum(len(data) for (step, *_), data in state.items() if step not in mine),
        "state_us": processor(through) / K * 1e6,
    }


def measure_all() -> dict[str, list[dict[str, float]]]:
    found = {}
    for path, sizes in SIZES.items():
        with PATHS[path](2, 4, 8) as first:
            first()  # what is imported and compiled at the first run
        rows: dict[tuple[int, ...], dict[str, float]] = {}
        for name, values in sizes.items():
            for value in values:
                at = {**MIDDLE[path], name: value}
                if tuple(at.values()) not in rows:
                    print(path, at, file=sys.stderr)
                    rows[tuple(at.values())] = measure(path, **at)
        found[path] = list(rows.values())
    return found


def measure_estimates() -> list[dict[str, float]]:
    """Processor time of one estimate from sums, which a refresh costs for each group."""
    found = []
    for S in SIZES["stream"]["S"]:
        with tempfile.TemporaryDirectory() as directory:
            path = f"{directory}/sums.moments"
            am.Sums.of(counts(S, 100, 50)).save(path)
            row = {"S": S, "bytes": os.path.getsize(path)}
            for name in ("mom", "fast"):
                estimate = lambda name=name, path=path: am.estimate(  # noqa: E731
                    path, population=POPULATION, estimator=name
                )
                row[name] = processor(estimate)
            found.append(row)
    return found


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", nargs="+", type=Path, default=[], metavar="PAGE", help="pages to rewrite")
    parser.add_argument("--json", type=Path, help="file for all numbers")
    parser.add_argument("--from-json", type=Path, help="measured before; only the rest is computed again")
    for f in fields(Prices):
        parser.add_argument(f"--{f.name.replace('_', '-')}", type=float, default=f.default)
    options = parser.parse_args(given)
    logging.disable(logging.WARNING)
    prices = Prices(**{f.name: getattr(options, f.name) for f in fields(Prices)})
    if options.from_json is not None:
        measured = json.loads(options.from_json.read_text("utf-8"))
    else:
        measured = {**measure_all(), "estimates": measure_estimates(), "middle": MIDDLE}
    if options.json is not None:
        options.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    made = sections(measured, prices)
    for page in options.write:
        page.write_text(rewritten(page.read_text("utf-8"), made), encoding="utf-8")
    for name, text in made.items():
        print(f"\n## {name}\n\n{text}")


if __name__ == "__main__":
    main()
