"""Flows, forecasts, alarms and tables of two steps from the frames that users have, and as tables and pictures."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import aggmc_beam as am

STATES = ["home", "work"]
P = [[0.9, 0.1], [0.3, 0.7]]
COLUMNS = {"realization": "area", "time": "month", "step": "month"}


@pytest.fixture(scope="module")
def data():
    """(counts [3, 30, 2], the same as a spreadsheet with thousands, their estimate)."""
    y, _ = am.simulate(P, population=4000, steps=30, realizations=3, seed=1)
    months = pd.period_range("2024-01", periods=30, freq="M")
    rows = [
        {
            "area": f"area {k}",
            "month": str(months[t]),
            "home": f"{y[k, t, 0]:,.0f}",
            "work": f"{y[k, t, 1]:,.0f}",
        }
        for k in range(3)
        for t in range(30)
    ]
    frame = pd.DataFrame(rows).sample(frac=1, random_state=1)
    return y, frame, am.estimate(frame, STATES, population=4000, **COLUMNS)


def test_flows_of_a_frame_are_those_of_the_array_with_its_names_and_months(data):
    y, frame, est = data
    found = am.flows(frame, est, **COLUMNS)
    assert np.allclose(found.mean, am.flows(y, est).mean)
    table = found.to_frame()
    assert table.columns == ["realization", "time", "from", "to", "mean", "lower", "upper"]
    row = table.filter(realization="area 2", time="2024-03", **{"from": "home", "to": "work"})
    assert row["mean"].item() == pytest.approx(found.mean[2, 2, 0, 1])
    assert "home" in str(found)
    assert "<table" in found._repr_html_()


def test_a_shorter_realization_has_no_flows_behind_its_end(data):
    _, frame, est = data
    short = frame[(frame.area != "area 1") | (frame.month < "2025-01")]
    found = am.flows(short, est, **COLUMNS)
    assert np.isnan(found.mean[1, 11:]).all()
    assert np.isfinite(found.mean[[0, 2]]).all()
    assert len(found.to_frame()) == 4 * (29 + 29 + 11)


def test_every_realization_of_a_frame_has_its_forecast(data):
    y, frame, est = data
    found = est.forecast(frame, 2, **COLUMNS)
    assert found.mean.shape == (3, 2, 2)
    assert np.allclose(found.mean[1], est.forecast(y[1], 2).mean)
    assert found.to_frame()["time"].unique().sort().to_list() == ["2026-07", "2026-08"]
    one = frame[frame.area == "area 1"].drop(columns="area")
    single = est.forecast(one, 2, realization=None, time="month", step="month")
    assert np.allclose(single.mean, found.mean[1])
    assert single.to_frame().columns[0] == "time"
    assert "2026-07" in str(single)


def test_a_forecast_goes_on_from_the_last_complete_record(data):
    y, _, est = data
    gone = y[0].copy()
    gone[-1, 1] = np.nan
    expected = est.forecast(y[0, :-1], 4)
    found = est.forecast(gone, 3)
    assert np.allclose(found.mean, expected.mean[1:])
    assert found.time.tolist() == expected.time[1:].tolist()


def test_alarms_of_a_frame_tell_month_and_state(data):
    _, frame, est = data
    found = am.alarms(frame, est, rate=0.1, **COLUMNS)
    table = found.to_frame()
    assert table.columns == ["realization", "time", "state", "p_value", "rate"]
    assert len(table) == found.raised.sum() > 0
    assert table["time"].str.starts_with("202").all()


def test_phases_go_by_local_clocks():
    night, day = [[0.98, 0.02], [0.05, 0.95]], [[0.8, 0.2], [0.1, 0.9]]
    y, _ = am.simulate(
        [day if 8 <= h % 24 < 18 else night for h in range(24 * 60 - 1)], population=5000, seed=1
    )
    stamps = pd.date_range("2026-01-05", periods=24 * 60, freq="h", tz="America/New_York")
    frame = pd.DataFrame(y[0], columns=STATES).assign(at=stamps)
    columns = {"realization": None, "time": "at", "step": "1h", "timezone": "America/New_York"}
    est = am.estimate(frame, STATES, population=5000, chain=am.Cycle(24), **columns)
    assert np.ptp(est["home", "work"]) > 0.01
    found = am.flows(frame, est, **columns)
    expected = am.flows(y, est)
    assert np.allclose(found.mean, expected.mean)
    assert np.allclose(est.forecast(frame, 6, **columns).mean, est.forecast(y[0], 6).mean)


def test_records_of_which_a_part_is_missing_are_missing_steps(data):
    y, _, est = data
    part, whole = y.copy(), y.copy()
    part[1, 4, 0], whole[1, 4] = np.nan, np.nan
    assert np.allclose(am.flows(part, est).mean, am.flows(whole, est).mean)


def test_pictures_show_what_was_found(data):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install aggmc-beam[report]")
    y, frame, est = data
    flows, forecast = am.flows(frame, est, **COLUMNS), est.forecast(frame, 6, **COLUMNS)
    for figure in (
        flows.plot(),
        flows.plot([("home", "work")], "area 2"),
        forecast.plot(y[0]),
        forecast.plot(),
    ):
        assert figure._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(am.InputError, match="there is no realization 'area 9'"):
        flows.plot(realization="area 9")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f, e: am.flows(f, e, realization="area", time="month"), "Quarter|month is .* step"),
        (lambda f, e: am.flows(f, e, realisation="area"), "did you mean 'realization'"),
        (lambda f, e: am.flows(f, e, group_by="area", **COLUMNS), "the rows of one group"),
        (lambda f, e: am.flows(np.ones((4, 2)), e, realization="area"), "is for tables"),
        (lambda f, e: am.flows(f, am.Groups({("north",): e}), **COLUMNS), r"such as found\['north'\]"),
    ],
)
def test_wrong_calls_are_told_what_is_wrong(data, call, words):
    with pytest.raises(am.InputError, match=words):
        call(data[1], data[2])


def test_what_follows_is_a_table_and_fits_on_a_page(data):
    found = am.follows(data[2])
    assert found.to_frame().columns[:3] == ["state", "share", "share_error"]
    assert found.mean_stay().to_frame()["state"].to_list() == STATES
    assert found.power(2).to_frame().columns[:2] == ["from", "to"]
    assert found.stay(3).to_frame()["steps"].to_list() == [1, 1, 2, 2, 3, 3]
    assert max(map(len, f"{found}\n{found.flux()}".splitlines())) <= 100


def test_a_walk_without_memory_is_not_forecast_to_return():
    """Its own matrix draws it to the mean of its past; the records tell that it does not go there."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(8):
        walk = (3000 + np.cumsum(rng.normal(0, 25, (200, 2)), 0)).round()
        y = np.column_stack([walk, 9000 - walk.sum(1)])
        est = am.estimate(y[:80], population=9000, estimator="cls")
        ratios.append(am.evaluate(y, est, [12], start=80).ratio("estimate", 12))
    assert np.mean(ratios) < 1.03


def test_windows_that_share_are_compared_each_by_itself():
    p = []
    for seed in range(8):
        y, _ = am.simulate(P, steps=480, realizations=4, seed=seed)
        p.append(am.change(am.estimate(y, chain=am.Window(60))).p_value)
    assert np.mean(p) > 0.25
    assert np.min(p) > 0.005


def test_tables_of_units_keep_the_names_of_frames():
    rng = np.random.default_rng(1)
    before = rng.multinomial(3000, rng.dirichlet([2, 2], 60)[:, None, :])[:, 0]
    after = rng.multinomial(before, np.array([[0.8, 0.2], [0.3, 0.7]])).sum(1)
    units = [f"station {u}" for u in range(60)]
    a = pd.DataFrame(before, columns=["red", "blue"], index=pd.Index(units, name="station"))
    b = pl.DataFrame({"station": units, "left": [f"{n:,}" for n in after[:, 0]], "right": after[:, 1]})
    found = am.cross_table(a, b)
    plain = am.cross_table(before, after, rows=["red", "blue"], columns=["left", "right"])
    assert (found.rows, found.columns) == (plain.rows, plain.columns)
    assert np.allclose(found.units, plain.units)
    assert found.to_frame().columns[:3] == ["from", "to", "probability"]
    told = found.to_frame("units")
    assert told.filter(unit="station 7")["members"].sum() == pytest.approx(3000)
    with pytest.raises(am.InputError, match="another order"):
        am.cross_table(a, b.reverse())
