"""Figures for notebooks and papers: what `plot` of the results gives."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.errors import InputError, nearest
from aggmc_beam.report.figures import short
from aggmc_beam.report.svg import need_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from aggmc_beam.result import Estimate, Estimates, Groups

KINDS = ("matrix", "flows", "network", "map")
#: With more states than this the axes have no names; and fewer people than this share of all moves is no arrow.
NAMED, FAINT = 60, 0.004
_BLUE, _RED = "#1f5aa8", "#b3450a"


def plot_estimate(estimate: Estimate, kind: Any, ax: Axes | None, coordinates: Any) -> Figure:
    """One of `KINDS`."""
    from aggmc_beam.report import moves

    need_matplotlib()
    if kind not in KINDS:
        raise InputError(f"there is no plot of kind {kind!r}; {nearest(kind, KINDS)}")
    if kind == "flows":
        return moves.plot_flows(estimate, ax)
    if kind == "matrix":
        return plot_matrix(estimate, ax)
    if kind == "map" and coordinates is None:
        raise InputError('a map needs coordinates={"state": (x, y), ...}, such as longitude and latitude')
    return moves.plot_network(estimate, ax, coordinates)


def plot_estimates(estimates: Estimates, entries: Any, kind: str, options: Mapping[str, Any]) -> Figure:
    """Entries over cells, or a picture of the pooled matrix."""
    if isinstance(entries, str):  # `plot("flows")`, as of an estimate
        entries, kind = None, entries
    if kind == "cells":
        return plot_series(estimates, entries)
    if estimates.pooled is None:
        raise InputError("there is no pooled matrix; plot one cell, such as estimates[0].plot()")
    return estimates.pooled.plot(kind, **options)


def plot_matrix(estimate: Estimate, ax: Axes | None = None) -> Figure:
    """The transition matrix as a heat map with numbers and, for few states, intervals."""
    need_matplotlib()
    S = len(estimate.states)
    figure, ax = axes(ax, (min(3.0 + 0.75 * S, 11.0), min(2.4 + 0.65 * S, 10.0)))
    P = estimate.transition_matrix
    image = ax.imshow(np.clip(P, 0, 1), cmap=_shades(), vmin=0, vmax=1, aspect="auto")
    name_axes(ax, estimate.states)
    if S <= 15:
        lower, upper = estimate.interval()
        for i, j in np.ndindex(S, S):
            text = "?" if np.isnan(P[i, j]) else f"{P[i, j]:.3f}" if S <= 8 else f"{P[i, j]:.2f}"
            if S <= 8 and np.isfinite(lower[i, j]):
                text += f"\n{lower[i, j]:.2f} – {upper[i, j]:.2f}"
            colour = "white" if P[i, j] > 0.6 else "black"
            ax.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
    figure.colorbar(image, ax=ax, label="probability")
    where = "" if estimate.cell is None else f", cell {estimate.cell}"
    ax.set_title(f"Transition matrix by {estimate.estimator}{where}", fontsize=11)
    return figure


def name_axes(ax: Axes, states: Sequence[str]) -> None:
    """States beside rows and columns of a matrix, as long as they can be read."""
    S = len(states)
    if S <= NAMED:
        names = [short(s, 16) for s in states]
        turn = 90 if S > 8 or max(map(len, names)) > 9 else 0
        size = 10 if S <= 20 else max(5.0, 200 / S)
        ax.set_xticks(range(S), names, rotation=turn, parse_math=False, fontsize=size)
        ax.set_yticks(range(S), names, parse_math=False, fontsize=size)
    ax.set_xlabel("to")
    ax.set_ylabel("from")


def plot_series(estimates: Estimates, entries: Any = None) -> Figure:
    """Entries of the matrix over the cells, with their intervals; the most changing ones if not named."""
    need_matplotlib()
    P = estimates.transition_matrix
    lower, upper = estimates.interval()
    first = estimates[0]
    if entries is None:
        chosen = most_changing(P, estimates.standard_error)
    else:
        chosen = [(_at(first, i), _at(first, j)) for i, j in entries]
    if not chosen:
        raise InputError("no entry was named to be drawn")
    columns = min(3, len(chosen))
    rows = -(-len(chosen) // columns)
    figure = picture((4.0 * columns, 2.6 * rows))
    at = np.array([k if c is None else c for k, c in enumerate(estimates.cells)], float)
    states = first.states
    for k, (i, j) in enumerate(chosen):
        ax = figure.add_subplot(rows, columns, k + 1)
        ax.fill_between(at, lower[:, i, j], upper[:, i, j], alpha=0.25, color=_BLUE, linewidth=0)
        ax.plot(at, P[:, i, j], color=_BLUE, marker="o" if len(at) <= 40 else None, markersize=3)
        ax.set_title(f"{short(states[i], 16)} → {short(states[j], 16)}", fontsize=10, parse_math=False)
        ax.set_xlabel("cell")
    return figure


def plot_groups(groups: Groups, entry: Any = None) -> Figure:
    """One entry of every group with its interval, the groups below each other."""
    need_matplotlib()
    shown = {", ".join(name): (e if hasattr(e, "states") else e.pooled) for name, e in groups.items()}
    items = {name: e for name, e in shown.items() if e is not None}
    if not items:
        raise InputError("these groups have a matrix for each cell only; plot one of them")
    first = next(iter(items.values()))
    if any(e.states != first.states for e in items.values()):
        raise InputError("the groups have different states, so they cannot be drawn together")
    P = np.stack([e.transition_matrix for e in items.values()])
    error = np.stack([e.standard_error for e in items.values()])
    i, j = most_changing(P, error, 1)[0] if entry is None else (_at(first, entry[0]), _at(first, entry[1]))
    bounds = np.array([[b[i, j] for b in e.interval()] for e in items.values()])
    figure = picture((7.0, min(1.2 + 0.28 * len(items), 60.0)))
    ax = figure.add_subplot()
    rows = np.arange(len(items))
    ax.hlines(rows, bounds[:, 0], bounds[:, 1], color=_BLUE, linewidth=2)
    ax.plot(P[:, i, j], rows, "o", color=_BLUE, markersize=5)
    ax.set_yticks(rows, [short(name, 30) for name in items], parse_math=False)
    ax.invert_yaxis()
    ax.grid(axis="x", alpha=0.3)
    name = f"{short(first.states[i], 16)} → {short(first.states[j], 16)}"
    ax.set_title(f"{name}, with {100 * first.level:g}% intervals", fontsize=11, parse_math=False)
    return figure


def _at(e: Estimate, state: Any) -> int:
    return int(state) if isinstance(state, int | np.integer) else e.index_of(state)


def most_changing(P: np.ndarray, error: np.ndarray, count: int = 6) -> list[tuple[int, int]]:
    """The entries of [C, S, S] that change most for their standard errors.

    >>> most_changing(np.array([[[0.5, 0.5], [0.1, 0.9]], [[0.5, 0.5], [0.8, 0.2]]]), np.ones((2, 2, 2)), 1)
    [(1, 0)]
    """
    S = P.shape[1]
    known = np.isfinite(P)
    count_known = np.maximum(known.sum(0), 1)
    values = np.where(known, P, 0.0)
    mean = values.sum(0) / count_known
    variance = (np.where(known, P - mean, 0.0) ** 2).sum(0) / count_known
    finite = np.isfinite(error)
    noise = (np.where(finite, error, 0.0) ** 2).sum(0) / np.maximum(finite.sum(0), 1)
    score = variance / (noise + 1e-4)
    order = np.argsort(-score, axis=None, kind="stable")
    return [(int(k // S), int(k % S)) for k in order[:count]]


def _shades() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("aggmc", ["#f4f7fb", "#8fb3de", "#0d3b80"]).with_extremes(
        bad="#bbbbbb"
    )


def picture(size: tuple[float, float]) -> Figure:
    """A figure that notebooks show as a picture, whether or not pyplot has been imported."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        def _repr_png_(self) -> bytes:
            stream = io.BytesIO()
            self.savefig(stream, format="png", dpi=110)
            return stream.getvalue()

    return Picture(figsize=size, layout="constrained")


def axes(ax: Axes | None, size: tuple[float, float]) -> tuple[Figure, Axes]:
    """The axes to draw in, those of a new picture if none are given, and their figure."""
    if ax is None:
        figure = picture(size)
        return figure, figure.add_subplot()
    return ax.figure.figure, ax  # the figure itself, also where the axes are in a subfigure
