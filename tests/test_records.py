from datetime import date, datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggmc_beam.durations import instant, iso, microseconds
from aggmc_beam.errors import InputError
from aggmc_beam.local.jsonlines import scan
from aggmc_beam.local.sources import open_frame
from aggmc_beam.local.tidy import KEY, TIME, tidy
from aggmc_beam.records import Clock, Rejected, Schema, parse_json, read_record, realization_number

SCHEMA = Schema(("a", "b"), "counts", population="n", group_by=("g",))
ROW = {"realization": 1, "time": 2, "counts": [3, 4.5], "n": 10, "g": "x"}


def test_a_record_is_read_with_all_its_parts():
    record = read_record(ROW, SCHEMA)
    assert (record.realization, record.time, record.population, record.group) == ("1", 2, 10.0, ("x",))
    np.testing.assert_array_equal(record.counts, [3, 4.5])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"realization": None}, "realization is missing"),
        ({"realization": float("nan")}, "realization is nan"),
        ({"realization": "  "}, "realization is missing"),
        ({"time": True}, "time is True, not a whole number"),
        ({"time": 2.5}, "time is 2.5, not a whole number"),
        ({"counts": {"a": 1}}, "not a list of counts"),
        ({"counts": "1, x"}, "the count of 'b' is 'x', not a number"),
        ({"counts": [1, float("inf")]}, "the count of 'b' is infinite"),
        ({"n": 0}, "a population is above 0"),
        ({"n": None}, "n is missing"),
        ({"g": None}, "g is missing"),
    ],
    ids=str,
)
def test_every_rejection_tells_the_field_and_the_value(change, reason):
    with pytest.raises(Rejected, match=reason):
        read_record({**ROW, **change}, SCHEMA)


def test_names_are_the_same_in_every_type():
    for value in (7, 7.0, "7", " 7 "):
        assert read_record({**ROW, "realization": value}, SCHEMA).realization == "7"
    assert realization_number("007") != 7
    assert realization_number("-3") == -3
    assert 0 <= realization_number("9" * 40) < 2**32


def test_a_clock_reads_what_it_writes():
    for clock in (Clock(), Clock(15), Clock("1h"), Clock("1w", instant("2026-01-05"))):
        assert [clock.read(clock.label(step)) for step in (-3, 0, 1234)] == [-3, 0, 1234]
    assert Clock("1d").read(date(1970, 1, 3)) == 2
    with pytest.raises(Rejected, match="not a multiple of the step 15"):
        Clock(15).read(20)
    for wrong in ("0h", "h", "1 month", "-1s"):
        with pytest.raises(InputError, match="not a duration"):
            microseconds(wrong)


MOMENTS = {"min_value": datetime(1900, 1, 1), "max_value": datetime(2100, 1, 1)}
ZONES = st.sampled_from(
    [timezone.utc, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=3))]
)
TIMES = st.one_of(
    st.datetimes(**MOMENTS).map(lambda d: d.replace(microsecond=0).isoformat(" ")),
    st.datetimes(**MOMENTS, timezones=ZONES).map(
        lambda d: d.replace(minute=0, second=0, microsecond=0).isoformat()
    ),
    st.sampled_from(["2026-01-01", "2026-01-01T05:00", "2026-01-01T05:00Z", "", "x", "12", "2026-13-01"]),
    st.integers(-(10**6), 10**6).map(str),
    st.floats(-1e6, 1e6).map(str),
)
CLOCKS = st.sampled_from([Clock(), Clock(3), Clock("1h"), Clock("90m", 10**6)])


@given(st.lists(TIMES, min_size=1, max_size=20), CLOCKS)
def test_polars_reads_times_as_python_does(values, clock):
    """The engine's expressions and the reasons it gives must agree on what a time is."""
    schema = Schema(("a",), "counts", clock=clock)
    frame = pl.DataFrame({"realization": "r", "time": values, "counts": [[1.0]] * len(values)})
    found = tidy(open_frame(frame), 0, schema).collect()[TIME].to_list()
    for value, step in zip(values, found, strict=True):
        try:
            expected = clock.read(value)
        except Rejected:
            expected = None
        assert step == expected, value


@given(st.lists(st.one_of(st.text(max_size=5), st.floats(), st.integers()), min_size=1, max_size=10))
def test_polars_reads_names_as_python_does(values):
    for kind in (str, float, int):
        mine = [v for v in values if type(v) is kind and (kind is not int or abs(v) < 2**53)]
        if not mine:
            continue
        frame = pl.DataFrame({"realization": mine, "time": 0, "counts": [[1.0]] * len(mine)})
        found = tidy(open_frame(frame), 0, Schema(("a",), "counts")).collect()[KEY].to_list()
        for value, name in zip(mine, found, strict=True):
            try:
                expected = read_record(
                    {"realization": value, "time": 0, "counts": [1]}, Schema(("a",), "counts")
                )
            except Rejected:
                assert name is None, value
                continue
            assert name is not None
            if kind is not float or (value == int(value) and abs(value) < 2**53):
                assert name == expected.realization


def test_iso_times_keep_microseconds():
    assert iso(instant("2026-01-31T14:00:00.25+01:00")) == "2026-01-31T13:00:00.250000Z"


def test_lines_that_are_no_json_objects_are_rejected():
    for line in (b"{", b"[]", b"3", b"\xff", b"[" * 100_000):
        with pytest.raises(Rejected):
            parse_json(line)


def test_json_lines_are_read_in_chunks_with_their_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("aggmc_beam.local.jsonlines.CHUNK", 50)
    lines = [f'{{"a": {i}, "v": [{i}, 1]}}' if i % 7 else "broken" for i in range(1, 100)]
    path = tmp_path / "x.jsonl"
    path.write_text("\n\n".join(lines), encoding="utf-8-sig")
    frame = scan(path, frozenset(["v"]), ["a", "v"], "row", "broken").collect()
    assert frame["row"].to_list() == [2 * i - 1 for i in range(1, 100)]
    assert frame["broken"].to_list() == [i % 7 == 0 for i in range(1, 100)]
    assert frame.filter(~pl.col("broken"))["a"].to_list() == [str(i) for i in range(1, 100) if i % 7]
    assert scan(path, frozenset(), ["a"], "row", "broken").select("row").head(3).collect().height == 3
