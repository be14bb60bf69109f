"""What all transforms are told: where a record holds what, and what its sums and estimates assume."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aggmc_beam.chain import as_chain
from aggmc_beam.config import Columns, Config, Input, Uncertainty
from aggmc_beam.config.model import REALIZATION, Stream
from aggmc_beam.errors import InputError
from aggmc_beam.local.plan import Plan
from aggmc_beam.noise import Exact, Noise
from aggmc_beam.records import Schema


def make_plan(
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
) -> Plan:
    """The plan of a PCollection of records; arguments as for `EstimateTransitions`."""
    columns = counts if isinstance(counts, str) else tuple(counts)
    config = Config(
        input=Input(
            files="a PCollection",
            columns=Columns(realization, time, columns, None, population_column),
            step=step,
            origin=origin,
        ),
        states=tuple(str(s) for s in states),
        group_by=(group_by,) if isinstance(group_by, str) else tuple(group_by),
        noise=noise or Exact(),
        population=population if population_column is None else None,
        chain=as_chain(chain),
        estimator=estimator,
        lags=lags,
        uncertainty=Uncertainty(level, replicates, block),
        max_rejected=max_rejected,
        stream=stream,
    )
    return plan_of(config)


def plan_of(config: Config) -> Plan:
    """The plan of a config whose states are listed."""
    return Plan(config, [], schema_of(config))


def schema_of(config: Config) -> Schema:
    """The schema of a config, as far as it can be told without looking at the data."""
    columns = config.input.columns
    if config.input.layout == "long":
        raise InputError("the long layout is for files; records of a stream hold all counts of a step")
    return Schema(
        states=config.known_states or (),
        counts=columns.counts or "counts",
        realization=columns.realization or REALIZATION,
        time=columns.time,
        clock=config.input.clock,
        group_by=config.group_by,
        population=columns.population,
        numerals=config.input.numerals,
    )
