"""Input that is cut, replaced or rewritten while a run reads it, or between check and run."""

import os
import re

import frames
import polars as pl
import pytest

import aggmc_beam as am
from aggmc_beam.cli import main
from aggmc_beam.config import read_config
from aggmc_beam.local import engine, run, sources, text

FORMATS = ["csv", "jsonl", "parquet"]


def cut(path):
    os.truncate(path, path.stat().st_size // 3)


def append(path):
    with open(path, "ab") as stream:
        stream.write(b"1,99,1,2,3\n")


def replace(path):
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.replace(other, path)


def remove(path):
    path.unlink()


def save(path, rows=30_000):
    frame = frames.wide(frames.counts(K=30, T=rows // 30))
    if path.suffix == ".parquet":
        frame.write_parquet(path, row_group_size=500)
        return path
    return frames.save(frame, path)


@pytest.mark.parametrize("stage", ["looking", "summing"])
@pytest.mark.parametrize("change", [cut, append, replace, remove])
@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_that_changes_while_it_is_read_is_told(suffix, change, stage, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "HELD_VALUES", 3000)
    monkeypatch.setattr(engine, "BLOCK_VALUES", 3000)
    monkeypatch.setattr(text, "PIECE", 1 << 14)
    monkeypatch.setattr(sources, "BATCH_VALUES", 3000)
    path = save(tmp_path / f"data.{suffix}")
    changed = []

    def progress(now, done, total):
        if now == stage and not changed:
            changed.append(done)
            change(path)

    with pytest.raises(am.InputError, match=rf"data.{suffix} changed while it was read"):
        run(read_config(frames.config(path)), progress)
    assert changed


def test_a_file_that_changes_while_rejected_rows_are_looked_up_leaves_the_old_output(tmp_path, capsys):
    path = save(tmp_path / "data.csv", 300)
    append_bad = path.read_bytes() + b"1,5,x,2,3\n"
    path.write_bytes(append_bad)
    result = run(read_config(frames.config(path)))
    append(path)
    with pytest.raises(am.InputError, match="changed while it was read"):
        list(result.rejections())


def run_yaml(tmp_path, path):
    (tmp_path / "run.yaml").write_text(
        f"states: [home, work, ünterwegs]\ninput: {{files: {path}}}\n"
        "noise: {model: binomial, alpha: 0.5}\npopulation: 200\nestimator: mom\n"
        f"output: {{directory: {tmp_path / 'out'}}}\n",
        encoding="utf-8",
    )
    return str(tmp_path / "run.yaml")


CHANGES = {
    "a column is gone": (lambda f: f.drop("work"), 2, "no column 'work'|neither a column"),
    "counts are text now": (lambda f: f.with_columns(home=pl.lit("x")), 1, "all 300 rows were rejected"),
    "no rows are left": (lambda f: f.head(0), 1, "no rows"),
}


@pytest.mark.parametrize("suffix", FORMATS[::2])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_between_check_and_run_is_checked_again(change, suffix, tmp_path, capsys):
    edit, code, message = CHANGES[change]
    frame = frames.wide(frames.counts(K=30, T=10))
    path = frames.save(frame, tmp_path / f"data.{suffix}")
    yaml = run_yaml(tmp_path, path)
    assert main(["check", yaml]) == 0
    frames.save(edit(frame), path)
    capsys.readouterr()
    assert main(["run", yaml]) == code
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_cut_between_check_and_run_is_refused_or_accounted_for(suffix, tmp_path, capsys):
    path = save(tmp_path / f"data.{suffix}", 300)
    yaml = run_yaml(tmp_path, path)
    assert main(["check", yaml]) == 0
    cut(path)
    code = main(["run", yaml])
    printed = capsys.readouterr()
    if suffix == "parquet":  # its directory is at the end
        assert code == 2
        assert "cannot be read as Parquet" in printed.err
    else:  # a shorter file, whose last line is in the ledger
        assert code == 0
        assert " 0 late" in printed.out
