"""Rows of numbers read at once: right where they are plain numbers, and nothing else passes for them."""

import enum

import numpy as np
import pytest

from aggmc_beam.beam.packed import columns


class Seven(enum.IntEnum):
    SEVEN = 7


def test_columns_are_what_they_are_one_by_one():
    rng = np.random.default_rng(1)
    whole = [int(n) for n in rng.integers(-(2**31), 2**31, 1000)] + [-(2**31), 2**31 - 1, 0, -1]
    parts = [*rng.normal(size=len(whole) - 3).tolist(), float("nan"), float("inf"), -0.0]
    found = columns(list(zip(whole, parts, whole, strict=True)))
    assert [column.dtype for column in found] == [np.int64, np.float64, np.int64]
    for column, expected in zip(found, (whole, parts, whole), strict=True):
        np.testing.assert_array_equal(column, expected)


@pytest.mark.parametrize("at", [0, 5])
@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize(
    "odd",
    [
        True,
        None,
        2**31,
        -(2**31) - 1,
        1.5,
        "1",
        b"1",
        (),
        (1,),
        [1],
        1j,
        Seven.SEVEN,
        np.int64(1),
        np.bool_(True),
    ],
)
def test_nothing_else_passes_for_an_integer(odd, where, at):
    rows = [[1, 2] for _ in range(9)]
    assert columns([tuple(row) for row in rows]) is not None
    rows[at][where] = odd
    found = columns([tuple(row) for row in rows])
    # All floats are a column, too; one among others is none.
    assert found is None


def test_rows_of_different_lengths_are_refused():
    assert columns([(1, 2), (1, 2, 3)]) is None
    assert columns([(1, 2, 3), (1, 2)]) is None
