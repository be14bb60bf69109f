"""What must start at once: the command line and the import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.speed.harness import Bench, Contestant, Row

COMMANDS = {
    "import aggmc_beam": ["-c", "import aggmc_beam"],
    "aggmc --help": ["-m", "aggmc_beam.cli", "--help"],
}


def cases(bench: Bench) -> Iterator[tuple[str, Callable[[], Iterator[Row]]]]:
    for name, arguments in COMMANDS.items():
        yield name, partial(_time, bench, name, arguments)


def _time(bench: Bench, name: str, arguments: list[str]) -> Iterator[Row]:
    contestant = Contestant("ours", "command", {"arguments": arguments}, sums=False)
    took = bench.race(name, {"ours": contestant})["ours"]
    yield Row(name, "a new process", "", "< 0.3", took.seconds, " s", took.cpu, note=took.fault or "")
