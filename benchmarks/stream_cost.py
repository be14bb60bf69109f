"""What a record of a stream costs beside a minimal pairing: `python benchmarks/stream_cost.py`, two minutes.

Both read the same JSON in the same order on Beam's FnApiRunner, in one process. The minimal one parses, and keeps of
each realization its last record in state, as bytes; of each pair it adds the product. It drops no repetition, knows
no gaps, forgets nothing, has no jackknife groups and no ledger. Times are processor time of the whole process, Beam's
part with it, less that of a fifth of the records, so that what a job and its one refresh cost is not counted; the
least of some runs that take turns. A second table has the steps of ours by themselves, each called without Beam.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.utils.timestamp import Timestamp

from aggmc_beam.beam import EstimateTransitions, Stream
from aggmc_beam.beam.coders import RecordCoder
from aggmc_beam.beam.guard import ByRealization
from aggmc_beam.beam.parsing import Parse, ParseRecords
from aggmc_beam.beam.timing import Timing
from aggmc_beam.beam.unbounded import Refresh

sys.path.insert(0, str(Path(__file__).parent / "soak"))
import stream as soak


def messages(S: int, K: int, T: int) -> list[bytes]:
    y = np.random.default_rng(1).multinomial(10_000, np.full(S, 1 / S), (T, K))
    return [
        json.dumps({"realization": f"area-{k}", "time": t, "counts": y[t, k].tolist()}).encode()
        for t in range(T)
        for k in range(K)
    ]


def parse(text: bytes) -> tuple[str, tuple[int, list[int]]]:
    record = json.loads(text)
    return record["realization"], (record["time"], record["counts"])


class MinimalPair(beam.DoFn):
    """Sums of products of neighbours in time."""

    LAST = ReadModifyWriteStateSpec("last", BytesCoder())

    def start_bundle(self) -> None:
        self.near: list[np.ndarray] = []
        self.far: list[np.ndarray] = []

    def process(
        self,
        element: tuple[str, tuple[int, list[int]]],
        last: Any = beam.DoFn.StateParam(LAST),  # noqa: B008
    ) -> None:
        _, (when, counts) = element
        row = np.array([when, *counts], float)
        before = last.read()
        if before is not None:
            old = np.frombuffer(before)
            if old[0] + 1 == when:
                self.near.append(old[1:])
                self.far.append(row[1:])
        last.write(row.tobytes())

    def finish_bundle(self) -> Iterator[Any]:
        if self.near:
            product = np.array(self.near).T @ np.array(self.far)
            yield beam.transforms.window.GlobalWindows.windowed_value(("all", product))


def minimal(given: Any, _: int) -> None:
    paired = (
        given
        | beam.Map(parse).with_output_types(tuple[str, tuple[int, list[int]]])
        | beam.ParDo(MinimalPair())
    )
    _ = paired | beam.GroupByKey() | beam.MapTuple(lambda key, products: sum(products))


def ours(given: Any, S: int) -> None:
    plan = EstimateTransitions(
        [f"s{i}" for i in range(S)], population=10_000, estimator="mom", stream=Stream(refresh="1h")
    ).plan
    _ = given | ParseRecords(plan.schema) | Refresh(plan)


def seconds(build: Any, data: list[bytes], S: int) -> float:
    began = time.process_time()
    pipeline = beam.Pipeline("FnApiRunner")
    build(pipeline | beam.Create(data), S)
    pipeline.run().wait_until_finish()
    return time.process_time() - began


def parts(data: list[bytes], S: int) -> dict[str, float]:
    """Microseconds of a record in each step, which is called in turn for all of them."""
    plan = EstimateTransitions([f"s{i}" for i in range(S)], population=10_000, stream=Stream()).plan
    parse, door = Parse(plan.schema), ByRealization(plan, Timing.of(plan))
    door.start_bundle()
    coder, runner, at = RecordCoder(), soak.Runner(plan, Timing.of(plan)), Timestamp(micros=0)
    found: dict[str, float] = {}

    def timed(name: str, step: Any, given: list[Any]) -> list[Any]:
        began = time.process_time()
        made = [step(one) for one in given]
        found[name] = (time.process_time() - began) / len(given) * 1e6
        return made

    timed("json.loads", json.loads, data)
    records = [one for [one] in timed("parse", lambda text: list(parse.process(text)), data)]
    timed("key", lambda record: list(door.process(record)), records)
    encoded = timed("encode", coder.encode, records)
    read = timed("decode", coder.decode, encoded)
    timed("pair and sum", lambda record: runner.take(record, at), read)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=3)
    runs = options.parse_args().runs
    sizes = {S: messages(S, 200, 125) for S in (10, 100)}
    rows = {S: parts(data, S) for S, data in sizes.items()}
    print(f"| S | {' | '.join(rows[10])} |\n| ---: {'| ---: ' * len(rows[10])}|")
    for S, found in rows.items():
        print(f"| {S} | {' | '.join(f'{us:.1f}' for us in found.values())} |", flush=True)
    print()
    print("| S | minimal, µs per record | aggmc, µs | ratio |\n| ---: | ---: | ---: | ---: |")
    for S, data in sizes.items():
        few = data[: len(data) // 5]
        least = {(build, size): 1e9 for build in (minimal, ours) for size in (len(few), len(data))}
        for _ in range(runs):
            for build, size in least:
                least[build, size] = min(least[build, size], seconds(build, data[:size], S))
        more = len(data) - len(few)
        a, b = ((least[one, len(data)] - least[one, len(few)]) / more * 1e6 for one in (minimal, ours))
        print(f"| {S} | {a:.0f} | {b:.0f} | {b / a:.2f} |", flush=True)


if __name__ == "__main__":
    main()
