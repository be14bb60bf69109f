"""Results as text: at most `WIDTH` columns, whatever the number and the names of states."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.text import escape_controls

if TYPE_CHECKING:
    from aggmc_beam.result import Estimate

#: Columns of a terminal that anybody has.
WIDTH = 100
#: States of which no table fits.
WIDE = 16
#: What differs between warnings of one kind.
_VALUES = re.compile(r"(?:'[^']*'(?:, )?)+|-?\d[\d.,:e+-]*")
#: Lines of a list, and characters of a name in it.
LISTED, NAME = 10, 24


def estimate_text(e: Estimate, whole: bool = False) -> str:
    """An estimate: warnings, the matrix, what it stands on.

    A matrix that is too wide is told by its largest moves and by who stays, unless the `whole` is asked for.
    """
    body = (
        ""
        if not whole and len(e.states) > WIDE
        else matrix_table(e.states, e.transition_matrix, e.standard_error)
    )
    if not body or (not whole and width(body.partition("\n")[0]) > WIDTH):
        body = _in_short(e)
    notes = []
    if np.isfinite(e.standard_error).any():
        notes.append(f"± is one standard error; interval() gives {100 * e.level:g}% bounds")
        found = [flag for flag in e.diagnostics.get("rows", []) if flag.get("flag") != "borrowed"]
        flags = [f"  note: {escape_controls(flag['why'])}" for flag in found]
        notes += _first(flags, "  and {} more notes, see diagnostics['rows']")
    if e.diagnostics.get("borrowed") is not None:
        notes.append(borrowed_words(e.diagnostics["borrowed"]))
    ground = e.diagnostics.get("ground")
    if ground is not None:
        notes.append(f"It stands on {escape_controls(str(ground['sentence']))}.")
    return "\n".join([*warning_lines(e.warnings), *map(wrapped, [_head(e)]), body, *map(wrapped, notes)])


def borrowed_words(borrowed: Mapping[str, Any]) -> str:
    """How much of an estimate is not seen in its own data, as a sentence.

    >>> borrowed_words({"share": 0.75, "from": "the other cells"})
    '75% of it is borrowed from the other cells, the rest is seen in its own data.'
    """
    source = escape_controls(str(borrowed["from"]))
    return (
        f"{100 * borrowed['share']:.0f}% of it is borrowed from {source}, the rest is seen in its own data."
    )


def warning_lines(warnings: Sequence[str]) -> list[str]:
    """Each warning, wrapped."""
    return [wrapped(f"Warning: {escape_controls(w)}") for w in warnings]


def cell_warnings(named: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """The warnings of several cells, given by name: those that differ in their numbers and names only are told once,
    with how many cells they are of.

    >>> cell_warnings([("0", ["an error of 1.5"]), ("1", ["an error of 2"]), ("2", [])])
    ['in 2 of 3 cells, such as 0: an error of 1.5']
    """
    kinds: dict[str, tuple[str, list[str]]] = {}
    for name, warnings in named:
        for text in warnings:
            cells = kinds.setdefault(_VALUES.sub("…", text), (text, []))[1]
            cells += [name] if name not in cells else []
    return [
        text
        if len(cells) == 1 == len(named)
        else f"in {len(cells)} of {len(named)} cells, such as {cells[0]}: {text}"
        for text, cells in kinds.values()
    ]


def wrapped(text: str) -> str:
    """A sentence in lines that fit."""
    if width(text) <= WIDTH:
        return text
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return "\n".join(textwrap.wrap(text, WIDTH, subsequent_indent=indent, drop_whitespace=True))


def matrix_table(states: Sequence[str], matrix: np.ndarray, error: np.ndarray | None = None) -> str:
    """A matrix as aligned text, with ± where errors are given.

    >>> print(matrix_table(["a", "b"], np.array([[0.9, 0.1], [0.25, 0.75]])))
         a     b
    a 0.900 0.100
    b 0.250 0.750
    """
    names = [escape_controls(s) for s in states]
    S = len(names)
    body = [
        [number(matrix[i, j], None if error is None else error[i, j]) for j in range(S)] for i in range(S)
    ]
    return aligned([["", *names], *([names[i], *body[i]] for i in range(S))], even=True)


def number_table(states: Sequence[str], values: np.ndarray) -> str | None:
    """A matrix of any numbers as aligned text; None if it does not fit.

    >>> print(number_table(["a", "b"], np.array([[1200.0, 3.5], [0.25, 80.0]])))
          a   b
    a 1,200 3.5
    b  0.25  80
    """
    if len(states) > WIDE:
        return None
    names = [clipped(s) for s in states]
    body = [[f"{v:,.0f}" if abs(v) >= 1000 else f"{v:.3g}" for v in row] for row in values]
    text = aligned([["", *names], *([n, *row] for n, row in zip(names, body, strict=True))])
    return None if width(text.partition("\n")[0]) > WIDTH else text


def number(value: float, error: float | None = None) -> str:
    """A probability with its error.

    >>> number(0.25), number(0.25, 0.01), number(0.25, float("nan"))
    ('0.250', '0.250 ± 0.010', '0.250')
    """
    return f"{value:.3f}" + (f" ± {error:.3f}" if error is not None and np.isfinite(error) else "")


def aligned(rows: Sequence[Sequence[str]], even: bool = False) -> str:
    """Rows as columns, the first to the left and the others to the right; `even` makes these equally wide."""
    wide = [max(width(row[k]) for row in rows) for k in range(len(rows[0]))]
    if even:
        wide[1:] = [max(wide[1:])] * len(wide[1:])
    return "\n".join(
        " ".join(
            [padded(row[0], wide[0]), *(padded(x, w, True) for x, w in zip(row[1:], wide[1:], strict=True))]
        )
        for row in rows
    )


def padded(text: str, wide: int, right: bool = False) -> str:
    """The text in a field, by what it takes on a terminal."""
    blank = " " * (wide - width(text))
    return blank + text if right else text + blank


def width(text: str) -> int:
    """Columns of a terminal that a text takes; a Chinese or Japanese sign takes two.

    >>> width("home"), width("東京")
    (4, 4)
    """
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def clipped(name: str, length: int = NAME) -> str:
    """A name in at most `length` columns.

    >>> clipped("a very long name of a state", 12)
    'a very long…'
    """
    name = escape_controls(name)
    if width(name) <= length:
        return name
    while width(name) > length - 1:
        name = name[:-1]
    return name.rstrip() + "…"


def people_per_step(e: Estimate) -> np.ndarray:
    """Expected moves [S, S] of a step in the long run; of a population of 1 where its size is not known."""
    size = e.population if np.isfinite(e.population) else 1.0
    return np.asarray(size * e.stationary[:, None] * e.transition_matrix)


def _head(e: Estimate) -> str:
    where = "" if e.cell is None else f", cell {e.cell}"
    return (
        f"Transition matrix by {e.estimator}{where} from {e.counts['pairs']:,} pairs of "
        f"{e.counts['records']:,} records, population {e.population:,.6g}"
    )


def _in_short(e: Estimate) -> str:
    """The largest moves, and who stays most and least."""
    S, P = len(e.states), e.transition_matrix
    names = [clipped(s) for s in e.states]
    flow = people_per_step(e)
    np.fill_diagonal(flow, np.nan)
    moves = [divmod(int(k), S) for k in np.argsort(-flow, axis=None)[:LISTED] if np.isfinite(flow.flat[k])]
    stays = [int(i) for i in np.argsort(-np.diag(P)) if np.isfinite(P[i, i])]
    shown = stays if len(stays) <= LISTED else [*stays[: LISTED // 2], -1, *stays[-(LISTED // 2) :]]
    unknown = int(np.isnan(P).all(1).sum())
    parts = [
        f"{S} states; print(est.to_text(whole=True)) shows the whole matrix."
        + (f" {unknown} rows are not known." if unknown else ""),
        "Largest moves, by people per step in the long run:",
    ]
    rows = [["  " + names[i] + " → " + names[j], number(P[i, j], e.standard_error[i, j]), f"{flow[i, j]:,.4g}"]
            for i, j in moves]  # fmt: skip
    parts.append(aligned([["  from → to", "probability", "people"], *rows]))
    parts.append("Stay from one step to the next, the most likely first:")
    rows = [
        ["  ...", ""] if i < 0 else ["  " + names[i], number(P[i, i], e.standard_error[i, i])] for i in shown
    ]
    parts.append(aligned(rows) if rows else "  no row is known")
    return "\n".join(parts)


def _first(lines: list[str], more: str) -> list[str]:
    left = len(lines) - LISTED
    return lines if left <= 0 else [*lines[:LISTED], more.format(left)]
