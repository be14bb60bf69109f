"""A config on the runner and on the local engine: the files that both write must agree."""

from __future__ import annotations

import json

import yaml
from test_beam_bounded import assert_close, lines

from aggmc_beam.cli import main
from aggmc_beam.local import output


def on_beam(runner, tmp_path, plain, side="beam"):
    """Run a config as the command line does; its exit code."""
    return main(["run", str(_saved(tmp_path, plain, side)), "--engine", "beam", "--", *runner.options])


def compare(runner, tmp_path, plain):
    """Run both engines. Estimates, rejections and ledger are the same, numbers to 1e-10; returned as read."""
    assert on_beam(runner, tmp_path, plain) == 0
    assert main(["run", str(_saved(tmp_path, plain, "local")), "--engine", "local"]) == 0
    found, expected = (_written(tmp_path / side) for side in ("beam", "local"))
    assert_close(found, expected)
    return found


def _saved(tmp_path, plain, side):
    given = {**plain, "output": {**plain.get("output", {}), "directory": str(tmp_path / side)}}
    path = tmp_path / f"{side}.yaml"
    path.write_text(yaml.safe_dump(given, allow_unicode=True), encoding="utf-8")
    return path


def _written(folder):
    found = {name: lines(folder / name) for name in (output.ESTIMATES, output.REJECTED)}
    found["ledger"] = json.loads((folder / output.RUN).read_text(encoding="utf-8"))["ledger"]
    # Only the local engine looks whether files are sorted.
    found["ledger"].pop("sorted", None)
    return found
