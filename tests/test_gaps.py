"""Single entries that are missing: which records are used, and that every engine uses them alike."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggmc_beam as am
from aggmc_beam.chain import Stationary
from aggmc_beam.cli import main
from aggmc_beam.config import read_config
from aggmc_beam.errors import InputError
from aggmc_beam.fit.gaps import fill_gaps
from aggmc_beam.fit.restored import Restored
from aggmc_beam.local.batches import Batch
from aggmc_beam.local.plan import Plan
from aggmc_beam.local.tidy import Tidier
from aggmc_beam.records import Rejected, Schema, read_record
from aggmc_beam.sums.records import Records
from aggmc_beam.sums.spec import SumSpec
from aggmc_beam.sums.state import AggregationState

P = np.array([[0.8, 0.15, 0.05], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
STATES = ("a", "b", "c")
NOISE = am.Binomial(0.5)


def simulated(noise=NOISE, K=20, T=100, seed=1, share=0.1, run=1):
    """Counts of 200 individuals, with a share of entries missing, in runs of some steps."""
    y, _ = am.simulate(P, population=200, steps=T, realizations=K, noise=noise, seed=seed)
    gone = np.random.default_rng(seed).random((K, T // run, 3)) < share
    gappy = np.where(np.repeat(gone, run, 1), np.nan, y)
    return y, gappy


def error(estimate):
    return float(np.sqrt(((estimate.transition_matrix - P) ** 2).sum(1).mean()))


def summed(y):
    state = AggregationState(SumSpec.plan(STATES, Stationary(), NOISE, 200.0, pairwise=True))
    state.add(Records.of_array(y))
    return state


def test_pairs_of_states_are_told_by_the_records_that_have_both():
    """Against the definition, entry by entry."""
    _, y = simulated(K=3, T=40, share=0.3)
    found, made = fill_gaps(summed(y).sums, Restored.of(NOISE, 3))
    total, mean = found.total, np.nanmean(y, (0, 1))
    np.testing.assert_allclose(total.lag0.left, mean, rtol=1e-10)
    d = y - mean
    for lag, part in enumerate((total.lag0, total.lag1, total.lag2)):
        left, right = d[:, : 40 - lag], d[:, lag:]
        expected = np.nanmean(left[..., :, None] * right[..., None, :], (0, 1))
        shown = part.product_about(mean, mean) / part.weight
        if lag == 0:
            shown = shown - np.diag(made.extra)
        np.testing.assert_allclose(shown, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("run", [1, 5])
def test_estimates_are_nearly_as_good_as_from_all_entries(run):
    whole, gappy = [], []
    for seed in range(5):
        y, z = simulated(seed=seed, run=run)
        whole.append(error(am.estimate(y, noise=NOISE, population=200)))
        gappy.append(error(am.estimate(z, noise=NOISE, population=200, missing="pairwise")))
    assert np.mean(gappy) < 1.5 * np.mean(whole)


def test_intervals_know_of_the_gaps():
    held = []
    for seed in range(15):
        _, z = simulated(seed=50 + seed, share=0.2, T=50)
        lower, upper = am.estimate(z, noise=NOISE, population=200, missing="pairwise").interval()
        held.append(((lower <= P) & (upper >= P)).mean())
    assert 0.88 < np.mean(held) <= 1


def test_without_gaps_the_estimate_is_that_of_complete_records():
    y, _ = simulated()
    plain = am.estimate(y, noise=NOISE, population=200, estimator="mom")
    pairwise = am.estimate(y, noise=NOISE, population=200, estimator="mom", missing="pairwise")
    np.testing.assert_allclose(pairwise.transition_matrix, plain.transition_matrix, atol=1e-9)


def test_a_single_gap_in_exact_counts_is_filled_from_the_population():
    y, _ = simulated(am.Exact())
    z = y.copy()
    z[np.arange(20), np.arange(20), np.arange(20) % 3] = np.nan
    found = am.estimate(z, population=200, missing="pairwise", estimator="mom")
    np.testing.assert_allclose(
        found.transition_matrix, am.estimate(y, population=200, estimator="mom").transition_matrix, atol=1e-9
    )


def test_sums_with_gaps_merge_and_can_be_saved(tmp_path):
    _, y = simulated()
    block = Records.of_array(y)
    side = np.random.default_rng(2).random(len(block)) < 0.5
    spec = SumSpec.plan(STATES, Stationary(), NOISE, 200.0, block=10, pairwise=True)
    whole, *halves = (AggregationState(spec) for _ in range(3))
    whole.add(block)
    for half, rows in zip(halves, (side, ~side), strict=True):
        half.add(block.take(np.flatnonzero(rows)))
    path = tmp_path / "sums.moments"
    path.write_bytes((halves[0] + halves[1]).to_bytes())
    one, two = (am.estimate(data, noise=NOISE, population=200) for data in (path, whole))
    np.testing.assert_allclose(one.transition_matrix, two.transition_matrix, atol=1e-10)
    with pytest.raises(InputError, match="rules for missing entries"):
        halves[0] + other(block)


def other(block):
    state = AggregationState(SumSpec.plan(STATES, Stationary(), NOISE, 200.0, block=10))
    added = state.add(block)
    assert len(added.refused) == np.isnan(block.counts).any(1).sum()
    assert "input.missing" in next(iter(added.refused.values()))
    return state


def test_gaps_that_cannot_be_bridged_are_told():
    y, _ = simulated(T=10)
    y[..., 1] = np.nan
    with pytest.raises(InputError, match="state number 2 is missing in all"):
        am.estimate(y, noise=NOISE, population=200, missing="pairwise")
    y, _ = simulated(T=10)
    y[:, ::2, 0] = np.nan
    with pytest.raises(InputError, match="never both there in records 1 steps apart"):
        am.estimate(y, noise=NOISE, population=200, missing="pairwise")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "missing='pairwise'"),
        ({"missing": "drop"}, "'reject' or 'pairwise'"),
        ({"missing": "pairwise", "population": np.arange(20) + 200.0}, "a population for each realization"),
        ({"missing": "pairwise", "noise": am.PerStep([NOISE, am.Binomial(0.4)])}, "differs by time step"),
        ({"missing": "pairwise", "noise": am.Suppressed(5, "missing")}, "suppressed"),
    ],
)
def test_what_does_not_go_with_gaps_is_refused(options, words):
    _, y = simulated()
    with pytest.raises(InputError, match=words):
        am.estimate(y, **{"noise": NOISE, "population": 200, **options})


VALUES = st.sampled_from([None, float("nan"), "", " ", "NaN", "3", 3, 4.5, "x", 1e31, True])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6), st.booleans())
def test_blocks_and_single_rows_are_read_alike(rows, gaps):
    schema = Schema(("a", "b"), ("a", "b"), gaps=gaps)
    table = [{"realization": 0, "time": t, "a": a, "b": b} for t, (a, b) in enumerate(rows)]
    text = [{k: v if v is None or k == "time" else str(v) for k, v in row.items()} for row in table]
    for made in (table, text):
        try:
            frame = pl.DataFrame(made, infer_schema_length=None, strict=True)
        except (TypeError, pl.exceptions.PolarsError):
            continue  # values of several kinds do not make a column
        given_rows, expected = frame.to_dicts(), {}
        for i, row in enumerate(given_rows):
            try:
                expected[i] = read_record(row, schema).counts.tolist()
            except Rejected:
                continue
        read = Tidier(schema).read(Batch(frame, np.arange(len(rows)), lambda i, g=given_rows: g[i]))
        found = dict(zip(read.tidy.rows.tolist(), read.tidy.counts.tolist(), strict=True))
        assert str(found) == str({i: list(map(type(found[i][0]), c)) for i, c in expected.items()})


def test_shares_and_percentages_are_counts_of_a_population_that_is_given():
    y, _ = simulated(am.Exact())
    plain = am.estimate(y, population=200, estimator="mom").transition_matrix
    for values, unit in (("shares", 1.0), ("percent", 100.0)):
        shares = y / 200 * unit
        of_array = am.estimate(shares, population=200, values=values, estimator="mom")
        frame = pl.DataFrame(rows_of(shares))
        of_frame = am.estimate(frame, population=200, values=values, estimator="mom")
        sized = frame.with_columns(N=200.0)
        of_column = am.estimate(sized, population="N", values=values, estimator="mom")
        for found in (of_array, of_frame, of_column):
            np.testing.assert_allclose(found.transition_matrix, plain, atol=1e-9)
    with pytest.raises(InputError, match="needs the population"):
        am.estimate(shares, values="percent")
    with pytest.raises(InputError, match="input.values: percent needs the number"):
        am.estimate(frame, values="percent")
    with pytest.raises(InputError, match="values must be one of"):
        am.estimate(y, values="permille")


# Engines


def config(path, **more):
    return {
        "states": list(STATES),
        "input": {"files": str(path), **more.pop("input", {})},
        "noise": {"model": "binomial", "alpha": 0.5},
        "population": 200,
        "uncertainty": {"block": 10},
        **more,
    }


def rows_of(y):
    key, time = np.nonzero(~np.isnan(y).all(2))
    return [
        {"realization": int(k), "time": int(t), "counts": [None if n != n else n for n in y[k, t].tolist()]}
        for k, t in zip(key, time, strict=True)
    ]


HIDDEN = {
    "model": "suppressed",
    "below": 20,
    "shown": "missing",
    "noise": {"model": "binomial", "alpha": 0.5},
}


@pytest.mark.parametrize("kind", ["missing", "hidden", "rounded", "percent"])
@pytest.mark.parametrize("name", ["data.jsonl", "data.parquet", "wide.csv"])
def test_beam_gives_what_the_local_engine_gives(kind, name, tmp_path):
    from test_beam_bounded import compare

    y, z = simulated(K=6, T=60)
    z = (
        np.where(y < 20, np.nan, y)
        if kind == "hidden"
        else 5 * np.floor(y / 5 + 0.5)
        if kind == "rounded"
        else z
    )
    rows, path = rows_of(y / 2 if kind == "percent" else z), tmp_path / name
    frame = pl.DataFrame(rows)
    if name == "wide.csv":
        parts = [pl.col("counts").list.get(i).alias(s) for i, s in enumerate(STATES)]
        frame.select("realization", "time", *parts).write_csv(path)
    elif name == "data.parquet":
        frame.write_parquet(path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    more = {
        "percent": {"input": {"values": "percent"}},
        "missing": {"input": {"missing": "pairwise"}},
        "hidden": {"noise": HIDDEN},
        "rounded": {"noise": {"model": "rounded", "base": 5, "noise": {"model": "binomial", "alpha": 0.5}}},
    }[kind]
    found = compare(tmp_path, config(path, **more))
    assert found["ledger"]["rejected"] == 0
    noise = {"hidden": am.Suppressed(20, "missing", NOISE), "rounded": am.Rounded(5, noise=NOISE)}.get(
        kind, NOISE
    )
    options = {"missing": "pairwise"} if kind == "missing" else {}
    state = am.estimate(y if kind == "percent" else z, list(STATES), noise=noise, population=200, **options)
    np.testing.assert_allclose(
        found["estimates.jsonl"][0]["transition_matrix"], state.transition_matrix, atol=0.05
    )


def test_a_record_with_a_gap_is_rejected_unless_told_otherwise(tmp_path):
    _, z = simulated(K=6, T=60)
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(map(json.dumps, rows_of(z))))
    plain = config(path, max_rejected=0.5, output={"directory": str(tmp_path / "out")})
    (tmp_path / "run.yaml").write_text(json.dumps(plain))
    assert main(["run", str(tmp_path / "run.yaml")]) == 0
    rejected = (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()
    assert len(rejected) == (np.isnan(z).any(2) & ~np.isnan(z).all(2)).sum()
    assert "is missing" in rejected[0]


@pytest.mark.parametrize("layout", ["wide.csv", "wide.jsonl", "lists.jsonl"])
@pytest.mark.parametrize("text", ["0.5", "1,204", "12 %", "x"])
def test_what_is_no_whole_number_among_whole_numbers_is_never_taken_for_a_gap(layout, text, tmp_path):
    """One such count in many rows: too few for the type of its column to be thought wrong."""
    rows = [{"realization": 0, "time": t, **dict(zip(STATES, [5, 7 + t, 9], strict=True))} for t in range(60)]
    rows[40][STATES[1]] = text
    path = tmp_path / f"data.{layout.split('.')[1]}"
    if layout == "wide.csv":
        lines = [",".join(f'"{v}"' for v in row.values()) for row in rows]
        path.write_text("\n".join([",".join(rows[0]), *lines]))
    else:
        if layout == "lists.jsonl":
            rows = [{**row, "counts": [row.pop(s) for s in STATES]} for row in rows]
        path.write_text("\n".join(map(json.dumps, rows)))
    columns = {"counts": "counts"} if layout == "lists.jsonl" else {}
    plan = Plan.open(
        read_config(config(path, input={"missing": "pairwise", "columns": columns}, max_rejected=1.0))
    )
    [block] = plan.reader().blocks()
    found = dict(zip(block.records.time.tolist(), block.records.counts[:, 1].tolist(), strict=True))
    number = {"0.5": 0.5, "1,204": 1204.0, "12 %": 0.12, "x": None}[text]
    assert found.get(40) == number
    assert not np.isnan(block.records.counts).any()


@pytest.mark.parametrize("kind", ["missing", "hidden"])
def test_a_stream_gives_what_a_batch_gives(kind, tmp_path):
    from apache_beam.testing.test_stream import TestStream
    from test_beam_stream import assert_same, shuffled, streamed

    from aggmc_beam.beam import EstimateTransitions, Stream
    from aggmc_beam.local import run

    y, z = simulated(K=4, T=60)
    z = np.where(y < 20, np.nan, y) if kind == "hidden" else z
    rows = rows_of(z)
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    more = {"noise": HIDDEN} if kind == "hidden" else {"input": {"missing": "pairwise"}}
    plain = config(path, estimator="mom", uncertainty={"block": 5, "replicates": 6}, **more)
    [expected] = run(read_config(plain)).estimates
    noise = am.Suppressed(20, "missing", NOISE) if kind == "hidden" else NOISE
    made = EstimateTransitions(
        STATES, noise, 200, "mom", block=5, replicates=6, stream=Stream(),
        missing="reject" if kind == "hidden" else "pairwise",
    )  # fmt: skip
    items = shuffled(rows)
    stream = TestStream().add_elements(items[:100]).add_elements(items[80:]).advance_watermark_to_infinity()
    found, rejected = streamed(stream, made, f"gaps {kind}")
    assert not rejected
    assert_same(found[-1], expected)
