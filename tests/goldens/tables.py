"""Records as users keep them: rows of some layout, with dirt, in files of some format."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

Row = dict[str, Any]
START = datetime(2026, 3, 1)
#: Groups of each kind: the columns, and the values of each group.
GROUPS = {
    "no groups": ((), [()]),
    "2 groups": (("region",), [("north",), ("south",)]),
    "6 groups": (("region", "kind"), [(r, k) for r in ("east", "mid", "west") for k in (1, 2)]),
}


@dataclass
class Table:
    """Rows in order, and how they are to be written and read."""

    rows: list[Row]
    states: Sequence[str]
    group_by: Sequence[str]
    layout: str = "wide"
    population: bool = False
    stamps: bool = False
    text: bool = False
    """All values are written as text, also in Parquet files."""
    parts: int = 1
    lines: list[tuple[int, str]] = field(default_factory=list)
    """Lines of text that are no rows, and before which row they stand."""

    @property
    def columns(self) -> list[str]:
        counts = {"wide": list(self.states), "list": ["counts"], "long": ["state", "count"]}[self.layout]
        return [*self.group_by, "realization", "time", *counts, *(["people"] if self.population else [])]


def rows_of(panels, group_by, groups, states, population) -> list[Row]:
    """One row for each record, sorted by group, realization and time. Realizations are numbered in each
    group anew."""
    rows = []
    for group, panel in zip(groups, panels, strict=True):
        for k, t in np.ndindex(panel.counts.shape[:2]):
            row: Row = dict(zip(group_by, group, strict=True))
            row |= {"realization": int(k), "time": int(t)}
            row |= {s: plain(x) for s, x in zip(states, panel.counts[k, t], strict=True)}
            if population:
                row["people"] = int(panel.population[k])
            rows.append(row)
    return rows


def plain(x: float) -> int | float:
    """Whole numbers as integers."""
    return int(x) if x == int(x) else float(x)


def lay_out(rows: list[Row], states: Sequence[str], layout: str) -> list[Row]:
    if layout == "wide":
        return [dict(row) for row in rows]
    rest = [[(c, v) for c, v in row.items() if c not in states] for row in rows]
    if layout == "list":
        return [dict(r) | {"counts": [row[s] for s in states]} for r, row in zip(rest, rows, strict=True)]
    return [
        dict(r) | {"state": s, "count": row[s]} for r, row in zip(rest, rows, strict=True) for s in states
    ]


# Dirt of records, before they are laid out.


def drop_some(rows: list[Row], rng) -> list[Row]:
    keep = rng.random(len(rows)) > 0.08
    hole = rng.integers(len(rows) // 2)
    keep[hole : hole + 3] = False
    return [row for row, kept in zip(rows, keep, strict=True) if kept]


def repeat_some(rows: list[Row], rng) -> list[Row]:
    """Some at once and some at the end."""
    found = []
    for row in rows:
        found += [row, dict(row)] if rng.random() < 0.05 else [row]
    return found + [dict(rows[i]) for i in rng.choice(len(rows), len(rows) // 20, replace=False)]


def shuffle(rows: list[Row], rng) -> list[Row]:
    return [rows[i] for i in rng.permutation(len(rows))]


def contradict(states: Sequence[str]) -> Callable:
    def changed(rows: list[Row], rng) -> list[Row]:
        some = [dict(rows[i]) for i in rng.choice(len(rows), len(rows) // 20, replace=False)]
        for row in some:
            row[states[0]] += 1
            row[states[1]] -= 1
        return rows + some

    return changed


def rename(name: Callable[[int, int], Any]) -> Callable:
    def renamed(rows: list[Row], rng) -> list[Row]:
        return [row | {"realization": name(row["realization"], i)} for i, row in enumerate(rows)]

    return renamed


# Dirt of rows, once they are laid out.


def damage(rows: list[Row], rng, values: dict[str, Sequence[Any]], first: str) -> list[Row]:
    """Put wrong values into single fields of some rows. `first` stands for the first count."""
    found = [dict(row) for row in rows]
    names = list(values)
    for number, i in enumerate(rng.choice(len(rows), max(6, len(rows) // 30), replace=False)):
        name = names[number % len(names)]
        wrong = values[name][number // len(names) % len(values[name])]
        column = first if name == "count" else name
        if column == "counts":
            wrong = wrong if wrong is None else [wrong, *found[i][column][1:]]
        found[i][column] = wrong
    return found


MISSING = {"realization": [None], "time": [None], "count": [None]}
WRONG = {"time": ["noon", "1.5", "x"], "count": ["many", "nan", "1e40", "-inf", "3_0"]}


# Writing.


def moment(t: int) -> str:
    return (START + timedelta(hours=t)).strftime("%Y-%m-%dT%H:%M:%SZ")


def save(table: Table, directory: Path, name: str, format: str) -> list[Path]:
    """Write a table as one file, or several with rows dealt out in turn by stretches."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, part in enumerate(np.array_split(np.arange(len(table.rows)), table.parts)):
        path = directory / f"{name}{number:02}.{format}"
        rows = [table.rows[i] for i in part]
        if format == "parquet":
            frame_of(table, rows).write_parquet(path)
        else:
            lines = [text_of(table, row, format) for row in rows]
            for at, line in sorted(table.lines, reverse=True):
                lines.insert(at % (len(lines) + 1), line)
            head = [] if format == "jsonl" else [separator(format).join(table.columns)]
            path.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")
        paths.append(path)
    return paths


def separator(format: str) -> str:
    return {"csv": ",", "tsv": "\t"}[format]


def text_of(table: Table, row: Row, format: str) -> str:
    row = {c: row[c] for c in table.columns}
    if table.stamps and isinstance(row["time"], int):
        row["time"] = moment(row["time"])
    if format == "jsonl":
        return json.dumps(row, ensure_ascii=False)
    return separator(format).join(_field(v, separator(format)) for v in row.values())


def _field(value: Any, separator: str) -> str:
    if value is None:
        return ""
    found = json.dumps(value) if isinstance(value, list) else str(value)
    quoted = found.replace('"', '""')
    return f'"{quoted}"' if separator in found or quoted != found else found


def frame_of(table: Table, rows: list[Row] | None = None) -> pl.DataFrame:
    """The rows as a frame, with the types that its columns would have."""
    rows = table.rows if rows is None else rows
    columns = {c: [row[c] for row in rows] for c in table.columns}
    if table.stamps:
        columns["time"] = [
            START + timedelta(hours=t) if isinstance(t, int) and not table.text else t
            for t in columns["time"]
        ]
    made = {}
    for name, values in columns.items():
        if name == "counts":
            made[name] = pl.Series(name, values, strict=False)
            continue
        mixed = len({type(v) for v in values if v is not None} - {int, float}) > 0 and any(
            isinstance(v, int | float) for v in values
        )
        if mixed or table.text:
            values = [None if v is None else str(v) for v in values]
        made[name] = pl.Series(name, values, strict=False)
    return pl.DataFrame(made)
