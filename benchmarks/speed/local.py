"""Files to sums, against a user's script that reads the same files; sums of all are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.speed.data import Data
from benchmarks.speed.harness import SHORT, Bench, Contestant, Row

SCRIPT = "user's script"
NEAT = {"K": 1000, "T": 1000}
#: What users have: how it is called, its shape and how it comes, and the goal.
CASES: dict[str, tuple[dict[str, Any], str | None]] = {
    "neat, sorted": (NEAT, "<= 0.5"),
    "neat, shuffled": ({**NEAT, "order": "shuffled"}, "<= 0.3"),
    "9 groups": ({**NEAT, "groups": 9}, "<= 1.0"),
    "300 groups": ({**NEAT, "groups": 300}, "<= 1.5"),
    "3,000 groups": ({"K": 3000, "T": 333, "groups": 3000}, "<= 3"),
    "cycle of 24": ({**NEAT, "chain": "cycle"}, "<= 1.2"),
    "cycle of 24 in 50 groups": ({**NEAT, "chain": "cycle", "groups": 50}, "<= 1.2"),
    "window of 168 every 24": ({**NEAT, "chain": "window"}, "<= 1.5"),
    "per step": ({**NEAT, "chain": "per-step"}, "<= 1.5"),
    "a population for each realization": ({**NEAT, "population": True}, "<= 1.0"),
    "1% repeated": ({**NEAT, "repeats": True}, "<= 1.0"),
    "5% missing, 1% repeated, shuffled": (
        {**NEAT, "gaps": True, "repeats": True, "order": "shuffled"},
        "<= 1.0",
    ),
    "10 long realizations": ({"K": 10, "T": 100_000}, "<= 1.0"),
    "realizations of two steps": ({"K": 500_000, "T": 2}, "<= 1.0"),
    "200 files": ({**NEAT, "files": 200}, "<= 1.0"),
    "CSV": ({**NEAT, "format": "csv"}, "<= 1.0"),
    "JSON lines": ({**NEAT, "format": "jsonl"}, "<= 1.0"),
    "Parquet with lists": ({**NEAT, "format": "list.parquet"}, "<= 1.0"),
    "CSV, compressed": ({**NEAT, "format": "csv.gz"}, "<= 1.0"),
    "long CSV in 50 groups, shuffled": (
        {"K": 1000, "T": 100, "groups": 50, "format": "long.csv", "order": "shuffled"},
        "<= 1.0",
    ),
}
#: Other ways to write the script, where one label is all there is.
OTHERS = {
    "pandas groupby.shift": "pandas_shift",
    "a plain Polars script": "plain_polars",
    "Polars and deeptime": "polars_deeptime",
}
#: With more states there are no more values in a file that takes long to write.
FEWER = {"long CSV in 50 groups, shuffled": 5}


def cases(bench: Bench) -> Iterator[tuple[str, Callable[[], Iterator[Row]]]]:
    """Names of rows, and what measures them."""
    for S in (10, 50):
        for name, (shape, goal) in CASES.items():
            how = dict(shape)
            if S > 10:
                how["K"] //= FEWER.get(name, 1)
            yield f"{name}, S = {S}", partial(_race, bench, name, bench.data(S=S, **how), goal)
        yield (
            f"3,000 groups: memory and saved moments, S = {S}",
            partial(_memory, bench, bench.data(3000, 333, S, groups=3000)),
        )


def _race(bench: Bench, name: str, data: Data, goal: str | None) -> Iterator[Row]:
    given = data.script()
    ours = Contestant("ours", "sums", {"config": data.config()})
    contestants = {"ours": ours, SCRIPT: Contestant("peers", "script", given)}
    if name.startswith("neat"):
        contestants |= {other: Contestant("peers", f, given) for other, f in OTHERS.items()}
        contestants["floor"] = Contestant("floor", "read_and_multiply", given, sums=False)
    best = bench.race(f"{name}, {data.name}", contestants, data.sums())
    cold = None
    if max(best["ours"].seconds, best[SCRIPT].seconds) < SHORT:
        cold = bench.cold(ours, contestants[SCRIPT])
    found = bench.ratio(best["ours"], best[SCRIPT])
    yield Row(name, data.name, SCRIPT, goal, cold=cold, **found)
    for other in list(contestants)[2:]:
        yield Row(name, data.name, other, None, **bench.ratio(best["ours"], best[other]))


def _memory(bench: Bench, data: Data) -> Iterator[Row]:
    """Most memory of a run that saves its moments, and how large these are."""
    path = bench.directory / f"saved-{data.S}.aggmc"
    arguments = {"config": data.config(), "save": str(path)}
    case = f"3,000 groups saved, {data.name}"
    answer = bench.fresh(case, Contestant("ours", "sums", arguments, sums=False))
    fault = {"measured": None, "note": answer["error"]} if "error" in answer else None
    memory = fault or {"measured": answer["peak"] / 1000, "unit": " GB"}
    yield Row("3,000 groups, peak memory", data.name, "", "<= 0.8", **memory)
    share = fault or {
        "measured": path.stat().st_size / data.size,
        "note": f"{path.stat().st_size / 1e6:,.3g} MB",
    }
    yield Row("3,000 groups, saved moments", data.name, "input", "<= 5", **share)
