"""Dirty input files of every format and layout, and an account of their rows by the rules, row by row."""

from __future__ import annotations

import json
from dataclasses import dataclass

import frames
import numpy as np
import polars as pl

from aggmc_beam.ledger import Ledger

STATES = ["home", "work"]
#: Broken fields of a row, by name. Each makes it no record.
BROKEN = [
    {"realization": ""},
    {"time": "noon"},
    {"time": "1.5"},
    {"time": ""},
    {"home": "many"},
    {"home": "nan"},
    {"work": "-inf"},
    {"work": ""},
]
BROKEN_LONG = [{"realization": ""}, {"time": "noon"}, {"count": "many"}, {"count": ""}, {"state": "hme"}]


@dataclass
class Feed:
    """Rows as dictionaries of text, in the order of the files, and how they are to be written."""

    rows: list[dict]
    layout: str
    suffix: str
    grouped: bool
    absent: str = "zero"

    def write(self, directory, parts):
        """Deal the rows over files, in order; the pattern that names them."""
        for number, part in enumerate(np.array_split(np.arange(len(self.rows)), parts)):
            save([self.rows[i] for i in part], directory / f"part{number:02}.{self.suffix}", self.columns)
        return directory / f"part*.{self.suffix}"

    @property
    def columns(self):
        counts = ["state", "count"] if self.layout == "long" else STATES
        return [*(["region"] if self.grouped else []), "realization", "time", *counts]

    def config(self, pattern, **more):
        input = {"layout": self.layout, **more.pop("input", {})}
        if self.layout == "long":
            input["absent"] = self.absent
        if self.grouped:
            more["group_by"] = ["region"]
        return frames.config(pattern, states=STATES, input=input, **more)


def make(seed, layout="wide", suffix="csv", grouped=False, absent="zero", K=4, T=10):
    """Records of K realizations, with gaps, repetitions, contradictions and garbage, in any order."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(K):
        for t in range(T):
            if t and rng.random() < 0.1:
                continue
            count = rng.integers(0, 40, 2)
            rows += _record(k, t, count, layout)

    def some(share):
        return [rows[i] for i in np.flatnonzero(rng.random(len(rows)) < share)]

    name = "count" if layout == "long" else "home"
    again, other = some(0.2), [{**row, name: str(int(row[name]) + 1)} for row in some(0.05)]
    kinds = BROKEN_LONG if layout == "long" else BROKEN
    broken = [{**row, **kinds[rng.integers(len(kinds))]} for row in some(0.1)]
    absentees = some(0.05) if layout == "long" else []
    rows = [row for row in rows if row not in absentees] + again + other + broken
    rows = [dict(row) for row in rows]
    if rng.random() < 0.7:
        rng.shuffle(rows)
    for row in rows:
        row["region"] = ["north", "south"][int(row["realization"] or 0) % 2]
    return Feed(rows, layout, suffix, grouped, absent)


def _record(k, t, count, layout):
    if layout == "long":
        return [
            {"realization": str(k), "time": str(t), "state": s, "count": str(c)}
            for s, c in zip(STATES, count, strict=True)
        ]
    return [{"realization": str(k), "time": str(t), "home": str(count[0]), "work": str(count[1])}]


def save(rows, path, columns):
    if path.suffix == ".jsonl":
        text = "".join(json.dumps({c: row[c] for c in columns}) + "\n" for row in rows)
        path.write_text(text, encoding="utf-8")
    elif path.suffix == ".csv":
        lines = [",".join(columns), *(",".join(row[c] for c in columns) for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        text = {c: [row[c] for row in rows] for c in columns}
        pl.DataFrame(text, dict.fromkeys(columns, pl.String)).write_parquet(path)


def account(feed, known=frozenset()):
    """The ledger of some rows by the definition, and the records known after them."""
    return (_account_long if feed.layout == "long" else _account_wide)(feed, set(known))


def _number(text):
    try:
        return np.isfinite(float(text))
    except ValueError:
        return False


def _has_key(row):
    return row["realization"] != "" and row["time"].lstrip("-").isdigit()


def _key(feed, row):
    return (row["region"] if feed.grouped else "", row["realization"], row["time"])


def _account_wide(feed, known):
    used = duplicate = rejected = 0
    for row in feed.rows:
        if not _has_key(row) or not all(_number(row[s]) for s in STATES):
            rejected += 1
        elif _key(feed, row) in known:
            duplicate += 1
        else:
            used += 1
            known.add(_key(feed, row))
    return Ledger(len(feed.rows), used, duplicate, rejected), known


def _account_long(feed, known):
    """A record is made of its rows; one bad row, or with `absent: missing` one too few, costs them all."""
    used = duplicate = rejected = 0
    records = {}
    for row in feed.rows:
        if _has_key(row):
            records.setdefault(_key(feed, row), []).append(row)
        else:
            rejected += 1
    for key, rows in records.items():
        states = {row["state"] for row in rows}
        bad = states - set(STATES) or not all(_number(row["count"]) for row in rows)
        if bad or (feed.absent == "missing" and len(states) < len(STATES)):
            rejected += len(rows)
        elif key in known:
            duplicate += len(rows)
        else:
            used += len(states)
            duplicate += len(rows) - len(states)
            known.add(key)
    return Ledger(len(feed.rows), used, duplicate, rejected), known
