"""`am.estimate` on Polars frames and on files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.config import FROM_DATA, Columns, Config, Input, Uncertainty
from aggmc_beam.errors import InputError, nearest
from aggmc_beam.fit.fit import Settings
from aggmc_beam.local.engine import run_plan
from aggmc_beam.local.plan import Plan
from aggmc_beam.local.schema import find_schema
from aggmc_beam.local.sources import Dialect, Source, open_files, open_frame
from aggmc_beam.result import Estimate, Estimates

_INPUT = (
    "step",
    "absent",
    "timezone",
    "time_format",
    "decimal",
    "separator",
    "encoding",
    "skip_lines",
    "sheet",
)
_OPTIONS = ("realization", "time", "counts", "state", "group_by", "max_rejected", "marks", *_INPUT)


def estimate_table(
    data: Any,
    states: Sequence[Any] | None = None,
    population: Any = "estimate",
    settings: Settings | None = None,
    replicates: int | None = None,
    **options: Any,
) -> Estimate | Estimates | dict[tuple[str, ...], Estimate | Estimates]:
    """Estimate from a Polars frame, or a path or glob of files.

    realization, time: names of columns. counts: a column of lists, or one column per state; by default
    "counts" if there is one, else the columns named as the states. state: the column of the state's
    name, for a table with one row per state, where counts is the column of the count ("count") and
    absent tells what a state without a row means ("zero" or "missing").
    step: length of a time step, a number or a duration such as "1h" for time stamps.
    timezone, time_format, decimal, marks, separator, encoding, skip_lines, sheet: see docs/config.md, input.
    max_rejected: how many rows may be rejected, a number or a share; the default is 0.05.
    group_by: columns; the result is then a dictionary with an estimate for each group.

    >>> import aggmc_beam as am
    >>> frame = pl.DataFrame({"realization": 0, "time": range(6), "in": [3, 4, 2, 5, 4, 3],
    ...                       "out": [7, 6, 8, 5, 6, 7]})
    >>> am.estimate(frame, ["in", "out"], population=10, estimator="mom").counts["pairs"]
    5
    """
    for name in options:
        if name not in _OPTIONS:
            raise InputError(f"estimate has no option {name!r}; {nearest(name, _OPTIONS)}")
    settings = settings or Settings()
    config = _config(states, population, settings, replicates, options)
    sources = _sources(data, Dialect.of(config.input))
    plan = Plan(config, sources, find_schema(config, sources), _settings(settings, config))
    result = run_plan(plan)
    return result.results if config.group_by else next(iter(result.results.values()))


def _sources(data: Any, dialect: Dialect) -> list[Source]:
    if isinstance(data, pl.DataFrame | pl.LazyFrame):
        return [open_frame(data)]
    if isinstance(data, str | os.PathLike):
        return open_files([os.fspath(data)], dialect)
    raise InputError(f"a Polars DataFrame or LazyFrame is needed, not {type(data).__name__}")


def _config(
    states: Sequence[Any] | None,
    population: Any,
    settings: Settings,
    replicates: int | None,
    options: dict[str, Any],
) -> Config:
    counts, time = options.get("counts"), options.get("time", "time")
    column = population if isinstance(population, str) and population != "estimate" else None
    group_by = options.get("group_by", ())
    assert not isinstance(settings.chain, str)
    return Config(
        input=Input(
            files="the data",
            layout="wide" if options.get("state") is None else "long",
            columns=Columns(
                realization=options.get("realization"),
                time=time if isinstance(time, str) else tuple(time),
                counts=counts if counts is None or isinstance(counts, str) else tuple(counts),
                state=options.get("state"),
                population=column,
            ),
            marks=None if options.get("marks") is None else tuple(options["marks"]),
            **{name: options[name] for name in _INPUT if name in options},
        ),
        states=FROM_DATA if states is None else tuple(str(s) for s in states),
        group_by=(group_by,) if isinstance(group_by, str) else tuple(group_by),
        noise=settings.noise,
        population=None if isinstance(population, str) else _number(population),
        chain=settings.chain,
        uncertainty=Uncertainty(settings.level, replicates),
        max_rejected=options.get("max_rejected"),
    ).checked


def _number(population: Any) -> float:
    found = np.asarray(population)
    if found.ndim or found.dtype.kind not in "iuf" or not found > 0 or not np.isfinite(found):
        raise InputError(
            f"population of a table must be a number, the name of a column, or 'estimate'; got {population!r}"
        )
    return float(found)


def _settings(settings: Settings, config: Config) -> Settings:
    population: float | str = "estimate" if config.population is None else config.population
    return replace(settings, population=population)
