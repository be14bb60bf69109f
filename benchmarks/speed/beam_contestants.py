"""The Beam engine's contestants and what they are measured against, on Beam's own runner in one process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import polars as pl
from apache_beam.io.parquetio import ReadFromParquetBatched

import aggmc_beam as am
from aggmc_beam.beam import SumsCombineFn
from benchmarks.speed.ours import by_label
from benchmarks.speed.sums import Sums

logging.disable(logging.WARNING)
FOUND: list[Any] = []


def keep(value: Any) -> None:
    FOUND.append(value)


def collected(build: Callable[[Any], Any]) -> list[Any]:
    """The elements of a pipeline's last collection."""
    FOUND.clear()
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = build(pipeline) | "Collect" >> beam.Map(keep)
    return list(FOUND)


def sums(config: dict[str, Any]) -> Callable[[], Sums]:
    """Files to sums with all that estimates need, on the road that a cluster takes."""
    from aggmc_beam.beam.run import SumFiles, open_plan
    from aggmc_beam.config import read_config

    plan, files = open_plan(read_config(config))
    found = collected(lambda p: (p | SumFiles(plan, files)).states)
    return lambda: by_label(state for _, state in found)


def combine_rows(paths: list[str], states: list[str]) -> Callable[[], Sums]:
    """Dictionaries to sums, as from any source."""
    fn = SumsCombineFn(states, am.Poisson(1.0), 1000, counts=states)
    source = beam.Create(paths)
    found = collected(lambda p: p | source | "Rows" >> beam.FlatMap(rows) | beam.CombineGlobally(fn))
    return lambda: by_label(found)


def rows(path: str) -> Iterator[dict[str, Any]]:
    yield from pl.read_parquet(path).iter_rows(named=True)


def read(paths: list[str], states: list[str]) -> None:
    """Beam's reader of Arrow tables, and nothing done with them."""
    [path] = paths
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = pipeline | ReadFromParquetBatched(path) | beam.FlatMap(lambda table: ())


def count_rows(paths: list[str], states: list[str]) -> int:
    """The same dictionaries, counted by Beam's own CombineFn."""
    source = beam.Create(paths)
    [found] = collected(lambda p: p | source | "Rows" >> beam.FlatMap(rows) | beam.combiners.Count.Globally())
    return int(found)
