"""A TaskManager is killed in the middle of a stream: Flink goes on from a checkpoint, and sums are exact."""

from __future__ import annotations

import time

import flink
import page
import pytest
from streams import Stream, rows
from test_unbounded import assert_same


class Log:
    """What happened when, kept beside the outcomes."""

    def __init__(self, runner):
        self.path, self.begin = page.RESULTS / f"failover-{runner.name}.log", time.monotonic()
        page.RESULTS.mkdir(exist_ok=True)
        self.path.write_text(f"{runner.versions}\n", encoding="utf-8")

    def __call__(self, text):
        with open(self.path, "a", encoding="utf-8") as log:
            log.write(f"{time.monotonic() - self.begin:6.1f} s  {text}\n")


@pytest.mark.feature("failover")
def test_sums_are_exact_after_a_taskmanager_is_killed(runner, tmp_path):
    try:
        lose_a_taskmanager(runner, tmp_path)
    finally:
        flink.up()


def lose_a_taskmanager(runner, tmp_path):
    items, say = rows(T=60), Log(runner)
    with Stream(runner, tmp_path) as stream:
        job = stream.wait(running_job, lambda: "a running job")
        stream.put(items[:80])
        first = stream.until(80)
        done = checkpoints(job)
        stream.wait(lambda: checkpoints(job) > done, lambda: "a checkpoint of these records")
        say(f"refresh {first['refresh']}: {first['counts']}; {checkpoints(job)} checkpoints")
        stream.put(items[80:160])
        pid = flink.kill("taskmanager-1")
        say(f"taskmanager-1 (process {pid}) killed with SIGKILL while 80 more records are read")
        stream.wait(lambda: recovered(job), lambda: "a job that came back")
        say(f"the job runs again, restored from a checkpoint ({recovered(job)} times)")
        stream.put([*items[160:], *items[:7]])
        last = stream.until(len(items), duplicates=7)
        say(f"refresh {last['refresh']}: {last['counts']}; restored: {recovered(job)}")
        expected = stream.local(items)
        assert_same(last, expected)
        again = [e["refresh"] for e in stream.estimates()]
        say(f"{len(again)} estimates written, {len(again) - len(set(again))} of them again after the restart")
        assert not stream.rejected()
        say("the last estimate is that of the local engine from the same records, to 1e-10")


def running_job():
    found = [job["id"] for job in flink.rest("jobs")["jobs"] if job["status"] == "RUNNING"]
    return found[0] if found else None


def checkpoints(job):
    return flink.rest(f"jobs/{job}/checkpoints")["counts"]["completed"]


def recovered(job):
    """How often the job came back from a checkpoint; it must run again, with all its tasks."""
    state = flink.rest(f"jobs/{job}")
    runs = state["state"] == "RUNNING" and all(v["status"] == "RUNNING" for v in state["vertices"])
    return flink.rest(f"jobs/{job}/checkpoints")["counts"]["restored"] if runs else 0
