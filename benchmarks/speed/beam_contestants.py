"""The Beam engine's contestants and what they are measured against, on Beam's own runner in one process."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import apache_beam as beam
import numpy as np
import polars as pl
from aggmc_beam.beam.reading import SumFiles
from apache_beam.coders import BytesCoder
from apache_beam.io.parquetio import ReadFromParquet, ReadFromParquetBatched
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from aggmc_beam.beam import EstimateTransitions
from aggmc_beam.beam.bounded import REJECTED
from aggmc_beam.beam.files import open_plan
from aggmc_beam.beam.health import LEDGER
from aggmc_beam.beam.pair import Pair
from aggmc_beam.beam.stream_sums import StreamRule
from aggmc_beam.beam.stream_values import Delta
from aggmc_beam.beam.timing import Timing
from aggmc_beam.noise import Poisson
from aggmc_beam.records import Record
from benchmarks.speed.ours import config_of, sums_of
from benchmarks.speed.sums import Sums

logging.disable(logging.WARNING)
FOUND: list[Any] = []


def keep(value: Any) -> None:
    FOUND.append(value)


def collected(build: Callable[[Any], Any]) -> Any:
    """What the one element of a pipeline's last collection is."""
    FOUND.clear()
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = build(pipeline) | "Collect" >> beam.Map(keep)
    return FOUND[0]


def blocks(path: str, states: list[str]) -> Sums:
    """Files to sums with all that estimates need: replicates, profiles, exact duplicates."""
    plan, files = open_plan(config_of(path, states, "parquet"))
    _, sums = collected(lambda p: (p | SumFiles(plan, files, False)).sums)
    return sums_of(sums.digest.total)


def records(path: str, states: list[str]) -> Sums:
    """The same from rows one by one, as any source gives them."""
    made = EstimateTransitions(states, Poisson(1.0), 1000, "mom", counts=states)
    _, sums = collected(lambda p: made.sums(p | ReadFromParquet(path)).sums)
    return sums_of(sums.digest.total)


def read_blocks(path: str) -> None:
    """Beam's reader of Arrow tables, and nothing done with them."""
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = pipeline | ReadFromParquetBatched(path) | beam.FlatMap(lambda table: ())


def read_records(path: str) -> None:
    """Beam's reader of rows, and nothing done with them."""
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = pipeline | ReadFromParquet(path) | beam.FlatMap(lambda row: ())


class OuterProducts(beam.CombineFn):  # type: ignore[misc]
    """Number of pairs, sum of records and sum of outer products."""

    def __init__(self, states: int) -> None:
        self.states = states

    def create_accumulator(self) -> Any:
        return 0, np.zeros(self.states), np.zeros((self.states, self.states))

    def add_input(self, accumulator: Any, element: tuple[np.ndarray, np.ndarray | None]) -> Any:
        pairs, total, cross = accumulator
        left, right = element
        if right is None:
            return pairs, total + left, cross
        return pairs + 1, total + left, cross + np.outer(left, right)

    def merge_accumulators(self, accumulators: Any) -> Any:
        return tuple(sum(parts) for parts in zip(*accumulators, strict=True))

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator


def neighbours(element: Any) -> Iterator[Any]:
    """The records of a realization in order, each with the next one."""
    ordered = sorted(element[1], key=lambda record: record[0])
    for (time, left), (after, right) in pairwise(ordered):
        yield element[0], (left, right if after == time + 1 else None)
    yield element[0], (ordered[-1][1], None)


def naive(path: str, states: list[str]) -> Sums:
    """What a user would write: rows by realization, sorted, outer products through CombinePerKey."""

    def keyed(row: dict[str, Any]) -> Any:
        return row["realization"], (row["time"], np.array([row[s] for s in states], np.float64))

    def build(pipeline: Any) -> Any:
        fn = OuterProducts(len(states))
        return (
            pipeline
            | ReadFromParquet(path)
            | beam.Map(keyed)
            | beam.GroupByKey()
            | beam.FlatMap(neighbours)
            | beam.CombinePerKey(fn)
            | beam.Values()
            | "All" >> beam.CombineGlobally(fn.merge_accumulators)
        )

    pairs, total, cross = collected(build)
    return Sums(pairs, total / (pairs + _runs(path)), cross)


def _runs(path: str) -> int:
    return int(pl.scan_parquet(path).select(pl.col("realization").n_unique()).collect().item())


class Remember(beam.DoFn):  # type: ignore[misc]
    """The least that a stateful step does: read and write its state for each record, clear it by a timer."""

    STATE = ReadModifyWriteStateSpec("state", BytesCoder())
    TIMER = TimerSpec("timer", TimeDomain.WATERMARK)

    def process(
        self,
        element: tuple[str, Record],
        at: Any = beam.DoFn.TimestampParam,
        state: Any = beam.DoFn.StateParam(STATE),
        timer: Any = beam.DoFn.TimerParam(TIMER),
    ) -> Iterator[tuple[str, Record]]:
        if state.read() is None:
            timer.set(Timestamp(micros=at.micros + 10**9))
        state.write(b"known")
        yield element

    @on_timer(TIMER)  # type: ignore[untyped-decorator]
    def expire(self, state: Any = beam.DoFn.StateParam(STATE)) -> None:
        state.clear()


def arrivals(path: str, states: list[str]) -> Iterator[tuple[str, Record]]:
    """The records of a file as a feed brings them: step by step."""
    frame = pl.read_parquet(path).sort("time", "realization")
    counts = frame.select(states).to_numpy().astype(np.float64)
    for name, time, row in zip(frame["realization"].to_list(), frame["time"].to_list(), counts, strict=True):
        yield f'[[], "{name}"]', Record(str(name), time, row)


def feed(pipeline: Any, path: str, states: list[str]) -> Any:
    made = beam.FlatMap(arrivals, states).with_output_types(tuple[str, Record])
    return pipeline | beam.Create([path]) | "Feed" >> made


def remember(path: str, states: list[str]) -> None:
    """A stateful step that does nothing."""
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = feed(pipeline, path, states) | beam.ParDo(Remember()) | beam.FlatMap(lambda element: ())


def paired(pipeline: Any, path: str, states: list[str]) -> Any:
    plan = EstimateTransitions(states, Poisson(1.0), 1000, "mom").plan
    step = beam.ParDo(Pair(plan, Timing())).with_output_types(tuple[str, Delta])
    return feed(pipeline, path, states) | "Pair" >> step.with_outputs(REJECTED, LEDGER, main="deltas")


def pair(path: str, states: list[str]) -> None:
    """The pairing step of a stream: every record once, with the neighbours that came before it."""
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = paired(pipeline, path, states).deltas | beam.FlatMap(lambda element: ())


def pair_sums(path: str, states: list[str]) -> Sums:
    """What that step hands on, summed: to see that it is right."""
    rule = StreamRule.of(EstimateTransitions(states, Poisson(1.0), 1000, "mom").plan)

    def summed(key: str, deltas: Any) -> Any:
        return rule.sums(list(deltas), json.loads(key)[1])

    found = collected(
        lambda pipeline: (
            paired(pipeline, path, states).deltas
            | beam.GroupByKey()
            | beam.MapTuple(summed)
            | beam.combiners.ToList()
        )
    )
    return sums_of(rule.total(found).sums.total)
