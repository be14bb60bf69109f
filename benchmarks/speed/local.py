"""The local engine against its floor, reading and summing, and against what a user would write."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed.data import Data
from benchmarks.speed.harness import Bench, Contestant, Row, ratio

SHAPES = ((1000, 1000, 10), (100_000, 10, 10), (1000, 1000, 100), (100_000, 10, 100), (100, 100, 1000))
FLOOR = {("sorted", 10): 1.10, ("sorted", 100): 1.15, ("shuffled", 10): 1.60, ("shuffled", 100): 1.25}
PEERS = {"pandas groupby.shift": ("pandas_shift", 3), "a plain Polars script": ("plain_polars", 5),
         "Polars sort + deeptime partial_fit": ("polars_deeptime", 3)}  # fmt: skip


def cases(bench: Bench) -> Iterator[Row]:
    for K, T, S in SHAPES:
        for order in ("sorted", "shuffled"):
            yield from case(bench, bench.data(K, T, S, order))


def case(bench: Bench, data: Data) -> Iterator[Row]:
    arguments = {"path": str(data.path()), "states": data.states}
    contestants = {
        "sums": Contestant("ours", "sums", arguments),
        "whole run": Contestant("ours", "whole_run", arguments),
        "read": Contestant("floor", "read", arguments, sums=False),
        "kernel": Contestant("floor", "kernel", arguments),
        **{name: Contestant("peers", function, arguments) for name, (function, _) in PEERS.items()},
    }
    bench.prepare(Contestant("floor", "hold", arguments))
    best = bench.race(data, contestants)
    goal = FLOOR.get((data.order, data.S))
    yield Row(
        "local, file to sums / (read + the same sums in memory)",
        data.name,
        None if goal is None else f"<= {goal:.2f}",
        ratio(best["sums"], best["read"], best["kernel"]),
    )
    yield Row(
        "local, file to estimate / file to sums", data.name, None, ratio(best["whole run"], best["sums"])
    )
    for name, (_, times) in PEERS.items():
        wanted = f">= {times}" if data.S <= 100 else None
        yield Row(f"{name} / local", data.name, wanted, ratio(best[name], best["sums"]))
