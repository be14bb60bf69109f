"""What other layouts and formats cost, against Parquet with a column for each state."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed.harness import Bench, Contestant, Row, ratio

GOALS = {"list": ("Parquet with lists", 2), "csv": ("CSV", 4), "long": ("long Parquet", 2),
         "jsonl": ("JSON lines", 8)}  # fmt: skip


def cases(bench: Bench) -> Iterator[Row]:
    for K, T, S in ((1000, 1000, 10), (100, 1000, 100)):
        data = bench.data(K, T, S)
        contestants = {
            layout: Contestant(
                "ours", "sums", {"path": str(data.path(layout)), "states": data.states, "layout": layout}
            )
            for layout in ("parquet", *GOALS)
        }
        best = bench.race(data, contestants)
        for layout, (name, times) in GOALS.items():
            what = f"{name} / Parquet with a column per state"
            yield Row(what, data.name, f"<= {times}", ratio(best[layout], best["parquet"]))
