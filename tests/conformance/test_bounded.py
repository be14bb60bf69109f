"""Files on a runner give what the local engine gives. Each job shows several features: jobs cost seconds."""

from __future__ import annotations

import json
from datetime import date, timedelta

import apache_beam as beam
import frames
import numpy as np
import polars as pl
import pytest
from agreement import compare, on_beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import window

import aggmc_beam as am
from aggmc_beam.beam import Estimate, EstimateTransitions, SumRecords, SumsCombineFn
from aggmc_beam.beam.sinks import WriteEstimates
from aggmc_beam.config import read_config
from aggmc_beam.sums.run_file import load_run


def gappy(**options):
    y = frames.counts(**options)
    y[1, 5] = y[2, 10:13] = y[4, 0] = np.nan
    return y


def halves(frame, path):
    """A shuffled frame in two files; `path` has a {} for their number."""
    mixed = frame.sample(fraction=1, shuffle=True, seed=4)
    for i, part in enumerate((mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :])):
        frames.save(part, path.with_name(path.name.format(i)))
    return path.with_name(path.name.format("*"))


@pytest.mark.feature("stationary", "disorder", "duplicates", "csv")
def test_a_stationary_chain_from_shuffled_repeated_and_gappy_records(runner, tmp_path):
    frame = frames.wide(gappy(K=8, T=30))
    again = pl.concat([frame, frame.sample(fraction=0.2, seed=2)])
    plain = frames.config(halves(again, tmp_path / "data{}.csv"))
    found = compare(runner, tmp_path, plain)
    assert found["ledger"]["duplicates"] == len(again) - len(frame)


@pytest.mark.feature("per-step", "parquet")
def test_a_chain_per_step(runner, tmp_path):
    frame = frames.lists(frames.wide(frames.counts(K=12, T=8)))
    found = compare(
        runner, tmp_path, frames.config(halves(frame, tmp_path / "data{}.parquet"), chain="per-step")
    )
    assert len(found["estimates.jsonl"]) == 7


@pytest.mark.feature("windows", "long")
def test_windows_from_rows_of_single_states(runner, tmp_path):
    frame = frames.long(frames.wide(gappy(K=6, T=40)))
    plain = frames.config(
        halves(frame, tmp_path / "data{}.parquet"),
        chain={"window": {"size": 20, "every": 10}},
        input={"layout": "long"},
    )
    assert len(compare(runner, tmp_path, plain)["estimates.jsonl"]) > 2


@pytest.mark.feature("cycle", "groups", "jsonl", "bad", "populations", "moments")
def test_cycles_of_groups_with_bad_records_and_several_populations(runner, tmp_path):
    plain = frames.config(
        grouped(tmp_path),
        group_by=["region"],
        chain={"cycle": 4},
        input={"columns": {"population": "population"}},
        output={"moments": True},
    )
    del plain["population"]
    found = compare(runner, tmp_path, plain)
    assert found["ledger"]["rejected"] == 4
    assert found["ledger"]["conflicting"] == 1
    assert [r["row"] for r in map(place, found["rejected.jsonl"])] == [*range(181, 186)]
    local, far = (load_run(tmp_path / side / "moments.aggmc") for side in ("local", "beam"))
    assert len(local.groups) == 2
    for g, group in enumerate(local.groups):
        a, b = local.sums.of_group(g).total, far.sums.of_group(far.groups.index(group)).total
        np.testing.assert_allclose(a.lag1.product, b.lag1.product, rtol=1e-10)


def grouped(tmp_path):
    """JSON lines of two regions with a population each, in disorder, and at the end six bad lines."""
    rows = []
    for name, seed, N in (("north", 1, 200), ("süd", 2, 400)):
        frame = frames.lists(frames.wide(frames.counts(K=3, T=30, seed=seed, N=N)))
        rows += [{"region": name, "population": N, **row} for row in frame.to_dicts()]
    good = [json.dumps(row, ensure_ascii=False) for row in rows]
    good = [good[i] for i in np.random.default_rng(1).permutation(len(good))]
    bad = [
        "no JSON",
        '{"region": "north", "population": 200, "realization": 1, "time": 3, "counts": [1, 2]}',
        '{"region": "north", "population": 200, "realization": 1, "time": 3.5, "counts": [1, 2, 3]}',
        '{"region": "west", "population": 200, "realization": 1, "time": 3, "counts": [1, 2, NaN]}',
        '{"region": "north", "population": 200, "realization": 1, "time": 3, "counts": [90, 2, 3]}',
    ]
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(good + bad), encoding="utf-8")
    return path


def place(rejected):
    return rejected["source"]


BINOMIAL = {"model": "binomial", "alpha": 0.5}


@pytest.mark.feature("published")
def test_counts_that_are_suppressed_and_rounded_in_a_file_of_a_publisher(runner, tmp_path):
    """Two regions in ISO weeks, thousands with commas, and marks in the place of small counts."""
    lines = ["region;week;home;work;ünterwegs"]
    for region, seed in (("north", 1), ("süd", 2)):
        [y] = frames.counts(K=1, T=150, N=5000, seed=seed)
        for t, row in enumerate(y):
            year, week, _ = (date(2020, 1, 6) + timedelta(7 * t)).isocalendar()
            shown = ["<400" if n < 400 else f"{5 * round(n / 5):,.0f}" for n in row.tolist()]
            lines.append(";".join([region, f"{year}-W{week:02}", *shown]))
    path = tmp_path / "published.csv"
    path.write_bytes("\n".join(lines).encode("latin-1"))
    suppressed = {"model": "suppressed", "below": 400, "shown": "missing", "noise": BINOMIAL}
    plain = frames.config(
        path,
        noise={"model": "rounded", "base": 5, "noise": suppressed},
        population=5000,
        estimator="auto",
        group_by=["region"],
        input={"columns": {"time": "week"}, "step": "week", "encoding": "latin-1"},
    )
    found = compare(runner, tmp_path, plain)
    assert [e["diagnostics"]["published"]["suppressed"] for e in found["estimates.jsonl"]]


@pytest.mark.feature("published")
def test_entries_that_are_missing_and_a_number_of_another_kind(runner, tmp_path):
    y = frames.counts(K=6, T=60)
    rng = np.random.default_rng(3)
    gaps = np.where(rng.random(y.shape) < 0.1, np.nan, y)
    rows = [
        {"realization": k, "time": t, "counts": [None if n != n else n for n in gaps[k, t].tolist()]}
        for k, t in np.ndindex(y.shape[:2])
        if not np.isnan(gaps[k, t]).all()
    ]
    rows[7]["counts"][1] = "1,204"
    rows[8]["counts"][0] = "NA"
    path = tmp_path / "gaps.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    compare(runner, tmp_path, frames.config(path, estimator="auto", input={"missing": "pairwise"}))


@pytest.mark.feature("published")
def test_shares_that_noise_was_added_to_and_cut_at_zero(runner, tmp_path):
    y = frames.counts(K=6, T=60, noise=am.Laplace(3.0))
    shares = np.maximum(y, 0) / 2
    path = tmp_path / "shares.csv"
    lines = ["realization,time,home,work,ünterwegs"]
    lines += [
        f"{k},{t}," + ",".join(f"{v} %" for v in shares[k, t].tolist()) for k, t in np.ndindex(y.shape[:2])
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    clipped = {"model": "clipped", "at": 0, "noise": {"model": "laplace", "scale": 3.0}}
    compare(
        runner, tmp_path, frames.config(path, noise=clipped, estimator="auto", input={"values": "shares"})
    )


@pytest.mark.feature("errors")
def test_an_error_in_the_data_ends_the_job_and_is_told_in_one_line(runner, tmp_path, capsys):
    plain = frames.config(grouped(tmp_path), group_by=["region"], max_rejected=3)
    assert on_beam(runner, tmp_path, plain) == 1
    error = capsys.readouterr().err.splitlines()
    assert any("4 of 185 records were rejected, more than max_rejected: 3" in line for line in error)
    assert not any("Traceback" in line for line in error[-3:])


@pytest.mark.feature("transform")
def test_the_transform_in_a_pipeline_of_ones_own(runner, tmp_path):
    y = frames.counts(K=4, T=20)
    items = [{"realization": k, "time": t, "counts": y[k, t].tolist()} for k, t in np.ndindex(y.shape[:2])]
    config = read_config(frames.config("none.csv", output={"directory": str(tmp_path / "out")}))
    with beam.Pipeline(options=PipelineOptions([*runner.options])) as pipeline:
        made = EstimateTransitions(frames.STATES, am.Binomial(0.5), 200, "mom")
        found = pipeline | beam.Create(items + items[:5]) | beam.Reshuffle() | made
        _ = found.estimates | WriteEstimates(config.output, streaming=True)
    expected = am.estimate(y, states=frames.STATES, noise=am.Binomial(0.5), population=200, estimator="mom")
    text = (tmp_path / "out" / "estimates.jsonl").read_text(encoding="utf-8")
    [found] = map(am.Estimate.from_json, text.splitlines())
    np.testing.assert_allclose(found.transition_matrix, expected.transition_matrix, rtol=0, atol=1e-10)
    assert found.counts["duplicates"] == 5


@pytest.mark.feature("steps")
def test_steps_that_are_used_alone_keep_windows(runner, tmp_path):
    y = frames.counts(K=25, T=20)
    items = [{"realization": k, "time": t, "counts": y[k, t].tolist()} for k, t in np.ndindex(y.shape[:2])]
    options = {"noise": am.Binomial(0.5), "population": 200}

    def started(_, estimate, at=beam.DoFn.WindowParam):  # in here, since workers cannot import this module
        return json.dumps([int(at.start), estimate.transition_matrix.tolist()])

    with beam.Pipeline(options=PipelineOptions([*runner.options])) as pipeline:
        given = (
            pipeline
            | beam.Create(items)
            | beam.Map(lambda r: window.TimestampedValue(("all", r), r["time"]))
            | beam.WindowInto(window.SlidingWindows(10, 5))
        )
        combined = given | beam.CombinePerKey(SumsCombineFn(frames.STATES, **options))
        exact = given | SumRecords.PerKey(frames.STATES, **options)
        for name, sums in (("combined", combined), ("exact", exact.sums)):
            found = sums | f"E {name}" >> Estimate(estimator="mom")
            rows = found | f"R {name}" >> beam.MapTuple(started)
            _ = rows | f"W {name}" >> beam.io.WriteToText(str(tmp_path / name), num_shards=1)
    for name in ("combined", "exact"):
        [path] = tmp_path.glob(f"{name}-*")
        found = dict(json.loads(text) for text in path.read_text(encoding="utf-8").splitlines())
        assert sorted(map(int, found)) == [-5, 0, 5, 10, 15]
        for start, matrix in found.items():
            part = y[:, max(0, int(start)) : int(start) + 10]
            expected = am.estimate(part, states=frames.STATES, estimator="mom", **options)
            np.testing.assert_allclose(matrix, expected.transition_matrix, rtol=0, atol=1e-10)
