"""EstimateTransitions: records in, transition matrices out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import apache_beam as beam

from aggmc_beam.beam.bounded import NOTICED, REACH, REJECTED, SHARDS, Outcome, SumRecords, add_counts
from aggmc_beam.beam.combiners import ReachFn
from aggmc_beam.beam.estimating import EstimateGroup
from aggmc_beam.beam.former.engine import Plan
from aggmc_beam.beam.gathering import Gather
from aggmc_beam.beam.parsing import ParseRecords
from aggmc_beam.beam.unbounded import Refresh
from aggmc_beam.beam.values import Batch, Reach
from aggmc_beam.config import Columns, Config, Input, Uncertainty
from aggmc_beam.config.model import Stream
from aggmc_beam.errors import InputError
from aggmc_beam.fitting import Settings
from aggmc_beam.noise import Exact, Noise
from aggmc_beam.records import Clock, Schema
from aggmc_beam.result import Estimate


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
        replicates: int | None = None,
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
        return Estimated(*(parsed | "Refresh" >> Refresh(self.plan)))

    def sums(self, records: Any) -> Outcome:
        """The sums of bounded records by group, before anything is estimated."""
        step = beam.ParDo(Gather(self.plan, self.shards or SHARDS)).with_output_types(
            tuple[str, Batch],
            **{REACH: tuple[str, Reach], REJECTED: Any, NOTICED: dict[str, int]},
        )
        gathered = records | "Gather" >> step.with_outputs(REACH, REJECTED, NOTICED, main="batches")
        reach = gathered[REACH] | "Reach" >> beam.CombinePerKey(ReachFn())
        sums = SumRecords(self.plan, False, False, self.shards or SHARDS)
        found: Outcome = (gathered.batches, reach) | "Sums" >> sums
        noticed = (gathered[NOTICED], found.noticed) | "All noticed" >> beam.Flatten()
        rejected = (gathered[REJECTED], found.rejected) | "All rejected" >> beam.Flatten()
        return found._replace(noticed=noticed, rejected=rejected)

    def _bounded(self, records: Any) -> Estimated:
        plan, sums = self.plan, self.sums(records)
        noticed = sums.noticed | NOTICED >> beam.CombineGlobally(add_counts)
        estimated = sums.sums | "Estimate" >> beam.ParDo(
            EstimateGroup(plan), beam.pvalue.AsSingleton(noticed), beam.pvalue.AsIter(sums.reach)
        ).with_outputs("skipped", main="estimates")
        estimates = estimated.estimates | "Each" >> beam.FlatMapTuple(
            lambda _, found: found
        ).with_output_types(Estimate)
        return Estimated(estimates, sums.rejected)


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
