"""One bad message harms no other: it is a dead letter, and the stream goes on."""

from __future__ import annotations

import json
import time

import apache_beam as beam
import collected
import frames
import numpy as np
import pytest
from apache_beam.coders import StrUtf8Coder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Arrivals
from apache_beam.transforms.window import TimestampedValue

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions, Stream
from aggmc_beam.beam.guard import MAX_NAME, ByRealization
from aggmc_beam.beam.timing import LAST, Timing
from aggmc_beam.ledger import Ledger
from aggmc_beam.times import iso

HOUR = 3600
#: Some days ago.
START = int(time.time()) // HOUR * HOUR - 100 * HOUR
STATES = frames.STATES


def messages(K=4, T=30, stamps=True):
    y = frames.counts(K=K, T=T, seed=3)
    return y, [
        {
            "realization": k,
            "region": "north",
            "time": iso((START + HOUR * t) * 10**6) if stamps else t,
            "counts": y[k, t].tolist(),
        }
        for t in range(T)
        for k in range(K)
    ]


def run(elements, name, after=(), **options):
    """What becomes of messages, and of those that come after an hour."""
    options = {"replicates": 6, "block": 5, "stream": Stream(), "group_by": ["region"], **options}
    made = EstimateTransitions(STATES, am.Binomial(0.5), 200, "mom", **options)
    stream = Arrivals()
    for i in range(0, len(elements), 20):
        stream = stream.add_elements(elements[i : i + 20])
    stream = stream.advance_processing_time(120).add_elements(list(after))
    kinds = "estimates", "rejected", "health"
    with beam.Pipeline("BundleBasedDirectRunner", options=PipelineOptions(["--streaming"])) as pipeline:
        found = pipeline | stream.advance_watermark_to_infinity() | made
        for kind in kinds:
            _ = getattr(found, kind) | kind >> beam.Map(collected.keep, f"{name}/{kind}")
    return [collected.FOUND.pop(f"{name}/{kind}", []) for kind in kinds]


def poison(good, stamps):
    """Messages that are no records, and why."""
    text = json.dumps(good)

    def changed(**fields):
        return json.dumps({**good, **fields}).encode()

    found = {
        "a surrogate in the name": changed(realization="a\ud800"),
        "a surrogate in the group": changed(region="\udfff"),
        "a surrogate in the time": changed(time="\ud800"),
        "a surrogate in a count": changed(counts=["\ud800", 1, 2]),
        "a surrogate elsewhere": changed(note="\ud800", counts=[1]),
        "raw bytes of a surrogate": text.replace("north", "n?").encode().replace(b"n?", b"\xed\xa0\x80"),
        "a long name": changed(realization="x" * 2**20),
        "a long group": changed(region="x" * 2**20),
    }
    if stamps:
        far = iso(int((time.time() + 30 * 86400) * 1e6))
        times = (
            far,
            "9999-12-31T23:00:00-23:00",
            "0001-01-01T00:00:00+23:00",
            "10000-01-01T00:00:00Z",
            "-0001-01-01",
        )
    else:
        times = 2**53 - 1, -(2**53) + 1, 2**60, 10**400
    return found | {f"time {str(t)[:30]}": changed(time=t) for t in times}


@pytest.mark.parametrize("stamps", [True, False])
def test_poison_is_set_aside_and_all_else_is_as_without(stamps):
    y, good = messages(stamps=stamps)
    bad = list(poison(good[0], stamps).values())
    lines = [json.dumps(m).encode() for m in good]
    mixed = [*lines[:30], *bad, *lines[30:100]]
    step = {"step": "1h"} if stamps else {}
    found, rejected, health = run(mixed, f"poison {stamps}", after=[*bad[:3], *lines[100:]], **step)
    rules = {"replicates": 6}
    sums = am.Sums.of(y, **rules)
    last = found[-1]
    expected = am.estimate(y, noise=am.Binomial(0.5), population=200, estimator="mom")
    np.testing.assert_allclose(last.transition_matrix, expected.transition_matrix, rtol=0, atol=1e-10)
    assert last.diagnostics["final"]
    assert [e.diagnostics["final"] for e in found].count(True) == 1
    assert last.counts["records"] == sums.total.records == 120
    assert len(rejected) == len(bad) + 3
    assert Ledger(**health[-1]["ledger"]) == Ledger(
        read=120 + len(rejected), used=120, rejected=len(rejected)
    )
    assert health[-1]["ended"]
    for r in rejected:
        text = json.dumps(r, ensure_ascii=False)
        assert StrUtf8Coder().encode(text).decode() == text
        assert len(text) < 2 * MAX_NAME + 500


def test_far_future_messages_make_no_windows():
    _, good = messages(T=20)
    far = int(time.time()) // HOUR * HOUR + 30 * 24 * HOUR
    future = [{**good[0], "time": iso((far + 7 * HOUR * i) * 10**6)} for i in range(200)]
    elements = [TimestampedValue(m, START) for m in good[:40]]
    elements += [TimestampedValue(m, START) for m in future]
    chain = am.Window(10, 2)
    found, rejected, health = run(
        elements, "future", [TimestampedValue(m, START) for m in good[40:]], chain=chain, step="1h"
    )
    assert len(rejected) == 200
    assert all("max_ahead" in r["reason"] for r in rejected)
    assert max(e.window["start"] for e in found) < iso((START + 20 * HOUR) * 10**6)
    assert health[-1]["ledger"]["used"] == 80


def test_an_event_time_at_the_end_of_all_times_is_not_believed():
    _, good = messages(stamps=False)
    elements = [TimestampedValue(m, START) for m in good]
    elements[50] = TimestampedValue(good[50], LAST)
    found, rejected, health = run(elements, "end")
    assert not rejected
    assert found[-1].counts["records"] == 120
    assert health[-1]["newest"] < iso(int((time.time() + 2 * 86400) * 1e6))


def test_how_far_ahead_is_a_setting():
    made = EstimateTransitions(STATES, step="1h", stream=Stream(max_ahead="3h"))
    assert Timing.of(made.plan).ahead == 3 * HOUR * 10**6
    door = ByRealization(made.plan, Timing.of(made.plan))
    door.start_bundle()
    now = int(time.time()) // HOUR
    for ahead, taken in ((-(10**4), True), (3, True), (5, False)):
        record = am.records.Record("a", now + ahead, np.zeros(3))
        [out] = door.process(record)
        assert isinstance(out, tuple) == taken
