"""Counts and flows over time, with their bands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.errors import InputError, nearest
from aggmc_beam.report.figures import short
from aggmc_beam.report.plot import picture
from aggmc_beam.report.svg import need_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from aggmc_beam.uses.flows import Flows
    from aggmc_beam.uses.forecast import Forecast
    from aggmc_beam.uses.given import Labels

#: Panels of a figure, and steps of counts that are drawn before a forecast for each of its own.
PANELS, BEFORE = 6, 4
_BLUE, _GREY = "#1f5aa8", "#777777"


def plot_flows_over_time(flows: Flows, entries: Any, realization: Any) -> Figure:
    """Flows of some pairs of states in each step."""
    k = _place(flows.labels, realization)
    S = len(flows.states)
    if entries is None:
        size = np.where(np.eye(S), -1.0, np.nan_to_num(np.nanmean(flows.mean[k], 0)))
        chosen = [divmod(int(n), S) for n in np.argsort(-size, axis=None)[: min(PANELS, S * (S - 1))]]
    else:
        chosen = [(_state(flows.states, i), _state(flows.states, j)) for i, j in entries]
    known = np.isfinite(flows.mean[k, :, 0, 0])
    times = flows.labels.times(flows.mean.shape[1])[k][known]
    figure, panels = _panels(len(chosen), str(flows.labels.names[k]) if len(flows.labels.names) > 1 else "")
    for ax, (i, j) in zip(panels, chosen, strict=True):
        lower, mean, upper = (a[k, known, i, j] for a in (flows.lower, flows.mean, flows.upper))
        _band(ax, np.arange(len(mean)), lower, mean, upper)
        ax.set_title(
            f"{short(flows.states[i], 16)} → {short(flows.states[j], 16)}", fontsize=10, parse_math=False
        )
        _name_times(ax, times)
    return figure


def plot_forecast(forecast: Forecast, counts: Any, realization: Any) -> Figure:
    """Of each state, at most the six that have most members; counts before it in grey."""
    k = _place(forecast.labels, realization)
    mean, lower, upper = (
        a.reshape(-1, *a.shape[-2:])[k] for a in (forecast.mean, forecast.lower, forecast.upper)
    )
    steps, S = mean.shape
    times = forecast.labels.times(steps)[k].tolist()
    past = np.zeros((0, S))
    if counts is not None:
        past = np.asarray(counts, float)[-BEFORE * max(steps, 6) :]
        if past.ndim != 2 or past.shape[1] != S:
            raise InputError(
                f"counts must have shape [T, {S}], as those before the forecast; got {past.shape}"
            )
        before = forecast.labels.after(-len(past))
        times = [*before.times(len(past))[k].tolist(), *times]
    chosen = np.sort(np.argsort(-mean.mean(0))[:PANELS])
    named = len(forecast.labels.names) > 1
    figure, panels = _panels(len(chosen), str(forecast.labels.names[k]) if named else "")
    ahead = len(past) + np.arange(steps)
    for ax, j in zip(panels, chosen, strict=True):
        ax.plot(np.arange(len(past)), past[:, j], color=_GREY, linewidth=1)
        _band(ax, ahead, lower[:, j], mean[:, j], upper[:, j])
        ax.set_title(short(forecast.states[j], 24), fontsize=10, parse_math=False)
        _name_times(ax, times)
    return figure


def _panels(number: int, title: str) -> tuple[Figure, list[Axes]]:
    need_matplotlib()
    if not number:
        raise InputError("nothing was named to be drawn")
    columns = min(3, number)
    rows = -(-number // columns)
    figure = picture((4.0 * columns if columns > 1 else 7.0, 2.6 * rows))
    if title:
        figure.suptitle(short(title, 60), fontsize=11, parse_math=False)
    return figure, [figure.add_subplot(rows, columns, n + 1) for n in range(number)]


def _band(ax: Axes, at: np.ndarray, lower: np.ndarray, mean: np.ndarray, upper: np.ndarray) -> None:
    ax.fill_between(at, lower, upper, alpha=0.25, color=_BLUE, linewidth=0)
    ax.plot(at, mean, color=_BLUE, linewidth=1.2, marker="o" if len(at) == 1 else None, markersize=3)
    ax.spines[["top", "right"]].set_visible(False)


def _name_times(ax: Axes, times: Any) -> None:
    """Some of the times, as the user writes them."""
    shown = np.unique(np.linspace(0, len(times) - 1, min(4, len(times))).round().astype(int))
    names = [str(times[n]).removesuffix(":00Z").replace("T", " ") for n in shown]
    ax.set_xticks(shown, names, parse_math=False, fontsize=8)


def _place(labels: Labels, realization: Any) -> int:
    if realization is None:
        return 0
    names = [str(name) for name in labels.names]
    if str(realization) not in names:
        raise InputError(f"there is no realization {realization!r}; {nearest(str(realization), names)}")
    return names.index(str(realization))


def _state(states: tuple[str, ...], state: Any) -> int:
    if isinstance(state, int | np.integer) and str(state) not in states:
        return int(state)
    if str(state) not in states:
        raise InputError(f"there is no state {state!r}; {nearest(str(state), states)}")
    return states.index(str(state))
