"""EstimateTransitions among a user's own transforms, on bounded data."""

from __future__ import annotations

from dataclasses import replace

import apache_beam as beam
import collected
import frames
import numpy as np
import pytest
from apache_beam.transforms import window
from hypothesis import given
from hypothesis import strategies as st

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions, SumRecords
from aggmc_beam.beam.dead_letters import payload
from aggmc_beam.beam.frames import ElementReader
from aggmc_beam.beam.rows import plain_row
from aggmc_beam.clock import Clock
from aggmc_beam.config import read_config
from aggmc_beam.errors import Rejected
from aggmc_beam.records import Schema, read_record
from aggmc_beam.sums.records import Records


def estimated(elements, name, **options):
    with beam.Pipeline("FnApiRunner") as pipeline:
        made = EstimateTransitions(frames.STATES, am.Binomial(0.5), 200, "mom", **options)
        found = pipeline | beam.Create(elements) | made
        _ = found.estimates | beam.Map(collected.keep, name)
        _ = found.rejected | "Rejected" >> beam.Map(collected.keep, f"{name}/rejected")
    return tuple(collected.FOUND.pop(key, []) for key in (name, f"{name}/rejected"))


def dictionaries(y):
    return [{"realization": k, "time": t, "counts": y[k, t].tolist()} for k, t in np.ndindex(y.shape[:2])]


def shapes(y):
    records = dictionaries(y)
    return {
        "dictionaries": records,
        "rows": [beam.Row(**r) for r in records],
        "blocks": [Records.of_array(y)],
    }


@pytest.mark.parametrize("shape", ["dictionaries", "rows", "blocks"])
def test_records_may_be_dictionaries_rows_or_blocks(shape):
    y = frames.counts(K=4, T=20)
    elements = shapes(y)[shape]
    [found], rejected = estimated(elements + elements[:1], shape)
    expected = am.estimate(y, states=frames.STATES, noise=am.Binomial(0.5), population=200, estimator="mom")
    assert not rejected
    np.testing.assert_allclose(found.transition_matrix, expected.transition_matrix, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=0, atol=1e-10)
    assert found.counts["duplicates"] == (80 if shape == "blocks" else 1)


def test_bad_records_of_every_kind_are_set_aside_with_reason_and_payload():
    y = frames.counts(K=2, T=20)
    good = [{**r, "region": "north"} for r in dictionaries(y)]
    bad = {
        "not JSON": "{",
        "2 values for 3 states": {**good[0], "counts": [1, 2]},
        "not a number": {**good[0], "counts": [1, "x", 3]},
        "NaN": {**good[0], "counts": [1, float("nan"), 3]},
        "region is missing": {**good[0], "region": None},
        "time is 1.5": {**good[0], "time": 1.5},
        "with other counts": {**good[0], "counts": [1e6, 1, 1]},
        "not a record": 7,
    }
    found, rejected = estimated([*good, *bad.values(), good[1]], "bad", group_by=["region"])
    assert [e.group for e in found] == [{"region": "north"}]
    assert found[0].counts["rejected"] == len(bad) - 1  # a contradiction is a duplicate
    assert found[0].counts["duplicates"] == 2
    assert len(rejected) == len(bad)
    for reason in bad:
        assert any(reason in r["reason"] for r in rejected), reason


def odd_rows():
    """Rows of which some can be read together and some only one by one."""
    rng = np.random.default_rng(1)
    pool = {
        "region": ["north", " north", "ü", 7, 7.0, None, True],
        "realization": [1, "1", "x ", np.int64(3), 2.5, ""],
        "time": [4, 8, "12", 8.0, np.int32(4), 3, True, 2**60, -(2**63)],
        "counts": [
            [1, 2, 3],
            (1, 2.5, 3),
            np.arange(3),
            [1, True, 2],
            [1, None, 2],
            [1, 2],
            "1,2,3",
            [1, 2, 1e31],
        ],
        "people": [10, 20.0, "30", 0, float("inf"), 1e31],
    }
    rows = []
    for _ in range(300):
        plain = {name: values[0] for name, values in pool.items()}
        for name in rng.choice(list(pool), rng.integers(0, 3)):
            plain[name] = pool[name][rng.integers(len(pool[name]))]
        rows.append(plain)
    return rows


@pytest.mark.parametrize("layout", ["lists", "columns"])
def test_rows_read_together_are_what_they_are_one_by_one(layout):
    schema = Schema(tuple(frames.STATES), "counts", clock=Clock(4), group_by=("region",), population="people")
    rows = odd_rows()
    if layout == "columns":
        schema = replace(schema, counts=tuple(frames.STATES))
        rows = [r | dict(zip(frames.STATES, r["counts"], strict=False)) for r in rows]
    assert_read_alike(rows, schema)
    assert len(ElementReader(schema).read(rows).rejected) > 50


def assert_read_alike(rows, schema):
    """What is read from many rows is what `read_record` reads from each."""
    reader = ElementReader(schema)
    expected, reasons = [], []
    for row in rows:
        try:
            r = read_record(plain_row(row, reader.columns), schema)
            expected.append((r.group, r.realization, r.time, r.counts.tolist(), r.population))
        except Rejected as error:
            reasons.append(str(error))
    found = reader.read(rows)
    read = []
    for r in found.records:
        for i, key in enumerate(r.realization):
            population = None if r.population is None else r.population[i]
            group = r.groups[r.group_of[key]]
            read.append((group, str(r.names[key]), r.time[i], r.counts[i].tolist(), population))
    assert sorted(read) == sorted(expected)
    assert sorted(r["reason"] for r in found.rejected) == sorted(reasons)
    assert found.rows == len(rows)


ODD = [True, False, None, "", "7", " 7", 7.0, 2.5, float("nan"), 1e31, 2**31, 2**60, -(2**63), 10**400]
ODD += [np.int64(7), np.array(7), np.bool_(True), [7], "x"]


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-4, 4)), min_size=1, max_size=100),
    st.lists(st.tuples(st.integers(0, 99), st.sampled_from(["realization", "time", "a", "c"]),
                       st.sampled_from(ODD)), max_size=3),
    st.sampled_from([1, 2]),
)  # fmt: skip
def test_integers_among_which_something_is_odd_are_what_they_are_one_by_one(ends, odd, unit):
    schema = Schema(("a", "b", "c"), ("a", "b", "c"), clock=Clock(unit))
    rows = [
        {"realization": k, "time": t * unit, "a": i, "b": -i, "c": 1000 * i} for i, (k, t) in enumerate(ends)
    ]
    for at, name, value in odd:
        rows[at % len(rows)][name] = value
    assert_read_alike(rows, schema)


@pytest.mark.parametrize(
    "line",
    ["", "1", "{}, {}", '{"a": 1', '"b": 2}', "{} {}", '{"a": ' + "[" * 40 + "]" * 40 + "}"],
)
def test_a_line_that_is_no_record_costs_no_other(line):
    good = ['{"realization": 1, "time": 2, "counts": [1, 2, 3]}'] * 3
    found = ElementReader(Schema(("a", "b", "c"), "counts")).read([*good, line])
    assert sum(map(len, found.records)) == 3
    assert len(found.rejected) == 1


def test_a_payload_is_bounded():
    assert len(payload("x" * 10**6)) == 1000
    assert len(payload({"x": "y" * 10**6})) == 1000
    assert payload({"x": [1, 2]}) == {"x": [1, 2]}


def test_too_many_rejected_records_fail_the_job_with_a_clear_message():
    items = [*dictionaries(frames.counts(K=2, T=20)), "a", "b", "c"]
    with pytest.raises(Exception, match="3 of 43 records were rejected, more than max_rejected: 2"):
        estimated(items, "many", max_rejected=2)


def test_rows_of_single_states_are_refused_since_records_hold_a_whole_step():
    config = read_config(
        {**frames.config("none.csv", input={"layout": "long"}), "states": list(frames.STATES)}
    )
    with pytest.raises(am.InputError, match="the long layout is for files"):
        EstimateTransitions.from_config(config)


@pytest.mark.parametrize(
    "options",
    [{}, {"chain": am.Cycle(3)}, {"group_by": ["region"]}, {"population_column": "people"}],
    ids=["plain", "cycle", "groups", "populations"],
)
def test_the_order_of_records_and_their_spread_change_nothing(options):
    y = frames.counts(K=30, T=25)
    rows = [
        {**r, "people": 200.0 + r["realization"], "region": "ab"[r["realization"] % 2]}
        for r in dictionaries(y)
        if (r["realization"] * r["time"]) % 11 != 5
    ]
    rows += [*rows[:30], {**rows[3], "counts": [900, 0, 0]}, {**rows[4], "counts": [1, "x", 2]}]
    found = []
    for seed, shards in ((1, 1), (2, 16)):
        elements = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
        name = f"order{seed}"
        with beam.Pipeline("FnApiRunner") as pipeline:
            made = SumRecords(frames.STATES, shards, noise=am.Binomial(0.5), **options)
            sums = pipeline | beam.Create(elements) | made
            _ = sums.sums | beam.Map(collected.keep, name)
            _ = sums.rejected | "R" >> beam.Map(collected.keep, f"{name}/rejected")
            _ = sums.ledger | "L" >> beam.Map(collected.keep, f"{name}/ledger")
        states = dict(collected.FOUND.pop(name))
        rejected = sorted(str(r["reason"]) for r in collected.FOUND.pop(f"{name}/rejected"))
        found.append((states, rejected, collected.FOUND.pop(f"{name}/ledger")))
    (states, rejected, ledger), (others, also_rejected, also_ledger) = found
    assert (rejected, ledger) == (also_rejected, also_ledger)
    assert ledger[0].duplicate == 31
    assert states.keys() == others.keys()
    for group, state in states.items():
        assert state.rules == others[group].rules
        a, b = state.sums.canonical(), others[group].sums.canonical()
        if "population_column" not in options:  # shares are no whole numbers
            assert a.to_bytes() == b.to_bytes()
        for name in ("label", "number", "centre", "ends", "product"):
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-9, atol=1e-9)


def test_a_key_of_its_own_has_exact_sums():
    y = frames.counts(K=25, T=20)
    pairs = [(name, r) for name in ("north", "south") for r in dictionaries(y)]
    with beam.Pipeline("FnApiRunner") as pipeline:
        found = pipeline | beam.Create(pairs + pairs[:7]) | SumRecords.PerKey(frames.STATES, population=200)
        _ = found.sums | beam.Map(collected.keep, "per key")
        _ = found.ledger | "L" >> beam.Map(collected.keep, "per key/ledger")
    states = dict(collected.FOUND.pop("per key"))
    assert sorted(states) == ["north", "south"]
    assert {s.records for s in states.values()} == {500}
    [ledger] = collected.FOUND.pop("per key/ledger")
    assert (ledger.read, ledger.used, ledger.duplicate) == (1007, 1000, 7)


def windowed(elements, name, size=10, every=5, **options):
    with beam.Pipeline("FnApiRunner") as pipeline:
        given = pipeline | beam.Create(elements) | beam.Map(lambda r: window.TimestampedValue(r, r["time"]))
        made = EstimateTransitions(frames.STATES, am.Binomial(0.5), 200, "mom", **options)
        found = given | beam.WindowInto(window.SlidingWindows(size, every)) | made
        _ = found.estimates | beam.Map(collected.keep, name)
    return collected.FOUND.pop(name)


def test_estimates_of_windows_are_those_of_their_records():
    y = frames.counts(K=25, T=20)
    rows = dictionaries(y)
    found = {e.window["start"]: e for e in windowed(rows + rows[:3], "windows", windowing="input")}
    assert len(found) == 5
    for start in (-5, 0, 5, 10, 15):
        part = y[:, max(0, start) : start + 10]
        expected = am.estimate(
            part, states=frames.STATES, noise=am.Binomial(0.5), population=200, estimator="mom"
        )
        one = found[window.Timestamp(start).to_rfc3339()]
        np.testing.assert_allclose(one.transition_matrix, expected.transition_matrix, rtol=0, atol=1e-12)
        np.testing.assert_allclose(one.standard_error, expected.standard_error, rtol=0, atol=1e-12)


def test_windows_that_cannot_be_honoured_are_told():
    rows = dictionaries(frames.counts(K=2, T=5))
    with pytest.raises(am.InputError, match="windowing='input'"):
        windowed(rows, "refused")
    with pytest.raises(am.InputError, match="must be 'global' or 'input'"):
        EstimateTransitions(frames.STATES, windowing="mine")
    pipeline = beam.Pipeline("FnApiRunner")
    sessions = pipeline | beam.Create(rows) | beam.WindowInto(window.Sessions(5))
    with pytest.raises(am.InputError, match="use fixed or sliding windows"):
        sessions | EstimateTransitions(frames.STATES, windowing="input")


def test_a_job_without_any_good_record_fails_unless_that_is_allowed():
    with pytest.raises(Exception, match="all 2 records were rejected; one of them: realization is missing"):
        estimated([{"time": 1}, {"time": 2}], "none")
    assert estimated([{"time": 1}], "allowed", max_rejected=1.0)[0] == []
