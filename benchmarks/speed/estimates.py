"""What estimates cost by the default estimator, auto: whole runs, many cells, many states.

Seconds of one machine. Each has a process of its own, which is stopped where it takes too long or too much
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.speed.data import SEED
from benchmarks.speed.harness import Bench, Contestant, Row, Took

#: Processor time of whole runs, by states; and seconds and MB of an estimate with drift. The goals of runs
#: are a quarter of what they took when the goals were set.
RUNS = {10: "<= 0.3", 50: "<= 2.05"}
DRIFTING = {100: ("<= 5", 4000.0), 200: ("<= 20", 2000.0)}


def cases(bench: Bench) -> Iterator[tuple[str, Callable[[], Iterator[Row]]]]:
    for S, goal in RUNS.items():
        yield f"whole run by auto, S = {S}", partial(_run, bench, S, goal)
    yield "300 groups x cycle of 24 by auto", partial(_cells, bench)
    for S, (goal, memory) in DRIFTING.items():
        yield f"one estimate by auto with drift, S = {S}", partial(_drift, bench, S, goal, memory)


def _run(bench: Bench, S: int, goal: str) -> Iterator[Row]:
    data = bench.data(1000, 1000, S)
    contestant = Contestant("ours", "whole_run", {"config": data.config(estimator="auto")}, sums=False)
    name = "whole run by auto"
    took = bench.race(f"{name}, {data.name}", {"ours": contestant}, long=20)["ours"]
    yield _seconds(Row(name, data.name, "", goal, None), took, processor_first=True)


def _cells(bench: Bench) -> Iterator[Row]:
    data = bench.data(1000, 1000, 10, chain="cycle", groups=300)
    contestant = Contestant("ours", "whole_run", {"config": data.config(estimator="auto")}, sums=False)
    name = "300 groups x cycle of 24 by auto"
    answer = bench.fresh(f"{name}, {data.name}", contestant)
    took = Took(answer.get("seconds", 0.0), answer.get("cpu", 0.0), answer.get("error"))
    row = Row(f"{name}, {24 * data.groups:,} estimates", data.name, "", "<= 45", None)
    yield _seconds(row, took)


def _drift(bench: Bench, S: int, goal: str, memory: float) -> Iterator[Row]:
    S = S // 3 if bench.quick else S
    path = drifting(bench.directory, S)
    arguments = {"counts": str(path), "population": PEOPLE}
    name, case = "one estimate by auto with drift", f"40 x 100, S = {S}"
    contestant = Contestant("ours", "estimate", arguments, sums=False)
    answer = bench.fresh(f"{name}, {case}", contestant, memory=memory, limit=60 if bench.quick else 120)
    took = Took(answer.get("seconds", 0.0), answer.get("cpu", 0.0), answer.get("error"))
    row = _seconds(Row(name, case, "", goal, None), took)
    yield row if took.fault else _noted(row, f"{answer['peak']:,.0f} MB, form {answer['value'].get('form')}")


PEOPLE = 100_000


def drifting(directory: Path, S: int) -> Path:
    """Counts [40, 100, S] that begin in a few states, half of them seen."""
    rng, K, T = np.random.default_rng([SEED, S]), 40, 100
    P = 0.9 * np.eye(S) + 0.1 * rng.dirichlet(np.full(S, 0.5), S)
    n = np.zeros((K, T, S), np.int64)
    n[:, 0, : max(2, S // 10)] = rng.multinomial(PEOPLE, np.full(max(2, S // 10), 1 / max(2, S // 10)), K)
    for t in range(T - 1):
        for i in range(S):
            n[:, t + 1] += rng.multinomial(n[:, t, i], P[i])
    path = directory / f"drifting-{S}.npy"
    np.save(path, rng.binomial(n, 0.5).astype(float))
    return path


def _seconds(row: Row, took: Took, processor_first: bool = False) -> Row:
    if took.fault:
        return replace(row, note=took.fault.splitlines()[0][:100])
    if processor_first:
        return replace(row, measured=took.cpu, unit=" s CPU", note=f"{took.seconds:.3g} s by the clock")
    return replace(row, measured=took.seconds, unit=" s", note=f"{took.cpu:.3g} s of processors")


def _noted(row: Row, more: str) -> Row:
    return replace(row, note=f"{row.note}, {more}")
