"""SIGKILL of local runs, which resume from the day before, at any moment; also of two at once."""

import os
import subprocess
import sys
from pathlib import Path

import frames
import polars as pl
import pytest

#: Random moments; every call of a commit is a moment besides. `make chaos` sets the full number.
KILLS = int(os.environ.get("AGGMC_KILLS", "4"))
SCRIPT = Path(__file__).with_name("killed_runs.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_killed_runs_leave_whole_files_and_running_them_again_gives_the_clean_result(tmp_path):
    frame = frames.wide(frames.counts(K=40, T=900))
    for day in (1, 2, 3):
        part = frame.filter(pl.col("time") // 300 == day - 1)
        frames.save(pl.concat([part, part[:100]]), tmp_path / f"day{day}.csv")
        with open(tmp_path / f"day{day}.csv", "a") as stream:
            stream.write(f"0,{day},x,y,z\n")
    (tmp_path / "run.yaml").write_text(
        "states: [home, work, ünterwegs]\ninput: {files: unset}\nnoise: {model: binomial, alpha: 0.5}\n"
        "population: 200\nestimator: mom\nuncertainty: {block: 20}\noutput: {moments: true}\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0", "POLARS_MAX_THREADS": "2"}
    found = subprocess.run(
        [sys.executable, SCRIPT, str(KILLS)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    log = tmp_path / "child.log"
    assert found.returncode == 0, found.stderr + (log.read_text() if log.exists() else "")
    print(
        f"{KILLS} random kills, one at every call of a commit, {KILLS} pairs of runs at once: {found.stdout}"
    )
    seen = dict(pair.split("=") for pair in found.stdout.split())
    assert int(seen["before"]) > 0
    assert int(seen["between"]) > 0
    assert int(seen["after"]) > 0
    assert int(seen["both"]) + int(seen["told"]) + int(seen["killed"]) >= KILLS
