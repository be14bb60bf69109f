"""The front door: data and options in, an Estimate out."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aggmc_beam.chain import Chain
from aggmc_beam.clock import Clock
from aggmc_beam.errors import InputError, nearest
from aggmc_beam.estimators.constraints import Constraints
from aggmc_beam.estimators.registry import CELLS
from aggmc_beam.estimators.structure import Structure
from aggmc_beam.fit.drawing import check_groups_share
from aggmc_beam.fit.fit import Settings, estimate_sums
from aggmc_beam.fit.groups import estimate_only_group, group_sums
from aggmc_beam.fit.observations import (
    check_counts,
    check_exact_totals,
    check_populations,
    check_sightings,
    check_states,
    counts_of_shares,
)
from aggmc_beam.fit.outside import add_outside
from aggmc_beam.fit.published import as_published
from aggmc_beam.noise import Exact, Noise
from aggmc_beam.sums import run_file
from aggmc_beam.sums.records import Records
from aggmc_beam.sums.spec import REFUSED, SumSpec, gaps_of
from aggmc_beam.sums.state import AggregationState
from aggmc_beam.sums.sums import Sums

#: Libraries that make tables, and the options that say what a table's columns hold.
LIBRARIES = ("polars", "pandas", "pyarrow", "duckdb", "_duckdb", "xarray")
COLUMN_OPTIONS = (
    "realization", "time", "counts", "state", "step", "absent", "missing", "values", "group_by", "timezone",
    "time_format", "decimal", "marks", "separator", "encoding", "skip_lines", "sheet", "max_rejected",
)  # fmt: skip
#: Endings of files that hold records.
TABLES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".parquet", ".pq", ".xlsx", ".xlsm", ".xls", ".ods")


def estimate(
    data: Any,
    states: Sequence[Any] | None = None,
    noise: Noise | None = None,
    population: Any = "estimate",
    estimator: str = "auto",
    chain: Chain | str = "stationary",
    lags: int = 2,
    level: float = 0.95,
    replicates: int | None = None,
    constraints: Constraints | None = None,
    structure: Structure | None = None,
    open_population: bool = False,
    outside: str | None = None,
    missing: str = "reject",
    values: str = "counts",
    pooling: str = CELLS,
    **table: Any,
) -> Any:
    """Estimate how individuals move between states from counts of individuals in each state.

    data: an array [K, T, S] of K realizations, T steps and S states, NaN rows being missing steps;
        a table (a frame of Polars or pandas, an Arrow table, a relation of DuckDB, a dictionary of columns,
        a list of records, a labelled array of xarray), or a path or glob of CSV, JSON lines or Parquet files,
        see `aggmc_beam.local.table.estimate_table` for the options that name their columns; `Sums`, or the
        path of saved ones.
    states: S names. noise: how the counts came about (`Exact()` by default). population: N, one
        per realization [K], the name of a column, or "estimate".
    estimator: "auto" chooses for the data, and says why in `diagnostics["choice"]`; or "mom", "cls",
        "corrected-cls", "limle", "naive", "simplex", "fast", "gmm".
    chain: "stationary", "per-step", `Window(size, every)`, `Cycle(period)`, `Cycle.day_types()` or `Parametric(...)`;
        a chain that changes with time gives `Estimates`, one per cell.
    lags: 1 or 2, how far apart the pairs may be that estimators use.
    level: of the intervals. replicates: number of jackknife groups, by default as many
        as the records fill, 10 to 50.
    constraints: what is known of the matrix beforehand, see `Constraints`. structure: how many states lie to
        each other, to which the estimate is drawn where the counts tell too little, see `Structure`.
    open_population: individuals enter and leave, so that totals vary. outside: the name of one more
        state that holds them, counted as the population less all counts.
    missing: "reject", or "pairwise" if single entries are missing at random (NaN): then a record is used for the
        pairs of states that it has. Entries that `Suppressed(shown="missing")` noise left out need neither.
    values: "counts", or "shares" or "percent" of the population, which must then be a number or one per realization,
        known or assumed.
    pooling: what borrows from each other, as far as the data show it to be alike: the "cells" of a chain; the
        "groups" of `group_by` too; or "none". `diagnostics["borrowed"]` tells how much.

    >>> import aggmc_beam as am
    >>> P = [[0.9, 0.1], [0.3, 0.7]]
    >>> y, _ = am.simulate(P, steps=2000, population=100, noise=am.Binomial(0.5), seed=1)
    >>> est = am.estimate(y, states=["home", "away"], noise=am.Binomial(0.5), population=100,
    ...                   estimator="simplex")
    >>> print(est)
    Transition matrix by simplex from 1,999 pairs of 2,000 records, population 100
                  home          away
    home 0.876 ± 0.029 0.124 ± 0.018
    away 0.349 ± 0.054 0.651 ± 0.045
    ± is one standard error; interval() gives 95% bounds
    It stands on independent movers: the counts vary 0.98 ± 0.06 times as much as those.
    """
    check_options(table)
    noise = Exact() if noise is None else noise
    if not isinstance(noise, Noise):
        raise InputError(f"noise must be a noise model such as Binomial(0.5); got {noise!r}")
    settings = Settings(
        noise,
        estimator=estimator,
        chain=chain,
        level=level,
        lags=lags,
        constraints=constraints,
        structure=structure,
        open_population=open_population,
        pooling=pooling,
    )
    if outside is None and is_table(data):
        from aggmc_beam.local.table import estimate_table

        table = {"missing": missing, "values": values, **table}
        return estimate_table(data, states, population, settings, replicates, **table)
    refuse_options(data, table)
    check_groups_share(settings, ())
    if isinstance(data, str | os.PathLike):
        data = run_file.load(data)
    if isinstance(data, AggregationState):
        return estimate_only_group(data, replace(settings, population=population))
    if isinstance(data, Sums):
        if not isinstance(population, str):
            population = float(check_populations(population, 1)[0])
        names = check_states(states, data.states)
        data, noise = as_published(data, noise, population=population, closed=not open_population)
        return estimate_sums(data, replace(settings, noise=noise, population=population, states=names))
    if missing not in ("reject", "pairwise"):
        raise InputError(f"missing must be 'reject' or 'pairwise'; got {missing!r}")
    pairwise = missing == "pairwise"
    counts = check_counts(data, gaps_of(noise, pairwise) != REFUSED and outside is None)
    counts = counts_of_shares(counts, values, population)
    names = check_states(states, counts.shape[2])
    if outside is not None:
        if isinstance(population, str):
            raise InputError("an outside state needs the population, inside and outside together")
        N = check_populations(population, len(counts))
        check_exact_totals(counts, N, noise)
        counts, noise = add_outside(counts, noise, N)
        names = check_states((*names, outside), counts.shape[2])
        settings = replace(settings, noise=noise)
    return estimate_sums(
        *array_sums(counts, population, replace(settings, states=names), replicates, pairwise)
    )


def is_table(data: Any) -> bool:
    """Whether data are a table, or name files of records; without importing the libraries that make tables."""
    if isinstance(data, str | os.PathLike):
        name = os.fspath(data)
        return name.lower().endswith(TABLES) or any(c in name for c in "*?[")
    if isinstance(data, np.ndarray):
        return data.dtype.names is not None
    if isinstance(data, list | tuple):
        return len(data) > 0 and isinstance(data[0], Mapping)
    return (
        type(data).__module__.partition(".")[0] in LIBRARIES
        or any(hasattr(data, name) for name in ("__arrow_c_stream__", "__dataframe__"))
        or isinstance(data, Mapping)
    )


def check_options(table: Iterable[str]) -> None:
    """`InputError` for an option that there is not."""
    for name in table:
        if name not in COLUMN_OPTIONS:
            arguments = list(inspect.signature(estimate).parameters)[1:-1]
            raise InputError(f"there is no option {name!r}; {nearest(name, [*arguments, *COLUMN_OPTIONS])}")


def table_records(
    data: Any, states: Sequence[str], noise: Noise, population: float, options: Mapping[str, Any]
) -> tuple[Records, Clock]:
    """The records of a table, and the clock that counts their steps. `options` name its columns."""
    from aggmc_beam.local.table import read_records

    return read_records(data, states, noise, population, dict(options))


def table_margins(data: Any, what: str) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...] | None]:
    """The columns of numbers of a table [units, columns], their names, and those of the units if it has any."""
    from aggmc_beam.local.table import read_margins

    return read_margins(data, what)


def refuse_options(data: Any, table: Iterable[str]) -> None:
    """`InputError` for options that name columns, where the data have none."""
    for name in table:
        raise InputError(
            f"{name!r} is for tables and files of records; the data are {type(data).__name__}, which has no columns"
        )


def sums_of(
    data: Any, settings: Settings, replicates: int | None = None, table: Mapping[str, Any] | None = None
) -> tuple[Sums, Settings]:
    """The sums of any data that `estimate` takes, if they are one group, and the settings with what the data
    say. `table` holds the options that name columns, and `states`."""
    options = dict(table or {})
    states = options.pop("states", None)
    check_options(options)
    if is_table(data):
        from aggmc_beam.local.table import table_state

        state, settings = table_state(data, states, settings, replicates, options)
        return group_sums(state, 0, settings)
    refuse_options(data, options)
    if isinstance(data, str | os.PathLike):
        data = run_file.load(data)
    if isinstance(data, AggregationState):
        return group_sums(data, 0, settings)
    if isinstance(data, Sums):
        population = settings.population
        if not isinstance(population, str):
            settings = replace(settings, population=float(check_populations(population, 1)[0]))
        settings = replace(settings, states=check_states(states, data.states))
        data, noise = as_published(data, settings.noise, population=settings.population)
        return data, replace(settings, noise=noise)
    counts = check_counts(data, gaps_of(settings.noise, False) != REFUSED)
    N, names = settings.population, check_states(states, counts.shape[2])
    return array_sums(counts, N, replace(settings, population="estimate", states=names), replicates)


def array_sums(
    counts: np.ndarray, population: Any, settings: Settings, replicates: int | None, pairwise: bool = False
) -> tuple[Sums, Settings]:
    """The sums of an array [K, T, S], and the settings with what the sums are of."""
    K, _, S = counts.shape
    if isinstance(population, str) and population != "estimate":
        raise InputError(f"population must be a number, an array or 'estimate'; got {population!r}")
    N = None if isinstance(population, str) else check_populations(population, K)
    each = None if N is None or np.ndim(population) == 0 or np.ptp(N) == 0 else N
    if N is not None and not settings.open_population:
        check_exact_totals(counts, N, settings.noise)
    check_sightings(counts, settings.noise)
    names = settings.states or tuple(map(str, range(S)))
    assert not isinstance(settings.chain, str)
    spec = SumSpec.plan(
        names, settings.chain, settings.noise, "estimate" if N is None else float(N[0]), each is not None,
        settings.open_population, replicates=replicates, pairwise=pairwise,
    )  # fmt: skip
    state, records = AggregationState(spec), Records.of_array(counts, each)
    for at, reason in state.add(records).refused.items():
        where = f"realization {records.realization[at]}, step {records.time[at]}"
        raise InputError(
            f"{where}: {reason}; set the record to NaN to leave it out, or name the noise model if the counts "
            "are noisy"
        )
    if each is None and N is not None:
        settings = replace(settings, population=float(N[0]))
    return group_sums(state, 0, settings)
