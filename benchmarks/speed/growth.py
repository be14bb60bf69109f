"""How time grows with records, with realizations and with states."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed.harness import LONG, Bench, Contestant, Row, ratio

CASES = (
    # what grows tenfold, the smaller and the larger shape, the least and the most that time may grow
    ("records x10", (1000, 1000, 10), (10_000, 1000, 10), 9, 11),
    ("records x10", (1000, 1000, 100), (10_000, 1000, 100), 9, 11),
    ("keys x10 at the same records", (1000, 1000, 10), (10_000, 100, 10), 0.9, 1.1),
    ("S x10", (1000, 1000, 10), (1000, 1000, 100), 10, 100),
)


def cases(bench: Bench) -> Iterator[Row]:
    for what, small, large, least, most in CASES:
        few, many = bench.data(*small), bench.data(*large)
        sets = {"few": few, "many": many}
        contestants = {
            name: Contestant("ours", "sums", {"path": str(data.path()), "states": data.states})
            for name, data in sets.items()
        }
        # The largest is run more than once too.
        best = bench.race(sets, contestants, long=4 * LONG)
        case = f"{few.name} to {many.name}"
        yield Row(f"growth of time, {what}", case, f"{least} to {most}", ratio(best["many"], best["few"]))
