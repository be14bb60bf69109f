"""Plan: what a config means for its input: the files, their schema, and all that sums and estimates depend on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property

from aggmc_beam.config import Config
from aggmc_beam.errors import InputError
from aggmc_beam.fit.fit import Settings
from aggmc_beam.local.blocks import BlockReader
from aggmc_beam.local.schema import find_schema
from aggmc_beam.local.sources import Dialect, Source, open_files
from aggmc_beam.records import Schema
from aggmc_beam.sums.run_file import find_run, load_run
from aggmc_beam.sums.spec import SumSpec
from aggmc_beam.sums.state import AggregationState

#: Bytes of text that a value takes at least, with its separator; and how often smaller it is if compressed.
VALUE_BYTES, PACKED = 2, 6


@dataclass(frozen=True)
class Plan:
    """Where the records are, and how they are read."""

    config: Config
    sources: list[Source]
    schema: Schema
    chosen: Settings | None = None
    """Settings that no config can express, instead of the config's."""

    def __post_init__(self) -> None:
        if (
            self.config.structure is not None and self.chosen is None
        ):  # its files are read here, not by workers
            object.__setattr__(self, "chosen", settings(self.config))
        structure = self.settings.structure
        if structure is not None:
            structure.on(self.schema.states)

    @property
    def settings(self) -> Settings:
        return self.chosen or settings(self.config)

    @classmethod
    def open(cls, config: Config) -> Plan:
        """Open the files of a config, without reading more than it takes to know their columns."""
        check_local(config)
        sources = open_files(config.input.patterns, Dialect.of(config.input))
        return cls(config, sources, find_schema(config, sources))

    @cached_property
    def spec(self) -> SumSpec:
        """All that the sums depend on."""
        config, schema = self.config, self.schema
        return SumSpec.plan(
            schema.states, config.chain, config.noise, config.population, schema.population is not None,
            self.settings.open_population, schema.clock, schema.group_by, config.uncertainty.replicates,
            config.uncertainty.block, schema.realization or "", self.pairwise, config.limits.memory,
        )  # fmt: skip

    @property
    def pairwise(self) -> bool:
        """Whether entries may be missing at random."""
        return self.config.input.missing == "pairwise"

    def reader(self) -> BlockReader:
        return BlockReader(self.sources, self.schema, self.config.input.absent or "zero")

    @property
    def resumed(self) -> list[str]:
        """The file of saved moments that the run goes on from, if any."""
        resume = self.config.input.resume
        return [] if resume is None else [os.fspath(find_run(resume))]

    def state(self) -> AggregationState:
        """The state to begin with: empty, or that of an earlier run."""
        resume = self.config.input.resume
        if resume is None:
            return AggregationState(self.spec)
        state = load_run(resume)
        state.spec.check_joins(self.spec, f"{resume} and this run")
        state.spec = self.spec
        return state


def check_local(config: Config) -> None:
    """`InputError` for what only another engine can do."""
    for name, given in (
        ("input.pubsub", config.input.pubsub),
        ("input.bigquery", config.input.bigquery),
        ("input.watch", config.input.watch),
        ("stream", config.stream),
    ):
        if given is not None:
            raise InputError(f"{name} needs the Beam engine; the local engine reads files")


def size_of(plan: Plan) -> int:
    """About how many values the input has, or more."""
    found = 0
    for source in plan.sources:
        if source.is_text:
            size = os.path.getsize(source.name)
            found += size * (PACKED if source.is_compressed else 1) // VALUE_BYTES
        else:
            wide = 1 if plan.schema.state is not None else len(plan.schema.states)
            found += source.height * (wide + len(plan.schema.group_by) + 2)
    return found


def settings(config: Config) -> Settings:
    """What the estimates of a config assume."""
    population: float | str = "estimate" if config.population is None else config.population
    return Settings(
        config.noise,
        population,
        config.estimator,
        config.chain,
        config.uncertainty.level,
        lags=config.lags,
        constraints=None if config.constraints is None else config.constraints.constraints(),
        open_population=config.open_population,
        pooling=config.pooling,
        structure=None if config.structure is None else config.structure.structure(),
    )
