"""Estimates that are refreshed while records arrive, in any order."""

from __future__ import annotations

import json

import apache_beam as beam
import collected
import frames
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Arrivals
from apache_beam.transforms.window import TimestampedValue

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions, Stream
from aggmc_beam.config import read_config
from aggmc_beam.durations import instant, iso
from aggmc_beam.local import run as run_locally

MINUTE = 60
START = instant("2026-01-01T00:00:00Z") // 10**6


def rows(K=4, T=30, seed=3, stamps=False):
    y = frames.counts(K=K, T=T, seed=seed)
    time = [iso((START + MINUTE * t) * 10**6) if stamps else t for t in range(T)]
    return [
        {"realization": k, "time": time[t], "counts": y[k, t].tolist()} for t in range(T) for k in range(K)
    ]


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
    uncertainty = {"block": 5, "replicates": 6}
    config = frames.config(path, input={"step": step}, uncertainty=uncertainty, **more)
    return run_locally(read_config(config)).estimates


def streamed(stream, made, name):
    """The estimates and rejections of a test stream, in the order in which they came."""
    options = PipelineOptions(["--streaming"])
    with beam.Pipeline("BundleBasedDirectRunner", options=options) as pipeline:
        found = pipeline | stream | made
        _ = found.estimates | beam.Map(collected.keep, name)
        _ = found.rejected | "Rejected" >> beam.Map(collected.keep, f"{name}/rejected")
    return tuple(collected.FOUND.pop(key, []) for key in (name, f"{name}/rejected"))


def assert_same(found, expected):
    np.testing.assert_allclose(found.transition_matrix, expected.transition_matrix, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=0, atol=1e-10)
    for name in ("records", "pairs", "realizations", "gaps"):
        assert found.counts[name] == expected.counts[name], name


@pytest.mark.parametrize("shards", [1, 3])
def test_every_refresh_is_right_for_what_has_arrived_and_the_last_one_for_all(shards, tmp_path):
    items = shuffled(rows())
    again = [*items[50:60], *items[10:40], *items[60:]]
    stream = (
        Arrivals()
        .add_elements(items[:60])
        .advance_processing_time(120)
        .add_elements(again[:40])
        .advance_processing_time(120)
        .add_elements(again[40:])
        .advance_processing_time(120)
        .advance_watermark_to_infinity()
    )
    found, rejected = streamed(stream, transform(shards=shards), f"refresh{shards}")
    assert not rejected
    assert [e.refresh for e in found] == list(range(1, len(found) + 1))
    assert len(found) >= 2 * shards
    assert_same(found[-1], batch(items, tmp_path)[0])
    assert found[-1].counts["duplicates"] == 40
    if shards == 1:
        assert_same(found[0], batch(items[:60], tmp_path)[0])
        # Accumulating firings hold everything before them: adding them up would give more.
        assert [e.counts["records"] for e in found] == sorted(e.counts["records"] for e in found)
    assert max(e.counts["records"] for e in found) == len(items)


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
    assert [e.counts["pairs"] for e in first] == [30]


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
    assert first[-1].counts["late"] == 2
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


def test_windows_of_a_stream_need_time_stamps():
    with pytest.raises(am.InputError, match="time stamps"):
        streamed(Arrivals().advance_watermark_to_infinity(), transform(chain=am.Window(5)), "steps")
