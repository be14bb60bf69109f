"""The Beam engine on its own runner in one process: files against Beam's reader doing nothing, dictionaries
against Beam's own count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.speed.data import Data
from benchmarks.speed.harness import LONG, Bench, Contestant, Row

MODULE = "beam_contestants"
FILES: dict[str, tuple[dict[str, Any], str]] = {
    "neat, sorted": ({}, "<= 1.5"),
    "neat, shuffled": ({"order": "shuffled"}, "<= 3"),
    "cycle of 24": ({"chain": "cycle"}, "<= 3"),
    "300 groups": ({"groups": 300}, "<= 4"),
}
#: Seconds after which none is run again. A pipeline takes some, and up to 0.2 s of them by chance: at the end
#: of a bundle Beam waits for a thread that sleeps so long.
ENOUGH = 3 * LONG


def cases(bench: Bench) -> Iterator[tuple[str, Callable[[], Iterator[Row]]]]:
    for S in (10, 50):
        for name, (how, goal) in FILES.items():
            data = bench.data(1000, 1000, S, **how)
            yield f"Beam files, {name}, S = {S}", partial(_files, bench, name, data, goal)
    yield "Beam rows, S = 10", partial(_rows, bench)


def _files(bench: Bench, name: str, data: Data, goal: str) -> Iterator[Row]:
    given = {"paths": data.paths(), "states": data.states}
    contestants = {
        "ours": Contestant(MODULE, "sums", {"config": data.config()}),
        "read": Contestant(MODULE, "read", given, sums=False),
    }
    best = bench.race(f"Beam, {name}, {data.name}", contestants, data.sums(), long=ENOUGH)
    found = bench.ratio(best["ours"], best["read"])
    yield Row(f"Beam files, {name}", data.name, "Beam's batched read alone", goal, **found)


def _rows(bench: Bench) -> Iterator[Row]:
    data = bench.data(1000, 1000, 10)
    given = {"paths": data.paths(), "states": data.states}
    contestants = {
        "ours": Contestant(MODULE, "combine_rows", given),
        "count": Contestant(MODULE, "count_rows", given, sums=False),
    }
    best = bench.race(f"Beam rows, {data.name}", contestants, data.sums(), long=ENOUGH)
    found = bench.ratio(best["ours"], best["count"])
    yield Row("Beam rows as dictionaries", data.name, "Beam's own count of them", "<= 1.7", **found)
