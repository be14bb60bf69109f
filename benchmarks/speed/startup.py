"""What starts slowly: the command line, the import, and an estimate from saved moments."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed.harness import Bench, Contestant, Row


def cases(bench: Bench) -> Iterator[Row]:
    commands = {"import": ["-c", "import aggmc_beam"], "help": ["-m", "aggmc_beam.cli", "--help"]}
    contestants = {
        name: Contestant("ours", "command", {"arguments": arguments}, sums=False)
        for name, arguments in commands.items()
    }
    best = bench.race(None, contestants)
    yield Row("import aggmc_beam", "a new process", "< 0.3", best["import"], " s")
    yield Row("aggmc --help", "a new process", "< 0.3", best["help"], " s")
    data = bench.data(1000, 100, 100)
    saved = str(bench.directory / "moments.aggmc")
    arguments = {"path": str(data.path()), "states": data.states, "to": saved}
    bench.prepare(Contestant("ours", "save_moments", arguments))
    again = bench.race(None, {"again": Contestant("ours", "estimate_again", {"path": saved}, sums=False)})[
        "again"
    ]
    measured = None if again is None else 1000 * again
    yield Row("estimate again from saved moments", "S=100, 50 replicates", "< 50", measured, " ms")
