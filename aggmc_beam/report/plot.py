"""Figures for notebooks and papers: what `Estimate.plot` and `Estimates.plot` give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.report.figures import short
from aggmc_beam.report.svg import need_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from aggmc_beam.result import Estimate, Estimates


def plot_matrix(estimate: Estimate, ax: Axes | None = None) -> Figure:
    """The transition matrix as a heat map with numbers and, for few states, intervals."""
    need_matplotlib()
    S = len(estimate.states)
    figure, ax = _axes(ax, (min(3.0 + 0.75 * S, 11.0), min(2.4 + 0.65 * S, 10.0)))
    P = estimate.transition_matrix
    image = ax.imshow(np.clip(P, 0, 1), cmap=_shades(), vmin=0, vmax=1, aspect="auto")
    if S <= 30:
        names = [short(s, 16) for s in estimate.states]
        turn = 90 if S > 8 or max(map(len, names)) > 9 else 0
        ax.set_xticks(range(S), names, rotation=turn, parse_math=False)
        ax.set_yticks(range(S), names, parse_math=False)
    ax.set_xlabel("to")
    ax.set_ylabel("from")
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


def plot_series(estimates: Estimates, entries: Sequence[tuple[int, int]] | None = None) -> Figure:
    """Entries of the matrix over the cells, with their intervals; the most changing ones if not named."""
    need_matplotlib()
    from matplotlib.figure import Figure

    P = estimates.transition_matrix
    lower, upper = estimates.interval()
    chosen = most_changing(P, estimates.standard_error) if entries is None else list(entries)
    columns = min(3, len(chosen))
    rows = -(-len(chosen) // columns)
    figure = Figure(figsize=(4.0 * columns, 2.6 * rows), layout="constrained")
    at = np.array([k if c is None else c for k, c in enumerate(estimates.cells)], float)
    states = estimates[0].states
    for k, (i, j) in enumerate(chosen):
        ax = figure.add_subplot(rows, columns, k + 1)
        ax.fill_between(at, lower[:, i, j], upper[:, i, j], alpha=0.25, color=_BLUE, linewidth=0)
        ax.plot(at, P[:, i, j], color=_BLUE, marker="o" if len(at) <= 40 else None, markersize=3)
        ax.set_title(f"{short(states[i], 16)} → {short(states[j], 16)}", fontsize=10, parse_math=False)
        ax.set_xlabel("cell")
    return figure


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


_BLUE = "#1f5aa8"


def _shades() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("aggmc", ["#f4f7fb", "#8fb3de", "#0d3b80"]).with_extremes(
        bad="#bbbbbb"
    )


def _axes(ax: Axes | None, size: tuple[float, float]) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    if ax is None:
        figure = Figure(figsize=size, layout="constrained")
        return figure, figure.add_subplot()
    return ax.figure.figure, ax  # the figure itself, also where the axes are in a subfigure
