"""Four first users with the public names of README alone: data in, a table and a picture at the end."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install aggmc-beam[report]")

import aggmc_beam as am
from aggmc_beam.cli import main


def is_picture(path):
    return path.read_bytes().startswith(b"\x89PNG")


def test_a_census_analyst_compares_two_regions_of_a_spreadsheet(tmp_path, monkeypatch, capsys):
    """Knows the command line and Excel: quarters, thousands with commas."""
    monkeypatch.chdir(tmp_path)
    states = ["employed", "unemployed", "inactive"]
    moves = {
        "north": [[0.94, 0.02, 0.04], [0.25, 0.60, 0.15], [0.05, 0.03, 0.92]],
        "south": [[0.86, 0.09, 0.05], [0.15, 0.70, 0.15], [0.05, 0.05, 0.90]],
    }
    rows = []
    for seed, (region, matrix) in enumerate(moves.items()):
        y, _ = am.simulate(
            matrix,
            population=30_000,
            steps=20,
            realizations=25,
            noise=am.Laplace(20),
            start=[0.4, 0.3, 0.3],
            seed=seed,
        )
        rows += [
            {
                "region": region,
                "district": f"{region} {k}",
                "quarter": f"{2019 + t // 4}-Q{t % 4 + 1}",
                **{s: f"{n:,.0f}" for s, n in zip(states, y[k, t], strict=True)},
            }
            for k in range(25)
            for t in range(20)
        ]
    pd.DataFrame(rows).to_csv("census.csv", index=False)
    assert main(["init", "census.csv"]) == 0
    changes = ["group_by=[region]", "noise={model: laplace, scale: 20}", "population=30000"]
    assert main(["run", "census.yaml", *(x for c in changes for x in ("--set", c))]) == 0
    table = pd.read_csv("out/census/transitions.csv")
    assert table.columns.tolist() == ["group", "from", "to", "probability", "error", "lower", "upper"]
    for region, matrix in moves.items():
        found = table[table.group == region].probability.to_numpy().reshape(3, 3)
        assert np.abs(found - matrix).max() < 0.15
    assert main(["compare", "out/census", "--groups", "north", "south", "-o", "difference.png"]) == 0
    assert "that both have one matrix" in capsys.readouterr().out
    assert is_picture(tmp_path / "difference.png")
    assert main(["forecast", "out/census", "--steps", "4", "-o", "next.csv"]) == 0
    coming = pd.read_csv("next.csv")
    assert coming.time.tolist()[:6] == ["2024-Q1"] * 3 + ["2024-Q2"] * 3
    assert set(coming.region) == {"north", "south"}


def test_a_mobility_analyst_with_time_stamps_and_hours(tmp_path):
    """Knows pandas."""
    zones = ["home", "work", "other"]
    night, day = (
        [[0.95, 0.02, 0.03], [0.5, 0.4, 0.1], [0.4, 0.1, 0.5]],
        [[0.6, 0.3, 0.1], [0.05, 0.9, 0.05], [0.2, 0.3, 0.5]],
    )
    path = [day if 7 <= hour < 18 else night for hour in range(23)]
    y, _ = am.simulate(path, population=4000, realizations=40, noise=am.Binomial(0.5), seed=1)
    stamps = pd.date_range("2026-01-01", periods=40 * 24, freq="h")
    feed = pd.DataFrame(y.reshape(-1, 3), columns=zones).assign(at=stamps, day=stamps.date.astype(str))
    found = am.estimate(
        feed,
        zones,
        noise=am.Binomial(0.5),
        population=4000,
        realization="day",
        time="at",
        step="1h",
        chain=am.Cycle(24),
    )
    table = found.to_pandas()
    assert set(table.columns) >= {"cell", "from", "to", "probability", "lower", "upper"}
    hours = found["home", "work"]
    assert hours[found.cells.index(9)] > hours[found.cells.index(2)]
    moved = am.flows(feed, found, realization="day", time="at", step="1h").to_pandas()
    morning = moved[moved.time.str.contains("T09:") & (moved["from"] == "home") & (moved["to"] == "work")]
    assert len(morning) == 40
    assert (morning.lower <= morning["mean"]).all()
    found.plot([("home", "work")]).savefig(tmp_path / "hours.png")
    found.pooled.plot("map", coordinates={"home": (0, 0), "work": (1, 1), "other": (2, 0)}).savefig(
        tmp_path / "map.png"
    )
    assert is_picture(tmp_path / "hours.png")
    assert is_picture(tmp_path / "map.png")


def test_an_ecologist_with_a_long_table_and_gaps(tmp_path):
    """Knows tidy tables."""
    lakes, seen = ["reed", "open", "island"], am.Detection([0.7, 0.5, 0.4])
    moves = [[0.85, 0.10, 0.05], [0.15, 0.80, 0.05], [0.05, 0.10, 0.85]]
    y, _ = am.simulate(
        moves, population=500, steps=30, realizations=20, noise=seen, start=[0.8, 0.1, 0.1], seed=2
    )
    rng = np.random.default_rng(2)
    rows = [
        {"year": k, "week": t, "lake": lake, "birds": y[k, t, j]}
        for k in range(20)
        for t in range(30)
        if rng.random() > 0.1
        for j, lake in enumerate(lakes)
    ]
    est = am.estimate(
        pl.DataFrame(rows), lakes, noise=seen, population=500,
        realization="year", time="week", state="lake", counts="birds",
    )  # fmt: skip
    assert est.counts["gaps"] > 0
    table = est.to_frame("matrix")
    assert table.columns == ["from", *lakes]
    assert np.abs(np.asarray(est) - moves).max() < 0.1
    assert est.follows().to_pandas().state.tolist() == lakes
    est.to_csv(tmp_path / "lakes.csv")
    est.plot("network").savefig(tmp_path / "lakes.png")
    assert (tmp_path / "lakes.csv").read_text().startswith("from,to,probability")
    assert is_picture(tmp_path / "lakes.png")


def test_a_notebook_user_looks_and_compares():
    """Knows numpy and what a cell shows."""
    P = [[0.9, 0.1], [0.3, 0.7]]
    y, _ = am.simulate(P, population=1000, steps=50, realizations=20, seed=3)
    z, _ = am.simulate([[0.8, 0.2], [0.3, 0.7]], population=1000, steps=50, realizations=20, seed=4)
    a, b = am.estimate(y, ["in", "out"], population=1000), am.estimate(z, ["in", "out"], population=1000)
    assert "<table" in a._repr_html_()
    assert a.plot()._repr_png_().startswith(b"\x89PNG")
    found = am.compare(a, b)
    assert found.p_value < 0.01
    assert "<table" in found._repr_html_()
    assert found.plot()._repr_png_().startswith(b"\x89PNG")
    assert abs(a["in", "out"] - 0.1) < 0.02
    coming = a.forecast(y[0], 6)
    assert "<table" in coming._repr_html_()
    assert coming.plot(y[0])._repr_png_().startswith(b"\x89PNG")
    assert "<table" in am.flows(y, a)._repr_html_()
