"""Beam YAML, pipeline options, entry points and sinks."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import frames
import numpy as np
import polars as pl
import pytest

import aggmc_beam as am
from aggmc_beam.beam.sinks import parquet_frame, table_row, table_schema

ROOT = Path(__file__).parent.parent


def test_beam_yaml_runs_the_transform_with_an_output_for_errors(tmp_path):
    yaml_main = pytest.importorskip("apache_beam.yaml.main", reason="Beam's extra `yaml` is not installed")
    text = (ROOT / "configs/beam_pipeline.yaml").read_text(encoding="utf-8")
    text = text.replace("aggmc_provider.yaml", str(ROOT / "configs/aggmc_provider.yaml"))
    text = text.replace("{day: 2, hour: 3, home: 65", "{day: 2, hour: 3, home: .nan")
    for name in ("Estimate", "Estimate.rejected"):
        path = tmp_path / name
        text = text.replace(
            f"- type: LogForTesting\n      name: {'Show' if name == 'Estimate' else 'ShowRejected'}\n"
            f"      input: {name}\n",
            f"- type: WriteToJson\n      name: W{name}\n      input: {name}\n"
            f"      config: {{path: {path}}}\n",
        )
    yaml_main.run(["--yaml_pipeline", text, "--runner=FnApiRunner"])
    [found] = [json.loads(t) for p in tmp_path.glob("Estimate-*") for t in p.read_text().splitlines()]
    [error] = [json.loads(t) for p in tmp_path.glob("Estimate.r*") for t in p.read_text().splitlines()]
    assert found["records"] == 9
    assert np.shape(json.loads(found["details"])["transition_matrix"]) == (2, 2)
    assert "NaN" in error["msg"]


def test_an_entry_point_runs_a_config_with_changes(tmp_path):
    path = frames.save(frames.wide(frames.counts()), tmp_path / "data.csv")
    config = tmp_path / "run.yaml"
    config.write_text(json.dumps(frames.config("nothing.csv")), encoding="utf-8")
    main = runpy.run_path(str(ROOT / "pipelines/run.py"))["main"]
    out = tmp_path / "out"
    main(
        [
            str(config),
            f"--input={path}",
            f"--output_directory={out}",
            "--set=output.parquet=true",
            "--runner=FnApiRunner",
        ]
    )
    line = json.loads((out / "estimates.jsonl").read_text(encoding="utf-8"))
    row = pl.read_parquet(out / "estimates.parquet").row(0, named=True)
    assert json.loads(row["details"]) == line
    assert row["entries"][1]["probability"] == line["transition_matrix"][0][1]


def test_the_worked_example_finds_the_moves_it_was_made_from(capsys):
    main = runpy.run_path(str(ROOT / "pipelines/example.py"))["main"]
    main(["--runner=FnApiRunner"])
    assert "from 460 pairs of 480 records" in capsys.readouterr().out


def test_the_table_schema_describes_every_column_of_a_row():
    y = frames.counts()
    row = table_row(am.estimate(y, states=frames.STATES, noise=am.Binomial(0.5), population=200))
    schema = {f["name"]: f for f in table_schema()["fields"]}
    assert list(schema) == [*row, "written"]
    kinds = {"STRING": str, "FLOAT": float, "INTEGER": int}
    for name, value in row.items():
        if schema[name]["mode"] == "REPEATED":
            assert [f["name"] for f in schema[name]["fields"]] == list(value[0])
        elif value is not None:
            assert isinstance(value, kinds[schema[name]["type"]]), name
    assert len(row["entries"]) == 9
    assert parquet_frame([]).columns == list(row)
