"""EstimateTransitions: records in, transition matrices out."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from aggmc_beam.beam.bounded import (
    NOTICED,
    REACH,
    SHARDS,
    EstimateGroup,
    SumRecords,
    add_counts,
    group_key,
)
from aggmc_beam.beam.parsing import ParseRecords
from aggmc_beam.beam.unbounded import Refresh
from aggmc_beam.beam.values import Batch, Group, Reach
from aggmc_beam.config import Columns, Config, Input, Uncertainty
from aggmc_beam.config.model import Stream
from aggmc_beam.digest import REPLICATES
from aggmc_beam.errors import InputError
from aggmc_beam.fitting import Settings
from aggmc_beam.local.engine import Plan
from aggmc_beam.noise import Exact, Noise
from aggmc_beam.records import Clock, Record, Schema
from aggmc_beam.result import Estimate

#: Records that are handed on together.
TOGETHER = 10_000


class Estimated(NamedTuple):
    """The outputs of `EstimateTransitions`: PCollections of `Estimate`, of dictionaries with the record,
    the reason and the source, and from a stream of its health (None from bounded data)."""

    estimates: Any
    rejected: Any
    health: Any = None


class EstimateTransitions(beam.PTransform):  # type: ignore[misc]
    """Estimates of the transition matrix behind a PCollection of records.

    Records are dictionaries, Beam rows or JSON text with a realization, a time and counts, or `Batch`es
    of them. From bounded data comes one estimate for each group (and cell of the chain), whatever the
    order and however often a record is repeated. From unbounded data the estimates are refreshed:
    `stream` says how often, how late a record may come and how long a silent realization is known.

    states: names, in the order of the counts. noise, population, estimator, chain, level, lags: as for
    `am.estimate`. realization, time, counts, population_column, group_by: names of fields; `counts` is
    one field with a list, or one field per state. step, origin: length of a time step, a number or a
    duration such as "1h" for time stamps, and where steps begin.

    >>> import aggmc_beam as am
    >>> rows = [{"realization": 0, "time": t, "counts": c}
    ...         for t, c in enumerate([[3, 7], [4, 6], [2, 8], [5, 5], [4, 6], [3, 7]])]
    >>> with beam.Pipeline("FnApiRunner") as p:
    ...     found = p | beam.Create(rows) | EstimateTransitions(["in", "out"], population=10, estimator="mom")
    ...     _ = found.estimates | beam.Map(lambda e: print(e.counts["pairs"], e.transition_matrix.shape))
    5 (2, 2)
    """

    def __init__(
        self,
        states: Sequence[str],
        noise: Noise | None = None,
        population: float | str = "estimate",
        estimator: str = "auto",
        chain: Any = "stationary",
        level: float = 0.95,
        lags: int = 2,
        realization: str = "realization",
        time: str = "time",
        counts: str | Sequence[str] = "counts",
        population_column: str | None = None,
        group_by: Sequence[str] = (),
        step: int | str = 1,
        origin: int | None = None,
        replicates: int = REPLICATES,
        block: int | None = None,
        max_rejected: int | float | None = None,
        stream: Stream | None = None,
        shards: int | None = None,
    ) -> None:
        super().__init__()
        chain = Settings(chain=chain).chain
        names = tuple(str(s) for s in states)
        columns = counts if isinstance(counts, str) else tuple(counts)
        config = Config(
            input=Input(
                files="a PCollection",
                columns=Columns(realization, time, columns, None, population_column),
                step=step,
                origin=origin,
            ),
            states=names,
            group_by=tuple(group_by),
            noise=noise or Exact(),
            population=population if population_column is None else None,
            chain=chain,
            estimator=estimator,
            lags=lags,
            uncertainty=Uncertainty(level, replicates, block),
            max_rejected=max_rejected,
            stream=stream,
        )
        self._set(config, shards)

    @classmethod
    def from_config(cls, config: Config, shards: int | None = None) -> EstimateTransitions:
        """With all settings of a config whose states are listed."""
        made = cls.__new__(cls)
        beam.PTransform.__init__(made)
        made._set(config, shards)
        return made

    def _set(self, config: Config, shards: int | None) -> None:
        self.plan, self.shards = Plan(config, [], schema_of(config)), shards

    def expand(self, records: Any) -> Estimated:
        if records.is_bounded:
            return self._bounded(records)
        parsed = records | "Parse" >> ParseRecords(self.plan.schema)
        return Estimated(*(parsed | "Refresh" >> Refresh(self.plan, self.shards or 1)))

    def _bounded(self, records: Any) -> Estimated:
        plan = self.plan
        good, bad = records | "Parse" >> ParseRecords(plan.schema)
        batches = good | "Batch" >> beam.ParDo(Together()).with_output_types(
            Batch, **{REACH: tuple[str, Reach]}
        ).with_outputs(REACH, main="batches")
        sums = (batches.batches, batches[REACH]) | "Sums" >> SumRecords(
            plan, False, False, self.shards or SHARDS
        )
        rejected = bad | "Count rejected" >> beam.Map(lambda _: {"rejected": 1}).with_output_types(
            dict[str, int]
        )
        noticed = (
            (rejected, sums.noticed)
            | "All noticed" >> beam.Flatten()
            | NOTICED >> beam.CombineGlobally(add_counts)
        )
        estimated = sums.sums | "Estimate" >> beam.ParDo(
            EstimateGroup(plan), beam.pvalue.AsSingleton(noticed), beam.pvalue.AsDict(sums.reach)
        ).with_outputs("skipped", main="estimates")
        estimates = estimated.estimates | "Each" >> beam.FlatMapTuple(
            lambda _, found: found
        ).with_output_types(Estimate)
        return Estimated(estimates, (bad, sums.rejected) | "All rejected" >> beam.Flatten())


def schema_of(config: Config) -> Schema:
    """The schema of a config, as far as it can be told without looking at the data."""
    columns = config.input.columns
    if config.input.layout == "long":
        raise InputError("the long layout is for files; records of a stream hold all counts of a step")
    return Schema(
        states=config.known_states or (),
        counts=columns.counts or "counts",
        realization=columns.realization,
        time=columns.time,
        clock=Clock(config.input.step, config.input.origin or 0),
        group_by=config.group_by,
        population=columns.population,
    )


class Together(beam.DoFn):  # type: ignore[misc]
    """Records to batches, one per group. Of records that contradict each other, the one kept does not
    depend on the order: it is chosen by a checksum of its counts."""

    def start_bundle(self) -> None:
        self.waiting: dict[Group, list[Record]] = {}
        self.number = 0

    def process(self, element: Record | Batch) -> Iterator[Any]:
        if isinstance(element, Batch):
            yield from _handed_on(element)
            return
        self.waiting.setdefault(element.group, []).append(element)
        self.number += 1
        if self.number >= TOGETHER:
            yield from self._flush()

    def finish_bundle(self) -> Iterator[Any]:
        for made in self._flush():
            tagged = isinstance(made, beam.pvalue.TaggedOutput)
            value = WindowedValue(
                made.value if tagged else made, GlobalWindow().max_timestamp(), [GlobalWindow()]
            )
            yield beam.pvalue.TaggedOutput(made.tag, value) if tagged else value

    def _flush(self) -> Iterator[Any]:
        for records in self.waiting.values():
            yield from _handed_on(batch_of(records))
        self.start_bundle()


def _handed_on(batch: Batch) -> Iterator[Any]:
    yield batch
    if len(batch):
        reach = Reach(
            frozenset(batch.names),
            int(batch.time.min()),
            int(batch.time.max()),
            tuple(batch.place[0].tolist()),
        )
        yield beam.pvalue.TaggedOutput(REACH, (group_key(batch.group), reach + Reach()))


def batch_of(records: Sequence[Record]) -> Batch:
    """Records of one group as a batch."""
    names: dict[str, int] = {}
    key = np.array([names.setdefault(r.realization, len(names)) for r in records], np.int64)
    counts = np.stack([r.counts for r in records])
    population = None
    if records[0].population is not None:
        population = np.array([r.population for r in records], np.float64)
    place = np.array([(0, zlib.crc32(row.tobytes())) for row in counts], np.int64)
    time = np.array([r.time for r in records], np.int64)
    return replace(Batch(records[0].group, tuple(names), key, time, counts, place), population=population)
