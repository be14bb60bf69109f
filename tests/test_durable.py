"""Output is committed whole, to the disk, by one run at a time."""

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import frames
import polars as pl
import pytest

import aggmc_beam as am
from aggmc_beam import durable
from aggmc_beam.cli import main
from aggmc_beam.local import lock, staging
from aggmc_beam.local.lock import NAME, OutputLock
from aggmc_beam.local.staging import Staging
from aggmc_beam.local.unchanged import check_unchanged, stamps


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with two days of data, a config, and the output of the first day."""
    monkeypatch.chdir(tmp_path)
    frame = frames.wide(frames.counts(K=25, T=24))
    for day in (0, 1, 2):
        frames.save(frame.filter(pl.col("time") // 8 == day), tmp_path / f"day{day}.csv")
    Path("run.yaml").write_text(
        "name: daily\nstates: [home, work, ünterwegs]\ninput: {files: unset}\n"
        "noise: {model: binomial, alpha: 0.5}\npopulation: 200\nestimator: mom\noutput: {moments: true}\n",
        encoding="utf-8",
    )
    assert main(command(0)) == 0
    return tmp_path


def command(day, *more):
    resume = ["--set", "input.resume=out/moments.aggmc"] if day else []
    return ["run", "run.yaml", "--quiet", "--set", f"input.files=day{day}.csv", *resume, *more]


def content(directory="out"):
    return {p.name: p.read_bytes() for p in Path(directory).iterdir()}


def records():
    return am.estimate("out", noise=am.Binomial(0.5), population=200).counts["records"]


class Faults:
    """Calls to the system as they are made; call number `fail_at` of those to `name` fails."""

    def __init__(self, monkeypatch, name=None, fail_at=None):
        self.name, self.fail_at, self.calls = name, fail_at, []
        for each in ("fsync", "replace"):
            monkeypatch.setattr(os, each, self._wrapped(each, getattr(os, each)))

    def _wrapped(self, name, real):
        def call(*arguments, **more):
            about = os.fstat(arguments[0]).st_ino if name == "fsync" else self._rename(*arguments)
            self.calls.append((name, about))
            if name == self.name and self.number(name) == self.fail_at:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*arguments, **more)

        return call

    def _rename(self, source, target):
        return os.stat(source).st_ino, Path(target).name

    def number(self, name):
        return sum(found == name for found, _ in self.calls)


def test_content_is_on_the_disk_before_a_name_points_at_it_and_names_before_the_run_ends(here, monkeypatch):
    seen = Faults(monkeypatch)
    assert main(command(1)) == 0
    out = os.stat("out").st_ino
    renamed = [(at, *about) for at, (name, about) in enumerate(seen.calls) if name == "replace"]
    synced = {about: at for at, (name, about) in reversed(list(enumerate(seen.calls))) if name == "fsync"}
    last = {about: at for at, (name, about) in enumerate(seen.calls) if name == "fsync"}
    assert {name for _, _, name in renamed} == set(content())
    assert all(synced[inode] < at for at, inode, _ in renamed)
    *_, (vouched, _, name) = renamed
    assert name == "run.json"
    assert any(renamed[-2][0] < at < vouched for at, call in enumerate(seen.calls) if call == ("fsync", out))
    assert last[out] > vouched


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_whichever_call_fails_the_run_says_so_and_old_files_stay(here, monkeypatch, name, capfd):
    before = content()
    with monkeypatch.context() as patched:
        counted = Faults(patched)
        assert main(command(1)) == 0
    number = counted.number(name)
    assert number >= len(before)
    for at in range(1, number + 1):
        for old, data in before.items():
            Path("out", old).write_bytes(data)
        capfd.readouterr()
        with monkeypatch.context() as patched:
            Faults(patched, name, at)
            assert main(command(1)) == 1
        assert (
            "cannot write to 'out': Input/output error; what was there is unchanged" in capfd.readouterr().err
        )
        assert content() == before


@pytest.mark.parametrize("at", [2, 4])
def test_old_files_come_back_also_where_a_file_cannot_have_two_names(here, monkeypatch, at):
    before = content()

    def no_link(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_link)
    with monkeypatch.context() as patched:
        Faults(patched, "replace", at)
        assert main(command(1)) == 1
    assert content() == before
    assert main(command(1)) == 0
    assert records() == 25 * 16


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_staging_directory_leaves_no_open_file_and_hides_no_error(tmp_path):
    opened = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with Staging(tmp_path) as aside:
            (aside / "a").write_text("1")
    assert len(os.listdir("/proc/self/fd")) == opened
    with pytest.raises(KeyError), Staging(tmp_path) as aside:
        raise {}[shutil.rmtree(aside)]
    assert len(os.listdir("/proc/self/fd")) == opened
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_first_run_whose_renames_fail_leaves_nothing(here, monkeypatch):
    with monkeypatch.context() as patched:
        Faults(patched, "replace", 3)
        assert main(command(0, "--set", "output.directory=new")) == 1
    assert not Path("new").exists()


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_saved_sums_are_synced_renamed_and_synced(tmp_path, monkeypatch, name):
    path = tmp_path / "sums.aggmc"
    durable.write_atomically(path, b"old")
    seen = Faults(monkeypatch)
    durable.write_atomically(path, b"new")
    assert [call for call, _ in seen.calls] == ["fsync", "replace", "fsync"]
    assert seen.calls[-1] == ("fsync", os.stat(tmp_path).st_ino)
    with monkeypatch.context() as patched:
        Faults(patched, name, 1)
        with pytest.raises(OSError, match="Input/output"):
            durable.write_atomically(path, b"newer")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["sums.aggmc"]


def test_staged_files_of_a_live_run_stay_and_those_of_a_dead_one_go(tmp_path):
    dead = tmp_path / f"{staging.PREFIX}dead"
    dead.mkdir()
    with Staging(tmp_path) as mine, Staging(tmp_path) as other:
        assert mine.is_dir()
        assert other.is_dir()
        assert not dead.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_the_place_of_a_file_is_found_before_anything_is_replaced(here, capfd):
    Path("out/report.html").mkdir()
    before = {p.name: p.read_bytes() for p in Path("out").iterdir() if p.is_file()}
    assert main(command(1, "--set", "output.report=true")) == 1
    assert "'out/report.html' is a directory" in capfd.readouterr().err
    assert {p.name: p.read_bytes() for p in Path("out").iterdir() if p.is_file()} == before


def test_of_two_runs_at_once_one_is_told_who_holds_the_directory(here, capfd):
    with OutputLock("out", "the other"):
        assert main(command(1)) == 1
        told = capfd.readouterr().err
    assert f"run 'the other' (process {os.getpid()} on " in told
    assert "is writing to 'out'" in told
    assert "--wait" in told
    assert records() == 25 * 8
    assert main(command(1)) == 0
    assert NAME not in content()
    assert records() == 25 * 16


def test_a_run_that_waits_goes_on_from_what_the_first_one_wrote(here):
    def start(day):
        return subprocess.Popen([sys.executable, "-m", "aggmc_beam.cli", *command(day, "--wait")])

    with OutputLock("out", "held until both wait"):
        both = [start(1), start(2)]
        time.sleep(1.5)
        assert [p.poll() for p in both] == [None, None]
    assert [p.wait(60) for p in both] == [0, 0]
    assert records() == 25 * 24


def test_a_lock_ends_with_the_process_that_held_it(here):
    holder = (
        "import os\nfrom aggmc_beam.local.lock import OutputLock\n"
        "OutputLock('out', 'killed').__enter__()\nos.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", holder], check=False).returncode == -9
    assert "killed" in Path("out", NAME).read_text()
    assert main(command(1)) == 0


def test_whoever_waits_says_so_once_and_for_whom(here, caplog, monkeypatch):
    looks = []
    first = OutputLock("out", "a run with a long name, so that what is written next is shorter")
    with first:
        path = Path("out", NAME)
        left = path.read_text()

    def pause(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            held.__exit__(None, None, None)

    path.write_text(left)  # as a run leaves it that was killed
    held = OutputLock("out", "b")
    held.__enter__()
    assert path.read_text().startswith("run 'b' (process")
    assert path.read_text().endswith("UTC)")
    assert len(path.read_text()) < len(left)
    monkeypatch.setattr(lock.time, "sleep", pause)
    with caplog.at_level("WARNING", "aggmc"), OutputLock("out", "c", wait=True):
        pass
    assert len(looks) == 3
    [told] = [r.getMessage() for r in caplog.records if "waiting" in r.getMessage()]
    assert "waiting for run 'b'" in told
    assert "which is writing to out" in told


def test_a_directory_that_is_no_longer_needed_goes_with_its_lock(tmp_path):
    with OutputLock(tmp_path / "new" / "inner", "one"):
        pass
    assert not (tmp_path / "new" / "inner").exists()
    (tmp_path / "old").mkdir()
    with OutputLock(tmp_path / "old", "one"):
        pass
    assert (tmp_path / "old").exists()


def test_moments_that_were_replaced_meanwhile_are_not_lost(here, monkeypatch, capfd):
    from aggmc_beam import commands

    real = commands.run_plan

    def slow(plan, progress):
        found = real(plan, progress)
        os.replace("other/moments.aggmc", "out/moments.aggmc")  # by whom no lock is asked
        return found

    assert main([*command(2), "--set", "output.directory=other"]) == 0
    monkeypatch.setattr(commands, "run_plan", slow)
    assert main(command(1)) == 1
    assert "was replaced meanwhile by another run" in capfd.readouterr().err
    assert records() == 25 * 16


@pytest.mark.parametrize("how", ["another file", "written again"])
def test_input_is_another_one_also_when_only_its_inode_or_its_time_differs(tmp_path, how):
    path = tmp_path / "data.csv"
    path.write_text("1")
    before = stamps([str(path)])
    stat = path.stat()
    if how == "another file":
        (tmp_path / "other").write_text("2")
        os.replace(tmp_path / "other", path)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert path.stat().st_ino != stat.st_ino
    else:
        path.write_text("2")
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    with pytest.raises(am.InputError, match="changed while it was read"):
        check_unchanged(before)


@pytest.mark.skipif(os.name == "nt", reason="modes of files")
def test_saved_sums_have_the_mode_that_the_user_asks_for_and_leave_nothing_changed(tmp_path, monkeypatch):
    path, opened = tmp_path / "sums.aggmc", len(os.listdir("/dev/fd"))
    mask = os.umask(0o027)
    try:
        durable.write_atomically(path, b"1")
        assert path.stat().st_mode & 0o777 == 0o640
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(mask)
    assert len(os.listdir("/dev/fd")) == opened

    def lost(source, target):
        os.unlink(source)
        raise OSError(errno.EIO, "the disk fails")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", lost)
        with pytest.raises(OSError, match="the disk fails"):
            durable.write_atomically(path, b"2")

    def forbidden(*_):
        raise PermissionError(errno.EACCES, "not allowed")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", forbidden)
        with pytest.raises(PermissionError):
            durable.sync(tmp_path)
