"""Data drawn from the `simulate` section of a config, in the layout that its input describes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl

from aggmc_beam.chain import Cycle
from aggmc_beam.config import Config, Simulate
from aggmc_beam.durable import sync
from aggmc_beam.errors import InputError
from aggmc_beam.local.schema import COUNT_COLUMN, STATE_COLUMN
from aggmc_beam.local.sources import FORMATS
from aggmc_beam.records import REALIZATION
from aggmc_beam.result import Estimate
from aggmc_beam.simulation import random_chain, simulate
from aggmc_beam.text import check_cells
from aggmc_beam.times import iso

#: Simulated time stamps begin here unless the config names an origin.
BEGIN = "2026-01-01T00:00:00Z"


def target(config: Config) -> Path:
    """The one file that the config reads, to be written."""
    patterns = config.input.patterns
    if len(patterns) != 1 or any(c in patterns[0] for c in "*?["):
        raise InputError(f"simulated data go to one file; input.files is {', '.join(patterns)}")
    return Path(patterns[0])


def write_simulated(config: Config, path: str | os.PathLike[str]) -> int:
    """Draw the data of a config into a file; the number of rows written."""
    if config.simulate is None:
        raise InputError("the config has no simulate section to draw data from")
    path = Path(path)
    frame = draw(config)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.part")
    try:
        _write(frame, aside, FORMATS.get(path.suffix.lower(), config.input.format))
        sync(aside)
        os.replace(aside, path)
        sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)
    return frame.height


def draw(config: Config) -> pl.DataFrame:
    """The simulated rows of all groups."""
    plan = config.simulate
    assert plan is not None
    if bool(plan.groups) != (len(config.group_by) == 1) or len(config.group_by) > 1:
        raise InputError("simulate.groups needs one group_by column, and a group_by column needs them")
    frames = []
    for number, group in enumerate(plan.groups or ("",)):
        counts, _ = simulate(
            matrices(config),
            states=list(names(config)),
            population=plan.population,
            steps=plan.steps,
            realizations=plan.realizations if isinstance(plan.population, int) else len(plan.population),
            noise=config.noise,
            seed=plan.seed + number,
        )
        frame = _frame(config, counts)
        if plan.groups:
            frame = frame.select(pl.lit(group).alias(config.group_by[0]), pl.all())
        frames.append(frame)
    return pl.concat(frames)


def names(config: Config) -> tuple[str, ...]:
    plan = config.simulate
    if config.known_states is not None:
        return config.known_states
    if plan is None or plan.matrix is None:
        raise InputError("states must be listed to draw a random chain")
    return tuple(str(i) for i in range(len(plan.matrix)))


def matrices(config: Config) -> np.ndarray:
    """The true matrix [S, S], or one per step [T - 1, S, S] where it changes."""
    plan = config.simulate
    assert plan is not None
    S = len(names(config))
    P = (
        random_chain(np.random.default_rng(plan.seed), S, 5.0, "regular")
        if plan.matrix is None
        else np.array(plan.matrix)
    )
    if plan.until is None and plan.other is None:
        return P
    stack = np.tile(P, (plan.steps - 1, 1, 1))
    if plan.until is not None:
        share = np.linspace(0, 1, plan.steps - 1)[:, None, None]
        stack = (1 - share) * P + share * np.array(plan.until)
    if plan.other is not None:
        stack[_applies(plan, np.arange(plan.steps - 1) + _first_step(config))] = np.array(plan.other.matrix)
    return stack


def truth(config: Config, estimate: Estimate) -> np.ndarray:
    """The true matrix behind an estimate: that of its phase or step, or the mean over its window."""
    P = matrices(config)
    if P.ndim == 2:
        return P
    steps = np.arange(len(P)) + _first_step(config)
    if estimate.window is not None:
        start, end = (_step(config, estimate.window[name]) for name in ("start", "end"))
        inside = (steps >= start) & (steps < end)
    elif estimate.cell is not None and isinstance(config.chain, Cycle):
        inside = config.chain.cells(steps) == estimate.cell
    else:
        inside = steps == estimate.cell if estimate.cell is not None else np.ones(len(P), bool)
    return np.asarray(P[inside].mean(0)) if inside.any() else np.full(P.shape[1:], np.nan)


def _step(config: Config, label: int | str) -> int:
    return config.input.clock.read(label)


def _applies(plan: Simulate, step: np.ndarray) -> np.ndarray:
    assert plan.other is not None
    phase = step % plan.other.period
    return np.asarray((phase >= plan.other.begin) & (phase < plan.other.end))


def _first_step(config: Config) -> int:
    time = config.input.clock
    if not time.stamps:
        return 0
    if config.input.origin is not None:
        return (config.input.origin - time.origin) // time.unit
    return time.read(BEGIN)


def _frame(config: Config, counts: np.ndarray) -> pl.DataFrame:
    plan = config.simulate
    assert plan is not None
    K, T, S = counts.shape
    columns, states = config.input.columns, names(config)
    key, step = np.divmod(np.arange(K * T), T)
    time = config.input.clock
    labels = [time.label(_first_step(config) + t) for t in range(T)]
    rows = counts.reshape(-1, S)
    realization = columns.realization or REALIZATION
    if not isinstance(columns.time, str) or time.format is not None:
        raise InputError("what is drawn has its time in one column, as ISO 8601; drop input.time_format")
    frame = pl.DataFrame({realization: key, columns.time: [labels[t] for t in step]})
    if columns.population is not None:
        N = np.broadcast_to(np.asarray(plan.population), (K,))
        frame = frame.with_columns(pl.Series(columns.population, N[key]))
    if config.input.layout == "long":
        values = pl.DataFrame(rows, schema=list(states), orient="row")
        index = frame.columns
        return frame.hstack(values).unpivot(
            list(states),
            index=index,
            variable_name=columns.state or STATE_COLUMN,
            value_name=columns.counts if isinstance(columns.counts, str) else COUNT_COLUMN,
        ).sort(realization, columns.time, maintain_order=True)  # fmt: skip
    if isinstance(columns.counts, str):
        return frame.with_columns(pl.Series(columns.counts, rows.tolist(), pl.List(pl.Float64)))
    given = columns.counts or states
    return frame.hstack(pl.DataFrame(rows, schema=list(given), orient="row"))


def _write(frame: pl.DataFrame, path: Path, format: str) -> None:
    if format == "parquet":
        frame.write_parquet(path)
    elif format == "csv":
        names = (v for c in frame.columns if frame[c].dtype == pl.String for v in frame[c].unique().to_list())
        check_cells([*frame.columns, *names], path.name.removeprefix(".").removesuffix(".part"))
        lists = [c for c, kind in frame.schema.items() if isinstance(kind, pl.List)]
        frame.with_columns(
            pl.format("[{}]", pl.col(c).cast(pl.List(pl.String)).list.join(", ")).alias(c) for c in lists
        ).write_csv(path)
    elif format == "jsonl":
        frame.write_ndjson(path)
    else:
        raise InputError(f"{path.name!r} must end in .csv, .jsonl or .parquet")


__all__ = ["draw", "iso", "matrices", "target", "truth", "write_simulated"]
