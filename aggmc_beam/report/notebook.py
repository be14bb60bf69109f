"""What a notebook shows of a result: an HTML table in the shades of a heat map."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.printing import estimate_text, number
from aggmc_beam.report.markup import Markup, join, tag
from aggmc_beam.tables import PLACES

if TYPE_CHECKING:
    from aggmc_beam.result import Estimate, Estimates, Groups

#: With more states than this cells have no numbers, and with more than that there is no table of the matrix.
NUMBERS, CELLS = 16, 60
#: Lines of a summary.
LINES = 60


def estimate_html(e: Estimate) -> str:
    """Warnings, the matrix in shades with intervals as tips, and what it stands on."""
    ground = e.diagnostics.get("ground")
    where = "" if e.cell is None else f", cell {e.cell}"
    head = f"Transition matrix by {e.estimator}{where} from {e.counts['pairs']:,} pairs"
    return _block(
        _warnings(e.warnings),
        tag("p", tag("b", head), f", population {e.population:,.6g}"),
        _matrix(e) if len(e.states) <= CELLS else tag("pre", estimate_text(e)),
        "" if ground is None else tag("p", f"It stands on {ground['sentence']}."),
    )


def estimates_html(found: Estimates) -> str:
    """The pooled matrix if there is one, and a line for each cell."""
    pooled = "" if found.pooled is None else Markup(estimate_html(replace(found.pooled, warnings=())))
    head = tag("p", tag("b", f"{len(found)} transition matrices"), ", one for each cell")
    return _block(head, _warnings(found.warnings_by_kind()), pooled, _summary(found.columns("summary")))


def groups_html(found: Groups) -> str:
    """A line for each group, and why some have none."""
    skipped = [tag("li", f"No estimate for {name}: {why}") for name, why in found.skipped.items()]
    return _block(
        tag("p", tag("b", f"{len(found)} groups")),
        _summary(found.columns("summary")),
        tag("ul", *skipped) if skipped else "",
    )


def table_html(columns: dict[str, list[Any]]) -> Markup:
    """Columns as a table; of many rows the first and the last."""
    rows = list(zip(*columns.values(), strict=True))
    half = LINES // 2
    shown = rows if len(rows) <= LINES else [*rows[:half], ("…",) * len(columns), *rows[-half:]]
    head = tag("thead", tag("tr", *(tag("th", name) for name in columns)))
    return tag(
        "table", head, tag("tbody", *(tag("tr", *(tag("td", _cell(v)) for v in row)) for row in shown))
    )


def matrix_html(head: str, states: Sequence[str], values: np.ndarray) -> str:
    """A matrix of any numbers as a table."""
    columns: dict[str, list[Any]] = {"from \\ to": list(states)}
    return _block(
        tag("p", head), table_html({**columns, **{s: values[:, j].tolist() for j, s in enumerate(states)}})
    )


def _summary(columns: dict[str, list[Any]]) -> Markup:
    """What a line of the terminal tells of each estimate."""
    moves = [
        "" if b is None else f"{a} → {b}"
        for a, b in zip(columns["largest_from"], columns["largest_to"], strict=True)
    ]
    chances = [
        "" if not m else number(p, e)
        for m, p, e in zip(moves, columns["probability"], columns["error"], strict=True)
    ]
    places = {name: columns[name] for name in PLACES if name in columns}
    told = {name: columns[name] for name in ("pairs", "population", "stay")}
    return table_html(
        {**places, **told, "largest move": moves, "probability": chances, "warnings": columns["warnings"]}
    )


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, float):
        return f"{value:,.5g}" if abs(value) >= 10 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _warnings(warnings: Sequence[str]) -> Markup:
    style = "border-left:4px solid #c0392b;padding-left:.6em;margin:.3em 0"
    return join(tag("p", tag("b", "Warning: "), w, style=style) for w in warnings)


def _matrix(e: Estimate) -> Markup:
    lower, upper = e.interval()
    head = tag(
        "tr", tag("th", "from \\ to"), *(tag("th", s, style=_head_style(len(e.states))) for s in e.states)
    )
    rows = [
        tag("tr", tag("th", s, style="text-align:left;white-space:nowrap"), *_cells(e, i, lower[i], upper[i]))
        for i, s in enumerate(e.states)
    ]
    return tag("table", tag("thead", head), tag("tbody", *rows), style="border-collapse:collapse")


def _head_style(S: int) -> str | None:
    return "writing-mode:vertical-rl;transform:rotate(180deg);text-align:left" if S > NUMBERS else None


def _cells(e: Estimate, i: int, lower: np.ndarray, upper: np.ndarray) -> Iterable[Markup]:
    S = len(e.states)
    for j in range(S):
        p, error = e.transition_matrix[i, j], e.standard_error[i, j]
        known = np.isfinite(lower[j]) and np.isfinite(upper[j])
        says = f"{e.states[i]} → {e.states[j]}: " + ("unknown" if np.isnan(p) else f"{p:.3f}")
        tip = says + (f", {lower[j]:.3f} to {upper[j]:.3f}" if known else "")
        text: Any = "" if S > NUMBERS else "?" if np.isnan(p) else f"{p:.3f}"
        if S <= NUMBERS and np.isfinite(error):
            text = join([text, tag("br"), tag("small", f"± {error:.3f}")])
        yield tag("td", text, style=_shade(p, S), title=tip)


def _shade(p: float, S: int) -> str:
    """The colours of a cell; small probabilities of many states by their root."""
    if np.isnan(p):
        return "background:#bbb;color:#000"
    depth = float(np.clip(p, 0, 1)) if S <= NUMBERS else float(np.sqrt(np.clip(p, 0, 1)))
    ink = ";color:#fff" if depth > 0.55 else ""
    small = ";min-width:.8em;height:1em;padding:0" if S > NUMBERS else ";text-align:right"
    return f"background:rgba(8,51,117,{depth:.2f}){ink}{small}"


def _block(*parts: Any) -> str:
    return str(tag("div", *parts, style="overflow-x:auto;max-width:100%"))
