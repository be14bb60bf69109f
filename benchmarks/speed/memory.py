"""Peak memory beyond the imports, against collecting everything: 10^9 values, 8 GB in a frame."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed.data import wrong
from benchmarks.speed.harness import Bench, Contestant, Row


def cases(bench: Bench) -> Iterator[Row]:
    data = bench.data(10_000, 1000, 100)
    arguments = {"path": str(data.path()), "states": data.states}
    peaks = {}
    for name, contestant in (
        ("sums", Contestant("ours", "sums", arguments)),
        ("collect", Contestant("floor", "collect", arguments)),
    ):
        answer = bench.fresh(contestant)
        fault = answer.get("error") or wrong(answer["sums"], data.sums)
        peaks[name] = None if fault else float(answer["peak"])
        bench.note(data, name, contestant, answer, fault)
    streamed, whole = peaks["sums"], peaks["collect"]
    share = None if streamed is None or whole is None else streamed / whole
    note = "" if streamed is None or whole is None else f"({streamed:,.0f} MB and {whole:,.0f} MB)"
    yield Row("peak memory, local / full collect", data.name, "<= 0.25", share, note=note)
