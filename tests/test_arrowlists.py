"""Lists out of Parquet files: by Arrow what Polars reads."""

import frames
import numpy as np
import polars as pl
import pytest

from aggmc_beam.config import read_config
from aggmc_beam.local import arrowlists, run, sources
from aggmc_beam.local.arrowlists import NotArrow, is_for_lists

KINDS = {"realization": pl.Int64, "time": pl.Int64, "counts": pl.List(pl.Int64)}


def test_arrow_reads_what_polars_reads(tmp_path):
    frame = frames.lists(frames.wide(frames.counts().astype(np.int64))).cast(KINDS)
    # A folder's name tells nothing, though some readers take it for a column.
    path = tmp_path / "realization=7" / "a.parquet"
    path.parent.mkdir()
    frame.write_parquet(path, row_group_size=50)
    [found] = arrowlists.frames(str(path), KINDS)
    assert found.equals(frame)


def test_files_that_arrow_cannot_read_are_left_to_others(tmp_path):
    for data in (b"", b"PAR1 and nothing more"):
        (tmp_path / "a.parquet").write_bytes(data)
        with pytest.raises(NotArrow):
            list(arrowlists.frames(str(tmp_path / "a.parquet"), KINDS))
    with pytest.raises(NotArrow):
        list(arrowlists.frames(str(tmp_path / "none.parquet"), KINDS))


def test_only_lists_of_whole_numbers_are_for_arrow():
    assert is_for_lists(KINDS)
    assert not is_for_lists({"a": pl.Int64})
    assert not is_for_lists({"a": pl.List(pl.Float64)})
    assert not is_for_lists({"a.b": pl.List(pl.Int64)})


@pytest.mark.parametrize("spoiled", [None, [1, 2], [1, None, 3], None.__class__])
def test_a_run_finds_the_same_by_arrow_and_by_polars(spoiled, tmp_path, monkeypatch):
    """Also where a record has too few counts, an unknown one, or none."""
    frame = frames.lists(frames.wide(frames.counts(K=25).astype(np.int64))).cast(KINDS)
    if spoiled is not None:
        counts = frame["counts"].to_list()
        counts[3] = None if isinstance(spoiled, type) else spoiled
        frame = frame.with_columns(pl.Series("counts", counts, pl.List(pl.Int64)))
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=200)
    config = read_config(frames.config(tmp_path / "a.parquet", max_rejected=10))
    by_polars = run(config)
    read = []
    reader = arrowlists.frames
    monkeypatch.setattr(sources, "LARGE", 0)
    monkeypatch.setattr(arrowlists, "frames", lambda *a: read.append(1) or reader(*a))
    by_arrow = run(config)
    assert read
    assert by_arrow.ledger == by_polars.ledger
    assert list(by_arrow.rejections()) == list(by_polars.rejections())
    assert by_arrow.saved.groups[0].digest.to_bytes() == by_polars.saved.groups[0].digest.to_bytes()
