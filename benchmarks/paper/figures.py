"""The figures: error on log scales, mean above and median below, one column per ensemble."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.report.svg import drawing
from benchmarks.paper.trials import Trials

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: How estimators are drawn.
STYLES = {"mom": "-", "cls": "--", "auto": ":", "naive": "-.", "limle": (0, (5, 1, 1, 1, 1, 1))}
MARKS = {"mom": "o", "cls": "s", "auto": "^", "naive": "v", "limle": "D"}
COLOURS = ("#1b6ca8", "#d1495b", "#2e8540", "#b8860b", "#6a4c93")
LABELS = {
    "TK": "T × K",
    "N": "population N",
    "M": "individuals M",
    "error": "mean squared error of P",
    "own_shares": "mean squared error of π",
}
#: Errors far above 1 say only that a state was too rare; the axis stops there.
CEILING = 1e3
DOTS, PALETTE = 80, 48


@dataclass(frozen=True)
class Figure:
    """What a figure shows: column `y` against `x`, a line per noise model and estimator.

    Colours tell noise models apart where there are several, else estimators.
    """

    name: str
    title: str
    experiment: str
    estimators: tuple[str, ...]
    noises: tuple[str, ...]
    x: str = "TK"
    y: str = "error"


MOM_CLS = ("mom", "cls", "auto")
ALL = ("mom", "cls", "naive", "limle", "auto")
FIGURES = (
    Figure(
        "figure2-binomial",
        "Figure 2a: binomial noise",
        "convergence",
        MOM_CLS,
        ("exact", "α = 0.75", "α = 0.5", "α = 0.25"),
    ),
    Figure(
        "figure2-gaussian",
        "Figure 2b: Gaussian noise",
        "convergence",
        MOM_CLS,
        ("exact", "σ² = 1", "σ² = 5"),
    ),
    Figure(
        "figure3a-population",
        "Figure 3a: population size (perfect observations, K = 1, T = 100)",
        "population",
        ("mom", "cls", "naive", "auto"),
        ("exact",),
        "N",
    ),
    Figure(
        "figure3b-parameters", "Figure 3b: parameters (perfect observations)", "convergence", ALL, ("exact",)
    ),
    Figure(
        "figure3c-stationary",
        "Figure 3c: stationary distribution (perfect observations)",
        "convergence",
        ALL,
        ("exact",),
        y="own_shares",
    ),
    Figure(
        "other-noise",
        "Ours: Poisson, Laplace and state-dependent detection",
        "other-noise",
        MOM_CLS,
        ("Poisson 0.5", "Laplace 1", "detection 0.3 to 0.9"),
    ),
)
INDIVIDUALS = "individuals"


def draw(trials: Trials, directory: Path) -> list[str]:
    """Write every figure that there are trials for as PNG and SVG; their names."""
    made = []
    directory.mkdir(parents=True, exist_ok=True)
    with drawing():
        for figure in FIGURES:
            rows = trials.where(
                experiment=figure.experiment, noise=figure.noises, estimator=figure.estimators
            )
            if len(rows):
                lines = [
                    (noise, estimator, rows.where(noise=noise, estimator=estimator))
                    for noise in figure.noises
                    for estimator in figure.estimators
                ]
                _save(_panels(figure, lines), directory / figure.name)
                made.append(figure.name)
        rows = trials.where(experiment=INDIVIDUALS, estimator=("mom", "auto"))
        if len(rows):
            title = "Individual against aggregate data: M individuals, T = 1000"
            figure = Figure(INDIVIDUALS, title, INDIVIDUALS, ("mom", "auto"), (), "M")
            together, alone = rows.where(K=1), rows.where(N=1)
            lines = [
                (side, estimator, part.where(estimator=estimator))
                for side, part in (("counted together (K = 1)", together), ("one by one (N = 1)", alone))
                for estimator in figure.estimators
            ]
            _save(_panels(figure, lines), directory / INDIVIDUALS)
            made.append(INDIVIDUALS)
    return made


def _panels(figure: Figure, lines: Sequence[tuple[str, str, Trials]]) -> Any:
    from matplotlib.figure import Figure as Canvas

    ensembles = list(dict.fromkeys(e for _, _, rows in lines for e in rows.names("ensemble")))
    canvas = Canvas(figsize=(4.6 * len(ensembles) + 2.1, 7.2), layout="constrained")
    axes = canvas.subplots(2, len(ensembles), sharex=True, sharey=True, squeeze=False)
    groups = list(dict.fromkeys(noise for noise, _, _ in lines))
    for column, ensemble in enumerate(ensembles):
        for noise, estimator, rows in lines:
            chosen = rows.where(ensemble=ensemble)
            if not len(chosen):
                continue
            curve = chosen.curve(figure.x, figure.y)
            colour = COLOURS[groups.index(noise) if len(groups) > 1 else figure.estimators.index(estimator)]
            style = {
                "color": colour,
                "linestyle": STYLES[estimator],
                "marker": MARKS[estimator],
                "markersize": 3.5,
                "linewidth": 1.3,
                "label": f"{estimator}, {noise}" if len(groups) > 1 else estimator,
            }
            # On a log axis an interval that reaches 0 ends at a small part of the mean.
            low = np.minimum(np.nan_to_num(curve.half), 0.9 * curve.mean)
            axes[0, column].errorbar(
                curve.x, curve.mean, yerr=[low, np.nan_to_num(curve.half)], elinewidth=0.7, **style
            )
            axes[1, column].plot(curve.x, curve.median, **style)
        axes[0, column].set_title(f"{ensemble} ensemble", fontsize=11)
        axes[1, column].set_xlabel(LABELS[figure.x])
    for row, what in enumerate(("mean, 95% interval", "median")):
        axes[row, 0].set_ylabel(f"{LABELS[figure.y]}\n{what}")
    for ax in axes.flat:
        _scales(ax)
    handles, labels = axes[1, 0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False, handlelength=3.5)
    canvas.suptitle(figure.title, fontsize=12)
    return canvas


def _scales(ax: Axes) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    top = ax.get_ylim()[1]
    ax.set_ylim(top=min(top, CEILING))
    ax.grid(color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)


def _save(canvas: Any, path: Path) -> None:
    from PIL import Image

    canvas.savefig(path.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
    buffer = io.BytesIO()
    canvas.savefig(buffer, format="png", dpi=DOTS)
    # Few colours are a third of the size.
    image = Image.open(buffer).convert("RGB").quantize(PALETTE, dither=Image.Dither.NONE)
    image.save(path.with_suffix(".png"), optimize=True)
