"""Inputs of the differential fuzzer, drawn by number, and what the definition makes of their rows."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.errors import Rejected
from aggmc_beam.ledger import Ledger
from aggmc_beam.local import csvrows
from aggmc_beam.records import Schema, parse_json, read_record

#: Values that are no plain count, time or name, or only nearly.
ODD = (
    "", " ", "a", " a ", "7", "7.0", " 7.00", "-0", "-0.0", "007", "1e25", "1e31", "NaN", "inf", "true", "{}", "[1]",
    "x\x1cy", "\ufffd", "ü", "9" * 25, "9" * 40, "1.10", "1_0", "٣", "\u2003b", "4,534", "4 534", "4'534",
    "12.5 %", "<5", "fewer than 10", "-", "NA", "*", "c", "1e3", "-3", "−3", "0.1", "+5", ".5", "5.", "0x10", "'5",
    "2026-01-01", "2026-01-01T05:00Z", "2026-01-01 05:00:00+01:00", "2026-01", "2026-W05", "31.01.2026", "01/02/2026",
    "a, b", 'say "5"', "1e-320", "123456789.125",
)  # fmt: skip
#: What takes the place of bytes of a file.
BYTES = (b'"', b",", b"\n", b"{", b"]", b"1", b" ", b"\xff", b"e", b".", b"-", b"\\", b":", b"\t", b"'", b"%")
Key = tuple[tuple[str, ...], str, int]


@dataclass
class Case:
    """Rows of text, and what a config says of them. `data` are the bytes of a file that were changed, by format."""

    rng: random.Random
    layout: str
    states: tuple[str, ...]
    columns: list[str]
    rows: list[dict[str, str]]
    plain: dict[str, Any]
    data: tuple[str, bytes] | None = None
    compared: int = 0


def draw(seed: int, number: int) -> Case:
    """An input by its number."""
    rng = random.Random(f"{seed}:{number}")
    states = tuple(rng.sample(["a", "b", "ü", "1", "d"], rng.randint(2, 4)))
    layout = rng.choice(["wide", "wide", "lists", "long"])
    grouped, stamps, gaps = (rng.random() < p for p in (0.3, 0.25, 0.2))
    population = layout != "long" and rng.random() < 0.1
    counts = {"wide": list(states), "lists": ["counts"], "long": ["state", "count"]}[layout]
    columns = [*(["g"] if grouped else []), "realization", "time", *counts, *(["n"] if population else [])]
    rng.shuffle(columns)
    names = rng.choice([[*"01234"], ["r1", " b ", "ü", "x y"], ["007", "7", "1e5", "-1", "8"]])
    rows = []
    for k, name in enumerate(names):
        skips = rng.random() * 0.3
        for t in range(rng.randint(3, 60)):
            if rng.random() < skips:
                continue
            at = f"2026-01-{1 + t // 24:02}T{t % 24:02}:00:00Z" if stamps else str(t - 3)
            row = {"realization": name, "time": at, "g": "xy"[k % 2], "n": str(100 + k)}
            numbers = [str(rng.randint(0, 300)) for _ in states]
            if gaps and rng.random() < 0.3:
                numbers[rng.randrange(len(states))] = rng.choice(["", "NA", "<5"])
            rows += _rows(row, layout, states, numbers)
    some = [dict(row) for row in rows if rng.random() < 0.15]
    for row in some:  # again, some with another value
        if rng.random() < 0.4:
            row[rng.choice(columns)] = str(rng.randint(0, 9))
    rows = [dict(row) for row in [*rows, *some]]
    dirt = rng.choice([0, 0.05, 0.3])
    for row in rows:
        if rng.random() < dirt:
            row[rng.choice(columns)] = rng.choice(ODD)
    if rng.random() < 0.7:
        rng.shuffle(rows)
    source: dict[str, Any] = {"layout": "long" if layout == "long" else "wide", "columns": {}}
    if layout == "long":
        source["absent"] = rng.choice(["zero", "missing"])
    elif layout == "lists":
        source["columns"]["counts"] = "counts"
    if population:
        source["columns"]["population"] = "n"
    if stamps:
        source["step"] = "1h"
    if gaps and layout != "long" and not population:
        source["missing"] = "pairwise"
    plain = {
        "states": list(states),
        "input": source,
        "noise": {"model": "gaussian", "sigma": 1.0},
        "estimator": "mom",
        "max_rejected": 1.0,
        "uncertainty": {"replicates": rng.choice([2, 5]), "block": 4},
    }
    if not population:
        plain["population"] = 900
    if grouped:
        plain["group_by"] = ["g"]
    case = Case(rng, layout, states, columns, rows, plain)
    if layout != "long" and rng.random() < 0.4:
        kind = rng.choice(["csv", "jsonl"])
        head, body = written(case, rows, kind)
        case.data = kind, head + changed(body, rng)
    return case


def _rows(
    row: dict[str, str], layout: str, states: Sequence[str], numbers: list[str]
) -> list[dict[str, str]]:
    if layout == "wide":
        return [row | dict(zip(states, numbers, strict=True))]
    if layout == "lists":
        return [{**row, "counts": f"[{', '.join(numbers)}]"}]
    return [{**row, "state": s, "count": n} for s, n in zip(states, numbers, strict=True)]


def changed(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 5)):
        at, what = rng.randrange(len(data) + 1), rng.choice(BYTES)
        data = rng.choice(
            [
                data[:at] + what + data[at:],
                data[:at] + data[at + 1 :],
                data[:at] + what + data[at + 1 :],
                data[:at] + data[at + rng.randint(1, 9) :],
                data[:at] + data[max(0, at - 9) :],
            ]
        )
    return data


def written(case: Case, rows: Sequence[Mapping[str, str]], kind: str) -> tuple[bytes, bytes]:
    """A header and rows as the bytes of a file."""
    if kind == "jsonl":
        return b"", "".join(json.dumps(_json(row, case)) + "\n" for row in rows).encode()
    if kind == "parquet":
        out = io.BytesIO()
        values = {c: [row[c] for row in rows] for c in case.columns}
        pl.DataFrame(values, dict.fromkeys(case.columns, pl.String)).write_parquet(out)
        return b"", out.getvalue()
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(case.columns)
    writer.writerows([row[c] for c in case.columns] for row in rows)
    head, body = out.getvalue().encode().split(b"\n", 1)
    return head + b"\n", body


def _json(row: Mapping[str, str], case: Case) -> dict[str, Any]:
    """Numbers as numbers, now and then, and lists as lists."""
    found: dict[str, Any] = {}
    for column in case.columns:
        value = row[column]
        if column == "counts" and value.startswith("["):
            parts = [part.strip() for part in value[1:-1].split(",")]
            found[column] = [int(p) if p.isascii() and p.isdigit() else p for p in parts]
        elif value.isascii() and value.isdigit() and len(value) < 5 and str(int(value)) == value:
            found[column] = int(value)
        else:
            found[column] = value
    return found


# The definition


@dataclass
class Expected:
    """What the definition makes of rows: records by row, rows refused, the ledger, and sums by group."""

    records: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    kept: dict[Key, np.ndarray] = field(default_factory=dict)
    is_told_apart: bool = True
    """Whether no record came again with other counts, so that any order gives the same."""


def define(rows: Sequence[tuple[int, Any]], schema: Schema, absent: str) -> Expected:
    if schema.state is not None:
        return _define_long(rows, schema, absent)
    found = Expected()
    used = again = 0
    for number, row in rows:
        try:
            if isinstance(row, Rejected):
                raise row
            record = read_record(row, schema)
        except Rejected:
            found.refused.append(number)
            continue
        key = (record.group, record.realization, record.time)
        found.records[number] = (*key, tuple(record.counts.tolist()), record.population)
        if key in found.kept:
            again += 1
            found.is_told_apart &= np.array_equal(found.kept[key], record.counts, equal_nan=True)
        else:
            used += 1
            found.kept[key] = record.counts
    found.ledger = Ledger(len(rows), used, again, len(found.refused))
    return found


def _define_long(rows: Sequence[tuple[int, Any]], schema: Schema, absent: str) -> Expected:
    """One bad row costs its record; of repeated states the first counts."""
    found, parts = Expected(), dict[Key, list[tuple[int, Any]]]()
    for number, row in rows:
        try:
            record = read_record(row, schema)
        except Rejected:
            record = None
        try:
            place = read_record({**row, "state": schema.states[0], "count": 1}, schema)
        except Rejected:
            found.refused.append(number)
            continue
        parts.setdefault((place.group, place.realization, place.time), []).append((number, record))
    used = again = 0
    for key, given in parts.items():
        states = {record.state for _, record in given if record is not None}
        if any(record is None for _, record in given) or (
            absent == "missing" and len(states) < len(schema.states)
        ):
            found.refused += [number for number, _ in given]
            continue
        counts = np.zeros(len(schema.states))
        for _, record in reversed(given):
            found.is_told_apart &= counts[record.state] in (0, record.counts[record.state])
            counts[record.state] = record.counts[record.state]
        found.kept[key] = counts
        used, again = used + len(states), again + len(given) - len(states)
        found.records[given[0][0]] = (*key, tuple(counts.tolist()), None)
    found.ledger = Ledger(len(rows), used, again, len(found.refused))
    return found


def rows_in(case: Case, kind: str, data: bytes) -> list[tuple[int, Any]]:
    """The rows of a file as Python reads them, numbered; of one that is none, why."""
    if kind == "parquet":
        return list(enumerate(pl.read_parquet(io.BytesIO(data)).to_dicts(), 1))
    lines = data.split(b"\n")
    if kind == "jsonl":
        return [(i, _parsed(line)) for i, line in enumerate(lines, 1) if line.strip()]
    names, given = case.columns, []
    lines = lines[1:] if lines[-1] else lines[1:-1]
    if b'"' not in data:
        given = [(i, line.decode(errors="replace").split(",")) for i, line in enumerate(lines, 2)]
    else:  # a mark may be astray
        used = [names.index(c) for c in names]
        found, _ = csvrows.find_rows(lines, range(len(lines)), ",", len(names), used)
        given = [(row.at + 2, row.fields if row.fields is not None else row.reason) for row in found]
    rows: list[tuple[int, Any]] = []
    for number, fields in given:
        if isinstance(fields, str):
            rows.append((number, Rejected(fields)))
        elif any(fields):
            fits = len(fields) == len(names)
            rows.append(
                (number, dict(zip(names, fields, strict=True)) if fits else Rejected("fields of another row"))
            )
    return rows


def _parsed(line: bytes) -> Any:
    try:
        return parse_json(line)
    except Rejected as error:
        return error
