"""Files of a watched folder as records. The watching itself needs a runner of its own: tests/conformance."""

from __future__ import annotations

import json

import apache_beam as beam
import collected
import frames
import numpy as np
import pytest

from aggmc_beam.beam.exact import REJECTED
from aggmc_beam.beam.plan import schema_of
from aggmc_beam.beam.run import pipeline_options
from aggmc_beam.beam.watch import ReadRecords
from aggmc_beam.config import read_config
from aggmc_beam.errors import InputError
from aggmc_beam.local.plan import Plan


def watched(path, **more):
    config = frames.config(path, stream={"refresh": "1s"}, **more)
    config["input"]["watch"] = "1s"
    return read_config(config)


def read(plan, paths):
    with beam.Pipeline("FnApiRunner") as pipeline:
        found = (
            pipeline
            | beam.Create([str(p) for p in paths])
            | beam.ParDo(ReadRecords(plan)).with_outputs(REJECTED, main="records")
        )
        _ = found.records | beam.Map(collected.keep, "watched")
        _ = found[REJECTED] | "Rejected" >> beam.Map(collected.keep, "watched/rejected")
    return collected.FOUND.pop("watched", []), collected.FOUND.pop("watched/rejected", [])


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_files_of_every_format_become_records(suffix, tmp_path):
    y = frames.counts(K=3, T=5)
    path = frames.save(frames.lists(frames.wide(y)), tmp_path / f"part.{suffix}")
    config = watched(path)
    found, rejected = read(Plan(config, [], schema_of(config)), [path])
    assert not rejected
    assert len(found) == 15
    for record in found:
        np.testing.assert_array_equal(record.counts, y[int(record.realization), record.time])


def test_rows_and_files_that_cannot_be_read_are_set_aside_with_their_place(tmp_path):
    good = {"realization": 1, "time": 2, "counts": [1, 2, 3]}
    lines = [json.dumps(good), "garbage", json.dumps({**good, "counts": [1]})]
    path = tmp_path / "some.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 no")
    config = watched(tmp_path / "*")
    plan = Plan(config, [], schema_of(config))
    found, rejected = read(plan, [path, broken, tmp_path / "gone.jsonl"])
    assert [(r.realization, r.time) for r in found] == [("1", 2)]
    rows = [r for r in rejected if r["source"] is not None]
    assert [r["source"]["row"] for r in rows] == [2, 3]
    files = [r["record"] for r in rejected if r["source"] is None]
    assert sorted(files) == sorted([str(broken), str(tmp_path / "gone.jsonl")])


def test_a_runner_that_cannot_watch_is_refused():
    config = watched("none/*.jsonl")
    with pytest.raises(InputError, match="cannot watch a folder"):
        pipeline_options(["--runner=BundleBasedDirectRunner"], config.input)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": {"layout": "long"}}, "input.watch does not go with input.layout: long"),
        ({"input": {"resume": "old.aggmc"}}, "input.watch does not go with input.resume"),
        ({"states": "from-data"}, "states must be listed for a stream"),
    ],
)
def test_settings_that_a_watched_folder_cannot_have(change, message):
    with pytest.raises(InputError, match=message):
        watched("none/*.jsonl", **change)
