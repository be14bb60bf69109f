from datetime import date
from decimal import Decimal

import numpy as np
import pytest

from aggmc_beam.clock import Clock
from aggmc_beam.errors import InputError, Rejected
from aggmc_beam.records import Schema, parse_json, read_record, realization_number
from aggmc_beam.times import instant, iso, microseconds

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
    for value in (7, 7.0, "7", " 7 ", "7.0", np.int64(7), np.float32(7), Decimal("7.00")):
        assert read_record({**ROW, "realization": value}, SCHEMA).realization == "7"
    for value, name in (
        (True, "true"),
        (-0.0, "0"),
        ("-0", "0"),
        (1e25, "1" + "0" * 25),
        (1e-7, "0.0000001"),
    ):
        assert read_record({**ROW, "realization": value}, SCHEMA).realization == name
    for name in ("007", "1.10", "1e25", "NaN", "x\x1cy", "\x1c"):
        assert read_record({**ROW, "realization": name}, SCHEMA).realization == name
    for value in ({}, [1], b"7", float("inf")):
        with pytest.raises(Rejected):
            read_record({**ROW, "realization": value}, SCHEMA)
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


def test_iso_times_keep_microseconds():
    assert iso(instant("2026-01-31T14:00:00.25+01:00")) == "2026-01-31T13:00:00.250000Z"


def test_lines_that_are_no_json_objects_are_rejected():
    for line in (b"{", b"[]", b"3", b"\xff", b"[" * 100_000):
        with pytest.raises(Rejected):
            parse_json(line)
