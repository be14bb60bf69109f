"""`am.estimate` on tables: frames of any library, and files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.clock import Clock
from aggmc_beam.config import FROM_DATA, Columns, Config, Input, Uncertainty
from aggmc_beam.errors import InputError
from aggmc_beam.estimation import check_options
from aggmc_beam.fit.fit import Settings
from aggmc_beam.ledger import check_rejected
from aggmc_beam.local.columns import numbers_of
from aggmc_beam.local.engine import Summing, nothing_used, run_plan
from aggmc_beam.local.explain import Rejection, explain
from aggmc_beam.local.frames import as_frame, is_labelled_array
from aggmc_beam.local.plan import Plan
from aggmc_beam.local.reasons import Reasons
from aggmc_beam.local.schema import find_schema
from aggmc_beam.local.sources import Dialect, open_files, open_frame
from aggmc_beam.noise import Noise
from aggmc_beam.records import REALIZATION, Schema
from aggmc_beam.result import Estimate, Estimates, Groups
from aggmc_beam.sums.records import Records, joined_records
from aggmc_beam.sums.state import AggregationState

#: Options that are keys of `input` in a config.
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


def estimate_table(
    data: Any,
    states: Sequence[Any] | None = None,
    population: Any = "estimate",
    settings: Settings | None = None,
    replicates: int | None = None,
    **options: Any,
) -> Estimate | Estimates | Groups:
    """Estimate from a table: a frame of Polars or pandas, an Arrow table, a relation of DuckDB, a dictionary of
    columns, a list of records, a labelled array of xarray; or a path or glob of files.

    realization, time: names of columns; `realization=None` if all rows of a frame are one series. counts: a
    column of lists, or one column per state; by default "counts" if there is one, else the columns named as
    the states. state: the column of the state's name, for a table with one row per state, where counts is the
    column of the count ("count") and absent tells what a state without a row means ("zero" or "missing").
    missing, values: as for `am.estimate`.
    step: length of a time step, a number or a duration such as "1h" for time stamps.
    timezone, time_format, decimal, marks, separator, encoding, skip_lines, sheet: see docs/config.md, input.
    max_rejected: how many rows may be rejected, a number or a share; the default is 0.05.
    group_by: columns; the result is then `Groups`, with an estimate for each.

    >>> import aggmc_beam as am
    >>> frame = pl.DataFrame({"realization": 0, "time": range(6), "in": [3, 4, 2, 5, 4, 3],
    ...                       "out": [7, 6, 8, 5, 6, 7]})
    >>> am.estimate(frame, ["in", "out"], population=10, estimator="mom").counts["pairs"]
    5
    """
    settings = settings or Settings()
    plan = open_table(data, states, population, settings, replicates, options)
    result = run_plan(plan)
    if plan.config.group_by:
        return Groups(result.results, result.ledger["skipped"], result.ledger["advice"])
    return next(iter(result.results.values()))


def table_state(
    data: Any,
    states: Sequence[Any] | None,
    settings: Settings,
    replicates: int | None,
    options: dict[str, Any],
) -> tuple[AggregationState, Settings]:
    """The sums of a table that is one group, and the settings with what the table says of the population."""
    plan = open_table(data, states, settings.population, settings, replicates, options)
    if plan.config.group_by:
        raise InputError("group_by is for estimates; a test takes the rows of one group")
    state = plan.state()
    summing = Summing(plan, state)
    summing.sum()
    if not state.records:
        raise InputError(f"none of the {summing.counts.read:,} rows is a record; am.estimate says why")
    summing.count_in_state()
    return state, plan.settings


def read_records(
    data: Any, states: Sequence[str], noise: Noise, population: float, options: dict[str, Any]
) -> tuple[Records, Clock]:
    """The records of a table as they are, in any order, and the clock that counts their steps."""
    if options.get("group_by"):
        raise InputError("group_by is for estimates; give the rows of one group, and its estimate")
    known = (
        population if options.get("values", "counts") != "counts" and np.isfinite(population) else "estimate"
    )
    options = {"missing": "pairwise", **options}
    plan = open_table(data, states, known, Settings(noise=noise), None, options)
    reader = plan.reader()
    records = [block.records for block in reader.blocks() if len(block.records)]

    def reasons() -> Iterator[Rejection]:
        return explain(plan.sources, plan.schema, reader.counts)

    if not records:
        raise InputError(nothing_used(reader.counts.read, reasons()))
    limit = plan.config.max_rejected
    check_rejected(reader.counts.rejected, reader.counts.read, limit, reasons=lambda: Reasons.of(reasons()))
    return joined_records(records), plan.schema.clock


def read_margins(data: Any, what: str) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...] | None]:
    """The columns of numbers of a table, also of numbers as people write them; their names, and those of its rows."""
    if isinstance(data, str | os.PathLike):
        (source,) = open_files([os.fspath(data)])
        batches = [make().frame for make in source.batches(Schema((), ""), list(source.columns))]
        frame = pl.concat(batches, how="vertical_relaxed")
    else:
        named = type(data).__module__.partition(".")[0] == "pandas" and data.index.names != [None]
        found = as_frame(data.reset_index(drop=True) if named else data, None, "", None)
        frame = found.lazy().collect()
    counts = {c: numbers_of(frame[c]).cast(pl.Float64) for c in frame.columns}
    text = [c for c, values in counts.items() if values.is_null().all() or frame[c].dtype.is_temporal()]
    counts = {c: values for c, values in counts.items() if c not in text}
    if not counts:
        raise InputError(f"{what} has no column of numbers; its columns are {', '.join(frame.columns[:12])}")
    for c, values in counts.items():
        if values.is_null().any():
            row = int(values.is_null().arg_max() or 0)
            raise InputError(f"{what}: column {c!r}, row {row} is {frame[c][row]!r}, not a number")
    units = None
    if not isinstance(data, str | os.PathLike) and named:
        units = tuple(", ".join(map(str, u)) if isinstance(u, tuple) else str(u) for u in data.index)
    elif text:
        units = tuple(", ".join(map(str, row)) for row in frame.select(text).rows())
    return np.column_stack([v.to_numpy() for v in counts.values()]), tuple(counts), units


def open_table(
    data: Any,
    states: Sequence[Any] | None,
    population: Any,
    settings: Settings,
    replicates: int | None,
    options: dict[str, Any],
) -> Plan:
    """What a table's options mean for its rows; `InputError` if a column is not there."""
    check_options(options)
    if isinstance(data, str | os.PathLike):
        config = _config(states, population, settings, replicates, options)
        sources = open_files([os.fspath(data)], Dialect.of(config.input))
    else:
        frame, options = _as_frame(data, dict(options))
        config = _config(states, population, settings, replicates, options)
        sources = [open_frame(frame)]
    return Plan(config, sources, find_schema(config, sources), _settings(settings, config))


def _as_frame(data: Any, options: dict[str, Any]) -> tuple[pl.DataFrame | pl.LazyFrame, dict[str, Any]]:
    """The frame, and the options that name its columns."""
    realization = options.get("realization", REALIZATION)
    frame = as_frame(data, realization, options.get("time", "time"), options.get("state"))
    if is_labelled_array(data):
        options["state"] = None  # each state has a column by now
    names = frame.collect_schema().names()
    if realization is not None and realization not in names and "realization" not in options:
        raise InputError(
            f"the frame has no column {REALIZATION!r}; name the one that tells realizations apart in realization=, "
            f"or give realization=None if all rows are one series. Its columns are {', '.join(names[:12])}"
        )
    return frame, options


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
            missing=options.get("missing", "reject"),
            values=options.get("values", "counts"),
            marks=None if options.get("marks") is None else tuple(options["marks"]),
            **{name: options[name] for name in _INPUT if name in options},
        ),
        states=FROM_DATA if states is None else tuple(str(s) for s in states),
        group_by=(group_by,) if isinstance(group_by, str) else tuple(group_by),
        noise=settings.noise,
        population=None if isinstance(population, str) else _number(population),
        chain=settings.chain,
        pooling=settings.pooling,
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
