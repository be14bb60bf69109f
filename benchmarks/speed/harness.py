"""Races: contestants in turn, in processes of their own, each checked before it is timed."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.data import Data
from benchmarks.speed.sums import Sums, wrong

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "benchmarks/.venv/bin/python"
ROUNDS = 5
#: One whose runs have taken so many seconds together is not run again. The first, which is checked and may
#: warm up, is what is compared where it took so long by itself.
LONG = 5.0
#: One whose first run took less than so many seconds has some rounds more, which do not count: so long it
#: takes a process to settle, with its threads and its memory.
SHORT, WARM = 0.5, 2
#: A run may take so many seconds and MB.
LIMIT, MEMORY = 120.0, 16_000.0


@dataclass(frozen=True)
class Contestant:
    """A function of a module of `benchmarks.speed`, by name, and its arguments."""

    module: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    sums: bool = True
    """Whether it must find the sums; what only reads need not."""


@dataclass(frozen=True)
class Took:
    """What a contestant's best run took, or what was wrong with it."""

    seconds: float = float("nan")
    cpu: float = float("nan")
    fault: str | None = None


@dataclass(frozen=True)
class Row:
    """A line of the table. `goal` is such as "<= 1.10"; without one the line is shown for information.
    `processor` is the same in processor time, `cold` in processes from start to end."""

    what: str
    case: str
    against: str
    goal: str | None
    measured: float | None
    unit: str = ""
    processor: float | None = None
    cold: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "MISS" if self.goal else ""
        if self.goal is None:
            return ""
        sign, bound = self.goal.split()
        below = self.measured < float(bound) if sign == "<" else self.measured <= float(bound)
        return "pass" if below else "MISS"


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

    def run(
        self, contestant: Contestant, limit: float = LIMIT, memory: float = MEMORY, check: bool = True
    ) -> dict[str, Any]:
        """Its answer; an error if it takes more seconds or MB than it may, and then the process is gone."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.sums.unlink(missing_ok=True)
        request = {
            "function": contestant.function,
            "arguments": dict(contestant.arguments),
            "sums": str(self.sums) if check and contestant.sums else None,
        }
        print(json.dumps(request), file=self.process.stdin, flush=True)
        started, fault = time.monotonic(), None
        while not select.select([self.process.stdout], [], [], 0.02)[0]:
            if time.monotonic() - started > limit:
                fault = f"> {limit:.0f} s"
            elif resident(self.process.pid) > memory:
                fault = f"out of memory (> {memory:,.0f} MB)"
            if fault:
                self.process.kill()
                self.process.communicate()
                return {"error": fault}
        line = self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the worker has died"}
        if self.sums.exists():
            with np.load(self.sums) as found:
                answer["sums"] = Sums(found["pairs"], found["gram"], found["cross"])
            self.sums.unlink()
        return answer

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.communicate("")


def resident(process: int) -> float:
    """MB that a process holds now; 0 where this cannot be told."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return 0.0


@dataclass
class Bench:
    """What cases are given: races and the size wanted."""

    directory: Path
    quick: bool = False
    clock: str = "seconds"
    """Which time is compared: "seconds" of the wall clock, or of the processor, "cpu"."""
    workers: dict[str, Worker] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)

    def data(self, K: int, T: int, S: int, **how: Any) -> Data:
        """A data set; with `quick` a tenth of the realizations."""
        data = Data(self.directory, K, T, S, **how)
        return data.shrunk(10) if self.quick else data

    def race(
        self,
        case: str,
        contestants: Mapping[str, Contestant],
        right: Sums | None = None,
        most: int = ROUNDS,
        long: float = LONG,
    ) -> dict[str, Took]:
        """The best time of each in at most `most` rounds, fewer of one that has taken `long` seconds, and no
        time of one whose sums are not the `right` ones."""
        runs = {name: self._checked(name, one, right) for name, one in contestants.items()}
        good = {name: [first] for name, first in runs.items() if "error" not in first}
        unheeded = {name: 1 + WARM * (found[0]["seconds"] < SHORT) for name, found in good.items()}
        for turn in range(-WARM if most else 0, min(most, 2) if self.quick else most):
            # Back and forth, as allocators give memory back in a pause: nobody is always the first after one.
            for name, found in reversed(good.items()) if turn % 2 else good.items():
                is_due = turn >= 0 or unheeded[name] > 1
                if is_due and sum(answer["seconds"] for answer in found) <= long:
                    answer = self._worker(contestants[name].module).run(contestants[name], check=False)
                    found += [answer] if "error" not in answer else []
        best = {}
        for name, first in runs.items():
            found = good.get(name, [])
            timed = found[unheeded.get(name, 0) :] or found  # the checked run counts where it is the only one
            took = Took(fault=first.get("error"))
            if timed:
                took = Took(min(a["seconds"] for a in timed), min(a["cpu"] for a in timed))
            best[name] = took
            times = [(answer["seconds"], answer["cpu"]) for answer in found]
            self.note(case, name, contestants[name], {**asdict(took), "times": times})
        return best

    def _checked(self, name: str, contestant: Contestant, right: Sums | None) -> dict[str, Any]:
        """A first run, with an error if its sums are wrong."""
        answer = self._worker(contestant.module).run(contestant)
        if "error" not in answer and contestant.sums and right is not None:
            fault = wrong(answer["sums"], right) if "sums" in answer else "no sums"
            answer |= {} if fault is None else {"error": f"WRONG: {fault}"}
        return answer

    def ratio(self, one: Took, *others: Took) -> dict[str, Any]:
        """The numbers of a row: one's time as a multiple of the others' together, or what was wrong."""
        faults = [t.fault.splitlines()[0][:100] for t in (one, *others) if t.fault]
        if faults:
            return {"measured": None, "note": faults[0]}
        wall = one.seconds / sum(t.seconds for t in others)
        cpu = one.cpu / sum(t.cpu for t in others)
        note = f"{one.seconds:.3g} s, {sum(t.seconds for t in others):.3g} s"
        measured, processor = (cpu, wall) if self.clock == "cpu" else (wall, cpu)
        return {"measured": measured, "processor": processor, "note": note}

    def cold(self, one: Contestant, other: Contestant) -> float | None:
        """The ratio of processes from start to end, imports included."""
        times = []
        for contestant in (one, other):
            started = time.perf_counter()
            worker = Worker(contestant.module, self.directory)
            answer = worker.run(contestant, check=False)
            worker.close()
            times.append(time.perf_counter() - started if "error" not in answer else None)
        a, b = times
        return None if a is None or b is None else a / b

    def fresh(self, case: str, contestant: Contestant, **limits: float) -> dict[str, Any]:
        """One run in a new process, for its memory or to be stopped: the worker's whole answer."""
        worker = Worker(contestant.module, self.directory)
        answer = worker.run(contestant, **limits)
        worker.close()
        self.note(case, "alone", contestant, answer)
        return answer

    def note(self, case: str, name: str, contestant: Contestant, answer: Mapping[str, Any]) -> None:
        """Put a run into the log."""
        entry = {"case": case, "name": name, **{k: v for k, v in answer.items() if k != "sums"}}
        self.log.append(entry | asdict(contestant))
        fault = answer.get("error") or answer.get("fault")
        took = fault or f"{answer['seconds']:.4f} s, {answer['cpu']:.4f} s of processors"
        print(f"  {case}: {name}: {took}", file=sys.stderr, flush=True)

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()

    def _worker(self, module: str) -> Worker:
        if module not in self.workers or self.workers[module].process.poll() is not None:
            self.workers[module] = Worker(module, self.directory)
        return self.workers[module]
