"""The report: one HTML file that needs nothing else and asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib import resources
from typing import Any

import numpy as np

from aggmc_beam.durable import write_atomically
from aggmc_beam.ledger import Ledger
from aggmc_beam.report import figures
from aggmc_beam.report.collection import Collection, Item, collect, line_of
from aggmc_beam.report.markup import Markup, clean, join, tag
from aggmc_beam.report.outline import outline, plain, rows
from aggmc_beam.report.payload import payload
from aggmc_beam.report.plot import most_changing
from aggmc_beam.report.svg import need_matplotlib
from aggmc_beam.report.uses import followed, uses
from aggmc_beam.report.words import Finding, findings, in_short

#: Estimates that are listed, each in a line.
LINES = 10_000
_TONES = {"act": "▲ act", "look": "● look", "fine": "✓ fine"}
_ALONG = {"cell": "over {word}s", "refresh": "over refreshes", "group": "over groups"}
_COUNTS = {
    "records": ("Used", "records, each the counts of one realization at one step"),
    "pairs": ("Used", "pairs of records one step apart, which tell of moves"),
    "realizations": ("Used", "realizations: independent runs such as days or regions"),
    "duplicates": ("Not used", "second records of the same realization and step"),
    "overlaps": ("Not used", "steps that two merged parts both had"),
    "gaps": ("Not used", "gaps in time, over which no pair is formed"),
    "rejected": ("Not used", "records that could not be read; see rejected.jsonl"),
    "late": ("Not used", "records that came after the allowed lateness"),
}
_KNOWN_BASES = {
    "identity": "Identity: everybody stays",
    "naive": "Naive: the same row from every state",
}


def write_report(
    estimates: Sequence[Mapping[str, Any]],
    path: str | os.PathLike[str],
    config: Mapping[str, Any] | None = None,
    ledger: Mapping[str, Any] | None = None,
    tables: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write the report of estimates as made by `Estimate.to_dict` to `path`, whole or not at all.

    config: the run's settings, shown at the end. ledger: counts of the whole run, of any shape. tables: of flows,
    forecasts and alarms, each with `columns` and a sentence that is `said` of them.
    """
    write_atomically(path, render(estimates, config, ledger, tables).encode())


def render(
    estimates: Sequence[Mapping[str, Any]],
    config: Mapping[str, Any] | None = None,
    ledger: Mapping[str, Any] | None = None,
    tables: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """The page of `write_report` as text."""
    need_matplotlib()
    shown = collect(estimates, config)
    title = clean((config or {}).get("name") or "Transition matrix")
    body = [tag("header", tag("h1", title), _subtitle(shown))]
    data = Markup("null")
    if shown.items:
        texts = [(_facts(x), in_short(x, shown.states), findings(x, shown.states)) for x in shown.items]
        counts = [_counts(x.source) for x in shown.items]
        data = payload(shown, texts, [[(k, n) for k, n, _, _ in c] for c in counts])
        facts, sentences, found = texts[shown.first]
        body += [
            _controls(shown),
            _cards(facts),
            tag("ul", *(tag("li", s) for s in sentences), class_="short", id="short"),
            _matrices(shown),
            _series(shown),
            _groups(shown),
            tag("div", _stationary(shown), _used(counts[shown.first], shown), class_="pair"),
            *uses(estimates),
            *followed(tables or {}),
            _findings(found),
            _all(estimates, shown),
        ]
    else:
        body.append(tag("p", "No estimate could be made; see what was read below.", class_="empty"))
    body += [_ledger(ledger), _config(config), _footer()]
    return _document(title, join(body), data, shown.first)


def _document(title: str, body: Markup, data: Markup, first: int) -> str:
    here = resources.files("aggmc_beam.report")
    style, script = ((here / f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    content = tag(
        "body",
        tag("main", body),
        tag("div", id="tip", role="status", hidden=True),
        tag("script", data, type="application/json", id="data"),
        tag("script", Markup(script)),
        data_first=first,
    )
    return "<!DOCTYPE html>\n" + tag("html", head, content, lang="en") + "\n"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _subtitle(shown: Collection) -> Markup:
    parts = [f"{len(shown.states)} states"]
    if shown.total != 1:
        parts.append(f"{shown.total:,} estimates")
    if len(shown.groups) > 1:
        parts.append(f"{len(shown.groups):,} groups")
    text = "How individuals move between states, estimated from aggregate counts. " + ", ".join(parts) + "."
    note: Any = ""
    if len(shown.items) < shown.total:
        note = tag(
            "p",
            f"This page shows {len(shown.items):,} of {shown.total:,} estimates with their matrices, whole groups "
            "evenly chosen, to stay small; all have a line below, and estimates.jsonl has them all.",
            class_="note",
        )
    return join([tag("p", text), note])


def _facts(x: Item) -> list[tuple[str, str]]:
    e = x.source
    counts, noise = (v if isinstance(v, Mapping) else {} for v in (e.get("counts"), e.get("noise")))
    model = " ".join(plain(v) for v in noise.values() if not isinstance(v, list | dict)) or "unknown"
    level = e.get("level")
    return [
        ("Estimator", plain(e.get("estimator"))),
        ("Pairs used", plain(counts.get("pairs"))),
        ("Population", plain(e.get("population"))),
        ("Noise", model),
        ("Intervals", f"{100 * level:g}%" if isinstance(level, int | float) else "unknown"),
    ]


def _cards(facts: Sequence[tuple[str, str]]) -> Markup:
    cards = (tag("div", tag("dt", name), tag("dd", value)) for name, value in facts)
    return tag("dl", *cards, class_="cards", id="facts")


def _controls(shown: Collection) -> Any:
    """Choosing the estimate; needs the script, so hidden until it runs."""
    refreshes = sorted({x.refresh for x in shown.items})
    choices = [
        ("group", "Group", list(shown.groups)),
        ("cell", shown.word.capitalize(), list(shown.cells)),
        ("refresh", "Refresh", [str(r) for r in refreshes]),
    ]
    first = shown.items[shown.first]
    chosen = {"group": first.group, "cell": first.cell, "refresh": refreshes.index(first.refresh)}
    made = []
    for name, label, options in choices:
        if len(options) < 2:
            continue
        values = refreshes if name == "refresh" else range(len(options))
        listed = [
            tag("option", text, value=value, selected=k == chosen[name])
            for k, (text, value) in enumerate(zip(options, values, strict=True))
        ]
        made.append(tag("label", label, " ", tag("select", *listed, id=f"choose-{name}")))
    if len(shown.cells) > 1:
        slide = tag("input", type="range", id="slide", min=0, max=len(shown.cells) - 1, value=first.cell,
                    aria_label=f"{shown.word} by slider")  # fmt: skip
        made.append(tag("span", slide, tag("button", "▶ play", type="button", id="play"), class_="slider"))
    return tag("nav", *made, class_="controls", hidden=True, aria_label="Estimate shown") if made else ""


def _tools() -> Markup:
    """How the matrix is shown; needs the script."""
    sorts = {"given": "as given", "share": "by share", "stay": "by staying", "name": "by name"}
    sorts["alike"] = "neighbours that exchange most"
    shows = {"P": "probabilities", "people": "people per step"}
    order = tag("select", *(tag("option", text, value=v) for v, text in sorts.items()), id="sort")
    unit = tag("select", *(tag("option", text, value=v) for v, text in shows.items()), id="show")
    find = tag("input", type="search", id="find", placeholder="a state", autocomplete="off")
    return tag(
        "div",
        tag("label", "Show ", unit),
        tag("label", "States ", order),
        tag("label", "Find ", find),
        tag("button", "Download CSV", type="button", data_csv="matrix"),
        tag("button", "Download SVG", type="button", data_svg="svg[data-map=P]"),
        class_="controls inner",
        hidden=True,
    )


def _matrices(shown: Collection) -> Markup:
    x, states = shown.items[shown.first], shown.states
    large = figures.heat_map(
        states,
        x.P,
        "Heat map of the estimated matrix; the table below holds the same",
        "P",
        (x.lower, x.upper),
    )
    others = [
        tag(
            "figure",
            tag("figcaption", _KNOWN_BASES.get(name, f"For comparison: {name}")),
            figures.heat_map(states, B, f"Heat map of the {name} matrix", name),
        )
        for name, B in list(x.baselines.items())[:4]
    ]
    hint = "Row: state now. Column: state one step later. Point at or tap a cell for its interval"
    hint += "; a click draws it below." if shown.along() else "."
    first = tag("figure", tag("figcaption", "Estimate"), large, class_="large")
    return tag(
        "section",
        tag("h2", "Transition matrix"),
        tag("p", hint, class_="hint"),
        _tools(),
        tag("div", first, tag("div", *others, class_="others"), class_="maps"),
        _table(x, states),
    )


def _table(x: Item, states: Sequence[str]) -> Markup:
    head = tag("tr", tag("th", "from \\ to", scope="col"), *(tag("th", s, scope="col") for s in states))
    body = []
    for i, name in enumerate(states):
        cells = []
        for j in range(len(states)):
            value = "unknown" if np.isnan(x.P[i, j]) else f"{x.P[i, j]:.4f}"
            known = np.isfinite(x.lower[i, j]) and np.isfinite(x.upper[i, j])
            bounds = f"{x.lower[i, j]:.4f} to {x.upper[i, j]:.4f}" if known else ""
            cells.append(Markup(f"<td>{value}<small>{bounds}</small></td>"))
        body.append(tag("tr", tag("th", name, scope="row"), *cells))
    table = tag("table", tag("thead", head), tag("tbody", *body), id="matrix")
    return tag(
        "details",
        tag("summary", "The matrix as a table, with intervals"),
        tag("div", table, class_="scroll", tabindex="0"),
    )


def _series(shown: Collection) -> Any:
    ways = shown.along()
    if not ways:
        return ""
    indices = shown.series(shown.first, ways[0])
    members, places = [shown.items[k] for k in indices], [shown.place(k, ways[0]) for k in indices]
    P, error = np.stack([x.P for x in members]), np.stack([x.error for x in members])
    panels = []
    for k, (i, j) in enumerate(most_changing(P, error, 4)):
        name = f"{shown.states[i]} → {shown.states[j]}"
        lower, upper = (np.array([getattr(x, side)[i, j] for x in members]) for side in ("lower", "upper"))
        label = f"{name} {_ALONG[ways[0]].format(word=shown.word)}, with its interval"
        drawn = figures.series(places, P[:, i, j], lower, upper, label, (i, j), ways[0] != "group")
        panels.append(tag("figure", tag("figcaption", name, id=f"entry-{k}"), drawn))
    options = [tag("option", _ALONG[w].format(word=shown.word), value=w) for w in ways]
    names = [tag("option", s, value=k) for k, s in enumerate(shown.states)]
    controls = tag(
        "div",
        tag("label", "Draw ", tag("select", *names, id="from", aria_label="from state")),
        tag("label", " → ", tag("select", *names, id="to", aria_label="to state")),
        tag("label", " ", tag("select", *options, id="along", aria_label="over what")),
        tag("button", "Download CSV", type="button", data_csv="series"),
        tag("button", "Download SVG", type="button", data_svg="#series svg"),
        class_="controls inner",
        hidden=True,
    )
    return tag(
        "section",
        tag("h2", "Selected entries " + _ALONG[ways[0]].format(word=shown.word), id="series-title"),
        tag("p", "The entries that change most for their standard errors, with intervals.", class_="hint"),
        controls,
        tag("div", *panels, class_="panels", id="series"),
    )


def _groups(shown: Collection) -> Any:
    """The groups below each other; drawn by the script, for any number of them."""
    if len(shown.groups) < 2:
        return ""
    hint = "The first entry above in every group, with its interval; a click shows that group."
    button = tag("button", "Download SVG", type="button", data_svg="#groups svg")
    return tag(
        "section",
        tag("h2", "Groups side by side", id="groups-title"),
        tag("p", hint, class_="hint"),
        tag("div", button, class_="controls inner", hidden=True),
        tag("div", id="groups", class_="scroll", tabindex="0"),
    )


def _all(estimates: Sequence[Mapping[str, Any]], shown: Collection) -> Any:
    """A line for each estimate that was given, also where its matrix is not in the page."""
    if len(estimates) < 2:
        return ""
    names = ("group", shown.word, "pairs", "population", "largest move", "warnings")
    body = [tag("tr", *(tag("td", v, class_="number" if k in (2, 3, 5) else None) for k, v in enumerate(line_of(e))))
            for e in estimates[:LINES]]  # fmt: skip
    button = tag("button", "Download CSV", type="button", data_csv="all")
    more = f" The first {LINES:,} are listed." if len(estimates) > LINES else ""
    return tag(
        "section",
        tag("h2", "All estimates"),
        tag("p", f"{len(estimates):,} estimates.{more}", class_="hint"),
        tag("div", button, class_="controls inner", hidden=True),
        tag(
            "details",
            tag("summary", "A line for each"),
            tag(
                "div",
                tag(
                    "table",
                    tag("thead", tag("tr", *(tag("th", n, scope="col") for n in names))),
                    tag("tbody", *body),
                    id="all",
                ),
                class_="scroll",
                tabindex="0",
            ),
        ),
    )


def _stationary(shown: Collection) -> Markup:
    x = shown.items[shown.first]
    drawn = figures.stationary_bars(shown.states, x, "Bars: share of each state in the long run")
    hint = "Bar: share of each state in the long run. Line: its mean share in the counts. Where the two "
    hint += "differ much, the counts have not settled, or the matrix changes with time."
    return tag("section", tag("h2", "Stationary distribution"), tag("p", hint, class_="hint"), drawn)


def _counts(e: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    given = e.get("counts")
    leaves = dict(rows(given)) if isinstance(given, Mapping) else {}
    names = [*_COUNTS, *(k for k in leaves if k not in _COUNTS)]
    return [(k, leaves.get(k, "–"), *_COUNTS.get(k, ("Counted", k))) for k in names]


def _used(counts: Sequence[tuple[str, str, str, str]], shown: Collection) -> Markup:
    body = [
        tag(
            "tr", tag("td", use, class_="use"), tag("td", n, class_="number", data_count=key), tag("td", text)
        )
        for key, n, use, text in counts
    ]
    of = " for this estimate" if len(shown.items) > 1 else ""
    return tag("section", tag("h2", f"What was used{of}"), tag("table", tag("tbody", *body), id="counts"))


def _findings(found: Sequence[Finding]) -> Markup:
    cards = []
    for f in found:
        texts = (("Assumed", f.assumed), ("Found", f.found), ("What to do", f.todo))
        lines = [tag("p", tag("b", name + " "), text) for name, text in texts if text]
        head = tag("h3", f.topic, " ", tag("span", _TONES[f.tone], class_="tone"))
        cards.append(tag("article", head, *lines, class_=f.tone))
    return tag("section", tag("h2", "Diagnostics"), tag("div", *cards, class_="findings", id="findings"))


def _ledger(ledger: Mapping[str, Any] | None) -> Any:
    if not ledger:
        return ""
    told = [(key, value) for key, value in rows(ledger) if value != ""]
    body = [tag("tr", tag("td", key), tag("td", value, class_="number")) for key, value in told]
    table = tag("div", tag("table", tag("tbody", *body), id="ledger"), class_="scroll")
    return tag("section", tag("h2", "The whole run"), _balance(ledger.get("rows")), table)


def _balance(found: Any) -> Any:
    """What became of every row, in a sentence, if the ledger tells."""
    if not isinstance(found, Mapping) or set(found) != set(Ledger().to_dict()):
        return ""
    if not all(isinstance(number, int) for number in found.values()):
        return ""
    return tag("p", f"{Ledger(**found)}.", id="balance")


def _config(config: Mapping[str, Any] | None) -> Any:
    if not config:
        return ""
    text = tag("pre", outline(config), tabindex="0")
    return tag("section", tag("details", tag("summary", "The configuration of this run"), text))


def _footer() -> Markup:
    from aggmc_beam import __version__

    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.fromtimestamp(int(epoch), timezone.utc) if epoch else datetime.now(timezone.utc)
    return tag("footer", f"aggmc-beam {__version__}, {now:%Y-%m-%d %H:%M} UTC. This file makes no requests.")
