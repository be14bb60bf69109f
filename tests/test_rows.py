"""How rows are read and cut, against the rows themselves."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from aggmc_beam.local import rows
from aggmc_beam.local.sources import open_files
from aggmc_beam.local.tidy import KEY


def stretches(rng, many, longest):
    """Rows of realizations that follow each other, some without a name."""
    key = np.repeat(np.arange(many), rng.integers(1, longest + 1, many))
    names = [None if k % 7 == 3 else k for k in key.tolist()]
    return pl.DataFrame({KEY: names, "row": np.arange(len(key))})


@pytest.mark.parametrize("longest", [1, 30, 5000])
@pytest.mark.parametrize("most", [50, 4000])
def test_rows_are_cut_between_realizations_and_none_is_lost(longest, most):
    rng = np.random.default_rng(longest + most)
    frame = stretches(rng, 40, longest)
    cuts = [0, *sorted(rng.integers(0, frame.height + 1, 9).tolist()), frame.height]
    given = [frame[a:b] for a, b in pairwise(cuts)]
    found = list(rows.whole_realizations(rows.filled(given, most), most))
    assert pl.concat(found).equals(frame)
    assert all(part.height for part in found)
    length = dict(frame.group_by(KEY).len().iter_rows())
    for one, other in pairwise(found):
        if length[one[KEY][-1]] < most and one[KEY][-1] is not None:
            assert one[KEY][-1] != other[KEY][0]


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_portions_are_the_rows_of_all_files_in_order(size, tmp_path):
    frame = pl.DataFrame({"x": np.arange(157)})
    frame[:90].write_parquet(tmp_path / "a.parquet", row_group_size=40)
    frame[90:101].write_csv(tmp_path / "b.csv")
    frame[101:].write_parquet(tmp_path / "c.parquet", row_group_size=1)
    sources = open_files([str(tmp_path / "*")])
    frames = [source.scan(["x"]).select(pl.col("x").cast(pl.Int64)) for source in sources]
    found = list(rows.portions(sources, frames, size))
    assert pl.concat(found).equals(frame)
    assert all(part.height >= size for part in found[:-1])


def test_an_error_while_reading_ahead_is_told(tmp_path):
    pl.DataFrame({"x": ["1", "two"]}).write_parquet(tmp_path / "a.parquet")
    sources = open_files([str(tmp_path / "a.parquet")])
    frames = [source.scan(["x"]).select(pl.col("x").cast(pl.Int64)) for source in sources]
    with pytest.raises(pl.exceptions.PolarsError, match="two"):
        list(rows.portions(sources, frames, 1))
