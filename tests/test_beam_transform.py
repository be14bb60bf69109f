"""EstimateTransitions among a user's own transforms, on bounded data."""

from __future__ import annotations

from dataclasses import replace

import apache_beam as beam
import collected
import frames
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggmc_beam as am
from aggmc_beam.beam import Batch, EstimateTransitions, bounded, gathering, summing
from aggmc_beam.beam.gathering import Odd, columns_of, gathered, plain_rows
from aggmc_beam.beam.parsing import payload
from aggmc_beam.beam.values import reach_of
from aggmc_beam.config import read_config
from aggmc_beam.records import Clock, Rejected, Schema, read_record


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
    K, T, _ = y.shape
    key, time = (a.ravel() for a in np.mgrid[:K, :T])
    place = np.column_stack([key * 0, np.arange(K * T)])
    return {
        "dictionaries": records,
        "rows": [beam.Row(**r) for r in records],
        "batches": [Batch((), tuple(str(k) for k in range(K)), key, time, y.reshape(-1, 3), place)],
    }


@pytest.mark.parametrize("shape", ["dictionaries", "rows", "batches"])
def test_records_may_be_dictionaries_rows_or_batches(shape):
    y = frames.counts(K=4, T=20)
    elements = shapes(y)[shape]
    [found], rejected = estimated(elements + elements[:1], shape)
    expected = am.estimate(y, states=frames.STATES, noise=am.Binomial(0.5), population=200, estimator="mom")
    assert not rejected
    np.testing.assert_allclose(found.transition_matrix, expected.transition_matrix, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=0, atol=1e-10)
    assert found.counts["duplicates"] == (80 if shape == "batches" else 1)


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
    expected, reasons = [], []
    for row in rows:
        try:
            expected.append(read_record(row, schema))
        except Rejected as error:
            reasons.append(str(error))
    rejected = []
    found = [
        (b.group, b.names[b.key[i]], b.time[i], b.values[i].tolist(), b.population[i])
        for b in gathered(rows, schema, rejected)
        for i in range(len(b))
    ]
    wanted = [(r.group, r.realization, r.time, r.counts.tolist(), r.population) for r in expected]
    assert sorted(found) == sorted(wanted)
    assert sorted(r["reason"] for r in rejected) == sorted(reasons)
    assert len(reasons) > 50
    ordinary = rows[0] | {"region": "north", "realization": 1, "time": 4, "counts": [1, 2, 3], "people": 10}
    [batch] = columns_of([ordinary] * 100, schema)  # such rows do go the fast way
    assert len(batch) == 100


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
    expected, reasons = [], []
    for row in rows:
        try:
            record = read_record(row, schema)
            expected.append((record.realization, record.time, record.counts.tolist()))
        except Rejected as error:
            reasons.append(str(error))
    rejected = []
    batches = list(gathered(rows, schema, rejected))
    found = [(b.names[b.key[i]], b.time[i], b.values[i].tolist()) for b in batches for i in range(len(b))]
    assert sorted(found) == sorted(expected)
    assert sorted(r["reason"] for r in rejected) == sorted(reasons)
    assert odd or len(batches) == 1  # such rows do go the fast way


DEEP = '{"a": ' + "[" * 40 + "]" * 40 + "}"
LONG = '{"a": "' + "x" * (10 << 20) + '"}'


@pytest.mark.parametrize(
    "line",
    ["", "1", "{}, {}", '{"a": 1', '"b": 2}', "[]", "{} {}", '{"a": 1, "a": 2}', DEEP, LONG],
    ids=lambda line: line[:12],
)
def test_lines_of_json_are_read_together_only_if_each_is_one_object(line):
    good = ['{"a": [1, 2]}'] * 3
    assert len(plain_rows(good)) == 3
    with pytest.raises(Odd):
        plain_rows([*good, line])


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


def sums_by_group(elements, name, **options):
    with beam.Pipeline("FnApiRunner") as pipeline:
        made = EstimateTransitions(frames.STATES, am.Binomial(0.5), "estimate", "mom", **options)
        found = made.sums(pipeline | beam.Create(elements))
        _ = found.sums | beam.Map(collected.keep, name)
        _ = found.rejected | "Rejected" >> beam.Map(collected.keep, f"{name}/rejected")
    rejected = sorted(str(r) for r in collected.FOUND.pop(f"{name}/rejected", []))
    return dict(collected.FOUND.pop(name)), rejected


def never(*_):
    raise AssertionError("this road is not taken")


@pytest.mark.parametrize("stretch", [7, 1 << 16])
@pytest.mark.parametrize("repeated", [0, 30])
@pytest.mark.parametrize(
    "options",
    [{}, {"chain": am.Cycle(3)}, {"group_by": ["region"]}, {"population_column": "people"}],
    ids=["plain", "cycle", "groups", "populations"],
)
def test_groups_that_one_bundle_holds_have_the_sums_of_groups_that_are_spread(
    options, repeated, stretch, monkeypatch
):
    monkeypatch.setattr(summing, "STRETCH", stretch)
    y = frames.counts(K=30, T=25)
    rows = [
        {**r, "people": 200.0 + r["realization"], "region": "ab"[r["realization"] % 2]}
        for r in dictionaries(y)
        if (r["realization"] * r["time"]) % 11 != 5
    ]
    conflict = [{**rows[3], "counts": [900, 0, 0]}, {**rows[4], "counts": [1, "x", 2]}]
    elements = [*rows, *rows[:repeated], *conflict[: 2 * bool(repeated)]]
    elements = [elements[i] for i in np.random.default_rng(1).permutation(len(elements))]
    with monkeypatch.context() as patch:
        patch.setattr(bounded, "handed_on", never)
        found, rejected = sums_by_group(elements, "whole", **options)
    monkeypatch.setattr(bounded, "whole_of", never)
    monkeypatch.setattr(gathering, "reach_of", lambda batch: replace(reach_of(batch), rows=0))
    expected, also_rejected = sums_by_group(elements, "spread", **options)
    assert found.keys() == expected.keys()
    assert rejected == also_rejected
    for group, sums in found.items():
        known = expected[group]
        np.testing.assert_equal(sums.digest.to_arrays(), known.digest.to_arrays())
        assert (sums.group, sums.rule, sums.span) == (known.group, known.rule, known.span)
        if known.population is not None:
            assert sorted(sums.population) == sorted(known.population)
