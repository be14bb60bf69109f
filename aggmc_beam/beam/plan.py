"""What all transforms are told: where a record holds what, and what its sums and estimates assume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl

from aggmc_beam.beam.files import File, find_files, is_local, opened, opened_head
from aggmc_beam.beam.pieces import is_parquet, opened_parquet
from aggmc_beam.chain import as_chain
from aggmc_beam.config import Columns, Config, Input, Uncertainty
from aggmc_beam.errors import InputError
from aggmc_beam.local.plan import Plan
from aggmc_beam.local.schema import find_schema, has_gaps, unit_of
from aggmc_beam.local.sources import Dialect, Source, open_files, open_frame
from aggmc_beam.noise import Exact, Noise
from aggmc_beam.records import REALIZATION, Schema


def make_plan(
    states: Sequence[str],
    noise: Noise | None = None,
    population: float | str = "estimate",
    chain: Any = "stationary",
    realization: str = "realization",
    time: str = "time",
    counts: str | Sequence[str] = "counts",
    population_column: str | None = None,
    group_by: str | Sequence[str] = (),
    step: int | str = 1,
    origin: int | None = None,
    replicates: int | None = None,
    block: int | None = None,
    max_rejected: int | float | None = None,
    missing: str = "reject",
    values: str = "counts",
) -> Plan:
    """What records are and what their sums depend on; arguments as for `EstimateTransitions`."""
    if not isinstance(noise, Noise | None):
        raise InputError(f"noise must be a noise model such as Binomial(0.5); got {noise!r}")
    if isinstance(states, str):
        raise InputError(f"states must be a list of names; got the text {states!r}")
    columns = counts if isinstance(counts, str) else tuple(counts)
    config = Config(
        input=Input(
            files="a PCollection",
            columns=Columns(realization, time, columns, None, population_column),
            step=step,
            origin=origin,
            missing=missing,
            values=values,
        ),
        states=tuple(str(s) for s in states),
        group_by=(group_by,) if isinstance(group_by, str) else tuple(group_by),
        noise=noise or Exact(),
        population=population if population_column is None else None,
        chain=as_chain(chain),
        uncertainty=Uncertainty(replicates=replicates, block=block),
        max_rejected=max_rejected,
    )
    return plan_of(config)


def open_plan(config: Config) -> tuple[Plan, list[File]]:
    """The plan of a run without its sources, which workers open; and the files."""
    files, dialect = find_files(config), Dialect.of(config.input)
    if all(is_local(f.path) for f in files):
        sources = open_files([f.path for f in files], dialect)
        return Plan(config, [], find_schema(config, sources)), files
    if config.known_states is None and config.input.layout == "long":
        raise InputError(
            "states must be listed for far files of the long layout, which only workers read to their end"
        )
    # The first file with content shows the columns.
    for file in files:
        with _opened_head(config, file) as source:
            if source is not None:
                return Plan(config, [], find_schema(config, [source])), files
    raise InputError(f"all input is empty: {', '.join(f.path for f in files[:3])}")


@contextmanager
def _opened_head(config: Config, file: File) -> Iterator[Source | None]:
    """As much of a file as shows its columns."""
    if is_local(file.path):
        with opened(config, file) as source:
            yield source
    elif is_parquet(config, file):
        with opened_parquet(file) as parquet:
            first = next(parquet.iter_batches(batch_size=100), parquet.schema_arrow.empty_table())
            yield open_frame(pl.DataFrame(pl.from_arrow(first)), file.path)
    else:
        with opened_head(config, file) as source:
            yield source


def plan_of(config: Config) -> Plan:
    """The plan of a config whose states are listed."""
    return Plan(config, [], schema_of(config))


def _counts(config: Config) -> str | tuple[str, ...]:
    return config.known_states or () if config.input.bigquery is not None else "counts"


def schema_of(config: Config) -> Schema:
    """The schema of a config, as far as it can be told without looking at the data."""
    columns = config.input.columns
    if config.input.layout == "long":
        raise InputError("the long layout is for files; records of a stream hold all counts of a step")
    return Schema(
        states=config.known_states or (),
        counts=columns.counts or _counts(config),
        realization=columns.realization or REALIZATION,
        time=columns.time,
        clock=config.input.clock,
        group_by=config.group_by,
        population=columns.population,
        gaps=has_gaps(config),
        unit=unit_of(config),
        shares=config.input.values != "counts",
        numerals=config.input.numerals,
    )
