"""Flows, forecasts and alarms in pipelines, bounded and streaming."""

from __future__ import annotations

import json

import apache_beam as beam
import collected
import numpy as np
import polars as pl
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Arrivals
from walks import chain, walk

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions, FollowUp, Stream
from aggmc_beam.beam.follow_up_files import follow_stream
from aggmc_beam.beam.live_coder import LiveCoder
from aggmc_beam.beam.parsing import ParseRecords
from aggmc_beam.beam.plan import plan_of
from aggmc_beam.beam.unbounded import Refresh
from aggmc_beam.cli import main
from aggmc_beam.config import read_config
from aggmc_beam.sums.records import Records
from aggmc_beam.uses.live import Live, Wanted

STATES = ["a", "b", "c", "d"]
KINDS = ("flows", "forecasts", "scores", "alarms", "changes", "rejected")


def rows(n, groups=("x",)):
    K, T, _ = n.shape
    return [
        {"region": g, "realization": f"r{k}", "time": t, "counts": n[k, t].tolist()}
        for g in groups
        for t in range(T)
        for k in range(K)
    ]


def told(records, runner, options, name, **wanted):
    """Rows of each output."""
    options = {"population": 300, "group_by": ["region"], "estimator": "mom", **options}
    streaming = PipelineOptions(["--streaming"]) if "stream" in options else None
    with beam.Pipeline(runner, options=streaming) as pipeline:
        read = pipeline | records
        found = read | EstimateTransitions(STATES, **options)
        of_records = {k: v for k, v in options.items() if k not in ("estimator", "stream")}
        follow = (read, found.estimates) | FollowUp(STATES, **wanted, **of_records)
        _ = found.estimates | "Kept" >> beam.Map(collected.keep, f"{name}/estimates")
        for kind in KINDS:
            _ = getattr(follow, kind) | kind >> beam.Map(collected.keep, f"{name}/{kind}")
    return {k: collected.FOUND.pop(f"{name}/{k}", []) for k in (*KINDS, "estimates")}


def test_a_bounded_pipeline_says_what_the_functions_say():
    n, _ = walk(chain(), K=6, T=30)
    items = rows(n, ("x", "y"))
    shuffled = [items[i] for i in np.random.default_rng(0).permutation(len(items))]
    found = told(beam.Create([*shuffled, items[0]]), "FnApiRunner", {}, "bounded", forecast=2, alarms=0.05)
    (est,) = (e for e in found["estimates"] if e.group == {"region": "y"})
    expected = am.flows(n, est)
    flows = sorted(
        (r for r in found["flows"] if r["region"] == "y"),
        key=lambda r: (r["realization"], r["time"], r["from"], r["to"]),
    )
    assert len(found["flows"]) == 2 * 6 * 29 * 16
    for name in ("mean", "lower", "upper"):
        assert np.allclose([r[name] for r in flows], getattr(expected, name).ravel(), atol=1e-6)
    ahead = [r for r in found["forecasts"] if (r["region"], r["realization"]) == ("x", "r3")]
    assert np.allclose([r["mean"] for r in ahead], est.forecast(n[3], 2).mean.ravel())
    assert not found["rejected"]


def test_a_stream_tells_each_flow_once_and_checks_its_forecasts():
    n, _ = walk(chain(), K=3, T=60)
    stream = Arrivals()
    for first in range(0, 60, 15):
        items = rows(n[:, first : first + 15])
        for row in items:
            row["time"] += first
        stream = stream.add_elements([*items, items[0]]).advance_processing_time(10**10)
    options = {"stream": Stream(), "block": 5, "replicates": 6}
    found = told(
        stream.advance_watermark_to_infinity(), "BundleBasedDirectRunner", options, "live", forecast=3
    )
    pairs = [(r["realization"], r["time"], r["from"], r["to"]) for r in found["flows"]]
    assert len(pairs) == len(set(pairs)) == 3 * 59 * 16
    assert {r["horizon"] for r in found["scores"]} == {1, 2, 3}
    assert {r["time"] for r in found["forecasts"]} >= {15, 16, 17, 60, 61, 62}


def test_an_alarm_of_a_stream_is_for_what_came_since():
    n, _ = walk(chain(), K=1, T=300)
    n = n.astype(float)
    n[0, 280] += [-70, 70, 0, 0]
    stream = Arrivals()
    for first in range(0, 300, 100):
        items = rows(n[:, first : first + 100])
        for row in items:
            row["time"] += first
        stream = stream.add_elements(items).advance_processing_time(10**10)
    options = {"stream": Stream(), "block": 5, "replicates": 6}
    found = told(
        stream.advance_watermark_to_infinity(), "BundleBasedDirectRunner", options, "alarm", alarms=0.01
    )
    assert 280 in [r["time"] for r in found["alarms"]]
    assert {r["rate"] for r in found["alarms"]} == {0.01}
    assert len(found["alarms"]) < 10


def test_a_realization_that_is_not_closed_is_told_with_the_reason():
    n, _ = walk(chain(), K=2, T=20)
    n = n.astype(float)
    n[1, 3] -= 1
    found = told(beam.Create(rows(n)), "FnApiRunner", {}, "open")
    assert [r["record"] for r in found["rejected"]] == [{"realization": "r1"}]
    assert "its total changes" in found["rejected"][0]["reason"]
    assert {r["realization"] for r in found["flows"]} == {"r0"}


@pytest.mark.parametrize("wanted", [{"forecast": 0}, {"alarms": 2.0}])
def test_what_cannot_be_told_is_refused(wanted):
    with pytest.raises(am.InputError, match="must be a"):
        FollowUp(STATES, **wanted)


def test_what_is_remembered_survives_its_bytes():
    n, _ = walk(chain(), K=2, T=40)
    est, coder = am.estimate(n, population=300), LiveCoder()
    wanted = Wanted(True, 2, 0.1)
    state, _ = Live().tell([Records.of_array(n[:, :30].astype(float))], est, wanted)
    again = coder.decode(coder.encode(state))
    assert coder.encode(again) == coder.encode(state)
    assert coder.decode(coder.encode(Live())).times == 0
    whole = Records.of_array(n.astype(float))
    for one, other in zip(
        state.tell([whole], est, wanted)[1][:4], again.tell([whole], est, wanted)[1][:4], strict=True
    ):
        for a, b in zip(one, other, strict=True):
            assert all(np.array_equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize(("layout", "form"), [("wide", "parquet"), ("long", "csv")])
def test_a_config_gives_the_same_tables_on_both_engines(layout, form, tmp_path):
    n, _ = walk(chain(), K=5, T=40)
    frame = pl.DataFrame(rows(n))
    frame = frame.drop("counts").with_columns(
        pl.Series(s, [r["counts"][i] for r in rows(n)]) for i, s in enumerate(STATES)
    )
    if layout == "long":
        index = ["region", "realization", "time"]
        frame = frame.unpivot(STATES, index=index, variable_name="state", value_name="count")
    frame.sample(fraction=1, shuffle=True, seed=1).write_csv(tmp_path / "data.csv")
    config = tmp_path / "config.yaml"
    config.write_text(
        f"states: {STATES}\ninput: {{files: {tmp_path}/data.csv, layout: {layout}}}\n"
        "group_by: [region]\npopulation: 300\nestimator: mom\n"
        f"output: {{directory: {tmp_path}/out, flows: true, forecast: 2, form: {form}}}\n"
    )
    found = {}
    read = pl.read_parquet if form == "parquet" else pl.read_csv
    for engine in ("local", "beam"):
        out = tmp_path / engine
        given = ["--set", f"output.directory={out}", "--engine", engine, "--quiet"]
        assert main(["run", str(config), *given]) == 0
        for name, order in (("flows", ["from", "to"]), ("forecast", ["state"])):
            frames = [read(p) for p in out.glob(f"{name}*.{form}")]
            found[engine, name] = pl.concat(frames).sort("realization", "time", *order)
    for name in ("flows", "forecast"):
        one, other = found["local", name], found["beam", name]
        assert one.schema == other.schema
        assert one.drop(pl.col(pl.Float64)).equals(other.drop(pl.col(pl.Float64)))
        a, b = (t.select(pl.col(pl.Float64)).to_numpy() for t in (one, other))
        assert np.allclose(a, b, atol=1e-6)


def test_a_stream_of_a_config_appends_lines(tmp_path):
    n, _ = walk(chain(), K=2, T=40)
    plan = plan_of(
        read_config(
            {
                "states": STATES,
                "input": {"pubsub": {"topic": "projects/p/topics/t"}},
                "group_by": ["region"],
                "population": 300,
                "output": {"directory": str(tmp_path), "flows": True, "forecast": 1, "alarms": 0.1},
            }
        )
    )
    stream = Arrivals()
    for first in (0, 20):
        items = rows(n[:, first : first + 20])
        for row in items:
            row["time"] += first
        stream = stream.add_elements(items).advance_processing_time(10**10)
    options = PipelineOptions(["--streaming"])
    with beam.Pipeline("BundleBasedDirectRunner", options=options) as pipeline:
        read = pipeline | stream.advance_watermark_to_infinity() | ParseRecords(plan.schema)
        follow_stream(plan, read.records, (read | Refresh(plan)).estimates)
    lines = {p.stem: [json.loads(line) for line in p.read_text().splitlines()] for p in tmp_path.iterdir()}
    assert len(lines["flows"]) == 2 * 39 * 16
    assert {r["time"] for r in lines["forecast"]} == {20, 40}
    assert {r["realization"]: r["forecasts"] for r in lines["forecast_scores"]} == {"r0": 1, "r1": 1}


def test_a_change_is_told_along_windows():
    P, Q = chain(), chain(seed=3, stay=0.4)
    n, _ = walk(np.array([P] * 100 + [Q] * 99), K=6, T=200)
    wanted = {"chain": am.Window(20), "estimator": "cls"}
    found = told(beam.Create(rows(n)), "FnApiRunner", wanted, "change", flows=False)
    (row,) = found["changes"]
    assert row["region"] == "x"
    assert abs(row["start"] - 100) <= 20
    assert row["windows"] == 10
    assert row["p_value"] < 0.05 < row["size"]
