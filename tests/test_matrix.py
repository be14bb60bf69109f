"""Counts out of columns, lists and long rows: the same numbers, however they lie in memory."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loops import ROADS

from aggmc_beam.local import matrix
from aggmc_beam.local.matrix import of_lists, of_rows, side_by_side
from aggmc_beam.local.threads import on_all_cores

MOST = {"int16": 2**15 - 1, "int32": 2**31 - 1, "int64": 2**63 - 1}


def cut(series, cuts):
    """The same series in several chunks."""
    ends = [0, *sorted(min(c, len(series)) for c in cuts), len(series)]
    parts = [series[a:b] for a, b in pairwise(ends) if b > a]
    return pl.concat(parts, rechunk=False) if parts else series


def numbers(n, largest, seed=0):
    found = np.random.default_rng(seed).integers(-100, 100, (n, 3))
    found[n // 2, 1] = largest
    return found


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("over", [map, on_all_cores], ids=["map", "threads"])
@pytest.mark.parametrize("kind", list(MOST))
@pytest.mark.parametrize("side", [1, -1], ids=["largest", "smallest"])
@given(cuts=st.lists(st.integers(0, 50), max_size=3), other=st.lists(st.integers(0, 50), max_size=2))
def test_all_layouts_give_the_same_numbers_in_the_fewest_bytes(road, over, kind, side, cuts, other):
    y = numbers(50, MOST[kind] if side > 0 else -MOST[kind] - 1)
    columns = [cut(pl.Series(f"s{i}", y[:, i]), other if i else cuts) for i in range(3)]
    lists = pl.Series("counts", y).cast(pl.List(pl.Int64))
    with ROADS[road]():
        by_column = side_by_side(pl.DataFrame(columns), ["s0", "s1", "s2"], over)
        by_list = of_lists(cut(lists, cuts), 3, over)
        by_row = of_rows(cut(pl.Series("count", y.ravel()), cuts), 3, over)
    for found in (by_column, by_list, by_row):
        np.testing.assert_array_equal(found, y)
        assert found.dtype == kind
        assert found.flags.c_contiguous or found.flags.f_contiguous


def test_long_columns_are_written_piece_by_piece(monkeypatch):
    monkeypatch.setattr(matrix, "PIECE", 7)
    y = numbers(50, 99)
    frame = pl.DataFrame(y, schema=["a", "b", "c"])
    np.testing.assert_array_equal(side_by_side(frame, ["a", "b", "c"], on_all_cores), y)
    np.testing.assert_array_equal(of_rows(pl.Series(y.ravel()), 3), y)
    np.testing.assert_array_equal(of_lists(pl.Series(y).cast(pl.List(pl.Int64)), 3), y)


def test_small_unsigned_columns_beside_signed_ones_keep_their_values():
    frame = pl.DataFrame({"a": pl.Series([250], dtype=pl.UInt8), "b": pl.Series([-5], dtype=pl.Int8)})
    assert side_by_side(frame, ["a", "b"]).tolist() == [[250, -5]]
    large = pl.DataFrame({"a": pl.Series([2**32 - 1], dtype=pl.UInt32)})
    assert side_by_side(large, ["a"]).tolist() == [[2**32 - 1]]


def test_nulls_and_fractions_stay_what_they_are():
    frame = pl.DataFrame({"a": [1, None], "b": [2, 3]})
    np.testing.assert_array_equal(side_by_side(frame, ["a", "b"]), [[1, 2], [np.nan, 3]])
    assert side_by_side(pl.DataFrame({"a": [0.5]}), ["a"]).tolist() == [[0.5]]
    assert of_rows(pl.Series([0.5, 1.0]), 2) is None


@pytest.mark.parametrize(
    "lists", [[[1, 2], [3]], [[1, 2], [3, 4, 5]], [[1, 2], None], [[1, None], [3, 4]], [[], [1, 2]]]
)
def test_lists_that_are_not_all_whole_numbers_are_left_to_the_careful_way(lists):
    assert of_lists(pl.Series(lists, dtype=pl.List(pl.Int64)), 2) is None
    assert of_lists(pl.Series([[0.5, 1.0]]), 2) is None
