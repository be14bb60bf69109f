"""`aggmc init`: what it sees in files as people have them, and that a run understands what it writes."""

import numpy as np
import pandas as pd
import pytest

import aggmc_beam as am
from aggmc_beam.cli import main


@pytest.fixture(scope="module")
def counts():
    return am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=36, realizations=3, population=2000, seed=1)[0].astype(
        int
    )


def spreadsheet(y):
    """Titles above, thousands, quarters, and a region that only groups the counties."""
    lines = ["Labour force;", "Source: statistics office;", "Region;County;Quarter;in work;out of work"]
    lines += [
        f'{"North" if k else "South"};county {k};{2015 + t // 4}-Q{t % 4 + 1};"{y[k, t, 0]:,}";"{y[k, t, 1]:,}"'
        for k in range(3)
        for t in range(36)
    ]
    return "\n".join(lines)


def years_and_months(y):
    rows = [
        {"year": 2020 + t // 12, "month": t % 12 + 1, "site": k, "in": y[k, t, 0],
         "out": "<5" if t == 7 else y[k, t, 1], "total": 2000}
        for k in range(3)
        for t in range(36)
    ]  # fmt: skip
    return pd.DataFrame(rows).to_csv(index=False)


def days_and_hours(y):
    at = pd.date_range("2026-01-05", periods=108, freq="h")
    frame = pd.DataFrame(y.reshape(-1, 2), columns=["in", "out"])
    return frame.assign(date=at.date, hour=at.hour).to_csv(index=False)


def long_months(y):
    rows = [
        {"month": f"{2020 + t // 12}-{t % 12 + 1:02}", "lake": f"lake {k}", "status": s, "number": y[k, t, j]}
        for k in range(3)
        for t in range(36)
        for j, s in enumerate(["in", "out"])
    ]
    return pd.DataFrame(rows).to_csv(index=False)


LOOKS = {
    "spreadsheet": (spreadsheet, ["skip_lines: 2", "realization: County, time: Quarter", "step: quarter",
                                  'states: ["in work", "out of work"]', "# group_by", "{cycle: 4}"]),
    "years and months": (years_and_months, ["time: [year, month]", "step: month", "realization: site",
                                            "states: [in, out]", "# total is the total", "missing: pairwise"]),
    "days and hours": (days_and_hours, ["time: [date, hour]", "step: 1h", "All rows are one series", "# timezone"]),
    "long months": (long_months, ["layout: long", "realization: lake", "counts: number", "step: month"]),
}  # fmt: skip


@pytest.mark.parametrize("look", LOOKS)
def test_init_sees_what_columns_hold_and_a_run_understands_it(look, counts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made, lines = LOOKS[look]
    (tmp_path / "data.csv").write_text(made(counts))
    assert main(["init", "data.csv"]) == 0
    text = (tmp_path / "data.yaml").read_text()
    for line in lines:
        assert line in text
    assert main(["run", "data.yaml", "--quiet"]) == 0
    found = am.read_estimates("out/data")
    assert np.abs(found.transition_matrix - [[0.9, 0.1], [0.3, 0.7]]).max() < 0.25
