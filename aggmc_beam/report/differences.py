"""The picture of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aggmc_beam.report.plot import axes, name_axes
from aggmc_beam.report.svg import need_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from aggmc_beam.uses.compare import Comparison


def plot_comparison(found: Comparison, ax: Axes | None = None) -> Figure:
    """Differences in two colours; a frame around the entries that differ at 5%, corrected for their number."""
    need_matplotlib()
    from matplotlib.patches import Rectangle

    S = len(found.states)
    figure, ax = axes(ax, (min(3.4 + 0.75 * S, 11.0), min(2.4 + 0.65 * S, 10.0)))
    D = found.difference
    most = max(float(np.nanmax(np.abs(D), initial=0.0)), 1e-3)
    image = ax.imshow(D, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    name_axes(ax, found.states)
    lower, upper = found.interval()
    for i, j in np.ndindex(S, S):
        if S <= 15:
            text = "?" if np.isnan(D[i, j]) else f"{D[i, j]:+.3f}" if S <= 8 else f"{D[i, j]:+.2f}"
            if S <= 8 and np.isfinite(lower[i, j]):
                text += f"\n{lower[i, j]:+.2f} – {upper[i, j]:+.2f}"
            dark = abs(D[i, j]) > 0.6 * most
            ax.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
        if found.p_values[i, j] < 0.05:
            ax.add_patch(Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, linewidth=1.6))
    figure.colorbar(image, ax=ax, label="second minus first")
    p = "" if np.isnan(found.p_value) else f", p = {found.p_value:.2g}"
    ax.set_title(f"Difference of two matrices{p}; framed: differs at 5%", fontsize=11)
    return figure
