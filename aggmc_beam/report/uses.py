"""What follows from the estimates of a report: stays, settled shares and returns, and changes along windows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.fit.groups import by_group
from aggmc_beam.report.markup import Markup, tag
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.uses.change import Change, apart, change
from aggmc_beam.uses.follows import Quantity, follows

#: Groups, and states of each, that are shown.
GROUPS, STATES = 10, 12
#: Windows that are compared, and a p-value that is worth reading.
FEWEST, SIGNIFICANT = 2, 0.05


def uses(estimates: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """The sections that these estimates, as `Estimate.to_dict` makes them, allow."""
    found = list(_newest(estimates).items())[:GROUPS]
    changes = [
        _changed(group, result, len(found) > 1)
        for group, result in found
        if isinstance(result, Estimates) and result[0].window is not None and len(result) >= FEWEST
    ]
    single = [(group, e) for group, e in found if isinstance(e, Estimate) and len(e.states) <= STATES]
    tables = [_follows(group, e, len(found) > 1) for group, e in single]
    sections = []
    if any(tables):
        hint = "Computed from the matrix, each with its interval: the share of a state when shares have settled, "
        hint += "how many steps a stay lasts on average, and how many pass between two arrivals."
        sections.append(
            _section(
                "What follows", "follows", hint, [tag("div", *(t for t in tables if t), class_="follow")]
            )
        )
    if changes:
        hint = "The most likely single change of the matrix along the windows, and how surely there was one."
        sections.append(_section("Change", "change", hint, changes))
    return sections


#: Titles of the tables that a run may have written.
_TABLES = {"flows": "Flows", "forecast": "Forecast", "alarms": "Alarms"}


def followed(tables: Mapping[str, Mapping[str, Any]]) -> list[Markup]:
    """The sections of flows, forecasts and alarms; see `write_report`."""
    return [
        _section(_TABLES[name], name, str(tables[name]["said"]), [_rows(tables[name]["columns"])])
        for name in _TABLES
        if name in tables
    ]


def _rows(columns: Mapping[str, Sequence[Any]]) -> Any:
    values = list(zip(*columns.values(), strict=True))
    if not values:
        return ""
    right = [
        "number" if any(isinstance(v, float | int) for v in column) else None for column in columns.values()
    ]
    head = tag("tr", *(tag("th", name.replace("_", " "), scope="col", class_=c)
                       for name, c in zip(columns, right, strict=True)))  # fmt: skip
    body = [
        tag("tr", *(tag("td", _shown(v), class_=c) for v, c in zip(row, right, strict=True)))
        for row in values
    ]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll", tabindex="0")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "" if value is None else str(value)


def _section(title: str, name: str, hint: str, children: Sequence[Any]) -> Markup:
    return tag("section", tag("h2", title), tag("p", hint, class_="hint"), *children, id=name)


def _newest(estimates: Sequence[Mapping[str, Any]]) -> dict[tuple[str, ...], Any]:
    """The newest refresh of each group and cell; none where they are not whole."""
    latest: dict[Any, Estimate] = {}
    try:
        for plain in estimates:
            e = Estimate.from_json(json.dumps(plain))
            latest[tuple((e.group or {}).values()), e.cell] = e
    except (InputError, TypeError, ValueError):
        return {}
    return by_group(latest.values())


def _heading(group: Sequence[str], named: bool) -> Any:
    return tag("h3", ", ".join(group)) if named and group else ""


def _follows(group: Sequence[str], e: Estimate, named: bool) -> Any:
    try:
        f = follows(e)
        columns = [
            ("Settled share", f.stationary()),
            ("Mean stay", f.mean_stay()),
            ("Return", f.return_times()),
        ]
    except (InputError, np.linalg.LinAlgError):  # nothing follows from a row that was never seen
        return ""
    head = tag("tr", tag("th", "State", scope="col"), *(tag("th", name, scope="col") for name, _ in columns))
    body = [
        tag("tr", tag("th", state, scope="row"), *(_cell(q, i) for _, q in columns))
        for i, state in enumerate(e.states)
    ]
    table = tag("table", tag("thead", head), tag("tbody", *body))
    return tag("div", _heading(group, named), tag("div", table, class_="scroll", tabindex="0"))


def _cell(q: Quantity, i: int) -> Markup:
    value, lower, upper = float(q.value[i]), float(q.lower[i]), float(q.upper[i])
    return tag("td", f"{value:.4g}", tag("small", f"{lower:.4g} to {upper:.4g}"))


def _changed(group: Sequence[str], windows: Estimates, named: bool) -> Markup:
    items = apart(windows)
    try:
        found = change(items)
    except InputError as error:
        return tag("div", _heading(group, named), tag("p", f"No test: {error}."))
    return tag("div", _heading(group, named), tag("p", _sentence(found, items)))


def _sentence(found: Change, items: Sequence[Estimate]) -> str:
    window = items[found.index].window
    assert window is not None
    sure = f"p = {found.p_value:.2g}, {len(items)} windows"
    if found.p_value > SIGNIFICANT:
        return f"No change is shown ({sure})."
    size = np.abs(np.nan_to_num(found.difference))
    i, j = np.unravel_index(int(size.argmax()), size.shape)
    most, error = found.difference[i, j], found.standard_error[i, j]
    where = f"{found.states[i]} → {found.states[j]} by {most:+.3f} ± {error:.3f}"
    return f"The matrix changed from {window['start']} on ({sure}); most of all {where}."
