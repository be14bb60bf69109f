"""A worker process that is killed, on Beam's runner with several processes: an error, not an endless wait."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import frames
import polars as pl
import pytest

WORKER = "apache_beam.runners.worker.sdk_worker_main"


def descendants(process):
    """Processes below one, by number, as Linux tells."""
    lists = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
    for child in map(int, " ".join(lists).split()):
        yield child
        yield from descendants(child)


def workers(process):
    found = []
    for child in descendants(process):
        command = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        if WORKER.encode() in command:  # the shell that started it has it within a word
            found.append(child)
    return found


@pytest.mark.chaos
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to find the worker")
def test_a_worker_that_is_killed_fails_the_run_and_leaves_the_old_output(tmp_path):
    frame = frames.wide(frames.counts(K=60, T=1000))
    for part in range(6):
        frames.save(frame.filter(pl.col("realization") % 6 == part), tmp_path / f"part{part}.csv")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "estimates.jsonl").write_text("old\n")
    (tmp_path / "run.yaml").write_text(
        "states: [home, work, ünterwegs]\ninput: {files: part*.csv}\nengine: beam\n"
        "noise: {model: binomial, alpha: 0.5}\npopulation: 200\nestimator: mom\noutput: {directory: out}\n",
        encoding="utf-8",
    )
    options = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "aggmc_beam.cli", "run", "run.yaml", "--", *options],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        found = []
        while len(found) < 2 and process.poll() is None:
            time.sleep(0.05)
            found = workers(process.pid)
        os.kill(found[0], signal.SIGKILL)
        _, err = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 1
    assert "a worker process was lost (Worker subprocess exited with return code 137)" in err
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["estimates.jsonl"]
    assert (tmp_path / "out" / "estimates.jsonl").read_text() == "old\n"
