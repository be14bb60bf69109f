"""Rows of plain integers out of dictionaries: what `read_record` reads, or none of them."""

import gc
import weakref

import numpy as np
import pytest
from apache_beam.internal import pickler
from hypothesis import given
from hypothesis import strategies as st
from loops import ROADS

from aggmc_beam.beam import table
from aggmc_beam.beam.gathering import Gather, gathered
from aggmc_beam.beam.table import Table
from aggmc_beam.beam.transform import EstimateTransitions
from aggmc_beam.native import compiled
from aggmc_beam.noise import Poisson
from aggmc_beam.records import Clock, Schema

STATES = ("a", "b", "c")
WIDE = Schema(STATES, STATES)
LISTS = Schema(STATES, "counts")
PLAN = EstimateTransitions(list(STATES), Poisson(1.0), 1000, "mom", counts=list(STATES)).plan
needs_compiled = pytest.mark.skipif(compiled is None, reason="the package was installed without a compiler")


def wide(k, t, *counts, **more):
    return {"realization": k, "time": t, **dict(zip(STATES, counts, strict=True)), **more}


def lists(k, t, *counts, **more):
    return {**more, "counts": list(counts), "time": t, "realization": k}


def read(schema, rows):
    """The rows of a table as (realization, time, counts), or None if it does not take all of them."""
    refused = []
    found = Table.of(schema, lambda row: refused.append(row) or refused)
    for row in rows:
        assert found.take(row) in ((), refused)
    if refused:
        return None
    batch = found.batch()
    names = [batch.names[k] for k in batch.key]
    return list(zip(names, batch.time.tolist(), batch.values.tolist(), strict=True))


@needs_compiled
@pytest.mark.parametrize(("schema", "row"), [(WIDE, wide), (LISTS, lists)], ids=["columns", "lists"])
def test_rows_are_read_whatever_else_they_hold_and_in_whatever_order(schema, row):
    rows = [row(k, t, 10 * k, -t, 2**31 - 1, note="x", **{f"n{k}": None}) for k in (7, -3) for t in range(3)]
    shuffled = [dict(sorted(r.items(), key=lambda item: hash((i, item[0])))) for i, r in enumerate(rows)]
    copied = [{"".join(list(k)): v for k, v in r.items()} for r in rows]
    expected = [(str(k), t, [10 * k, -t, 2**31 - 1]) for k in (7, -3) for t in range(3)]
    for given_rows in (rows, shuffled, copied, [*rows[:2], *shuffled[2:4], *copied[4:]]):
        assert read(schema, given_rows) == expected
    assert read(LISTS, [{"realization": 1, "time": 2, "counts": (3, 4, 5)}]) == [("1", 2, [3, 4, 5])]


class _Incomparable:
    """A key that is taken for a state's name, until it is compared with it."""

    def __hash__(self):
        return hash("realization")

    def __eq__(self, other):
        raise TypeError("no")


ODD = [True, None, 1.0, "1", np.int64(1), 2**31, -(2**31) - 1, 2**70, [1], object()]


@needs_compiled
@pytest.mark.parametrize("odd", ODD, ids=[repr(o)[:20] for o in ODD])
@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize(("schema", "row"), [(WIDE, wide), (LISTS, lists)], ids=["columns", "lists"])
def test_nothing_else_passes_for_an_integer(schema, row, place, odd):
    good = [1, 2, 3, 4, 5]
    spoiled = [*good[:place], odd, *good[place + 1 :]]
    assert read(schema, [row(*good), row(*spoiled), row(*good)]) is None
    assert read(schema, [row(*spoiled)]) is None


@needs_compiled
def test_rows_that_lack_something_are_not_taken():
    good = wide(1, 2, 3, 4, 5)
    for name in good:
        less = {k: v for k, v in good.items() if k != name}
        assert read(WIDE, [good, less]) is None
        assert read(WIDE, [less]) is None
        assert read(WIDE, [good, {**less, "other": 1}]) is None
    for other in ({}, [], None, "text", type("Row", (dict,), {})(good), {_Incomparable(): 1}):
        assert read(WIDE, [good, other]) is None
        assert read(WIDE, [other]) is None
    for counts in ([1, 2], [1, 2, 3, 4], "abc", {1: 2}, np.arange(3), None):
        assert read(LISTS, [{"realization": 1, "time": 2, "counts": counts}]) is None


@needs_compiled
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 9), *[st.integers(-(2**31), 2**31 - 1)] * 3)))
def test_a_table_reads_what_the_general_road_reads(rows):
    found = read(WIDE, [wide(*row) for row in rows])
    rejected = []
    batches = list(gathered([wide(*row) for row in rows], WIDE, rejected))
    general = [
        (b.names[k], t, v)
        for b in batches
        for k, t, v in zip(b.key, b.time.tolist(), b.values.tolist(), strict=True)
    ]
    assert found == general
    assert not rejected


def test_a_table_is_for_plain_rows_only():
    for schema in (
        Schema(STATES, STATES, group_by=("region",)),
        Schema(STATES, STATES, population="N"),
        Schema(STATES, STATES, clock=Clock("1h")),
        Schema(STATES, STATES, clock=Clock(5)),
        Schema(STATES, ("a", "b", "time")),
    ):
        assert Table.of(schema, list) is None


@needs_compiled
def test_a_table_takes_as_many_rows_as_it_has_room_for(monkeypatch):
    monkeypatch.setattr(table, "HELD", 5 * 3)
    refused = []
    found = Table.of(WIDE, lambda row: refused.append(row) or [row])
    rows = [wide(1, t, t, t, t) for t in range(5)]
    assert [list(found.take(row)) for row in rows] == [[], [], [], rows[3:4], rows[4:]]
    assert found.is_full
    assert found.batch().time.tolist() == [0, 1, 2]
    assert not found.is_full
    found.take(rows[4])
    found.clear()
    assert len(found.batch()) == 0


@needs_compiled
def test_a_table_and_who_gets_the_rest_are_forgotten_together():
    step = Gather(PLAN, 4)
    held = weakref.ref(step)
    del step
    gc.collect()
    assert held() is None


@needs_compiled
def test_where_an_array_does_not_fit_the_rows_it_is_refused():
    rows = compiled.Rows({"a": 0, "b": 1}, False, 2, list)
    assert rows.take({"a": 1, "b": 2}) == ["a", "b"]  # nowhere to write to
    for out in (np.zeros((3, 3), np.int32), np.zeros((3, 2)), np.zeros(2, np.int32), None):
        with pytest.raises((TypeError, ValueError)):
            rows.write_to(out)
    unknown = compiled.Rows.__new__(compiled.Rows)
    with pytest.raises(ValueError, match="nothing is known"):
        unknown.take({})
    with pytest.raises(ValueError, match="does not fit"):
        unknown.write_to(np.zeros((3, 0), np.int32))
    for places in ({"a": 1}, {"a": 0, "b": 2}, {0: 0}, {"a": True}, {"a": 0}):
        with pytest.raises(ValueError, match="places"):
            compiled.Rows(places, False, 2, list)


def test_workers_get_a_step_that_reads_as_the_first():
    step = pickler.loads(pickler.dumps(Gather(PLAN, 4)))
    assert (step.process.__name__ == "take") == (compiled is not None)
    step.start_bundle()
    assert not list(step.process(wide(1, 2, 3, 4, 5)))
    [batch, reach] = step.finish_bundle()
    assert batch.value[1].values.tolist() == [[3, 4, 5]]
    assert reach.value.value[1].rows == 1


@pytest.mark.parametrize("road", ROADS)
def test_odd_rows_among_plain_ones_are_read_or_rejected_one_by_one(road, monkeypatch):
    """As many records come out as went in, whichever way they took, and no row is lost at a table's end."""
    monkeypatch.setattr(table, "HELD", 5 * 37)
    rows = [wide(k, t, k, t, 1) for k in range(9) for t in range(20)]
    rows[33] = wide(1, 13, 1.5, 0, 0)
    rows[77] = wide(1, "x", 0, 0, 0)
    rows[101] = "no row at all"
    with ROADS[road]():
        step = Gather(PLAN, 4)
        step.start_bundle()
        outputs = [o for row in rows for o in step.process(row) or ()]
        outputs += step.finish_bundle()
    batches, rejected = [], 0
    for one in outputs:
        value = getattr(one, "value", one)
        tag = getattr(one, "tag", None)
        value = getattr(value, "value", value)
        rejected += tag == "rejected"
        if tag is None:
            batches.append(value[1])
    assert sum(map(len, batches)) == len(rows) - 2
    assert rejected == 2
    total = sum(float(batch.values.sum()) for batch in batches)
    expected = sum(k + t + 1 for k in range(9) for t in range(20))
    gone = [wide(1, 13, 1, 13, 1), wide(3, 17, 3, 17, 1), wide(5, 1, 5, 1, 1)]
    assert total == expected - sum(r["a"] + r["b"] + r["c"] for r in gone) + 1.5
