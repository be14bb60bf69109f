"""Flows, forecasts and alarms of a run, as files and by their commands."""

import json

import numpy as np
import polars as pl
import pytest
from walks import chain

import aggmc_beam as am
from aggmc_beam.cli import main
from aggmc_beam.local import engine, follow_up, sources
from aggmc_beam.sums.records import Records
from aggmc_beam.uses.flow_model import FlowModel, sample
from aggmc_beam.uses.series import series_of

STATES = ["a", "b", "c", "d"]


def draw(folder, K=3, T=120, gap=(1, 40), noise=None):
    """A file of records in no order, some twice, one missing; the counts, NaN where missing."""
    noise = am.Exact() if noise is None else noise
    y, _ = am.simulate(chain(), steps=T, realizations=K, population=300, noise=noise, seed=1)
    y[gap] = np.nan
    rows = [(f"r{k}", t, *y[k, t]) for k in range(K) for t in range(T) if not np.isnan(y[k, t, 0])]
    frame = pl.DataFrame(rows, schema=["realization", "time", *STATES], orient="row")
    frame = pl.concat([frame, frame.head(20)]).sample(fraction=1, shuffle=True, seed=1)
    frame.write_csv(folder / "data.csv")
    return y


def run(folder, *changes):
    config = folder / "config.yaml"
    config.write_text(
        f"states: {STATES}\ninput: {{files: {folder}/data.csv}}\npopulation: 300\n"
        f"output: {{directory: {folder}/out, flows: true}}\n"
    )
    given = [part for change in changes for part in ("--set", change)]
    assert main(["run", str(config), "--quiet", *given]) == 0
    return folder / "out"


def test_flows_of_a_run_are_those_of_the_array(tmp_path):
    y = draw(tmp_path)
    out = run(tmp_path)
    found = pl.read_parquet(out / "flows.parquet")
    assert found.columns == ["realization", "time", "from", "to", "mean", "lower", "upper"]
    assert len(found) == 3 * 119 * 16
    line = (out / "estimates.jsonl").read_text().splitlines()[0]
    expected = am.flows(y, am.Estimate.from_json(line))
    ordered = found.sort("realization", "time", "from", "to")
    for name in ("mean", "lower", "upper"):
        assert np.allclose(ordered[name].to_numpy(), getattr(expected, name).ravel(), atol=1e-6)


def test_tables_do_not_depend_on_how_many_realizations_are_held(tmp_path, monkeypatch):
    draw(tmp_path, noise=am.Binomial(0.7))
    changes = (
        "noise={model: binomial, alpha: 0.7}",
        "output.forecast=3",
        "output.alarms=0.05",
        "output.form=csv",
    )
    whole = {p.name: pl.read_csv(p) for p in run(tmp_path, *changes).glob("*.csv")}
    monkeypatch.setattr(engine, "HELD_VALUES", 200)
    monkeypatch.setattr(engine, "BLOCK_VALUES", 60)
    monkeypatch.setattr(sources, "BATCH_VALUES", 10)
    parts = {p.name: pl.read_csv(p) for p in run(tmp_path, *changes).glob("*.csv")}
    assert set(whole) == set(parts) == {"flows.csv", "forecast.csv", "alarms.csv"}
    for name in ("flows.csv", "forecast.csv"):
        order = [c for c in ("realization", "time", "from", "to", "state") if c in whole[name].columns]
        a, b = whole[name].sort(order), parts[name].sort(order)
        assert a.select(order).equals(b.select(order))
        assert np.allclose(a["mean"].to_numpy(), b["mean"].to_numpy(), atol=1e-6)


def test_forecasts_and_alarms_are_those_of_their_functions(tmp_path):
    y = draw(tmp_path, gap=(0, 0))
    out = run(tmp_path, "output.forecast=4", "output.alarms=0.05", "output.flows=false")
    est = am.Estimate.from_json((out / "estimates.jsonl").read_text().splitlines()[0])
    ahead = pl.read_parquet(out / "forecast.parquet").filter(pl.col("realization") == "r2")
    expected = est.forecast(y[2], 4)
    assert ahead["time"].unique().sort().to_list() == [120, 121, 122, 123]
    assert np.allclose(ahead["mean"].to_numpy().reshape(4, 4), expected.mean)
    raised = pl.read_parquet(out / "alarms.parquet")
    found = am.alarms(y, est, rate=0.05)
    assert len(raised) == found.raised.sum() > 0
    assert not (out / "flows.parquet").exists()


def test_a_realization_that_is_not_closed_has_no_flows_and_a_reason(tmp_path):
    draw(tmp_path)
    frame = pl.read_csv(tmp_path / "data.csv")
    changed = pl.when((pl.col("realization") == "r0") & (pl.col("time") == 7)).then(pl.col("a") - 1)
    frame.with_columns(a=changed.otherwise(pl.col("a"))).write_csv(tmp_path / "data.csv")
    out = run(tmp_path)
    assert pl.read_parquet(out / "flows.parquet")["realization"].unique().sort().to_list() == ["r1", "r2"]
    told = json.loads((out / "run.json").read_text())["ledger"]["without_flows"]
    assert list(told) == ["r0"]
    assert "its total changes from 299 to 300" in told["r0"]


def test_long_gaps_part_a_series_and_short_ones_are_filled():
    y = np.full((1, 100, 2), 5.0)
    y[0, 10:20] = y[0, 50:80] = np.nan
    found = list(series_of(Records.of_array(y)))
    assert [(s.start, len(s.counts)) for s in found] == [(0, 50), (80, 20)]
    assert np.isnan(found[0].counts[10:20]).all()


def test_habits_are_learned_from_the_same_series_in_any_order():
    y, _ = am.simulate(chain(), steps=12, realizations=200, population=300, seed=2)
    est = am.estimate(y, population=300)
    series = list(series_of(Records.of_array(y)))
    one, other = (FlowModel.learned(est, sample(s)) for s in (series, series[::-1]))
    assert one.habits.average == other.habits.average
    assert len(sample(series)) < len(series)


@pytest.mark.parametrize("command", ["flows", "forecast", "alarms"])
def test_commands_print_and_write_what_the_run_would(command, tmp_path, capsys):
    draw(tmp_path)
    out = run(tmp_path, "output.forecast=12", "output.alarms=0.05", "output.form=csv")
    capsys.readouterr()
    given = ["--rate", "0.05"] if command == "alarms" else []
    assert main([command, str(out), *given]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("realization")
    assert main([command, str(out), *given, "-o", str(tmp_path / "again.csv")]) == 0
    again, first = pl.read_csv(tmp_path / "again.csv"), pl.read_csv(out / f"{command}.csv")
    assert again.columns == first.columns
    assert np.allclose(
        again.select(pl.col(pl.Float64)).to_numpy(), first.select(pl.col(pl.Float64)).to_numpy()
    )


def test_other_records_are_forecast_by_the_same_matrix(tmp_path, capsys):
    draw(tmp_path)
    out = run(tmp_path)
    (tmp_path / "today.csv").write_text("realization,time,a,b,c,d\nx,7,300,0,0,0\n")
    capsys.readouterr()
    assert main(["forecast", str(out), "--steps", "1", "--set", f"input.files={tmp_path}/today.csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    est = am.Estimate.from_json((out / "estimates.jsonl").read_text().splitlines()[0])
    assert [line.split()[1:3] for line in lines[1:]] == [["8", s] for s in STATES]
    told = [float(line.split()[3]) for line in lines[1:]]
    assert np.allclose(told, 300 * est.transition_matrix[0], rtol=1e-3)


def test_change_is_told_along_windows_and_between_runs(tmp_path, capsys):
    draw(tmp_path, T=121)
    windows = run(tmp_path, "chain={window: {size: 12}}", "output.flows=false")
    capsys.readouterr()
    assert main(["change", str(windows)]) == 0
    assert "Change of P at " in capsys.readouterr().out
    (tmp_path / "one").mkdir()
    draw(tmp_path / "one")
    single = run(tmp_path / "one")
    assert main(["change", str(single)]) == 2
    assert "nothing to be compared with" in capsys.readouterr().err
    assert main(["change", str(single), str(single)]) == 0
    assert "p = 1" in capsys.readouterr().out


def test_files_are_named_when_a_result_cannot_be_used(tmp_path, capsys):
    assert main(["forecast", str(tmp_path)]) == 1
    assert "estimates.jsonl" in capsys.readouterr().err
    draw(tmp_path)
    out = run(tmp_path)
    (out / "run.json").unlink()
    assert main(["flows", str(out)]) == 1
    assert "run.json" in capsys.readouterr().err
    assert main(["flows", str(out), "-o", "flows.xlsx"]) in (1, 2)


def test_follow_up_writes_nothing_where_there_is_nothing(tmp_path):
    with pytest.raises(am.InputError, match="nothing to write to flows.csv"):
        follow_up.write_frames(iter(()), tmp_path / "flows.csv")


def test_the_report_shows_flows_forecasts_and_alarms_of_the_run(tmp_path):
    pytest.importorskip("matplotlib", reason="the report needs matplotlib: pip install aggmc-beam[report]")
    draw(tmp_path)
    out = run(tmp_path, "output.report=true", "output.forecast=3", "output.alarms=0.05", "output.form=csv")
    page = (out / "report.html").read_text()
    for title, said in (
        ("Flows", "on average over all steps"),
        ("Forecast", "in r0, the first of 3 realizations"),
        ("Alarms", "A part 0.05 of steps"),
    ):
        assert f"<h2>{title}</h2>" in page
        assert said in page
    assert main(["report", str(out), "-o", str(tmp_path / "again.html")]) == 0
    assert "the first of 3 realizations" in (tmp_path / "again.html").read_text()
