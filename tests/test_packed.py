"""Integers made an array at once: right where they are plain integers, and nothing else passes for them."""

import enum

import numpy as np
import pytest

from aggmc_beam.beam.packed import whole


class Seven(enum.IntEnum):
    SEVEN = 7


def test_integers_are_what_they_are_one_by_one():
    values = np.random.default_rng(1).integers(-(2**31), 2**31, 1000).tolist()
    values += [-(2**31), 2**31 - 1, 0, -1]
    assert whole(values).tolist() == values


@pytest.mark.parametrize("at", [0, 5, 8])
@pytest.mark.parametrize(
    "odd",
    [
        True,
        False,
        None,
        2**31,
        -(2**31) - 1,
        2**70,
        1.0,
        1.5,
        float("nan"),
        "1",
        b"1",
        (),
        (1,),
        [1],
        1j,
        Seven.SEVEN,
        np.int64(1),
        np.array(1),
        np.bool_(True),
    ],
)
def test_nothing_else_passes_for_an_integer(odd, at):
    values = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert whole(values) is not None
    values[at] = odd
    assert whole(values) is None
