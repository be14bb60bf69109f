"""The Beam engine on its own runner."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed.harness import Bench, Contestant, Row, ratio


def cases(bench: Bench) -> Iterator[Row]:
    data = bench.data(1000, 1000, 10)
    arguments = {"path": str(data.path()), "states": data.states}
    best = bench.race(
        data,
        {
            "Beam, blocks": Contestant("beam_contestants", "blocks", arguments),
            "local": Contestant("ours", "whole_run", arguments),
        },
    )
    yield Row("Beam blocks / local engine", data.name, None, ratio(best["Beam, blocks"], best["local"]))
