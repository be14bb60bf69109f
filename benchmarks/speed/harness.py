"""Races: contestants in turn, in processes of their own, each checked before it is timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.data import Data, wrong
from benchmarks.speed.sums import Sums

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "benchmarks/.venv/bin/python"
ROUNDS = 5
#: One whose runs have taken so many seconds together is not run again. The first, which is checked and may
#: warm up, is what is compared where it took so long by itself.
LONG = 5.0
#: One whose first run took less than so many seconds has some rounds more, which do not count: so long it
#: takes a process to settle, with its threads and its memory.
SHORT, WARM = 0.5, 2


@dataclass(frozen=True)
class Contestant:
    """A function of a module of `benchmarks.speed`, by name, and its arguments."""

    module: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    sums: bool = True
    """Whether it must find the sums; what only reads need not."""


@dataclass(frozen=True)
class Row:
    """A line of the table. `goal` is such as "<= 1.10" or "9 to 11"; without one the line is shown for
    information."""

    what: str
    case: str
    goal: str | None
    measured: float | None
    unit: str = ""
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "WRONG"
        if self.goal is None:
            return ""
        first, *_, last = self.goal.split()
        bound = float(last)
        if first.startswith("<"):
            met = self.measured <= bound
        elif first == ">=":
            met = self.measured >= bound
        else:
            met = float(first) <= self.measured <= bound
        return "pass" if met else "MISS"


class Worker:
    """A process that runs contestants of one module."""

    def __init__(self, module: str, directory: Path) -> None:
        python = str(PEERS) if module == "peers" else sys.executable
        # As a user would run it: no thread settings but the libraries' own.
        env = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
        command = [python, "-m", "benchmarks.speed.worker", f"benchmarks.speed.{module}"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env
        )
        self.sums = directory / f"sums-{self.process.pid}.npz"

    def run(self, contestant: Contestant) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.sums.unlink(missing_ok=True)
        request = {
            "function": contestant.function,
            "arguments": dict(contestant.arguments),
            "sums": str(self.sums),
        }
        print(json.dumps(request), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the worker has died"}
        if self.sums.exists():
            with np.load(self.sums) as found:
                answer["sums"] = Sums(int(found["pairs"]), found["mean"], found["cross"])
        return answer

    def close(self) -> None:
        self.process.communicate("")


@dataclass
class Bench:
    """What cases are given: data, races and the size wanted."""

    directory: Path
    quick: bool = False
    clock: str = "seconds"
    """Which time is compared: "seconds" of the wall clock, or of the processor, "cpu"."""
    workers: dict[str, Worker] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    _data: dict[tuple[int, int, int, str], Data] = field(default_factory=dict)

    def data(self, K: int, T: int, S: int, order: str = "sorted") -> Data:
        """A data set, made once; with `quick` a tenth of the realizations."""
        K = max(1, K // 10) if self.quick else K
        return self._data.setdefault((K, T, S, order), Data(K, T, S, order, self.directory))

    def race(
        self,
        data: Data | Mapping[str, Data] | None,
        contestants: Mapping[str, Contestant],
        most: int = ROUNDS,
        long: float = LONG,
    ) -> dict[str, float | None]:
        """The best time of each in at most `most` rounds, in seconds, fewer of one that has taken `long`;
        None for one whose sums are wrong. `data` is what all are given, or what each is."""
        sets = {name: data[name] if isinstance(data, Mapping) else data for name in contestants}
        runs = {name: self._checked(sets[name], name, one) for name, one in contestants.items()}
        unheeded = {name: 1 + WARM * (found[0]["seconds"] < SHORT) for name, found in runs.items() if found}
        for turn in range(-WARM if most else 0, min(most, 2) if self.quick else most):
            # Back and forth, as allocators give memory back in a pause: nobody is always the first after one.
            for name, found in reversed(runs.items()) if turn % 2 else runs.items():
                is_due = found and (turn >= 0 or unheeded[name] > 1)
                if is_due and sum(answer["seconds"] for answer in found) <= long:
                    found.append(self._worker(contestants[name].module).run(contestants[name]))
        best: dict[str, float | None] = {}
        for name, found in runs.items():
            given = sets[name]
            case = "" if given is None else given.name
            timed = found[unheeded.get(name, 0) :] or found  # the checked run counts where it is the only one
            best[name] = min((answer[self.clock] for answer in timed), default=None)
            times = [(answer["seconds"], answer["cpu"]) for answer in found]
            entry = {"case": case, "name": name, "best": best[name], "times": times}
            self.log.append(entry | asdict(contestants[name]))
            took = "WRONG" if best[name] is None else f"{best[name]:.4f} s"
            print(f"  {case}: {name}: {took}", file=sys.stderr, flush=True)
        return best

    def _checked(self, data: Data | None, name: str, contestant: Contestant) -> list[dict[str, Any]]:
        """A first run; none if its sums are wrong."""
        answer = self._worker(contestant.module).run(contestant)
        fault = answer.get("error")
        if fault is None and contestant.sums:
            assert data is not None
            fault = wrong(answer["sums"], data.sums) if "sums" in answer else "no sums"
        if fault is None:
            return [answer]
        print(f"WRONG: {name}: {fault}", file=sys.stderr, flush=True)
        return []

    def prepare(self, contestant: Contestant) -> None:
        """Run something once that is not timed."""
        answer = self._worker(contestant.module).run(contestant)
        if "error" in answer:
            raise RuntimeError(answer["error"])

    def note(
        self, data: Data, name: str, contestant: Contestant, answer: dict[str, Any], fault: str | None
    ) -> None:
        """Put a run outside of races into the log."""
        plain = {k: v for k, v in answer.items() if k != "sums"}
        self.log.append({"case": data.name, "name": name, "fault": fault, **plain, **asdict(contestant)})
        if fault:
            print(f"WRONG: {name}: {fault}", file=sys.stderr, flush=True)

    def fresh(self, contestant: Contestant) -> dict[str, Any]:
        """One run in a new process, for its memory: the worker's whole answer."""
        worker = Worker(contestant.module, self.directory)
        answer = worker.run(contestant)
        worker.close()
        return answer

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()

    def _worker(self, module: str) -> Worker:
        if module not in self.workers:
            self.workers[module] = Worker(module, self.directory)
        return self.workers[module]


def ratio(a: float | None, *b: float | None) -> float | None:
    """a / (b + ...), unless one of them was wrong."""
    if a is None or None in b:
        return None
    return a / sum(x for x in b if x is not None)
