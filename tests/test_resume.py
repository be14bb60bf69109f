"""Runs that go on from saved moments."""

import frames
import numpy as np
import polars as pl
import pytest

import aggmc_beam as am
from aggmc_beam.config import read_config
from aggmc_beam.local import run
from aggmc_beam.sums.run_file import load_run, save_run, state_from_bytes, state_to_bytes

HALF = am.Binomial(0.5)


def daily(tmp_path, days, **more):
    """A run per day, each resuming from the one before; the results."""
    results = []
    for number, day in enumerate(days):
        path = frames.save(day, tmp_path / f"day{number}.csv")
        plain = frames.config(path, **more)
        plain["input"] = {**plain["input"], "resume": str(tmp_path / "moments") if results else None}
        results.append(run(read_config(plain)))
        results[-1].save(tmp_path / "moments.aggmc")
    return results


def check_same(found, expected, errors=True):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.transition_matrix, b.transition_matrix, rtol=0, atol=1e-12)
        assert {k: a.counts[k] for k in a.counts if k != "duplicates"} == {
            k: b.counts[k] for k in b.counts if k != "duplicates"
        }
        if errors:
            np.testing.assert_allclose(a.standard_error, b.standard_error, rtol=0, atol=1e-12)


CASES = {
    "many realizations": ({"K": 30}, {}, True),
    "blocks of time": ({"K": 3}, {"uncertainty": {"block": 4, "replicates": 10}}, True),
    "few realizations": ({"K": 3}, {}, False),
    "windows": ({"K": 30}, {"chain": {"window": {"size": 20, "every": 10}}}, True),
    # Without a number given, a run that goes on keeps as many jackknife groups as its first day filled.
    "cycle": ({"K": 30}, {"chain": {"cycle": 4}, "uncertainty": {"replicates": 10}}, True),
}


@pytest.mark.parametrize("case", CASES)
def test_daily_runs_give_what_one_run_gives_with_the_pairs_between_days(case, tmp_path):
    shape, more, errors = CASES[case]
    y = frames.counts(T=48, **shape)
    y[0, 15] = y[1, 16] = y[2, 30:34] = np.nan
    frame = frames.wide(y)
    days = [frame.filter(pl.col("time") // 16 == d) for d in range(3)]
    found = daily(tmp_path, days, **more)[-1]
    whole = run(read_config(frames.config(frames.save(frame, tmp_path / "all.csv"), **more)))
    check_same(found.estimates, whole.estimates, errors)


def test_days_may_come_in_any_order(tmp_path):
    y = frames.counts(K=30, T=48)
    frame = frames.wide(y)
    days = [frame.filter(pl.col("time") // 16 == d) for d in (2, 0, 1)]
    found = daily(tmp_path, days)[-1]
    check_same(found.estimates, [am.estimate(y, noise=HALF, population=200, estimator="mom")])


def test_the_same_day_twice_changes_nothing_and_is_counted(tmp_path):
    y = frames.counts(K=30, T=32)
    frame = frames.wide(y)
    days = [frame.filter(pl.col("time") // 16 == d) for d in (0, 1, 1, 0)]
    results = daily(tmp_path, days)
    check_same(results[3].estimates, results[1].estimates)
    assert results[3].estimates[0].counts["duplicates"] == 2 * 30 * 16
    assert results[3].ledger["conflicting"] == 0


def test_groups_and_realizations_may_appear_later(tmp_path):
    frame = frames.wide(frames.counts(K=30, T=16)).with_columns(
        region=pl.when(pl.col("realization") < 20).then(pl.lit("a")).otherwise(pl.lit("b"))
    )
    early = frame.filter((pl.col("realization") < 10) & (pl.col("time") < 8))
    late = frame.join(early, on=["realization", "time"], how="anti")
    found = daily(tmp_path, [early, late], group_by=["region"], uncertainty={"block": 2})[-1]
    path = frames.save(frame, tmp_path / "all.csv")
    whole = run(read_config(frames.config(path, group_by=["region"], uncertainty={"block": 2})))
    check_same(found.estimates, whole.estimates)


@pytest.mark.parametrize("noise", ["exact", {"model": "binomial", "alpha": 0.5}], ids=["totals", "column"])
def test_populations_of_realizations_are_remembered(noise, tmp_path):
    N = np.arange(100, 130)
    y = frames.counts(K=30, T=16, N=N, noise=am.Exact() if noise == "exact" else HALF)
    frame = frames.wide(y, people=N)
    # At first all populations are alike, then they are not.
    first = (pl.col("realization") == 0) & (pl.col("time") < 8)
    more = {"noise": noise, "population": None}
    if noise != "exact":
        more["input"] = {"columns": {"population": "people"}}
    found = daily(tmp_path, [frame.filter(first), frame.filter(~first)], **more, uncertainty={"block": 4})[-1]
    path = frames.save(frame, tmp_path / "all.csv")
    whole = run(read_config(frames.config(path, **more, uncertainty={"block": 4})))
    check_same(found.estimates, whole.estimates)
    assert found.estimates[0].population == pytest.approx(N.mean())


def test_saved_moments_are_estimated_again_without_the_data(tmp_path):
    y = frames.counts(K=30, T=16)
    daily(tmp_path, [frames.wide(y)])
    for name in ("moments.aggmc", "moments"):
        found = am.estimate(tmp_path / name, noise=am.Binomial(0.4), population=250, estimator="mom")
        expected = am.estimate(y, noise=am.Binomial(0.4), population=250, estimator="mom")
        check_same([found], [expected])


def test_merged_runs_hold_the_pairs_between_them(tmp_path):
    y = frames.counts(K=30, T=32)
    frame = frames.wide(y)
    for d in range(2):
        path = frames.save(frame.filter(pl.col("time") // 16 == d), tmp_path / "day.csv")
        run(read_config(frames.config(path))).save(tmp_path / f"{d}.aggmc")
    a, b = load_run(tmp_path / "0.aggmc"), load_run(tmp_path / "1.aggmc")
    expected = am.estimate(y, noise=HALF, population=200, estimator="mom")
    for joined in (a + b, b + a):
        again = state_from_bytes(state_to_bytes(joined))
        settings = {"noise": HALF, "population": 200, "estimator": "mom"}
        save_run(again, tmp_path / "both.aggmc")
        check_same([am.estimate(tmp_path / "both.aggmc", **settings)], [expected])
    twice = a + load_run(tmp_path / "0.aggmc")
    assert twice.sums.total.counts.overlaps == 30 * 16


def test_what_was_merged_twice_is_marked_in_its_group_and_in_estimates(tmp_path):
    frame = frames.wide(frames.counts(K=30, T=16)).with_columns(
        region=pl.when(pl.col("realization") < 20).then(pl.lit("a")).otherwise(pl.lit("b"))
    )
    parts = [
        frame.filter(pl.col("time") < 8),
        frame.filter((pl.col("time") >= 8) | (pl.col("realization") == 25)),
    ]
    for number, part in enumerate(parts):
        path = frames.save(part, tmp_path / "day.csv")
        run(read_config(frames.config(path, group_by=["region"]))).save(tmp_path / f"{number}.aggmc")
    save_run(load_run(tmp_path / "0.aggmc") + load_run(tmp_path / "1.aggmc"), tmp_path / "both.aggmc")
    both = load_run(tmp_path / "both.aggmc").sums
    assert [both.of_group(g).total.counts.overlaps for g in (0, 1)] == [0, 8]
    assert [both.of_group(g).total.counts.realizations for g in (0, 1)] == [20, 10]


def test_moments_of_another_kind_of_run_are_refused(tmp_path):
    frame = frames.wide(frames.counts(K=3, T=16)).with_columns(region=pl.col("realization"))
    daily(tmp_path, [frame])
    path = tmp_path / "day0.csv"
    resume = {"resume": str(tmp_path / "moments.aggmc")}
    for more, message in (
        ({"chain": {"cycle": 4}}, "chains differ"),
        ({"input": {"step": 2, **resume}}, "time steps differ"),
        ({"states": ["home", "work"], "noise": {"model": "binomial", "alpha": 0.5}}, "states differ"),
        ({"group_by": ["region"]}, "columns of groups differ"),
        ({"noise": "exact", "population": None}, "rules of populations differ"),
        (
            {
                "noise": {
                    "model": "per-step",
                    "models": [{"model": "binomial", "alpha": a} for a in (0.5, 0.6)],
                }
            },
            "noises that change with time differ",
        ),
        ({"input": {"columns": {"realization": "region"}, **resume}}, "columns of realizations differ"),
    ):
        with pytest.raises(am.InputError, match=message):
            run(read_config(frames.config(path, **{"input": resume, **more})))
