"""Kill runs at many moments and look at what they leave. A script, so that it can fork before any thread is.

Each attempt starts from the output of day one, runs day two in a child that goes on from it, and kills the
child: after a random time, or just before or after one of the calls to the system by which output is put in place.
Then days two and three are run at once, both going on from the same moments; one of them may be killed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aggmc_beam import commands  # noqa: F401 - imported once, before the forks
from aggmc_beam.cli import main

OUT = Path("out")


def visible(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.startswith(".")}


#: The calls of a commit: content to the disk, second names for old files, new names, what was left aside removed.
CALLS = ((os, "fsync"), (os, "link"), (os, "replace"), (shutil, "rmtree"), (os, "truncate"))


def child(day: int, out: Path, kill_at: int | None = None, before: bool = True, wait: bool = False) -> int:
    """Start a run of a day; with `kill_at`, it kills itself at that call of a commit."""
    process = os.fork()
    if process:
        return process
    os.dup2(os.open("child.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    os.dup2(1, 2)
    if kill_at is not None:
        _kill_at_call(kill_at, before)
    arguments = ["run", "run.yaml", "--quiet", "--set", f"input.files=day{day}.csv"]
    arguments += ["--set", f"output.directory={out}", *(["--wait"] if wait else [])]
    if day > 1:
        arguments += ["--set", "input.resume=out/moments.aggmc"]
    os._exit(main(arguments))


def _kill_at_call(number: int, before: bool) -> None:
    seen: list[str] = []

    def wrapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def replacement(*given: Any, **more: Any) -> Any:
            seen.append(name)
            Path("calls.txt").write_text("\n".join(seen))
            is_it = len(seen) == number
            if is_it and before:
                os.kill(os.getpid(), signal.SIGKILL)
            found = call(*given, **more)
            if is_it:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return replacement

    for module, name in CALLS:
        setattr(module, name, wrapped(name, getattr(module, name)))


def finish(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def check(old: dict[str, bytes], new: dict[str, bytes]) -> str:
    """Which state a killed run left; raises if any visible file is neither the old nor the new one."""
    found = visible(OUT)
    assert set(found) == set(old), sorted(found)
    for name, data in found.items():
        assert data in (old[name], new[name]), f"{name} is neither the old file nor the new one"
    if found == old:
        return "before"
    if found == new:
        return "after"
    assert found["run.json"] == old["run.json"], "run.json came before the files that it vouches for"
    return "between"


def restore(old: dict[str, bytes]) -> None:
    shutil.rmtree(OUT)
    OUT.mkdir()
    for name, data in old.items():
        (OUT / name).write_bytes(data)


def attempts(number: int, seconds: float, calls: int):
    """(arguments of child, seconds to wait before the kill or None)."""
    rng = random.Random(1)
    for _ in range(number):
        yield {}, rng.uniform(0, 1.1 * seconds)
    for call in range(1, calls + 1):
        yield {"kill_at": call}, None
    yield {"kill_at": calls, "before": False}, None


def run(number: int) -> None:
    assert finish(child(1, OUT)) == 0
    old = visible(OUT)
    began = time.monotonic()
    assert finish(child(2, OUT)) == 0
    seconds = time.monotonic() - began
    new = visible(OUT)
    assert all(old[name] != new[name] for name in old if name != "rejected.jsonl")
    restore(old)
    assert finish(child(2, OUT, kill_at=10**9)) == 0
    calls = Path("calls.txt").read_text().split()
    assert {name for _, name in CALLS} == set(calls)
    seen = {"before": 0, "between": 0, "after": 0}
    for options, wait in attempts(number, seconds, len(calls)):
        restore(old)
        process = child(2, OUT, **options)
        if wait is not None:
            time.sleep(wait)
            os.kill(process, signal.SIGKILL)
        finish(process)
        seen[check(old, new)] += 1
        first = (OUT / "moments.aggmc").read_bytes() == old["moments.aggmc"]
        assert finish(child(2, OUT)) == 0
        assert not [path for path in OUT.iterdir() if path.name.startswith(".")], "debris was left"
        if first:  # what had been saved was not touched, so nothing tells the two runs apart
            assert visible(OUT) == new
        else:
            assert sums(OUT) == sums_of(new)
    seen |= at_once(number, seconds, old)
    seen["calls"] = len(calls)
    print(" ".join(f"{name}={times}" for name, times in seen.items()))


def at_once(number: int, seconds: float, old: dict[str, bytes]) -> dict[str, int]:
    """Days two and three at the same time, by turns with --wait and without; half of the time one is killed."""
    restore(old)
    assert [finish(child(day, OUT)) for day in (2, 3)] == [0, 0]
    whole, rng = sums(OUT), random.Random(2)
    seen = {"both": 0, "told": 0, "killed": 0}
    for attempt in range(number):
        restore(old)
        wait, kill = attempt % 2 == 0, attempt % 4 < 2
        both = [child(day, OUT, wait=wait) for day in (2, 3)]
        if kill:
            time.sleep(rng.uniform(0, 1.2 * seconds))
            os.kill(rng.choice(both), signal.SIGKILL)
        codes = [finish(process) for process in both]
        assert set(codes) <= {0, 1, -signal.SIGKILL}, codes
        assert not wait or 1 not in codes, codes
        seen["both"] += codes == [0, 0]
        seen["told"] += 1 in codes
        seen["killed"] += -signal.SIGKILL in codes
        before = sums(OUT)
        again = [day for day, code in zip((2, 3), codes, strict=True) if code]
        assert again or before == whole, "of two runs that ended well, the records of one are lost"
        assert [finish(child(day, OUT)) for day in again] == [0] * len(again)
        assert sums(OUT) == whole
    return seen


def sums(directory: Path):
    return sums_of(visible(directory))


def sums_of(files: dict[str, bytes]):
    """Saved sums and estimates to the last bit, but for what was not used: those rows were met twice."""
    import json

    from aggmc_beam.sums.moments import Counts
    from aggmc_beam.sums.state import AggregationState

    state = AggregationState.from_bytes(files["moments.aggmc"])
    for group, counts in state.sums.counts.items():
        unused = Counts(duplicates=-counts.duplicates, rejected=-counts.rejected)
        state.sums = state.sums.counted(unused, group)
    lines = [json.loads(line) for line in files["estimates.jsonl"].splitlines()]
    for line in lines:
        del line["counts"]["duplicates"], line["counts"]["rejected"]
    return state.to_bytes(), lines


if __name__ == "__main__":
    run(int(sys.argv[1]))
