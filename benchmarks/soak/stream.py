"""A long run of the stages of streams: `make soak`. Are the sums exact, and does state stay bounded?

2 million distinct records of 100,000 realizations, all alive at once, with disorder and duplicates (see
feed.py), go through `Pair` and `RunningSums`.

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
NAMES = ("realizations", "sums", "what is not yet summed", "status")


class State:
    """A bag of state, as bytes, by key; or a single value."""

    def __init__(self, spec) -> None:
        self.coder, self.cells, self.size, self.key = spec.coder, {}, 0, ""
        self.single = type(spec).__name__ == "ReadModifyWriteStateSpec"
        self.largest = self.written = 0

    def read(self):
        found = [self.coder.decode(data) for data in self.cells.get(self.key, [])]
        return (found or [None])[0] if self.single else found

    def clear(self) -> None:
        self.size -= sum(map(len, self.cells.pop(self.key, [])))

    def add(self, value) -> None:
        data = self.coder.encode(value)
        self.size += len(data)
        self.written += len(data)
        self.largest = max(self.largest, len(data))
        self.cells.setdefault(self.key, []).append(data)

    def write(self, value) -> None:
        self.clear()
        self.add(value)


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
    """`Pair`, and `RunningSums` of what it hands on."""

    def __init__(self, plan, timing) -> None:
        from aggmc_beam.beam.pair import Pair
        from aggmc_beam.beam.running import RunningSums

        self.pair, self.sums = Pair(plan, timing), RunningSums(plan, timing)
        self.state, self.timer, self.taken = State(Pair.KNOWN), Timer(), 0
        self.kept = [State(s) for s in (RunningSums.SUMS, RunningSums.DELTAS, RunningSums.STATUS)]
        self.clocks = [Timer(), Timer(), Timer()]
        self.pair.start_bundle()

    @property
    def states(self):
        return [self.state, *self.kept]

    def take(self, record, moment) -> None:
        from aggmc_beam.beam.guard import by_realization

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
                self._at(found.value[0])
                for _ in self.sums.process(found.value, found.timestamp, *self.kept, *self.clocks):
                    pass

    def _at(self, key) -> None:
        for part in (*self.kept, *self.clocks):
            part.key = key

    def refresh(self) -> None:
        """Let all shards hand on their sums."""
        for key in list(self.kept[2].cells):
            self._at(key)
            for _ in self.sums.refreshed(key, *self.kept):
                pass

    def finish(self):
        """The sums of all shards, handed on at the end of the stream."""
        self._end_bundle()
        found = []
        for key in list(self.kept[2].cells):
            self._at(key)
            found += [at.value[1][3] for at in self.sums.ended(key, *self.kept)]
        return self.sums.rule.total(found)


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


def stream_plan():
    from aggmc_beam.beam.plan import plan_of
    from aggmc_beam.config import read_config

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
    return plan_of(config)


def compared(snapshot, sums: dict[str, Exact]) -> dict[str, float]:
    total = snapshot.sums.total
    return {name: exact.error(getattr(total, name)) for name, exact in sums.items()}


def soak(number: int, realizations: int, limit: float) -> int:
    from apache_beam.utils.timestamp import Timestamp

    from aggmc_beam.beam.timing import Timing

    plan = stream_plan()
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
    largest = max(state.largest for state in runner.states)
    group = sum(state.size for state in runner.kept)
    written = [state.written / done for state in runner.states]
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
        "no state value above 5 MB": largest < 5e6,
    }
    print(f"pairing stage: {snapshot.records:,} records of {alive:,} realizations, {feed.rows:,} arrivals,")
    print(f"  {snapshot.counts.duplicates:,} duplicates; {seconds:,.0f} s, {cpu:,.0f} s of processor time")
    print("  greatest relative error of a sum: " + ", ".join(f"{n} {e:.1e}" for n, e in errors.items()))
    left = runner.state.size / alive
    print(f"  state: {size / alive:,.0f} bytes a realization; {left:,.0f} once forgotten")
    print(f"  state of the group: {group:,} bytes")
    print(f"  largest state value: {largest:,} bytes; written to state for an arrival:")
    print("  " + ", ".join(f"{n} {b:,.0f}" for n, b in zip(NAMES, written, strict=True)) + " bytes")
    print("\n".join(f"  {line}" for line in watch.table("bytes of state")))
    return told(found)


def on_beam(number: int, realizations: int) -> int:
    """The same DoFns on Beam's FnApiRunner; it keeps all elements in memory, so memory says nothing."""
    import apache_beam as beam
    from apache_beam.transforms.window import TimestampedValue

    from aggmc_beam.beam.exact import REJECTED
    from aggmc_beam.beam.guard import by_realization
    from aggmc_beam.beam.health import LEDGER
    from aggmc_beam.beam.pair import Pair
    from aggmc_beam.beam.stream_values import Delta
    from aggmc_beam.beam.timing import Timing
    from aggmc_beam.records import Record

    plan, feed = stream_plan(), Feed(number, realizations)
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
        grouped = (
            paired.deltas | beam.GroupByKey() | beam.MapTuple(lambda key, deltas: summed(key, deltas, plan))
        )
        listed = grouped | beam.combiners.ToList()
        _ = listed | "Check" >> beam.Map(check, plan, *expected)
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    print(f"on FnApiRunner: {feed.distinct:,} records of {realizations:,} realizations,")
    print(f"  {feed.rows:,} arrivals; {seconds:,.0f} s, {cpu:,.0f} s of processor time")
    return told({"records, duplicates and sums as generated": True})


def summed(key, deltas, plan):
    """The sums of a shard."""
    import json

    from aggmc_beam.beam.stream_sums import StreamRule

    return StreamRule.of(plan).sums(list(deltas), json.loads(key)[1])


def check(snapshots, plan, sums: dict[str, Exact], distinct: int, rows: int) -> None:
    """Fails the pipeline unless the sums are those that were generated."""
    from aggmc_beam.beam.stream_sums import StreamRule

    snapshot = StreamRule.of(plan).total(snapshots)
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
