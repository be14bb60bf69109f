"""Long tables put together as they are read: the records that the general road finds, or none."""

import frames
import numpy as np
import polars as pl
import pytest
from loops import ROADS

from aggmc_beam.config import read_config
from aggmc_beam.local import engine, run, together
from aggmc_beam.local.engine import Plan
from aggmc_beam.local.together import NotTogether, put_together

STATES = frames.STATES


def long(y=None, order=STATES):
    """Rows record by record."""
    y = frames.counts(K=25, T=10).astype(np.int64) if y is None else y
    K, T, S = y.shape
    at = [STATES.index(name) for name in order]
    rows = {"realization": np.repeat(np.arange(K), T * S), "time": np.tile(np.repeat(np.arange(T), S), K)}
    return pl.DataFrame({**rows, "state": order * (K * T), "count": y[:, :, at].ravel()})


def config(path, **more):
    return read_config(frames.config(path, input={"layout": "long", **more.pop("input", {})}, **more))


@pytest.fixture
def taken(monkeypatch):
    """What became of each try, of files of any size."""
    found = []

    def noted(sources, schema):
        try:
            records = put_together(sources, schema)
        except NotTogether as error:
            found.append(error)
            raise
        found.append(records)
        return records

    monkeypatch.setattr(together, "LARGE", 0)
    monkeypatch.setattr(engine, "put_together", noted)
    return found


def both(plain, monkeypatch):
    """A run, and the same by the general road."""
    quick = run(plain)
    with monkeypatch.context() as patch:
        patch.setattr(together, "LARGE", 1 << 60)
        return quick, run(plain)


def assert_same(quick, general):
    assert quick.ledger == general.ledger
    assert list(quick.rejections()) == list(general.rejections())
    assert quick.saved.to_bytes() == general.saved.to_bytes()


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("rows", [7, 30, 100, 10**6])
@pytest.mark.parametrize("order", [STATES, STATES[::-1], [" home", "ünterwegs", "work "]], ids=str)
def test_records_are_those_of_the_general_road(road, rows, order, tmp_path, taken, monkeypatch):
    """Wherever row groups end, and in whatever order states are."""
    named = {text: text.strip() for text in order}
    frame = long(order=[named[text] for text in order])
    frame = frame.with_columns(pl.Series("state", order * (frame.height // 3)))
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=rows)
    with ROADS[road]():
        quick, general = both(config(tmp_path / "a.parquet"), monkeypatch)
    assert isinstance(taken[0], pl.DataFrame)
    assert_same(quick, general)
    assert quick.ledger["rows"]["read"] == frame.height


@pytest.mark.parametrize("kinds", [(pl.Int64, pl.Int64), (pl.Int32, pl.Int16)], ids=str)
@pytest.mark.parametrize("far", [30_000, 100_000, 2**31])
def test_files_of_any_width_are_put_together(kinds, far, tmp_path, taken, monkeypatch):
    frame = long().cast({"realization": kinds[0], "time": kinds[1]})
    frame.filter(pl.col("realization") < 9).write_parquet(tmp_path / "a.parquet")
    last = pl.when(pl.int_range(pl.len()) == 5).then(far).otherwise("count").alias("count")
    frame.filter(pl.col("realization") >= 9).with_columns(last).write_parquet(tmp_path / "b.parquet")
    assert_same(*both(config(tmp_path / "*.parquet", population=2.0**40), monkeypatch))
    assert isinstance(taken[0], pl.DataFrame)


def spoiled(frame, how):
    rows = pl.int_range(frame.height)
    if how == "a row is gone":
        return frame.filter(rows != 31)
    if how == "a record is gone":  # which is a gap, and nothing wrong
        return frame.filter(rows // 3 != 31)
    if how == "a row comes twice":
        return pl.concat([frame[:32], frame[31:]])
    if how == "a record comes twice":
        return pl.concat([frame[:33], frame[30:]])
    if how == "records are shuffled":
        return frame.with_columns(i=rows // 3).sort((pl.col("i") * 7919) % 250, maintain_order=True).drop("i")
    if how == "two states are exchanged":
        return pl.concat([frame[:30], frame[31:32], frame[30:31], frame[32:]])
    column, value = {
        "a state is unknown": ("state", "elsewhere"),
        "a state is missing": ("state", None),
        "a count is missing": ("count", None),
        "a time is another": ("time", 77),
        "a time is far": ("time", 2**60),
        "a realization is another": ("realization", 5000),
        "a realization is missing": ("realization", None),
    }[how]
    at = rows == 31
    return frame.with_columns(pl.when(~at).then(column).otherwise(pl.lit(value)).alias(column))


SPOILED = [
    "a row is gone",
    "a row comes twice",
    "a record comes twice",
    "records are shuffled",
    "two states are exchanged",
    "a state is unknown",
    "a state is missing",
    "a count is missing",
    "a time is another",
    "a time is far",
    "a realization is another",
    "a realization is missing",
]


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("rows", [8, 10**6])
def test_whatever_else_rows_are_is_left_to_the_general_road(how, rows, tmp_path, taken, monkeypatch):
    spoiled(long(), how).write_parquet(tmp_path / "a.parquet", row_group_size=rows)
    assert_same(*both(config(tmp_path / "a.parquet", max_rejected=100), monkeypatch))
    assert isinstance(taken[0], NotTogether)


def test_a_record_of_two_realizations_at_a_row_groups_end_is_noticed(tmp_path, taken, monkeypatch):
    frame = long()
    for at in (63, 64, 65, 127, 128):
        key = pl.int_range(pl.len()) == at
        odd = frame.with_columns(pl.when(key).then(99).otherwise("realization").alias("realization"))
        odd.write_parquet(tmp_path / "a.parquet", row_group_size=64)
        assert_same(*both(config(tmp_path / "a.parquet", max_rejected=100), monkeypatch))
        assert all(isinstance(found, NotTogether) for found in taken)


def test_steps_that_are_missing_are_gaps(tmp_path, taken, monkeypatch):
    spoiled(long(), "a record is gone").write_parquet(tmp_path / "a.parquet")
    quick, general = both(config(tmp_path / "a.parquet"), monkeypatch)
    assert isinstance(taken[0], pl.DataFrame)
    assert_same(quick, general)
    assert quick.ledger["gaps"] == 1


@pytest.mark.parametrize(
    "more", [{"group_by": ["region"]}, {"input": {"columns": {"population": "N"}}}, {"input": {"step": 2}}]
)
def test_tables_with_more_in_them_are_left_to_the_general_road(more, tmp_path, taken):
    frame = long().with_columns(pl.lit("x").alias("region"), pl.lit(200).alias("N"))
    if "step" in more.get("input", {}):
        frame = frame.with_columns(pl.col("time") * 2)
    if "columns" in more.get("input", {}):
        more = more | {"population": None}
    frame.write_parquet(tmp_path / "a.parquet")
    run(config(tmp_path / "a.parquet", **more))
    assert isinstance(taken[0], NotTogether)


def test_a_later_run_tells_the_rows_that_contradict_an_earlier_one(tmp_path, taken):
    frame = long()
    frame.write_parquet(tmp_path / "a.parquet")
    run(config(tmp_path / "a.parquet")).saved.save(tmp_path / "first.moments")
    other = frame.with_columns(
        pl.when(pl.int_range(pl.len()) == 3 * 9 + 1).then(55).otherwise("count").alias("count")
    )
    other.write_parquet(tmp_path / "b.parquet")
    again = run(config(tmp_path / "b.parquet", input={"resume": str(tmp_path / "first.moments")}))
    assert all(isinstance(found, pl.DataFrame) for found in taken)
    assert again.ledger["rows"] == {"read": 750, "used": 0, "duplicate": 750, "rejected": 0, "late": 0}
    assert again.ledger["conflicting"] == 1
    assert [found.row for found in again.rejections()] == [3 * 9 + 1]


def test_a_plan_reads_what_it_says(tmp_path, taken):
    long().write_parquet(tmp_path / "a.parquet")
    found = Plan.open(config(tmp_path / "a.parquet")).guessed()
    assert together.is_together(found, Plan.open(config(tmp_path / "a.parquet")).schema)
    assert found["__row"].to_list() == list(range(1, 751, 3))
