"""Times become steps: of the calendar, of local clocks, and one at a time as many at a time."""

from collections import Counter
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggmc_beam as am
from aggmc_beam.clock import CALENDAR, Clock
from aggmc_beam.config import read_config
from aggmc_beam.errors import InputError, Rejected
from aggmc_beam.local import run
from aggmc_beam.local.columns import steps
from aggmc_beam.sums.records import Records
from aggmc_beam.sums.state import AggregationState, SumSpec
from aggmc_beam.zones import NEVER, Zone

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
BERLIN = Zone("Europe/Berlin")
CLOCKS = [*map(Clock, CALENDAR), Clock("1h"), Clock("1h", BERLIN.moment(0), BERLIN), Clock("month", zone=BERLIN),
          Clock("15m", 0, Zone("Asia/Kolkata")), Clock("day", format="%d/%m/%Y %H")]  # fmt: skip
TEXTS = ["2024-W05", "2024-03", "2024Q3", "Q1 2024", "1999", "31.01.2024", "2024/2/3", "20240203", "31/01/2024 5",
         "2024-01-31 5", "2024-01-31 25", "2024-13", "", "x", "7"]  # fmt: skip


def one(value, clock):
    try:
        return clock.read(value)
    except Rejected:
        return None


HOURS = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(lambda d: f"{d:%Y-%m-%d %H}:00")
SPRING = st.datetimes(datetime(2024, 3, 30), datetime(2024, 4, 1)).map(lambda d: f"{d:%Y-%m-%dT%H}:00+02:00")
DAYS = st.dates(date(1900, 1, 1), date(2100, 1, 1)).map(str)


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.one_of(st.sampled_from(TEXTS), HOURS, SPRING, DAYS), min_size=1, max_size=12),
    st.sampled_from(CLOCKS),
)
def test_texts_are_read_together_as_one_by_one(texts, clock):
    assert steps(pl.Series("time", texts), clock).to_list() == [one(text, clock) for text in texts]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.datetimes(datetime(2000, 1, 1), datetime(2040, 1, 1)), min_size=1, max_size=9),
    st.sampled_from(CLOCKS),
)
def test_typed_times_are_read_as_texts_are(moments, clock):
    moments = [m.replace(minute=0, second=0, microsecond=0) for m in moments]
    for column in (
        pl.Series(moments, dtype=pl.Datetime("us")),
        pl.Series(moments, dtype=pl.Datetime("ms", "UTC")),
    ):
        assert steps(column, clock).to_list() == [one(value, clock) for value in column.to_list()]
    assert steps(pl.Series([m.date() for m in moments]), clock).to_list() == [
        one(m.date(), clock) for m in moments
    ]


@pytest.mark.parametrize("unit", CALENDAR)
def test_steps_of_the_calendar_follow_each_other_and_their_labels_are_read_back(unit):
    clock = Clock(unit)
    days = [date(1899, 12, 1) + timedelta(d) for d in range(150 * 366)][:: 1 if unit == "week" else 7]
    found = [clock.read(day) for day in days]
    assert set(np.diff(found)) <= ({0, 1} if unit != "day" else {7})
    for step in range(min(found), max(found), 97):
        assert clock.read(clock.label(step)) == step


def test_an_iso_week_begins_on_monday_whatever_the_year():
    clock = Clock("week")
    for day in (date(2020, 12, 28), date(2021, 1, 3), date(2024, 12, 30), date(1969, 12, 29)):
        year, week, _ = day.isocalendar()
        assert clock.read(day) == clock.read(f"{year}-W{week:02}") == clock.read(str(day))


def test_a_text_that_names_more_than_a_step_is_rejected_with_the_reason():
    for value, clock, reason in (
        ("2024", Clock("month"), "a year, longer than the step month"),
        ("2024-03", Clock("1h"), "a month, longer than the step 1h"),
        ("31/01/2024", Clock("day"), "not a time such as 2026-01-31"),
        ("2024-01-31", Clock("day", format="%d/%m/%Y"), "not of the form %d/%m/%Y"),
        ("2024-03-31T02:30", Clock("30m", 0, BERLIN), "which clocks in Europe/Berlin skip"),
    ):
        with pytest.raises(Rejected, match=reason):
            clock.read(value)
    with pytest.raises(InputError, match="is not a time zone"):
        Zone("Mars/Olympus")


def test_clocks_that_are_put_forward_and_back_lose_no_hour():
    """Steps are elapsed hours; phases are what clocks show, so 2 comes never in spring and twice in autumn."""
    clock = Clock("1h", BERLIN.moment(0), BERLIN)
    for day, hours, missing in ((datetime(2024, 3, 31), 23, 2), (datetime(2024, 10, 27), 25, None)):
        begin = day.replace(tzinfo=ZoneInfo("Europe/Berlin")).astimezone(timezone.utc)
        found = np.array([clock.read(begin + timedelta(hours=h)) for h in range(hours)])
        assert (np.diff(found) == 1).all()
        phases = clock.local(found) % 24
        assert phases[0] == 0
        assert phases[-1] == 23
        assert (2 in phases) == (missing is None)
        assert len(set(phases.tolist())) == min(hours, 24)
        assert [clock.read(clock.label(step)) for step in found.tolist()] == found.tolist()


def test_offsets_are_those_of_the_standard_library():
    rng = np.random.default_rng(1)
    for name in ("Europe/Berlin", "America/New_York", "Africa/Casablanca", "Australia/Lord_Howe", "UTC"):
        zone = Zone(name)
        moments = rng.integers(-(10**15), 3 * 10**15, 2000) // 10**6 * 10**6
        shown = [(EPOCH + timedelta(microseconds=m)).astimezone(ZoneInfo(name)) for m in moments.tolist()]
        expected = [moment.utcoffset() // timedelta(microseconds=1) for moment in shown]
        assert zone.offsets(moments).tolist() == expected
        local = moments + zone.offsets(moments)
        back = zone.moments(local)
        assert (back != NEVER).all()
        assert (back + zone.offsets(back) == local).all()


def test_the_phase_of_a_cycle_is_the_hour_of_local_clocks():
    begin, zone = datetime(2024, 3, 1, tzinfo=timezone.utc), ZoneInfo("Europe/Berlin")
    moments = [begin + timedelta(hours=hour) for hour in range(24 * 60)]
    times = np.array([CLOCKS[6].read(moment) for moment in moments])
    counts = np.random.default_rng(1).integers(1, 9, (len(times), 2))
    state = AggregationState(SumSpec(("a", "b"), am.Cycle(24), clock=CLOCKS[6], replicates=2))
    state.add(Records(np.zeros(len(times), int), times, counts, np.zeros(1, int), np.zeros(1, int), ((),)))
    hours = Counter(moment.astimezone(zone).hour for moment in moments[:-1])
    cells = Counter()
    for (_, cell, _), number in zip(state.sums.label.tolist(), state.sums.number[:, 1].tolist(), strict=True):
        cells[cell] += number
    assert cells == hours
    assert hours[2] == 59


def test_sums_remember_the_time_zone(tmp_path):
    y, _ = am.simulate(states=2, steps=50, realizations=2, seed=1)
    rows = [{"realization": k, "time": f"2024-03-{30 + t // 24:02}T{t % 24:02}:00Z" if t < 48 else None,
             "a": float(y[k, t, 0]), "b": float(y[k, t, 1])} for k in range(2) for t in range(48)]  # fmt: skip
    path = tmp_path / "x.jsonl"
    pl.DataFrame(rows).write_ndjson(path)
    plain = {"states": ["a", "b"], "chain": {"cycle": 24}, "noise": {"model": "gaussian", "sigma": 1},
             "population": 9,
             "input": {"files": str(path), "step": "1h", "timezone": BERLIN.name}, "estimator": "mom"}  # fmt: skip
    state = run(read_config(plain)).state
    again = AggregationState.from_bytes(state.to_bytes())
    assert again.spec.clock == state.spec.clock
    assert again.spec.clock.zone == BERLIN
    other = run(read_config({**plain, "input": {"files": str(path), "step": "1h"}})).state
    with pytest.raises(InputError, match="time steps differ"):
        again.spec.check_joins(other.spec, "these")


def test_a_phase_over_midnight_is_not_lost_where_the_day_has_a_column():
    hours = [(datetime(2024, 3, 1) + timedelta(hours=h)) for h in range(24 * 20)]
    counts = np.random.default_rng(2).multinomial(50, [0.5, 0.5], len(hours))
    frame = pl.DataFrame(
        {
            "day": [h.date() for h in hours],
            "hour": [h.hour for h in hours],
            "a": counts[:, 0],
            "b": counts[:, 1],
        }
    )
    known = {"states": ["a", "b"], "chain": am.Cycle(24), "population": 50, "estimator": "mom"}
    by_day = am.estimate(frame, realization="day", time="hour", **known)
    joined = am.estimate(frame, realization=None, time=["day", "hour"], step="1h", **known)
    assert 23 not in [e.cell for e in by_day]
    assert [e.cell for e in joined] == list(range(24))
