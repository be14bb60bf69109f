"""A disk that is full while a run writes: a clear error, and the old output as it was."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import frames
import numpy as np
import pytest

import aggmc_beam as am

# The child limits itself: what subprocess calls between fork and exec (`preexec_fn`) runs beside gRPC's
# threads, which gRPC starts again after a fork and which abort when their files are closed.
LIMITED = """\
import resource, sys
from aggmc_beam.cli import main
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with a finished run, and data for a next one."""
    monkeypatch.chdir(tmp_path)
    frames.save(frames.wide(frames.counts(K=25, T=12)), tmp_path / "data.csv")
    return tmp_path


def aggmc(out, files="data.csv", limit=None, **more):
    settings = {"output.directory": out, "output.moments": "true", "input.files": files, **more}
    Path("run.yaml").write_text(
        "states: [home, work, ünterwegs]\ninput: {files: unset}\nnoise: {model: binomial, alpha: 0.5}\n"
        "population: 200\nestimator: mom\noutput: {directory: unset}\n",
        encoding="utf-8",
    )
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]

    program = ["-m", "aggmc_beam.cli"] if limit is None else ["-c", LIMITED, str(limit)]
    return subprocess.run(
        [sys.executable, *program, "run", "run.yaml", *given], capture_output=True, text=True, check=False
    )


def content(directory):
    return {p.name: p.read_bytes() for p in Path(directory).iterdir()}


def check_refused(found, out, before):
    assert found.returncode == 1
    assert f"cannot write to '{out}'" in found.stderr
    assert "what was there is unchanged" in found.stderr
    assert "Traceback" not in found.stderr
    assert content(out) == before


@pytest.mark.parametrize("limit", [500, 3000])
def test_a_limit_on_the_size_of_files_is_told_and_old_files_stay(here, limit):
    assert aggmc("out").returncode == 0
    before = content("out")
    frames.save(frames.wide(frames.counts(K=25, T=20)), here / "more.csv")
    check_refused(aggmc("out", "more.csv", limit), "out", before)


def test_a_full_disk_is_told_and_old_files_stay(here):
    disk = here / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        assert aggmc(f"{disk}/out").returncode == 0
        before = content(disk / "out")
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        for left in (3, 1, 0):  # blocks: room for a file, for the directory, for nothing
            (disk / "ballast").write_bytes(bytes(free - left * 4096))
            check_refused(aggmc(f"{disk}/out"), f"{disk}/out", before)
        (disk / "ballast").unlink()
        assert aggmc(f"{disk}/out").returncode == 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_saved_moments_survive_a_write_that_fails(tmp_path, monkeypatch):
    path = tmp_path / "sums.aggmc"
    am.Sums.zero(2).save(path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            am.Sums.of(np.random.default_rng(0).random((1, 9, 50))).save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["sums.aggmc"]
