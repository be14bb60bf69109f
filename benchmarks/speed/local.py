"""The local engine against its floor, reading and summing, and against what a user would write."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed.harness import Bench, Contestant, Row, ratio

SHAPES = ((1000, 1000, 10), (100_000, 10, 10), (1000, 1000, 100), (100_000, 10, 100))


def cases(bench: Bench) -> Iterator[Row]:
    for K, T, S in SHAPES:
        for order in ("sorted", "shuffled"):
            data = bench.data(K, T, S, order)
            arguments = {"path": str(data.path()), "states": data.states}
            best = bench.race(
                data,
                {
                    "whole run": Contestant("ours", "whole_run", arguments),
                    "read": Contestant("ours", "read", arguments, sums=False),
                    "pandas": Contestant("peers", "pandas_shift", arguments),
                    "polars": Contestant("peers", "plain_polars", arguments),
                    "deeptime": Contestant("peers", "polars_deeptime", arguments),
                },
            )
            yield Row("end to end / read", data.name, None, ratio(best["whole run"], best["read"]))
            for peer, goal in (("deeptime", 3), ("pandas", 3), ("polars", 5)):
                yield Row(f"{peer} / ours", data.name, f">= {goal}", ratio(best[peer], best["whole run"]))
        bench.forget()
