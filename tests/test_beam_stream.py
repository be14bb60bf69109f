"""Estimates that are refreshed while records arrive, in any order."""

from __future__ import annotations

import json

import apache_beam as beam
import collected
import frames
import numpy as np
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Arrivals
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions, Stream
from aggmc_beam.beam.parsing import ParseRecords
from aggmc_beam.beam.timing import Timing
from aggmc_beam.beam.unbounded import Refresh
from aggmc_beam.config import read_config
from aggmc_beam.ledger import Ledger
from aggmc_beam.local import run as run_locally
from aggmc_beam.sums.records import Records
from aggmc_beam.times import instant, iso

MINUTE = 60
START = instant("2026-01-01T00:00:00Z") // 10**6


def rows(K=4, T=30, seed=3, stamps=False):
    y = frames.counts(K=K, T=T, seed=seed)
    time = [iso((START + MINUTE * t) * 10**6) if stamps else t for t in range(T)]
    return [
        {"realization": k, "time": time[t], "counts": y[k, t].tolist()} for t in range(T) for k in range(K)
    ]


def records_of(items):
    """Rows as one block of records."""
    key, time, counts = (np.array([r[name] for r in items]) for name in ("realization", "time", "counts"))
    return Records(key, time, counts, np.arange(4), np.zeros(4, int))


def shuffled(items, seed=1):
    return [items[i] for i in np.random.default_rng(seed).permutation(len(items))]


def transform(**options):
    return EstimateTransitions(
        frames.STATES,
        am.Binomial(0.5),
        200,
        "mom",
        **{"block": 5, "replicates": 6, "stream": Stream(), **options},
    )


def batch(items, tmp_path, step=1, **more):
    """What the local engine makes of the same records."""
    path = tmp_path / f"batch{len(list(tmp_path.iterdir()))}.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in items), encoding="utf-8")
    more = {"uncertainty": {"block": 5, "replicates": 6}, **more}
    config = frames.config(path, input={"step": step}, **more)
    return run_locally(read_config(config)).estimates


def observed(stream, made, name):
    """What a test stream leads to, in the order in which it came: estimates, rejections and health."""
    options = PipelineOptions(["--streaming"])
    kinds = "estimates", "rejected", "health"
    with beam.Pipeline("BundleBasedDirectRunner", options=options) as pipeline:
        found = pipeline | stream | made
        for kind in kinds:
            _ = getattr(found, kind) | kind >> beam.Map(collected.keep, f"{name}/{kind}")
    return [collected.FOUND.pop(f"{name}/{kind}", []) for kind in kinds]


def streamed(stream, made, name):
    """Its estimates and rejections. The ledger adds up, and what was not used is all there."""
    found, rejected, health = observed(stream, made, name)
    ledger = Ledger(**health[-1]["ledger"]).check()
    assert health[-1]["ended"]
    repeated = [r for r in rejected if "other counts" in r["reason"]]
    assert len(rejected) == ledger.rejected + ledger.late + len(repeated)
    return found, rejected


def assert_same(found, expected):
    np.testing.assert_allclose(found.transition_matrix, expected.transition_matrix, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=0, atol=1e-10)
    for name in ("records", "pairs", "realizations", "gaps"):
        assert found.counts[name] == expected.counts[name], name


def test_every_refresh_is_right_for_what_has_arrived_and_the_last_one_for_all(tmp_path):
    items = shuffled(rows())
    arrivals = [items[:60], [*items[50:60], *items[10:40]], items[60:90], items[90:]]
    stream = Arrivals()
    for part in arrivals:
        stream = stream.add_elements(part).advance_processing_time(60)
    found, rejected = streamed(stream.advance_watermark_to_infinity(), transform(), "refresh")
    assert not rejected
    assert [e.refresh for e in found] == list(range(1, len(found) + 1))
    assert len(found) > len(arrivals)
    # Snapshots hold everything before them: adding them up would give more.
    expected = {n: batch(items[:n], tmp_path)[0] for n in (60, 90, 120)}
    for e in found:
        assert_same(e, expected[e.counts["records"]])
    assert {e.counts["records"] for e in found} == {60, 90, 120}
    assert found[-1].diagnostics["final"]
    assert not found[0].diagnostics["final"]
    assert found[-1].counts["records"] == len(items)
    assert found[-1].counts["duplicates"] == 40


@pytest.mark.parametrize("chain", [am.Cycle(4), "per-step"])
def test_other_chains_have_the_estimates_of_the_batch(chain, tmp_path):
    items = shuffled(rows(K=25, T=12))
    plain = {"cycle": 4} if chain != "per-step" else chain
    stream = Arrivals().add_elements(items[:150]).add_elements(items[100:]).advance_watermark_to_infinity()
    found, _ = streamed(stream, transform(chain=chain, block=None), f"chain {chain}")
    expected = batch(items, tmp_path, chain=plain, uncertainty={"replicates": 6})
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.cell == b.cell
        np.testing.assert_allclose(a.transition_matrix, b.transition_matrix, rtol=0, atol=1e-10)


def test_duplicates_in_other_bundles_are_dropped_and_garbage_is_set_aside(tmp_path):
    items = shuffled(rows(K=2))
    stream = Arrivals()
    for i in range(0, len(items), 7):
        stream = stream.add_elements([*items[i : i + 7], *items[max(0, i - 9) : i], "{no JSON"])
    stream = stream.add_elements([{"realization": 1, "time": 2, "counts": [1, "NaN", 2]}])
    found, rejected = streamed(
        stream.advance_processing_time(120).advance_watermark_to_infinity(), transform(), "duplicates"
    )
    assert_same(found[-1], batch(items, tmp_path)[0])
    assert len(rejected) == 10
    assert {r["record"] for r in rejected if isinstance(r["record"], str)} == {"{no JSON"}
    assert any("NaN" in r["reason"] for r in rejected)


def at(row):
    """A row at its event time."""
    return TimestampedValue(row, instant(row["time"]) / 10**6)


def in_windows(**options):
    return transform(step="1m", chain=am.Window(10, options.pop("every", 10)), **options)


@pytest.mark.parametrize("every", [10, 5])
def test_windows_lose_no_pair_at_their_edges(every, tmp_path):
    items = rows(K=3, stamps=True)
    stream = Arrivals()
    for minute in range(30):
        stream = stream.add_elements([at(r) for r in items[3 * minute : 3 * minute + 3]])
        stream = stream.advance_watermark_to(START + MINUTE * minute)
    found, rejected = streamed(stream.advance_watermark_to_infinity(), in_windows(every=every), f"win{every}")
    chain = {"window": {"size": 10, "every": every}}
    expected = {e.window["start"]: e for e in batch(items, tmp_path, "1m", chain=chain)}
    last = {e.window["start"]: e for e in found}
    assert not rejected
    assert last.keys() == expected.keys()
    for start, e in expected.items():
        np.testing.assert_allclose(last[start].transition_matrix, e.transition_matrix, atol=1e-10)
        assert last[start].counts["pairs"] == e.counts["pairs"]
        assert last[start].window == e.window
    if every == 10:
        assert sum(e.counts["pairs"] for e in last.values()) == 3 * 29


def test_a_window_waits_for_the_far_end_of_its_last_pair():
    items = rows(K=3, T=12, stamps=True)
    stream = Arrivals().add_elements([at(r) for r in items[:30]])
    # The window has ended, but not the pairs that begin in it.
    stream = stream.advance_watermark_to(START + 10 * MINUTE + 1)
    stream = stream.add_elements([at(r) for r in items[30:]])
    stream = stream.advance_watermark_to(START + 13 * MINUTE).advance_watermark_to_infinity()
    found, _ = streamed(stream, in_windows(), "hold")
    first = [e for e in found if e.window["start"] == iso(START * 10**6)]
    assert [(e.counts["pairs"], e.diagnostics["final"]) for e in first] == [(30, False), (30, True)]


def test_late_records_refresh_their_window_until_it_closes_and_are_then_set_aside():
    items = rows(K=2, T=20, stamps=True)
    kept, late, too_late = items[4:], items[:2], items[2:4]
    stream = Arrivals().add_elements([at(r) for r in kept if r["time"] < iso((START + 600) * 10**6)])
    stream = stream.advance_watermark_to(START + 13 * MINUTE)
    stream = stream.add_elements([at(r) for r in late])
    stream = stream.add_elements([at(r) for r in kept if r["time"] >= iso((START + 600) * 10**6)])
    stream = stream.advance_watermark_to(START + 18 * MINUTE).add_elements([at(r) for r in too_late])
    made = in_windows(stream=Stream(allowed_lateness="5m"))
    found, rejected = streamed(stream.advance_watermark_to_infinity(), made, "late")
    first = [e for e in found if e.window["start"] == iso(START * 10**6)]
    records = [e.counts["records"] for e in first]
    assert records[0] == 16
    assert records[-1] == 18
    assert first[-1].diagnostics["final"]
    # Those that came too late are counted with the windows that were still open.
    assert found[-1].counts["late"] == 2
    assert [r["record"]["counts"] for r in rejected] == [r["counts"] for r in too_late]
    assert all("too late" in r["reason"] for r in rejected)


def test_a_silent_realization_is_forgotten_but_none_of_its_records_is_counted_twice():
    items = rows(K=2, T=30)
    hour = 3600

    def when(part, hours):
        return [TimestampedValue(row, START + hours * hour) for row in part]

    stream = (
        Arrivals()
        .add_elements(when(items[:40], 0))
        .advance_watermark_to(START + 3 * hour)
        .add_elements(when(items[30:44], 3))
        .add_elements(when(items[44:], 3))
    )
    made = transform(stream=Stream(state_ttl="2h"))
    found, rejected = streamed(
        stream.advance_processing_time(120).advance_watermark_to_infinity(), made, "expiry"
    )
    assert len(rejected) == 10
    assert found[-1].counts["records"] == 60
    assert found[-1].counts["pairs"] == 56  # not that between step 19 and step 20, which was forgotten
    assert found[-1].counts["late"] == 10


def test_records_of_an_unknown_realization_are_late_like_all_others():
    items = rows(K=3, T=40, stamps=True)
    known = [r for r in items if r["realization"] != 2]
    stream = Arrivals().add_elements([at(r) for r in known])
    stream = stream.advance_watermark_to(START + 60 * MINUTE)
    # A week after their windows have closed, beyond every time to live.
    stream = stream.advance_watermark_to(START + 30 * 86400)
    strangers = [r for r in items if r["realization"] == 2]
    stream = stream.add_elements([at(r) for r in strangers]).advance_watermark_to_infinity()
    found, rejected = streamed(stream, in_windows(), "strangers")
    assert [r["record"] for r in rejected] == [{**r, "realization": "2"} for r in strangers]
    assert sum(e.counts["records"] for e in found if e.diagnostics["final"]) == len(known)


def test_a_contradicting_duplicate_is_reported_while_the_first_is_remembered(tmp_path):
    items = rows(K=2, T=6)
    other = {**items[-1], "counts": [1, 2, 3]}
    stream = Arrivals().add_elements([*items, items[-1], other]).advance_watermark_to_infinity()
    found, rejected = streamed(stream, transform(), "contradiction")
    assert_same(found[-1], batch(items, tmp_path)[0])
    assert found[-1].counts["duplicates"] == 2
    assert [r["record"]["counts"] for r in rejected] == [[1, 2, 3]]
    assert "other counts" in rejected[0]["reason"]


@pytest.mark.parametrize(("limit", "garbage"), [(3, 4), (0.01, 20)])
def test_a_stream_with_too_many_rejected_records_fails(limit, garbage):
    items = rows(K=40, T=30)
    stream = Arrivals().add_elements([*items, *["garbage"] * garbage]).advance_watermark_to_infinity()
    with pytest.raises(Exception, match="more than max_rejected"):
        observed(stream, transform(max_rejected=limit), f"limit {limit}")


def test_rejected_records_are_counted_with_their_group():
    items = [{**r, "region": "north" if r["realization"] % 2 else "south"} for r in rows(K=4)]
    broken = [{**items[0], "counts": [1]}, "no group"]
    stream = Arrivals().add_elements([*items, *broken]).advance_watermark_to_infinity()
    found, rejected = streamed(stream, transform(group_by=["region"]), "groups")
    assert {e.group["region"]: e.counts["rejected"] for e in found} == {"south": 1, "north": 0}
    assert len(rejected) == 2


def test_health_tells_how_far_the_stream_has_come():
    items = rows(K=3, T=30, stamps=True)
    stream = Arrivals().add_elements([at(r) for r in items]).advance_watermark_to(START + 3600)
    stream = stream.advance_processing_time(120).advance_watermark_to_infinity()
    _, _, health = observed(stream, transform(step="1m"), "health")
    assert not health[0]["ended"]
    assert health[-1]["ended"]
    assert health[0]["ledger"] == {"read": 90, "used": 90, "duplicate": 0, "rejected": 0, "late": 0}
    newest = iso((START + 29 * MINUTE) * 10**6)
    assert health[0]["newest"] == health[0]["watermark"] == newest  # event time has passed it
    assert health[-1]["refreshes"] == 2
    assert health[-1]["last_refresh"] is not None


def test_the_watermark_is_told_while_newer_records_keep_coming():
    stream = Arrivals()
    for minute in range(1, 20):  # event time follows the records at a distance, and never reaches the newest
        made = {"realization": 1, "time": iso((START + MINUTE * minute) * 10**6), "counts": [1, 2, 3]}
        stream = stream.add_elements([at(made)]).advance_watermark_to(START + MINUTE * (minute - 3))
    stream = stream.advance_processing_time(120).advance_watermark_to_infinity()
    _, _, found = observed(stream, transform(step="1m"), "moving")
    assert found[0]["newest"] == iso((START + 19 * MINUTE) * 10**6)
    assert iso((START + 10 * MINUTE) * 10**6) < found[0]["watermark"] < iso((START + 17 * MINUTE) * 10**6)


def test_batches_of_records_are_read_like_records(tmp_path):
    items = rows(K=4)
    batches = [records_of(items[:50]), records_of(items[50:])]
    stream = Arrivals().add_elements(batches).add_elements(batches).advance_watermark_to_infinity()
    found, _ = streamed(stream, transform(), "batches")
    assert found[-1].counts["duplicates"] == len(items)
    assert_same(found[-1], batch(items, tmp_path)[0])


def test_counters_are_the_ledger(monkeypatch):
    # Beam's runner for test streams counts the first bundle only, so this is another one.
    items = rows(K=4)
    broken, late = ["garbage"] * 3, {**items[0], "counts": [9, 9, 9]}
    # It fails if a timer of the clock is still pending at the end, so all are due at once.
    monkeypatch.setattr(Timing, "soon", lambda *_: Timestamp(0))
    made = transform()
    with beam.Pipeline("FnApiRunner") as pipeline:
        parsed = pipeline | beam.Create([*items, *items[:7], *broken, late]) | ParseRecords(made.plan.schema)
        found = parsed | Refresh(made.plan)
        _ = found.health | beam.Map(collected.keep, "counters")
    counters = pipeline.result.metrics().query(MetricsFilter().with_namespace("aggmc"))["counters"]
    known = {c.key.metric.name: c.committed for c in counters}
    told = collected.FOUND.pop("counters")
    assert [h["ended"] for h in told].count(True) == 1  # and it is the last
    ledger = Ledger(**told[-1]["ledger"]).check()
    assert ledger == Ledger(read=131, used=120, duplicate=8, rejected=3)
    assert {name: known[name] for name in ("rows", "records", "duplicates", "rejected")} == {
        "rows": 131,
        "records": 120,
        "duplicates": 8,
        "rejected": 3,
    }
    assert known["refreshes"] >= 1


def test_windows_of_a_stream_need_time_stamps():
    with pytest.raises(am.InputError, match="time stamps"):
        streamed(Arrivals().advance_watermark_to_infinity(), transform(chain=am.Window(5)), "steps")
