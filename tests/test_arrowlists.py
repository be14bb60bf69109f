"""Lists out of Parquet files: by Arrow what Polars reads."""

import frames
import numpy as np
import polars as pl
import pytest

from aggmc_beam.config import read_config
from aggmc_beam.local import arrowlists, run, sources
from aggmc_beam.local.arrowlists import is_for_lists
from aggmc_beam.local.footer import NotArrow

KINDS = {"realization": pl.Int64, "time": pl.Int64, "counts": pl.List(pl.Int64)}
ARRAYS = KINDS | {"counts": pl.Array(pl.Int16, 3)}


def test_arrow_reads_what_polars_reads(tmp_path):
    frame = frames.lists(frames.wide(frames.counts().astype(np.int64))).cast(KINDS)
    # A folder's name tells nothing, though some readers take it for a column.
    path = tmp_path / "realization=7" / "a.parquet"
    path.parent.mkdir()
    frame.write_parquet(path, row_group_size=50)
    kinds = KINDS | {"counts": arrowlists.kind_of(str(path), "counts", 3)}
    assert kinds == ARRAYS
    [found] = arrowlists.frames(str(path), kinds)
    assert found.schema == kinds
    assert found.cast(KINDS).equals(frame)
    [some] = arrowlists.frames(str(path), {"counts": kinds["counts"]})
    assert some.equals(found.select("counts"))
    [others] = arrowlists.frames(str(path), {"time": pl.Int64})
    assert others.equals(frame.select("time"))


def written(path, counts, **options):
    frame = pl.DataFrame({"realization": 0, "time": range(len(counts)), "counts": counts}).cast(KINDS)
    frame.write_parquet(path, **options)
    return str(path)


@pytest.mark.parametrize("far", [2**15 - 1, 2**15, -(2**15), -(2**15) - 1, 2**31 - 1])
def test_counts_take_as_few_bytes_as_the_file_says(far, tmp_path):
    path = written(tmp_path / "a.parquet", [[1, 2, 3], [4, far, 6]], row_group_size=1)
    kind = arrowlists.kind_of(path, "counts", 3)
    assert kind == pl.Array(pl.Int16 if -(2**15) <= far < 2**15 else pl.Int32, 3)
    [found] = arrowlists.frames(path, KINDS | {"counts": kind})
    assert found["counts"].to_list() == [[1, 2, 3], [4, far, 6]]


def test_without_statistics_counts_take_32_bits_if_they_fit(tmp_path):
    path = written(tmp_path / "a.parquet", [[1, 2, 3]], statistics=False)
    assert arrowlists.kind_of(path, "counts", 3) == pl.Array(pl.Int32, 3)
    path = written(tmp_path / "b.parquet", [[1, 2**31, 3]])
    assert arrowlists.kind_of(path, "counts", 3) == pl.Array(pl.Int32, 3)
    with pytest.raises(NotArrow, match="do not fit into int32"):
        list(arrowlists.frames(path, KINDS | {"counts": pl.Array(pl.Int32, 3)}))


@pytest.mark.parametrize("odd", [[1, 2], [1, 2, 3, 4], [], None, [1, None, 3]])
def test_lists_of_another_length_or_with_gaps_are_left_to_others(odd, tmp_path):
    path = written(tmp_path / "a.parquet", [[1, 2, 3], odd, [4, 5, 6]])
    with pytest.raises(NotArrow, match=r"some (lists|numbers)"):
        list(arrowlists.frames(path, ARRAYS))


def test_files_that_arrow_cannot_read_are_left_to_others(tmp_path):
    for data in (b"", b"PAR1 and nothing more"):
        (tmp_path / "a.parquet").write_bytes(data)
        with pytest.raises(NotArrow):
            list(arrowlists.frames(str(tmp_path / "a.parquet"), ARRAYS))
        with pytest.raises(NotArrow):
            arrowlists.kind_of(str(tmp_path / "a.parquet"), "counts", 3)
    with pytest.raises(NotArrow):
        list(arrowlists.frames(str(tmp_path / "none.parquet"), ARRAYS))
    frames.lists(frames.wide(frames.counts(K=2))).clear().write_parquet(tmp_path / "empty.parquet")
    with pytest.raises(NotArrow):
        list(arrowlists.frames(str(tmp_path / "empty.parquet"), ARRAYS))


def test_only_lists_of_whole_numbers_are_for_arrow():
    assert is_for_lists(KINDS)
    assert not is_for_lists({"a": pl.Int64})
    assert not is_for_lists({"a": pl.List(pl.Float64)})
    assert not is_for_lists({"a.b": pl.List(pl.Int64)})
    assert not is_for_lists({"a": pl.List(pl.Int64), "b": pl.List(pl.Int64)})


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


@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
@pytest.mark.parametrize("missing", [None, "realization", "time"])
def test_keys_and_times_are_the_same_by_arrow_and_by_polars(missing, named, tmp_path, monkeypatch):
    frame = frames.lists(frames.wide(frames.counts(K=25).astype(np.int64))).cast(KINDS)
    if missing is not None:
        gaps = pl.when(pl.int_range(pl.len()) != 7).then(pl.col(missing))
        frame = frame.with_columns(gaps.alias(missing))
    if named:
        frame = frame.with_columns("r" + pl.col("realization").cast(pl.String))
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=200)
    config = read_config(frames.config(tmp_path / "a.parquet", max_rejected=10))
    by_polars = run(config)
    monkeypatch.setattr(sources, "LARGE", 0)
    by_arrow = run(config)
    assert by_arrow.ledger["rejected"] == (missing is not None)
    assert by_arrow.ledger == by_polars.ledger
    assert list(by_arrow.rejections()) == list(by_polars.rejections())
    assert by_arrow.saved.groups[0].digest.to_bytes() == by_polars.saved.groups[0].digest.to_bytes()


@pytest.mark.parametrize("far", [30_000, 100_000, 2**40])
def test_files_whose_counts_take_different_bytes_are_read_together(far, tmp_path, monkeypatch):
    frame = frames.lists(frames.wide(frames.counts(K=25).astype(np.int64))).cast(KINDS)
    frame.head(100).write_parquet(tmp_path / "a.parquet")
    rest = frame.slice(100)
    counts = [[far, *row[1:]] if i == 3 else row for i, row in enumerate(rest["counts"].to_list())]
    rest.with_columns(pl.Series("counts", counts, pl.List(pl.Int64))).write_parquet(tmp_path / "b.parquet")
    config = read_config(frames.config(tmp_path / "*.parquet", population=2.0**50))
    by_polars = run(config)
    monkeypatch.setattr(sources, "LARGE", 0)
    assert run(config).saved.groups[0].digest.to_bytes() == by_polars.saved.groups[0].digest.to_bytes()
