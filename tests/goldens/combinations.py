"""Combinations of what users have: any two values of two columns stand in one of them, where they can go
together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

import aggmc_beam as am
from aggmc_beam.noise import noise_from_dict

from . import data, doors, tables
from .case import CLOSE, DOWNHILL, FRACTIONS, SEARCHED

VALUES = {
    "door": ("array", "frame", "path", "run"),
    "format": ("jsonl", "csv", "tsv", "parquet", "-"),
    "layout": ("wide", "list", "long"),
    "chain": tuple(data.SHAPES),
    "groups": tuple(tables.GROUPS),
    "population": ("number", "column", "estimate", "totals"),
    "noise": tuple(data.NOISES),
    "estimator": ("mom", "gmm", "fast", "simplex", "cls", "corrected-cls", "limle", "naive", "auto"),
    "dirt": (
        "neat", "gaps", "repeats", "conflicts", "shuffled", "broken", "wrong", "missing", "text names",
        "mixed names", "stamps", "fractions", "huge", "many files", "gaps repeats shuffled", "all dirt",
    ),
}  # fmt: skip
#: As configs and as Python write them. The cycle is 4 steps, windows overlap.
CHAINS: Mapping[str, tuple[Any, Any]] = {
    "stationary": ("stationary", "stationary"),
    "per-step": ("per-step", "per-step"),
    "window": ({"window": {"size": 20, "every": 10}}, am.Window(20, 10)),
    "cycle": ({"cycle": 4}, am.Cycle(4)),
    "parametric": ({"harmonics": {"period": 6, "order": 1}}, am.Parametric.harmonics(6, 1)),
}
REPLICATES = 6
HUGE = 3_000_000_000


@dataclass(frozen=True)
class Combination:
    door: str
    format: str
    layout: str
    chain: str
    groups: str
    population: str
    noise: str
    estimator: str
    dirt: str

    @property
    def id(self) -> str:
        return " | ".join(v for v in astuple(self) if v != "-")

    @property
    def possible(self) -> bool:
        """Whether the values go together."""
        text = self.format in ("jsonl", "csv", "tsv")
        rules = (
            (self.format == "-") == (self.door in ("array", "frame")),
            self.door != "array" or (self.layout == "wide" and self.groups == "no groups"),
            self.door != "array" or self.dirt in ("neat", "gaps", "fractions", "huge"),
            (self.population != "totals") or self.noise == "exact",
            (self.population != "estimate") or self.noise != "exact",
            self.dirt not in ("fractions", "huge") or self.noise == "gaussian",
            self.dirt not in ("broken", "all dirt") or text,
            self.dirt != "many files" or self.door in ("path", "run"),
            self.estimator != "limle" or self.chain in ("stationary", "window"),
        )
        return all(rules)

    @property
    def seed(self) -> int:
        return crc32(self.id.encode())

    @property
    def tolerance(self) -> float:
        """How far numbers may be from what was recorded, relative to the largest of their kind.

        Counts of 10^9 whose moves matter by one need nine of the sixteen digits.
        """
        if self.is_descent:
            return DOWNHILL
        if self.estimator in ("gmm", "fast", "auto"):
            return SEARCHED
        if self.dirt == "huge":
            return 1e-6
        whole = self.noise in ("binomial", "detection") or (self.noise, self.population) == (
            "exact",
            "number",
        )
        return CLOSE if whole and self.population != "column" else FRACTIONS

    @property
    def is_descent(self) -> bool:
        """Whether the matrix is found by steps downhill that end when they are short. Then few states with
        many individuals, so that there is one bottom."""
        return self.estimator == "limle" or self.chain == "parametric"

    @property
    def size(self) -> int:
        """Individuals behind a realization."""
        return HUGE if self.dirt == "huge" else 30_000 if self.is_descent else 300

    @property
    def S(self) -> int:
        return 2 if self.is_descent else 2 + self.seed % 3

    def draw(self) -> tuple[list[str], list[data.Panel]]:
        """The states, and a panel for each group."""
        K, T = data.SHAPES[self.chain]
        S = self.S
        rng = np.random.default_rng(self.seed)
        period = {"cycle": 4, "parametric": 6}.get(self.chain, 0)
        vary = self.population in ("column", "totals")
        number = len(tables.GROUPS[self.groups][1])
        about = (K, T, S, self.noise, self.size, vary, period, self.is_descent)
        panels = [data.panel(rng, *about) for _ in range(number)]
        return list(data.STATES[:S]), panels

    def record(self, directory: Path) -> doors.Record:
        found = self._record(directory)
        # Of counts so large, rounding decides the errors.
        return found | {"errors": {}} if self.dirt == "huge" else found

    def _record(self, directory: Path) -> doors.Record:
        states, panels = self.draw()
        if self.door == "array":
            return self._array(states, panels[0])
        table = self.table(states, panels)
        if self.door == "run":
            tables.save(table, directory / "data", "part", self.format)
            return doors.run(self.config(table, directory), directory)
        if self.door == "frame":
            found = tables.frame_of(table)
            return doors.estimate(found.lazy() if self.seed % 2 else found, **self.options(table))
        tables.save(table, directory / "data", "part", self.format)
        return doors.estimate(str(directory / "data" / f"*.{self.format}"), **self.options(table))

    def _array(self, states: list[str], panel: data.Panel) -> doors.Record:
        rng = np.random.default_rng(self.seed + 1)
        y = panel.counts.copy()
        if self.dirt == "gaps":
            y[rng.random(y.shape[:2]) < 0.08] = np.nan
        if self.dirt == "fractions":
            y = y * 1.25
        number: Any = float(panel.population[0])
        population = {"number": number, "column": panel.population}.get(self.population, "estimate")
        return doors.estimate(y, states=states, population=population, **self._settings())

    def _settings(self) -> dict[str, Any]:
        return {
            "noise": noise_from_dict(data.describe_noise(self.noise, self.S)),
            "chain": CHAINS[self.chain][1],
            "estimator": self.estimator,
            "replicates": REPLICATES,
        }

    def table(self, states: list[str], panels: list[data.Panel]) -> tables.Table:
        rng = np.random.default_rng(self.seed + 1)
        group_by, groups = tables.GROUPS[self.groups]
        column = self.population == "column"
        rows = tables.rows_of(panels, group_by, groups, states, column)
        dirt = self.dirt
        if dirt == "fractions":
            rows = [row | {s: row[s] * 1.25 for s in states} for row in rows]
        if dirt == "text names":
            rows = tables.rename(lambda k, i: f"{'ü' * (k % 2)}day {k}")(rows, rng)
        if dirt == "mixed names":
            # In text all are the same name, in Parquet and frames numbers with a point are.
            kinds = (int, float, str) if self.format == "jsonl" else (int,)
            if self.format in ("parquet", "-"):
                kinds = (float,)
            rows = tables.rename(lambda k, i: kinds[i % len(kinds)](k))(rows, rng)
        if dirt in ("gaps", "gaps repeats shuffled", "all dirt"):
            rows = tables.drop_some(rows, rng)
        if dirt in ("repeats", "gaps repeats shuffled", "all dirt"):
            rows = tables.repeat_some(rows, rng)
        if dirt in ("conflicts", "all dirt"):
            rows = tables.contradict(states)(rows, rng)
        if dirt in ("shuffled", "gaps repeats shuffled", "all dirt"):
            rows = tables.shuffle(rows, rng)
        rows = tables.lay_out(rows, states, self.layout)
        first = {"wide": states[0], "list": "counts", "long": "count"}[self.layout]
        if dirt in ("wrong", "all dirt"):
            wrong = tables.WRONG
            if self.format in ("parquet", "-") and self.layout == "list":
                wrong = {"time": wrong["time"], "count": [float("nan"), 1e40, float("-inf")]}
            rows = tables.damage(rows, rng, wrong, first)
        if dirt in ("missing", "all dirt"):
            rows = tables.damage(rows, rng, tables.MISSING, first)
        made = tables.Table(rows, states, group_by, self.layout, column, stamps=dirt == "stamps")
        made.parts = 4 if dirt in ("many files", "all dirt") else 1
        if dirt in ("broken", "all dirt"):
            made.lines = [(5, self._broken(made)), (17, "{" if self.format == "jsonl" else "x")]
        return made

    def _broken(self, table: tables.Table) -> str:
        """A line that is cut short, or one with too many fields."""
        whole = tables.text_of(table, table.rows[0], self.format)
        if self.format == "jsonl":
            return whole[: len(whole) // 2]
        separator = tables.separator(self.format)
        if self.seed % 2:
            return separator.join(whole.split(separator)[:2])
        return whole + 2 * f"{separator}9"

    def options(self, table: tables.Table) -> dict[str, Any]:
        """Of `am.estimate`."""
        found = {**self._settings(), "states": table.states, "population": self._population()}
        if table.group_by:
            found["group_by"] = list(table.group_by)
        if self.layout == "long":
            found["state"] = "state"
        if table.stamps:
            found["step"] = "1h"
        return found

    def _population(self) -> Any:
        return {"number": float(self.size), "column": "people"}.get(self.population, "estimate")

    def config(self, table: tables.Table, directory: Path) -> dict[str, Any]:
        input: dict[str, Any] = {
            "files": str(directory / "data" / f"*.{self.format}"),
            "layout": "long" if self.layout == "long" else "wide",
            "columns": {"population": "people"} if self.population == "column" else {},
        }
        if table.stamps:
            input["step"] = "1h"
        plain: dict[str, Any] = {
            "states": table.states,
            "input": input,
            "noise": data.describe_noise(self.noise, len(table.states)),
            "chain": CHAINS[self.chain][0],
            "estimator": self.estimator,
            "uncertainty": {"replicates": REPLICATES},
        }
        if table.group_by:
            plain["group_by"] = list(table.group_by)
        if self.population in ("number", "estimate"):
            plain["population"] = self.size if self.population == "number" else "estimate"
        return plain


def read_table(text: str) -> list[Combination]:
    """Combinations from lines with columns between bars."""
    rows = [[v.strip() for v in line.split("|")] for line in text.strip().splitlines()]
    return [Combination(*row) for row in rows]
