"""Moves as pictures: people per step as bands between two columns, or as arrows between places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.printing import people_per_step
from aggmc_beam.report.figures import short
from aggmc_beam.report.plot import FAINT, axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from aggmc_beam.result import Estimate

#: Space between the blocks of a column, as a share of its height; and width of a block.
GAP, BLOCK = 0.15, 0.03
#: Names beside blocks thinner than this share of the height would lie upon each other.
READABLE = 0.012


def plot_flows(e: Estimate, ax: Axes | None) -> Figure:
    """People per step in the long run: bands from the states on the left to those on the right."""
    flow = np.nan_to_num(np.clip(people_per_step(e), 0, None))
    if not flow.sum() > 0:
        raise InputError("no flow is known of this estimate, so there is nothing to draw")
    S = len(e.states)
    figure, ax = axes(ax, (8.0, min(3.0 + 0.35 * S, 12.0)))
    colours = _colours(S)
    left, right = _blocks(flow.sum(1)), _blocks(flow.sum(0))
    unit = (1 - GAP) / flow.sum()
    at_left, at_right = left[:, 0].copy(), right[:, 0].copy()
    for i in range(S):
        for j in range(S):
            high = flow[i, j] * unit
            if flow[i, j] > FAINT * flow.sum() / S:
                _band(ax, at_left[i], at_right[j], high, colours[i], 0.25 if i == j else 0.6)
            at_left[i] += high
            at_right[j] += high
    for (low, high), name, colour, out in zip(left, e.states, colours, flow.sum(1), strict=True):
        _block(ax, -BLOCK, low, high, colour, f"{short(name, 16)}  {out:,.4g}", "right")
    for (low, high), name, colour, into in zip(right, e.states, colours, flow.sum(0), strict=True):
        _block(ax, 1.0, low, high, colour, f"{into:,.4g}  {short(name, 16)}", "left")
    ax.set_xlim(-0.35, 1.35)
    ax.set_ylim(1.02, -0.02)
    ax.set_axis_off()
    ax.set_title(f"{_people(e)} per step in the long run, from left to right", fontsize=11)
    return figure


def plot_network(e: Estimate, ax: Axes | None, coordinates: Any = None) -> Figure:
    """States as dots as large as their shares, moves as arrows as wide as people per step."""
    from matplotlib.patches import FancyArrowPatch

    flow = np.nan_to_num(np.clip(people_per_step(e), 0, None))
    np.fill_diagonal(flow, 0.0)
    place = _circle(len(e.states)) if coordinates is None else _places(e.states, coordinates)
    figure, ax = axes(ax, (7.0, 7.0))
    size = 60 + 900 * np.nan_to_num(e.stationary)
    most = max(float(flow.max(initial=0.0)), 1e-300)
    for i, j in sorted(np.ndindex(*flow.shape), key=lambda k: float(flow[k])):
        if flow[i, j] > FAINT * flow.sum():
            share = float(flow[i, j]) / most
            arrow = FancyArrowPatch(
                tuple(place[i]), tuple(place[j]), connectionstyle="arc3,rad=0.15", arrowstyle="-|>",
                mutation_scale=8 + 8 * share, linewidth=0.5 + 5 * share, alpha=0.35 + 0.4 * share,
                color="#1f5aa8", shrinkA=np.sqrt(size[i]) / 2, shrinkB=np.sqrt(size[j]) / 2,
            )  # fmt: skip
            ax.add_patch(arrow)
    ax.scatter(place[:, 0], place[:, 1], s=size, color="#b3450a", zorder=3)
    for (x, y), name in zip(place, e.states, strict=True):
        ax.annotate(
            short(name, 16), (x, y), (0, 12), textcoords="offset points", ha="center", fontsize=9, zorder=4,
            parse_math=False,
        )  # fmt: skip
    ax.margins(0.15)
    if coordinates is None:
        ax.set_axis_off()
        ax.set_aspect("equal")
    ax.set_title(f"Dots: long-run shares. Arrows: {_people(e).lower()} per step", fontsize=11)
    return figure


def _people(e: Estimate) -> str:
    return f"People of {e.population:,.6g}" if np.isfinite(e.population) else "Share of people"


def _blocks(sizes: np.ndarray) -> np.ndarray:
    """[S, 2] top and bottom of blocks that are stacked with gaps between them."""
    high = sizes / sizes.sum() * (1 - GAP)
    gap = GAP / max(len(sizes) - 1, 1)
    low = np.concatenate([[0.0], np.cumsum(high + gap)[:-1]])
    return np.stack([low, low + high], 1)


def _block(ax: Axes, x: float, low: float, high: float, colour: Any, text: str, side: str) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((x, low), BLOCK, high - low, color=colour, linewidth=0))
    if high - low > READABLE:
        beside = x - 0.01 if side == "right" else x + BLOCK + 0.01
        ax.text(beside, (low + high) / 2, text, ha=side, va="center", fontsize=9, parse_math=False)


def _band(ax: Axes, left: float, right: float, high: float, colour: Any, alpha: float) -> None:
    x = np.linspace(0, 1, 40)
    s = x * x * (3 - 2 * x)
    top = left + (right - left) * s
    ax.fill_between(x, top, top + high, color=colour, alpha=alpha, linewidth=0)


def _colours(S: int) -> Sequence[Any]:
    import matplotlib as mpl

    palette = mpl.colormaps["tab20" if S > 10 else "tab10"]
    return [palette(k % palette.N) for k in range(S)]


def _circle(S: int) -> np.ndarray:
    turn = 2 * np.pi * np.arange(S) / S
    return np.stack([np.sin(turn), np.cos(turn)], 1)


def _places(states: Sequence[str], coordinates: Any) -> np.ndarray:
    """[S, 2] from a mapping by state, or from a sequence in the order of the states."""
    if isinstance(coordinates, Mapping):
        missing = [s for s in states if s not in coordinates]
        if missing:
            raise InputError(f"coordinates has no place for state {missing[0]!r}")
        coordinates = [coordinates[s] for s in states]
    try:
        found = np.asarray(coordinates, np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.shape != (len(states), 2) or not np.isfinite(found).all():
        raise InputError(
            f"coordinates must hold a pair of numbers (x, y) for each of the {len(states)} states"
        )
    return found
