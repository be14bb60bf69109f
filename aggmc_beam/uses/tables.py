"""Tidy tables of flows, forecasts and alarms: columns by name, the same on every engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aggmc_beam.records import Clock
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.uses.alarms import COMPARED, ranks, surprise
from aggmc_beam.uses.flows import Flows
from aggmc_beam.uses.forecast import HISTORY, Forecast, Tracked, forecast_series
from aggmc_beam.uses.given import step_labels
from aggmc_beam.uses.series import Series
from aggmc_beam.uses.transitions import Transitions

#: Columns of text, beside those of groups.
TEXT = ("realization", "from", "to", "state")

Table = dict[str, np.ndarray]


def flow_table(
    batch: Sequence[Series],
    found: Flows,
    group_by: Sequence[str],
    clock: Clock,
    wanted: Sequence[np.ndarray] | None = None,
) -> Table:
    """A tidy table: the group, realization, time (of the step that is left), from, to, mean, lower, upper.

    `wanted`: of each series which of its pairs of steps; all if it is None.
    """
    S = len(found.states)
    if wanted is None:
        wanted = [np.ones(len(s.counts) - 1, bool) for s in batch]
    steps = [np.flatnonzero(w) for w in wanted]
    of = np.repeat(np.arange(len(batch)), [len(t) for t in steps])
    at = np.concatenate(steps) if steps else np.zeros(0, int)
    times = np.array([s.start for s in batch])[of] + at
    states = np.array(found.states, object)
    table: Table = {}
    for i, name in enumerate(group_by):
        table[name] = np.repeat(_objects([s.group[i] for s in batch])[of], S * S)
    table["realization"] = np.repeat(_objects([s.name for s in batch])[of], S * S)
    table["time"] = np.repeat(step_labels(times, clock), S * S)
    table["from"] = np.tile(np.repeat(states, S), len(at))
    table["to"] = np.tile(states, S * len(at))
    for name in ("mean", "lower", "upper"):
        table[name] = getattr(found, name)[of, at].ravel()
    return table


def forecast_table(
    series: Series, estimate: Estimate | Estimates, steps: int, group_by: Sequence[str], clock: Clock
) -> Table:
    """A tidy table: the group, realization, time, state, mean, standard_error, lower, upper of the next steps."""
    last = int(np.flatnonzero(~np.isnan(series.counts).any(1))[-1])
    records = series.counts[max(last + 1 - HISTORY, 0) : last + 1]
    level = estimate.level if isinstance(estimate, Estimate) else estimate[0].level
    found = forecast_series(Transitions.of(estimate, clock), records, steps, series.start + last, level)
    return forecast_rows(series, found, group_by, clock)


def forecast_rows(series: Series, found: Forecast, group_by: Sequence[str], clock: Clock) -> Table:
    """The table of one forecast."""
    steps, S = found.mean.shape
    table = name_columns(series, group_by, steps * S)
    table["time"] = np.repeat(step_labels(found.time, clock), S)
    table["state"] = np.tile(_objects(found.states), steps)
    for name in ("mean", "standard_error", "lower", "upper"):
        table[name] = getattr(found, name).ravel()
    return table


def alarm_table(
    series: Series,
    estimate: Estimate | Estimates,
    rate: float,
    before: np.ndarray,
    group_by: Sequence[str],
    clock: Clock,
) -> tuple[Table, np.ndarray]:
    """A tidy table: the group, realization, time, p_value and state of steps that raise an alarm, and the
    rate, given the surprises of the group `before`; and the surprises to go on with."""
    chain = Transitions.of(estimate, clock)
    own, far = surprise(Tracked.of(series.counts, chain, series.start))
    all = np.concatenate([before, own])
    p = ranks(all, rate, len(before))[len(before) :]
    at = np.flatnonzero(p <= rate)
    table = name_columns(series, group_by, len(at))
    table["time"] = step_labels(series.start + at, clock)
    table["p_value"] = p[at]
    table["state"] = _objects(chain.states)[far[at]]
    table["rate"] = np.full(len(at), rate)
    return table, all[np.isfinite(all)][-COMPARED:]


def name_columns(series: Series, group_by: Sequence[str], n: int) -> Table:
    """The columns of the group and the realization."""
    table = {name: _objects([value] * n) for name, value in zip(group_by, series.group, strict=True)}
    return {**table, "realization": _objects([series.name] * n)}


def _objects(values: Sequence[str]) -> np.ndarray:
    return np.array(values, object)
