"""The drawings of the page, by matplotlib: heat maps, the stationary distribution, series.

Units are those of the SVG (1/72 inch). The page's script recolours cells and redraws lines when the
reader chooses another estimate, so each drawing carries its geometry in data attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.report.collection import Item
from aggmc_beam.report.markup import Markup, clean
from aggmc_beam.report.scale import STEPS, round_range, spread_out
from aggmc_beam.report.svg import (
    ACCENT,
    CELL,
    GREY,
    INK,
    LINE,
    ON_DEEP,
    ON_PALE,
    SECOND,
    SOFT,
    drawing,
    inline_svg,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Shades of a heat map; a value v is shade round(v * SHADES).
SHADES = 40
#: Cells at least this wide show their number, or their number and its interval.
NUMBER, INTERVAL = 25.0, 56.0
#: With more states than this cells touch, have no numbers, and are shaded by the root.
MOST_LABELLED = 24
#: Text on a cell darker than this shade is in the light ink.
DARK = 0.6625


@dataclass(frozen=True)
class Box:
    """Where the plotted area lies."""

    x: float
    y: float
    width: float
    height: float

    def __str__(self) -> str:
        return f"{self.x:g} {self.y:g} {self.width:g} {self.height:g}"


def heat_map(
    states: Sequence[str],
    P: np.ndarray,
    label: str,
    name: str,
    bounds: tuple[np.ndarray, np.ndarray] | None = None,
) -> Markup:
    """The matrix in shades, with numbers where there is room; `bounds` makes it the large one."""
    S = len(states)
    large = bounds is not None
    side = 320.0 if large else 236.0
    font = 9.5 if not large else 12.0 if S <= 12 else 8.5
    names = [short(s, 14 if large else 10) for s in states]
    cell = side / S
    longest = max(len(n) for n in names) * font * 0.58 + 8
    upright = longest > cell
    left, top = longest + 6, (longest if upright else font + 10) + 8
    bottom = 36.0 if large else 4.0
    box = Box(round(left, 1), round(top, 1), side, side)
    with drawing():
        figure, ax = _canvas(left + side + 6, top + side + bottom, box)
        ax.set_xlim(0, S)
        ax.set_ylim(S, 0)
        step = max(1, int(np.ceil((font + 1.5) / cell)))
        for i in range(0, S, step):
            _text(ax, -6 / cell, i + 0.5, names[i], font, ha="right", gid=f"role:row:{i}")
            place = {"va": "bottom", "rotation": 90 if upright else 0}
            _text(ax, i + 0.5, -6 / cell, names[i], font, gid=f"role:column:{i}", **place)
        _cells(ax, P)
        digits = 0
        if cell >= NUMBER:
            digits = 3 if cell >= 44 else 2
            _numbers(ax, P, bounds if cell >= INTERVAL else None, digits, min(14.0, cell * 0.3))
        if large:
            _legend(ax, S, cell)
        lines = int(large and cell >= INTERVAL)
        return inline_svg(figure, label, map=name, box=box, size=S, digits=digits, lines=lines)


def stationary_bars(states: Sequence[str], x: Item, label: str) -> Markup:
    """A bar per state, and a mark at the mean observed share."""
    S = len(states)
    thick = 30.0 if S <= 8 else 22.0 if S <= 40 else 7.0
    names = [short(s, 14) for s in states]
    left = max(len(n) for n in names) * 12 * 0.58 + 10
    box = Box(round(left, 1), 6.0, 344 - left, thick * S)
    shares = observed_shares(x)
    most = max(float(np.nanmax(np.r_[x.stationary, shares, 0.0])), 1e-6)
    with drawing():
        figure, ax = _canvas(400, box.height + 12, box)
        ax.set_xlim(0, 1)
        ax.set_ylim(S, 0)
        step = max(1, int(np.ceil(13 / thick)))
        for i, value in enumerate(x.stationary):
            bar = _boxes([(0.0, i + 0.18, value / most, i + 0.82)])
            _patch(ax, bar, f"role:bar:{i}", facecolor=ACCENT)
            if i % step == 0:
                _text(ax, -8 / box.width, i + 0.5, names[i], 12, ha="right")
            if thick > 10:
                _text(ax, 1 + 6 / box.width, i + 0.5, f"{value:.3f}", 12, ha="left", gid=f"role:share:{i}")
        marks = [(v / most, i + 0.05, v / most, i + 0.95) for i, v in enumerate(shares) if np.isfinite(v)]
        _patch(ax, _boxes(marks), "role:marks", facecolor="none", edgecolor=SECOND, linewidth=2)
        return inline_svg(figure, label, bars="stationary", box=box, size=S)


def series(
    places: Sequence[tuple[float, str]],
    values: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    label: str,
    entry: tuple[int, int],
    banded: bool,
) -> Markup:
    """One entry over time (or refreshes or groups) with its band, or with bars if not `banded`."""
    box = Box(44.0, 10.0, 350.0, 170.0)
    at = positions(places)
    known = np.r_[values, lower, upper]
    known = known[np.isfinite(known)]
    start, step = round_range(*((known.min(), known.max()) if known.size else (0.0, 1.0)))
    with drawing():
        figure, ax = _canvas(400, 214, box)
        ax.set_xlim(0, 1)
        ax.set_ylim(start, start + STEPS * step)
        for k in range(STEPS + 1):
            y = start + k * step
            ax.axhline(y, color=LINE, linewidth=1, zorder=1)
            _text(ax, -8 / box.width, y, f"{y:.4g}", 12, ha="right", color=SOFT, gid=f"role:y:{k}")
        ticks = spread_out(len(places), 5 if max(len(name) for _, name in places) <= 8 else 3)
        for k in range(5):
            j = ticks[k] if k < len(ticks) else 0
            word = short(places[j][1], 16) if k < len(ticks) else ""
            align = "left" if at[j] < 0.02001 else "right" if at[j] > 0.97999 else "center"
            y = start - 22 / box.height * STEPS * step
            _text(ax, at[j], y, word or " ", 12, ha=align, color=SOFT, gid=f"role:x:{k}")
        band = _band(at, lower, upper) if banded else _bars(at, lower, upper, 2 / box.width)
        _patch(ax, band, "role:band", facecolor=ACCENT, alpha=0.22 if banded else 0.45)
        _patch(
            ax, _line(at, values if banded else values * np.nan), "role:curve", edgecolor=ACCENT, linewidth=2
        )
        dots = _line(np.repeat(at, 3), np.c_[values, values, values * np.nan].ravel())
        if banded and len(at) > 60:
            dots = _line(at, values * np.nan)
        _patch(ax, dots, "role:dots", edgecolor=ACCENT, linewidth=5, capstyle="round")
        return inline_svg(figure, label, series=f"{entry[0]} {entry[1]}", box=box)


def observed_shares(x: Item) -> np.ndarray:
    """The mean share of each state in the counts: the rows of the naive matrix."""
    naive = x.baselines.get("naive")
    if naive is None or not np.isfinite(naive).any():
        return np.full(len(x.P), np.nan)
    return np.asarray(naive[np.isfinite(naive).all(1)][0])


def positions(places: Sequence[tuple[float, str]]) -> np.ndarray:
    """Places as shares of the axis."""
    at = np.array([place for place, _ in places], float)
    spread = at.max() - at.min()
    return np.full(len(at), 0.5) if spread == 0 else np.asarray(0.02 + 0.96 * (at - at.min()) / spread)


def short(name: str, length: int) -> str:
    """The name in one line of at most `length` characters."""
    name = " ".join(clean(name).split()) or "(blank)"
    return name if len(name) <= length else name[: length - 1] + "…"


def _canvas(width: float, height: float, box: Box) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(round(width) / 72, round(height) / 72))
    wide, high = round(width), round(height)
    bottom = high - box.y - box.height
    ax = figure.add_axes((box.x / wide, bottom / high, box.width / wide, box.height / high))
    ax.set_axis_off()
    return figure, ax


def _text(ax: Axes, x: float, y: float, text: str, size: float, **options: object) -> None:
    style = {"ha": "center", "va": "center", "color": INK, "parse_math": False, "clip_on": False}
    ax.text(x, y, text, fontsize=size, **(style | options))  # type: ignore[arg-type]


def _patch(ax: Axes, path: object, gid: str, **style: object) -> None:
    from matplotlib.patches import PathPatch

    given = {"facecolor": "none", "edgecolor": "none", "linewidth": 0, "zorder": 2} | style
    ax.add_patch(PathPatch(path, gid=gid, clip_on=False, **given))  # type: ignore[arg-type]


def _boxes(corners: Sequence[tuple[float, float, float, float]]) -> object:
    from matplotlib.path import Path

    points = [p for x0, y0, x1, y1 in corners for p in ((x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0))]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(corners)
    return Path(np.array(points).reshape(-1, 2), codes)


def _cells(ax: Axes, P: np.ndarray) -> None:
    S = len(P)
    gap = gap_of(S)
    shades = np.round(depth(np.clip(P, 0, 1), S) * SHADES)
    _patch(ax, _boxes([(0, 0, S, S)]), "role:base", facecolor=CELL)
    for shade in np.unique(shades[shades > 0]):
        found = [
            (j + gap, i + gap, j + n - gap, i + 1 - gap)
            for i in range(S)
            for j, n in _runs(shades[i] == shade, merge=gap == 0)
        ]
        _patch(ax, _boxes(found), f"role:level:{int(shade)}", facecolor=ACCENT, alpha=shade / SHADES)
    unknown = [(gap, i + gap, S - gap, i + 1 - gap) for i in range(S) if np.isnan(P[i]).all()]
    if unknown:
        _patch(ax, _boxes(unknown), "role:level:unknown", facecolor=GREY)


def depth(value: Any, S: int) -> Any:
    """How dark a probability is: itself, or its root where there are so many states that most
    probabilities are small."""
    return value if S <= MOST_LABELLED else np.sqrt(value)


def gap_of(S: int) -> float:
    """Share of a cell left free on each side; none where cells are small."""
    return 0.025 if S <= MOST_LABELLED else 0.0


def _runs(mask: np.ndarray, merge: bool) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for j in np.flatnonzero(mask):
        if merge and found and sum(found[-1]) == j:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((int(j), 1))
    return found


def _numbers(
    ax: Axes, P: np.ndarray, bounds: tuple[np.ndarray, np.ndarray] | None, digits: int, size: float
) -> None:
    for i, j in np.ndindex(*P.shape):
        dark = depth(P[i, j], len(P)) > DARK
        up = -0.09 if bounds is not None else 0.0
        text = "?" if np.isnan(P[i, j]) else f"{P[i, j]:.{digits}f}"
        colour = ON_DEEP if dark else ON_PALE
        _text(ax, j + 0.5, i + 0.5 + up, text, size, gid=f"role:n:{i}:{j}", color=colour)
        if bounds is not None:
            low, high = bounds[0][i, j], bounds[1][i, j]
            text = f"{low:.2f} – {high:.2f}" if np.isfinite(low) and np.isfinite(high) else " "
            _text(ax, j + 0.5, i + 0.68, text, size * 0.66, gid=f"role:i:{i}:{j}", color=colour)


def _legend(ax: Axes, S: int, cell: float) -> None:
    """The shades from 0 to 1 under the map."""
    y0, y1 = S + 10 / cell, S + 19 / cell
    wide = S * 0.5 / 20
    for k in range(21):
        x = S * 0.25 + k * wide * 20 / 21
        box = _boxes([(x, y0, x + wide * 20 / 21, y1)])
        _patch(ax, box, "role:key", facecolor=ACCENT, alpha=max(k / 20, 0.02))
    for value in (0.0, 0.5, 1.0) if S <= MOST_LABELLED else (0.0, 0.1, 0.5, 1.0):
        _text(ax, S * (0.25 + depth(value, S) / 2), S + 28 / cell, f"{value:g}", 10, color=SOFT)


def _line(at: np.ndarray, values: np.ndarray) -> object:
    """A curve that breaks where values are missing."""
    from matplotlib.path import Path

    points, codes = [], []
    pen_up = True
    for x, y in zip(at, values, strict=True):
        if np.isfinite(y):
            points.append((x, y))
            codes.append(Path.MOVETO if pen_up else Path.LINETO)
        pen_up = not np.isfinite(y)
    return Path(np.array(points).reshape(-1, 2), codes)


def _band(at: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> object:
    from matplotlib.path import Path

    paths, run = [], []
    for k in [*range(len(at)), None]:
        if k is not None and np.isfinite(lower[k]) and np.isfinite(upper[k]):
            run.append(k)
            continue
        if run:
            ring = [(at[j], upper[j]) for j in run] + [(at[j], lower[j]) for j in reversed(run)]
            paths.append(Path([*ring, ring[0]], closed=True))
        run = []
    return Path.make_compound_path(*paths) if paths else Path(np.empty((0, 2)))


def _bars(at: np.ndarray, lower: np.ndarray, upper: np.ndarray, half: float) -> object:
    known = np.flatnonzero(np.isfinite(lower) & np.isfinite(upper))
    return _boxes([(at[k] - half, lower[k], at[k] + half, upper[k]) for k in known])
