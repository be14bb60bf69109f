"""Results out: tables, CSV, Excel, Arrow, numpy, names; and what they look like when printed."""

import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest

import aggmc_beam as am
from aggmc_beam.printing import WIDTH, width
from aggmc_beam.tables import columns_of, table_files

P = [[0.9, 0.1], [0.3, 0.7]]
TIDY = ["from", "to", "probability", "error", "lower", "upper"]


def one(states=("in", "out"), seed=1, **options):
    y, _ = am.simulate(P, steps=60, realizations=10, population=500, seed=seed)
    return am.estimate(y, list(states), population=500, **options)


def grouped(**options):
    y, _ = am.simulate(P, steps=60, realizations=10, population=500, seed=1)
    rows = [
        {
            "region": "=north" if k < 5 else "south",
            "realization": k,
            "time": t,
            "in": y[k, t, 0],
            "out": y[k, t, 1],
        }
        for k in range(10)
        for t in range(60)
    ]
    return am.estimate(rows, ["in", "out"], group_by="region", **options)


def wide(S, length=5, seed=0):
    """An estimate of S states without estimating anything."""
    rng = np.random.default_rng(seed)
    e = one()
    names = tuple(
        f"{'état 東京 '[: max(length - 4, 0)]}{k:0{min(length, 4)}d}"[:length] + "x" * (length - 12)
        for k in range(S)
    )
    Q = rng.dirichlet(np.full(S, 0.3), S)
    square = {
        name: np.full((S, S), 0.01) for name in ("standard_error", "sampling", "differences", "disagreement")
    }
    warning = "a sentence that is longer than any terminal is wide, " * 4
    return replace(
        e,
        states=names,
        transition_matrix=Q,
        stationary=np.full(S, 1 / S),
        baselines={},
        warnings=(warning,),
        **square,
    )


def test_the_tidy_table_holds_the_matrix_with_its_intervals():
    e = one()
    frame = e.to_frame()
    assert frame.columns == TIDY
    np.testing.assert_array_equal(frame["probability"].to_numpy().reshape(2, 2), e.transition_matrix)
    for name, bound in zip(("lower", "upper"), e.interval(), strict=True):
        np.testing.assert_array_equal(frame[name].to_numpy().reshape(2, 2), bound)
    assert frame.row(1, named=True)["to"] == "out"


def test_all_frames_hold_the_same():
    e = grouped()
    frame = e.to_frame()
    assert frame.columns == ["group", *TIDY]
    assert e.to_pandas().equals(frame.to_pandas())
    assert pl.DataFrame(e.to_arrow()).equals(frame)
    assert pl.DataFrame(e["south"]).equals(e["south"].to_frame()), "whoever reads Arrow reads a result"
    assert pl.read_csv(io.StringIO(e["south"].to_csv())).equals(e["south"].to_frame())


def test_cells_and_windows_have_their_columns():
    windows = one(chain=am.Window(30))
    frame = windows.to_frame()
    assert frame.columns == ["cell", "window", "window_end", *TIDY]
    assert frame["window_end"].unique().sort().to_list() == [30, 60]
    assert one(chain=am.Cycle(3)).to_frame().columns == ["cell", *TIDY]


def test_the_matrix_and_the_summary():
    e = grouped()
    matrix = e.to_frame("matrix")
    assert matrix.columns == ["group", "from", "in", "out"]
    np.testing.assert_array_equal(matrix.filter(pl.col("group") == "south")[:, 2:].to_numpy(), e["south"])
    summary = e.to_frame("summary")
    assert summary["group"].to_list() == ["=north", "south"]
    assert summary["pairs"].to_list() == [e[g].counts["pairs"] for g in ("=north", "south")]
    found = e["south"]
    stay = found.stationary @ np.diag(found.transition_matrix) / found.stationary.sum()
    assert summary["stay"][1] == pytest.approx(stay)
    with pytest.raises(am.InputError, match="no table 'tydy'; did you mean 'tidy'"):
        e.to_frame("tydy")


def test_a_state_may_be_called_like_a_column():
    assert one(("from", "to")).to_frame("matrix").columns == ["from_state", "from", "to"]


def test_what_is_not_known_is_empty_in_every_table():
    e = one()
    unknown = replace(
        e, transition_matrix=np.array([[np.nan] * 2, [0.3, 0.7]]), standard_error=np.full((2, 2), np.nan)
    )
    assert unknown.to_frame()["probability"].null_count() == 2
    assert unknown.to_arrow()["probability"].null_count == 2
    assert unknown.to_pandas()["error"].isna().all()
    assert unknown.to_csv().splitlines()[1] == "in,in,,,,"


def test_csv_refuses_what_a_spreadsheet_would_run_and_excel_writes_it_as_text(tmp_path):
    e = grouped()
    with pytest.raises(am.InputError, match="'=north' would be run as a formula"):
        e.to_csv(tmp_path / "x.csv")
    assert not (tmp_path / "x.csv").exists()
    e["south"].to_csv(tmp_path / "south.csv")
    assert pd.read_csv(tmp_path / "south.csv").columns.tolist() == ["group", *TIDY]


def test_excel_has_a_sheet_for_each_table(tmp_path):
    pytest.importorskip("xlsxwriter", reason="Excel needs XlsxWriter: pip install aggmc-beam[excel]")
    grouped().to_excel(tmp_path / "x.xlsx")
    with zipfile.ZipFile(tmp_path / "x.xlsx") as book:
        assert [n for n in book.namelist() if "worksheets/sheet" in n] == [
            f"xl/worksheets/sheet{k}.xml" for k in (1, 2, 3)
        ]
        text = book.read("xl/sharedStrings.xml").decode() + book.read("xl/worksheets/sheet1.xml").decode()
    assert "=north" in text
    assert "<f>" not in text, "no cell is a formula"


def test_without_a_library_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(am.InputError, match="pip install pandas"):
        one().to_pandas()


def test_entries_by_name_and_arrays():
    e = one()
    assert e["in", "out"] == e.transition_matrix[0, 1]
    assert e["in"] == {"in": e["in", "in"], "out": e["in", "out"]}
    assert np.asarray(e).tolist() == e.transition_matrix.tolist()
    assert np.array(e, np.float32).dtype == np.float32
    with pytest.raises(am.InputError, match="there is no state 'inn'; did you mean 'in'"):
        e["inn", "out"]
    with pytest.raises(TypeError, match=r"np\.asarray"):
        list(e)


def test_cells_and_groups_by_name():
    windows = one(chain=am.Window(30))
    assert windows[1] is windows.cell(30) is windows.items[1]
    np.testing.assert_array_equal(windows["in", "out"], windows.transition_matrix[:, 0, 1])
    assert np.asarray(windows).shape == (2, 2, 2)
    with pytest.raises(am.InputError, match="there is no cell 7; there are 0, 30"):
        windows.cell(7)
    groups = grouped(chain=am.Window(30))
    assert isinstance(groups, dict)
    assert groups["south"] is groups[("south",)]
    assert groups["south", 30] is groups["south"].cell(30)
    with pytest.raises(am.InputError, match="there is no group 'sout'; did you mean 'south'"):
        groups["sout"]


@pytest.mark.parametrize("S", [2, 5, 7, 13, 40, 300])
@pytest.mark.parametrize("length", [1, 9, 80])
def test_print_fits_a_hundred_columns_whatever_the_states(S, length):
    e = wide(S, length)
    lines = str(e).splitlines()
    assert max(map(width, lines)) <= WIDTH
    assert lines[0].startswith("Warning: a sentence")
    assert len(lines) < 60
    if S <= 40:
        assert e.to_text(whole=True).count("±") >= S * S


def test_a_wide_matrix_is_told_by_its_largest_moves_and_who_stays():
    e = wide(40)
    flow = e.stationary[:, None] * e.transition_matrix
    np.fill_diagonal(flow, 0)
    i, j = divmod(int(flow.argmax()), 40)
    stays = np.diag(e.transition_matrix)
    lines = str(e).splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("Largest moves"))
    assert (
        lines[first + 2].split()[:3] == [e.states[i], "→", e.states[j]]
        or f"{e.states[i]} → {e.states[j]}" in lines[first + 2]
    )
    assert f"{e.transition_matrix[i, j]:.3f}" in lines[first + 2]
    assert f"{stays.max():.3f}" in str(e)
    assert f"{stays.min():.3f}" in str(e)


def test_groups_and_windows_print_a_line_each():
    found = grouped()
    text = str(found).splitlines()
    assert text[0] == "2 groups"
    assert text[2].startswith("=north")
    many = am.Groups({(f"g{k}" * 30,): found["south"] for k in range(300)}, {"x" * 200: "too little " * 30})
    assert max(map(width, str(many).splitlines())) <= WIDTH
    assert len(str(many).splitlines()) < 45
    assert max(map(width, str(one(chain=am.Window(30))).splitlines())) <= WIDTH


@pytest.mark.parametrize("S", [2, 20, 100])
def test_notebooks_show_html_that_escapes_names(S):
    e = wide(S)
    e = replace(e, states=("<script>", *e.states[1:]), warnings=("<b>",))
    html = e._repr_html_()
    assert "<script>" not in html
    assert "&lt;b&gt;" in html
    assert ("<table" in html) is (S <= 60)
    assert len(html) < 800_000


def test_results_are_read_back_from_what_a_run_wrote(tmp_path):
    for k, found in enumerate((one(), one(chain=am.Cycle(3)), grouped(), grouped(chain=am.Window(30)))):
        path = tmp_path / str(k)
        path.mkdir()
        (path / "estimates.jsonl").write_text(found.to_json() + "\n")
        again = am.read_estimates(path)
        assert type(again) is type(found)
        assert again.to_frame().equals(found.to_frame())
    with pytest.raises(am.InputError, match="cannot read"):
        am.read_estimates(tmp_path / "none")
    (tmp_path / "bad.jsonl").write_text(json.dumps({"x": 1}))
    with pytest.raises(am.InputError, match=r"bad\.jsonl: this is not an estimate"):
        am.read_estimates(tmp_path / "bad.jsonl")


def test_tables_of_runs_have_the_same_types_whatever_is_missing():
    e = one()
    nothing = replace(e, standard_error=np.full((2, 2), np.nan), group=None, cell=None)
    files = {
        (n, f): data for n, f, data in table_files([nothing], ("csv", "parquet"), always=("cell", "refresh"))
    }
    assert set(files) == {(n, f) for n in ("transitions", "summary") for f in ("csv", "parquet")}
    schema = pl.read_parquet(files["transitions", "parquet"]).schema
    assert (schema["cell"], schema["error"], schema["from"]) == (pl.Int64, pl.Float64, pl.String)
    assert list(columns_of([], "tidy")) == TIDY
