"""Tidy rows: what becomes of names, as text is found in files."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from aggmc_beam.local.tidy import _named, name_of

TEXTS = st.sampled_from(["a", " a ", "b", "", "  ", None, "7", "x\x00", "\ufffd", "\u00fc"])


@given(st.lists(st.tuples(TEXTS, st.integers(1, 5)), max_size=12))
def test_names_are_the_same_whether_stretches_or_rows_are_looked_at(runs):
    texts = pl.Series("text", [text for text, length in runs for _ in range(length)], pl.String)
    expected = texts.to_frame().select(name_of("text", pl.String)).to_series()
    assert _named(texts).to_list() == expected.to_list()
