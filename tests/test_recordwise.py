"""Whether long rows come record by record, against the definition and for any chunks."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loops import ROADS
from test_matrix import cut

from aggmc_beam.local.recordwise import by_stretch, repeats
from aggmc_beam.local.threads import on_all_cores

CUTS = st.lists(st.integers(0, 24), max_size=4)
LONG_NAMES = ["a state with a long name", "another state with a long name", "b"]


@pytest.mark.parametrize("road", ROADS)
@given(
    values=st.lists(st.sampled_from([0, 1]), min_size=4, max_size=8)
    | st.lists(st.none() | st.integers(0, 1), min_size=4),
    size=st.sampled_from([1, 2, 3]),
    stretched=st.booleans(),
    cuts=CUTS,
)
def test_stretches_are_constant_if_all_their_values_are_equal(road, values, size, stretched, cuts):
    values = np.repeat(values, size).tolist() if stretched else values[: len(values) // size * size]
    stretches = [values[i : i + size] for i in range(0, len(values), size)]
    expected = [s[0] for s in stretches] if all(len(set(s)) == 1 for s in stretches) else None
    column = cut(pl.Series(values, dtype=pl.Int64), cuts)
    for written in (column, column.cast(pl.String), column.cast(pl.Int8), column.cast(pl.UInt16)):
        with ROADS[road]():
            found = by_stretch(written, size, on_all_cores)
        assert (None if found is None else found.cast(pl.Int64).to_list()) == expected


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("size", [1, 2, 5])
@given(cuts=CUTS)
def test_constant_stretches_are_seen_across_chunks(road, size, cuts):
    column = cut(pl.Series(np.repeat(np.arange(5), size)), cuts)
    with ROADS[road]():
        assert by_stretch(column, size).to_list() == list(range(5))


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("names", [["a", "b", "c"], LONG_NAMES], ids=["short", "long"])
@given(cuts=CUTS, odd=st.none() | st.integers(0, 23))
def test_states_repeat_unless_one_is_odd(road, names, cuts, odd):
    states = names * 8
    if odd is not None:
        states[odd] = names[0] + "!"
    column = cut(pl.Series(states), cuts)
    with ROADS[road]():
        assert repeats(column, 3, on_all_cores) == (odd is None)


def test_a_missing_name_repeats_only_where_it_is_missing_always():
    assert repeats(pl.Series(["a", None] * 3), 2)
    assert not repeats(pl.Series(["a", "b", "a", None]), 2)


def test_long_names_that_were_written_apart_repeat_all_the_same():
    """Chunks that were made by themselves have places of their own for texts."""
    column = pl.concat([pl.Series(LONG_NAMES), pl.Series(LONG_NAMES * 2)], rechunk=False)
    assert repeats(column, 3)
    joined = pl.concat([pl.Series(LONG_NAMES), pl.Series([name + "" for name in LONG_NAMES])], rechunk=True)
    assert repeats(joined, 3)
