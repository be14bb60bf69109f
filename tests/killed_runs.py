"""Kill a run at many moments and look at what it leaves. A script, so that it can fork before any thread is.

Each attempt starts from the output of day one, runs day two in a child that goes on from it, and kills the
child: after a random time, or just before or after one of the renames that make the output visible.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from aggmc_beam import commands  # noqa: F401 - imported once, before the forks
from aggmc_beam.cli import main

OUT = Path("out")


def visible(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.startswith(".")}


def child(day: int, out: Path, kill_at: int | None = None, before: bool = True) -> int:
    """Start a run of a day; with `kill_at`, it kills itself at that rename."""
    process = os.fork()
    if process:
        return process
    os.dup2(os.open("child.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    os.dup2(1, 2)
    if kill_at is not None:
        _kill_at_rename(kill_at, before)
    arguments = ["run", "run.yaml", "--quiet", "--set", f"input.files=day{day}.csv"]
    arguments += ["--set", f"output.directory={out}"]
    if day > 1:
        arguments += ["--set", "input.resume=out/moments.aggmc"]
    os._exit(main(arguments))


def _kill_at_rename(number: int, before: bool) -> None:
    rename, seen = os.replace, []

    def replace(source, target):
        if Path(target).parent.name != OUT.name:
            return rename(source, target)
        seen.append(target)
        if before and len(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)
        if len(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace


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


def attempts(number: int, seconds: float, files: int):
    """(description, arguments of child, seconds to wait before the kill or None)."""
    rng = random.Random(1)
    for _ in range(number):
        wait = rng.uniform(0, 1.1 * seconds)
        yield {}, wait
    for rename in range(1, files + 1):
        yield {"kill_at": rename}, None
    yield {"kill_at": files, "before": False}, None


def run(number: int) -> None:
    assert finish(child(1, OUT)) == 0
    old = visible(OUT)
    began = time.monotonic()
    assert finish(child(2, OUT)) == 0
    seconds = time.monotonic() - began
    new = visible(OUT)
    assert all(old[name] != new[name] for name in old if name != "rejected.jsonl")
    seen = {"before": 0, "between": 0, "after": 0}
    for options, wait in attempts(number, seconds, len(old)):
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
    print(" ".join(f"{name}={times}" for name, times in seen.items()))


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
