"""Data in: frames of any library, labelled arrays, dictionaries; what wrong calls are told."""

import types

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import aggmc_beam as am

P = [[0.9, 0.1], [0.3, 0.7]]
STATES = ["in", "out"]
COUNTS, _ = am.simulate(P, steps=40, realizations=3, population=500, seed=1)


def records():
    return [
        {"realization": k, "time": t, "in": COUNTS[k, t, 0], "out": COUNTS[k, t, 1]}
        for k in range(3)
        for t in range(40)
    ]


FRAME = pd.DataFrame(records())


class Capsule:
    """Whoever speaks Arrow's protocol only."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


TABLES = {
    "Polars": pl.DataFrame(records()),
    "lazy Polars": pl.LazyFrame(records()),
    "pandas": FRAME,
    "pandas with an index": FRAME.set_index(["realization", "time"]),
    "pandas of nullable types": FRAME.convert_dtypes(),
    "Arrow": pa.table(pl.DataFrame(records()).to_arrow()),
    "record batch": pa.RecordBatch.from_pylist(records()),
    "capsule": Capsule(pa.Table.from_pylist(records())),
    "dictionary of columns": {name: FRAME[name].tolist() for name in FRAME},
    "list of records": records(),
    "numpy with named columns": FRAME.to_records(index=False),
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_table_gives_the_estimate_of_the_array(kind):
    expected = am.estimate(COUNTS, STATES, population=500, estimator="mom")
    found = am.estimate(TABLES[kind], STATES, population=500, estimator="mom")
    np.testing.assert_allclose(found.transition_matrix, expected.transition_matrix, atol=1e-12)
    assert found.counts["records"] == 120


@pytest.mark.parametrize("categorical", [False, True])
def test_a_long_frame_with_columns_of_other_names(categorical):
    long = FRAME.melt(["realization", "time"], var_name="where", value_name="people")
    long = long.rename(columns={"realization": "site", "time": "hour"})
    if categorical:
        long["where"] = long["where"].astype("category")
    found = am.estimate(
        long,
        STATES,
        population=500,
        estimator="mom",
        realization="site",
        time="hour",
        state="where",
        counts="people",
    )
    expected = am.estimate(COUNTS, STATES, population=500, estimator="mom")
    np.testing.assert_allclose(found.transition_matrix, expected.transition_matrix, atol=1e-12)


def test_time_stamps_of_pandas_with_and_without_zone():
    stamps = pd.Timestamp("2026-01-01") + pd.to_timedelta(FRAME["time"], unit="h")
    expected = am.estimate(COUNTS, STATES, population=500, estimator="mom").transition_matrix
    for times in (stamps, stamps.dt.tz_localize("Europe/Berlin")):
        found = am.estimate(FRAME.assign(time=times), STATES, population=500, estimator="mom", step="1h")
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_one_series_needs_no_column_of_realizations():
    alone = FRAME[FRAME.realization == 0].drop(columns="realization")
    found = am.estimate(alone, STATES, realization=None, estimator="mom")
    np.testing.assert_allclose(found, am.estimate(COUNTS[:1], estimator="mom"), atol=1e-12)
    with pytest.raises(am.InputError, match="give realization=None if all rows are one series"):
        am.estimate(alone, STATES)


def labelled(dims, coords):
    """What xarray offers of an array, for a machine without it."""

    class DataArray:
        def __init__(self, values, dims, coords):
            self.values, self.dims = values, dims
            self.coords = {name: types.SimpleNamespace(values=np.asarray(v)) for name, v in coords.items()}
            self.sizes = dict(zip(dims, values.shape, strict=True))

        def transpose(self, *order):
            return DataArray(self.values.transpose([self.dims.index(d) for d in order]), order, {})

    DataArray.__module__ = "xarray.core"
    return DataArray(COUNTS, dims, coords)


@pytest.mark.parametrize("real", [False, True])
def test_labelled_arrays(real):
    dims, coords = ("run", "hour", "place"), {"place": STATES, "hour": np.arange(40)}
    if real:
        xarray = pytest.importorskip("xarray")
        data = xarray.DataArray(COUNTS, dims=dims, coords=coords).transpose("hour", "place", "run")
    else:
        data = labelled(dims, coords)
    found = am.estimate(data, population=500, realization="run", time="hour", estimator="mom")
    assert found.states == ("in", "out")
    np.testing.assert_allclose(found, am.estimate(COUNTS, population=500, estimator="mom"), atol=1e-12)
    with pytest.raises(am.InputError, match="no dimension 'time'"):
        am.estimate(data, realization="run")


def test_relations_of_duckdb():
    duckdb = pytest.importorskip("duckdb")
    frame = FRAME
    found = am.estimate(duckdb.sql("select * from frame"), STATES, population=500, estimator="mom")
    np.testing.assert_allclose(found, am.estimate(COUNTS, population=500, estimator="mom"), atol=1e-12)
    assert len(frame) == 120


WRONG = {
    "a wrong keyword": (FRAME, {"stats": STATES}, "there is no option 'stats'; did you mean 'states'?"),
    "the same, of arrays": (COUNTS, {"stats": STATES}, "did you mean 'states'?"),
    "a column's option": (FRAME, {"groupby": "x"}, "did you mean 'group_by'?"),
    "columns of an array": (COUNTS, {"time": "hour"}, "the data are ndarray, which has no columns"),
    "a column that is not there": (FRAME, {"time": "times"}, "no column 'times'; did you mean 'time'"),
    "no columns alike": ({"a": [1]}, {}, "the frame has no column 'realization'"),
    "columns of two lengths": ({"a": [1], "b": [1, 2]}, {}, "the dict cannot be read as a table"),
    "a column twice": (
        pd.concat([FRAME, FRAME[["in"]]], axis=1), {"states": STATES}, "two columns named 'in'; rename one",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_calls_are_told_what_is_wrong(case):
    data, options, message = WRONG[case]
    with pytest.raises(am.InputError) as raised:
        am.estimate(data, **options)
    assert message in str(raised.value)


def test_tests_and_diagnosis_take_tables_and_files(tmp_path):
    y, _ = am.simulate(P, steps=40, realizations=30, population=500, seed=2)
    rows = [
        {"realization": k, "time": t, "in": y[k, t, 0], "out": y[k, t, 1]}
        for k in range(30)
        for t in range(40)
    ]
    frame, path = pd.DataFrame(rows), tmp_path / "counts.csv"
    frame.to_csv(path, index=False)
    for test in (am.zero_order, am.stationarity):
        expected = test(y, population=500).p_value
        for data in (frame, path, str(path)):
            assert test(data, population=500, states=STATES).p_value == pytest.approx(expected, rel=1e-9)
    expected = am.equality(y[:15], y[15:], population=500).p_value
    found = am.equality(
        frame[frame.realization < 15], frame[frame.realization >= 15], population=500, states=STATES
    )
    assert found.p_value == pytest.approx(expected, rel=1e-9)
    assert am.diagnose(path, population=500, states=STATES).states == ("in", "out")
    with pytest.raises(am.InputError, match="did you mean 'realization'"):
        am.zero_order(frame, realisation="x")
