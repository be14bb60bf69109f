import frames
import numpy as np
import polars as pl
import pytest

import aggmc_beam as am
import aggmc_beam.local

HALF = am.Binomial(0.5)
OPTIONS = {"noise": HALF, "population": 200, "estimator": "mom"}


@pytest.fixture
def y():
    return frames.counts(T=20)


def test_a_frame_a_lazy_frame_its_namespace_and_its_file_give_what_the_array_gives(y, tmp_path):
    frame = frames.wide(y)
    path = frames.save(frame, tmp_path / "data.csv")
    expected = am.estimate(y, **OPTIONS)
    found = [
        am.estimate(frame, **OPTIONS),
        am.estimate(frame.lazy(), **OPTIONS),
        frame.aggmc.estimate(**OPTIONS),
        frame.lazy().aggmc.estimate(**OPTIONS),
        am.estimate(path, **OPTIONS),
        am.estimate(f"{tmp_path}/*.csv", **OPTIONS),
    ]
    for estimate in found:
        np.testing.assert_allclose(estimate.transition_matrix, expected.transition_matrix, atol=1e-12)
        np.testing.assert_allclose(estimate.standard_error, expected.standard_error, atol=1e-12)
        assert estimate.states == tuple(frames.STATES)


def test_columns_are_named_by_options(y):
    frame = frames.long(frames.wide(y)).rename({"realization": "day", "time": "hour", "count": "n"})
    found = am.estimate(frame, realization="day", time="hour", state="state", counts="n", **OPTIONS)
    assert found.counts["records"] == 120


def test_groups_give_a_dictionary(y):
    frame = frames.wide(y).with_columns(
        half=pl.when(pl.col("realization") < 3).then(pl.lit("a")).otherwise(pl.lit("b"))
    )
    found = am.estimate(frame, states=frames.STATES, group_by="half", **OPTIONS)
    assert set(found) == {("a",), ("b",)}
    expected = am.estimate(y[:3], **OPTIONS)
    np.testing.assert_allclose(found["a",].transition_matrix, expected.transition_matrix, atol=1e-12)


def test_a_population_column_is_named(y):
    N = np.arange(6) + 200
    frame = frames.wide(y, people=N)
    found = am.estimate(frame, noise=HALF, population="people", estimator="mom")
    expected = am.estimate(y, noise=HALF, population=N, estimator="mom")
    np.testing.assert_allclose(found.transition_matrix, expected.transition_matrix, atol=1e-12)


BAD = {
    "option": (lambda f: am.estimate(f, tme="x"), "did you mean 'time'"),
    "column": (lambda f: am.estimate(f, time="hour"), "the frame has no column 'hour'"),
    "population": (lambda f: am.estimate(f, population=[1, 2]), "name of a column"),
    "array": (lambda f: am.estimate(np.ones((1, 5, 2)), time="t"), "'time' is for tables"),
    "file": (lambda f: am.estimate("nowhere/*.csv"), "no file matches"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_calls_say_what_is_wrong(case, y):
    call, message = BAD[case]
    with pytest.raises(am.InputError, match=message):
        call(frames.wide(y))
