"""A long run of the pairing stage of streams: `make soak`. Are the sums exact, and does state stay bounded?

2 million distinct records of 100,000 realizations, all alive at once, with disorder and duplicates (see
feed.py), go through `Pair` and are summed as `RunningSums` sums them.

What drives them: no runner of Beam's that keeps state between bundles takes 2 million records on one
machine in reasonable time. So the DoFns' own methods are called by the small runner below, one element at a
time. State is kept as bytes, as the DoFns' coders write them, and event-time timers fire as the watermark
passes. Then a part of the same feed goes through the same DoFns on Beam's FnApiRunner.
"""

from __future__ import annotations

import argparse
import heapq
import sys
import time
from collections.abc import Iterator

from feed import LAG, STATES, Exact, Feed
from watch import Watch

MINUTE = 60 * 10**6
PIECE = 10_000
#: Records of a bundle.
BUNDLE = 1000


class State:
    """A bag of state, as bytes, by key."""

    def __init__(self, coder) -> None:
        self.coder, self.cells, self.size, self.key = coder, {}, 0, ""

    def read(self):
        return [self.coder.decode(data) for data in self.cells.get(self.key, [])]

    def clear(self) -> None:
        self.size -= sum(map(len, self.cells.pop(self.key, [])))

    def add(self, value) -> None:
        data = self.coder.encode(value)
        self.size += len(data)
        self.cells.setdefault(self.key, []).append(data)


class Timer:
    """Event-time timers by key; the last time that was set counts."""

    def __init__(self) -> None:
        self.due, self.heap, self.key = {}, [], ""

    def set(self, moment) -> None:
        self.due[self.key] = moment.micros
        heapq.heappush(self.heap, (moment.micros, self.key))

    def passed(self, watermark: int) -> Iterator[tuple[int, str]]:
        while self.heap and self.heap[0][0] <= watermark:
            moment, key = heapq.heappop(self.heap)
            if self.due.get(key) == moment:
                del self.due[key]
                yield moment, key


class Runner:
    """`Pair`, and the sums of what it hands on."""

    def __init__(self, plan, timing) -> None:
        from aggmc_beam.beam.pair import Pair
        from aggmc_beam.beam.running import moments_fn

        self.pair, self.fn = Pair(plan, timing), moments_fn(plan)
        self.state, self.timer = State(Pair.KNOWN.coder), Timer()
        self.snapshot, self.taken = self.fn.create_accumulator(), 0
        self.pair.start_bundle()

    def take(self, record, moment) -> None:
        from aggmc_beam.beam.pair import by_realization

        key, _ = element = by_realization(record)
        self.state.key = self.timer.key = key
        self._sum(self.pair.process(element, moment, self.state, self.timer) or ())
        self.taken += 1
        if self.taken % BUNDLE == 0:
            self._end_bundle()

    def advance(self, watermark) -> None:
        from apache_beam.utils.timestamp import Timestamp

        for moment, key in self.timer.passed(watermark):
            self.state.key = self.timer.key = key
            self.pair.expire(key, Timestamp(micros=moment), self.state, self.timer)

    def _end_bundle(self) -> None:
        self._sum(self.pair.finish_bundle())
        self.pair.start_bundle()

    def _sum(self, handed_on) -> None:
        from apache_beam.pvalue import TaggedOutput

        for found in handed_on:
            if not isinstance(found, TaggedOutput):
                self.snapshot = self.fn.add_input(self.snapshot, found.value[1])

    def finish(self):
        self._end_bundle()
        return self.snapshot


def records(feed: Feed) -> Iterator[tuple]:
    """(record, its event time) in the order of arrival, and None when a step has ended."""
    from aggmc_beam.records import Record

    latest = 0
    for key, step, values in feed.pieces(PIECE):
        for k, t, counts in zip(key.tolist(), step.tolist(), values.astype(float), strict=True):
            if t > latest:
                latest = t
                yield None, (latest - LAG - 1) * MINUTE
            yield Record(str(k), t, counts), t * MINUTE


def plan_of():
    from aggmc_beam.beam.transform import schema_of
    from aggmc_beam.config import read_config
    from aggmc_beam.local.engine import Plan

    config = read_config(
        {
            "states": STATES,
            "input": {"pubsub": {"subscription": "projects/p/subscriptions/s"}},
            "noise": {"model": "binomial", "alpha": 0.5},
            "population": 400,
            "estimator": "mom",
            "engine": "beam",
            "stream": {"state_ttl": "1h"},
        }
    )
    return Plan(config, [], schema_of(config))


def compared(snapshot, sums: dict[str, Exact]) -> dict[str, float]:
    from aggmc_beam.moments import add_moments

    total = add_moments(snapshot.states, snapshot.parts.values())
    return {name: exact.error(getattr(total, name)) for name, exact in sums.items()}


def soak(number: int, realizations: int, limit: float) -> int:
    from apache_beam.utils.timestamp import Timestamp

    from aggmc_beam.beam.timing import Timing

    plan = plan_of()
    feed, watch = Feed(number, realizations), Watch()
    runner = Runner(plan, Timing.of(plan))
    began, cpu, done = time.monotonic(), time.process_time(), 0
    expected = number * 1.05
    for record, moment in records(feed):
        if record is None:
            runner.advance(moment)
            continue
        runner.take(record, Timestamp(micros=moment))
        done += 1
        if done % 1000 == 0:
            watch(done / expected, runner.state.size)
    snapshot = runner.finish()
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    alive, size = len(runner.state.cells), runner.state.size
    runner.advance((feed.steps + 61) * MINUTE)
    runner.advance((feed.steps + 200) * MINUTE)
    errors = compared(snapshot, feed.sums)
    late = max(s[3] for s in watch.samples if s[0] >= 0.5) / max(s[3] for s in watch.samples if s[0] < 0.5)
    found = {
        "records as generated": snapshot.records == feed.distinct,
        "duplicates as generated": snapshot.counts.duplicates == feed.rows - feed.distinct,
        "sums within 1e-12": max(errors.values()) < 1e-12,
        f"memory flat (below x{limit})": watch.growth() < limit,
        f"state flat (below x{limit})": late < limit,
        "open files bounded": max(s[2] for s in watch.samples) <= watch.samples[0][2] + 16,
        "silent realizations forgotten": runner.state.size < size / 2,
    }
    print(f"pairing stage: {snapshot.records:,} records of {alive:,} realizations, {feed.rows:,} arrivals,")
    print(f"  {snapshot.counts.duplicates:,} duplicates; {seconds:,.0f} s, {cpu:,.0f} s of processor time")
    print("  greatest relative error of a sum: " + ", ".join(f"{n} {e:.1e}" for n, e in errors.items()))
    left = runner.state.size / alive
    print(f"  state: {size / alive:,.0f} bytes a realization; {left:,.0f} once forgotten")
    print("\n".join(f"  {line}" for line in watch.table("bytes of state")))
    return told(found)


def on_beam(number: int, realizations: int) -> int:
    """The same DoFns on Beam's FnApiRunner; it keeps all elements in memory, so memory says nothing."""
    import apache_beam as beam
    from apache_beam.transforms.window import TimestampedValue

    from aggmc_beam.beam.bounded import REJECTED
    from aggmc_beam.beam.health import LEDGER
    from aggmc_beam.beam.pair import Pair, by_realization
    from aggmc_beam.beam.running import moments_fn
    from aggmc_beam.beam.timing import Timing
    from aggmc_beam.beam.values import Delta
    from aggmc_beam.records import Record

    plan, feed = plan_of(), Feed(number, realizations)
    began, cpu = time.monotonic(), time.process_time()
    arrivals = [(r, m) for r, m in records(feed) if r is not None]
    expected = dict(feed.sums), feed.distinct, feed.rows
    with beam.Pipeline("FnApiRunner") as pipeline:
        paired = (
            pipeline
            | beam.Create(arrivals)
            | beam.MapTuple(lambda record, at: TimestampedValue(record, at / 10**6)).with_output_types(Record)
            | beam.Map(by_realization).with_output_types(tuple[str, Record])
            | beam.ParDo(Pair(plan, Timing.of(plan)))
            .with_output_types(tuple[str, Delta])
            .with_outputs(REJECTED, LEDGER, main="deltas")
        )
        summed = paired.deltas | beam.CombinePerKey(moments_fn(plan))
        _ = summed | "Check" >> beam.MapTuple(lambda _, snapshot: check(snapshot, *expected))
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    print(f"on FnApiRunner: {feed.distinct:,} records of {realizations:,} realizations,")
    print(f"  {feed.rows:,} arrivals; {seconds:,.0f} s, {cpu:,.0f} s of processor time")
    return told({"records, duplicates and sums as generated": True})


def check(snapshot, sums: dict[str, Exact], distinct: int, rows: int) -> None:
    """Fails the pipeline unless the sums are those that were generated."""
    assert snapshot.records == distinct, (snapshot.records, distinct)
    assert snapshot.counts.duplicates == rows - distinct
    assert max(compared(snapshot, sums).values()) < 1e-12


def told(found: dict[str, bool]) -> int:
    for name, holds in found.items():
        print(f"  {'ok  ' if holds else 'FAIL'} {name}")
    return 0 if all(found.values()) else 1


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=2_000_000)
    options.add_argument("--realizations", type=int, default=100_000)
    options.add_argument("--growth", type=float, default=1.25, help="fail if memory grows by more than this")
    given = options.parse_args()
    failed = soak(given.records, given.realizations, given.growth)
    part = given.records // 100, given.realizations // 100
    return on_beam(*part) or failed


if __name__ == "__main__":
    sys.exit(main())
