"""Logs as JSON lines: whole, one object a line, and nothing in them that came from data unescaped."""

import json
import logging
import subprocess
import sys
from io import StringIO
from pathlib import Path

import frames
import pytest

from aggmc_beam.logs import JsonFormatter, configure


@pytest.fixture
def here(tmp_path):
    frames.save(frames.wide(frames.counts(K=25, T=12)), tmp_path / "data.csv")
    (tmp_path / "run.yaml").write_text(
        'name: "daily\\n\\e[31mred"\nstates: [home, work, ünterwegs]\ninput: {files: data.csv}\n'
        "noise: {model: binomial, alpha: 0.5}\npopulation: 200\nestimator: mom\noutput: {directory: out}\n",
        encoding="utf-8",
    )
    return tmp_path


def aggmc(here, *arguments):
    found = subprocess.run(
        [sys.executable, "-m", "aggmc_beam.cli", *arguments],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = found.stderr.splitlines()
    assert all(character.isprintable() for line in lines for character in line)
    return found.returncode, [json.loads(line) for line in lines]


@pytest.mark.parametrize("engine", ["local", "beam"])
def test_a_run_logs_its_start_and_its_end_with_the_ledger(here, engine):
    code, [first, *_, last] = aggmc(here, "--log-format", "json", "run", "run.yaml", "--engine", engine)
    assert code == 0
    assert (first["message"], first["engine"], first["level"]) == ("run started", engine, "INFO")
    assert last["message"] == "run finished"
    assert last["ledger"]["rows"]["used"] == 300
    assert first["run"] == last["run"] == "daily\n\x1b[31mred"
    assert first["time"] <= last["time"]


def test_an_error_is_one_line_with_its_hint(here):
    Path(here / "data.csv").write_text("realization,time,home,work,ünterwegs\n1,1,\x1b[2Jx,2,3\n")
    code, lines = aggmc(here, "run", "run.yaml", "--log-format", "json")
    assert code == 1
    assert lines[-1]["level"] == "ERROR"
    assert lines[-1]["exit_code"] == 1
    assert "all 1 rows were rejected" in lines[-1]["message"]
    assert "aggmc check" in lines[-1]["hint"]


def test_other_loggers_and_warnings_are_included_and_secrets_are_not():
    stream, before = StringIO(), (logging.root.handlers[:], logging.root.level)
    try:
        formatter = configure(stream)
        formatter.run = "nightly"
        logging.getLogger("apache_beam.io").warning("cannot reach https://me:pass@host/x?key=abc&page=2")
        logging.getLogger("apache_beam.io").info("chatter")
    finally:
        logging.root.handlers[:], level = before[0], before[1]
        logging.root.setLevel(level)
        logging.captureWarnings(False)
    [line] = stream.getvalue().splitlines()
    found = json.loads(line)
    assert found["message"] == "cannot reach https://host/x?&page=2"
    assert (found["logger"], found["run"]) == ("apache_beam.io", "nightly")


def test_a_traceback_stays_within_its_line():
    try:
        raise ValueError("line one\nline two\u2028\x07")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 1, "failed", (), sys.exc_info())
    text = JsonFormatter().format(record)
    assert text.isascii()
    assert text.isprintable()
    assert "line two" in json.loads(text)["traceback"]
