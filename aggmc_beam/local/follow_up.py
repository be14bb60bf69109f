"""What follows from estimates for single realizations: flows, forecasts and alarms, as tidy tables.

The sums of a run know no realization by itself, so the records are read once more; as many realizations at once
as are held in memory anyway.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.errors import InputError
from aggmc_beam.local.plan import Plan
from aggmc_beam.progress import ProgressHook, no_progress
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.sums.records import Group, joined_records
from aggmc_beam.text import escape_controls
from aggmc_beam.uses import tables
from aggmc_beam.uses.flow_model import FlowModel, sample
from aggmc_beam.uses.series import Series, series_of

Results = dict[Group, Estimate | Estimates]
Frames = Iterator[pl.DataFrame]


@dataclass
class FollowUp:
    """Writes the tables that a config asks for, from the results of its run. `parts`: in how many parts the
    realizations are held. `skipped` tells of realizations without flows, and why."""

    plan: Plan
    results: Results
    parts: int = 1
    skipped: dict[str, str] = field(default_factory=dict)
    progress: ProgressHook = no_progress
    _held: list[Series] | None = None

    def write(self, directory: Path) -> None:
        """One file for each table."""
        output = self.plan.config.output
        wanted: list[tuple[bool, str, Callable[[], Frames]]] = [
            (output.flows, "flows", self.flows),
            (output.forecast is not None, "forecast", self.forecasts),
            (output.alarms is not None, "alarms", self.alarms),
        ]
        for asked, name, frames in wanted:
            if asked:
                write_frames(frames(), directory / f"{name}.{output.form}")

    def series(self) -> Iterator[list[Series]]:
        """The realizations of each part whose group has an estimate."""
        for part in range(self.parts):
            if self._held is None or self.parts > 1:
                blocks = [
                    b.records for b in self.plan.reader().blocks(None, (part, self.parts)) if len(b.records)
                ]
                found = series_of(joined_records(blocks)) if blocks else iter(())
                self._held = [s for s in found if s.group in self.results]
            yield self._held

    def flows(self) -> Frames:
        self.progress("flows", 0, None)
        models, done = self._models(), 0
        for series in self.series():
            for group, model in models.items():
                own = [s for s in series if s.group == group]
                reasons = [model.why_not(s) for s in own]
                for s, why in zip(own, reasons, strict=True):
                    if why is not None:
                        self.skipped[", ".join([*s.group, s.name])] = why
                fit = [s for s, why in zip(own, reasons, strict=True) if why is None]
                done += len(own) - len(fit)
                for batch, found in model.flows(fit):
                    yield self._frame(tables.flow_table(batch, found, *self._names))
                    done += len(batch)
                    self._tell("flows", done, series)

    def _tell(self, what: str, done: int, series: list[Series]) -> None:
        self.progress(what, done, len(series) if self.parts == 1 else None)

    def _models(self) -> dict[Group, FlowModel]:
        some: dict[Group, list[Series]] = {}
        for series in self.series():
            for group in self.results:
                own = [s for s in series if s.group == group]
                some[group] = sample([*some.get(group, []), *own])
        clock = self.plan.schema.clock
        return {g: FlowModel.learned(self.results[g], found, clock) for g, found in some.items() if found}

    def forecasts(self) -> Frames:
        steps = self.plan.config.output.forecast
        assert steps is not None
        done = 0
        for series in self.series():
            ends = {(s.group, s.name): s for s in series}  # the last of the parts of a realization
            for s in ends.values():
                done += 1
                self._tell("forecasts", done, list(ends.values()))
                yield self._frame(tables.forecast_table(s, self.results[s.group], steps, *self._names))

    def alarms(self) -> Frames:
        rate = self.plan.config.output.alarms
        assert rate is not None
        done = 0
        for group, result in self.results.items():
            before = np.zeros(0)
            for series in self.series():
                for s in (s for s in series if s.group == group):
                    done += 1
                    self._tell("alarms", done, series)
                    table, before = tables.alarm_table(s, result, rate, before, *self._names)
                    yield self._frame(table)

    @property
    def _names(self) -> tuple[Any, ...]:
        return self.plan.schema.group_by, self.plan.schema.clock

    def _frame(self, table: dict[str, np.ndarray]) -> pl.DataFrame:
        text = (*self.plan.schema.group_by, *tables.TEXT)
        return pl.DataFrame(
            {n: pl.Series(n, v.tolist(), pl.String) if n in text else v for n, v in table.items()}
        ).with_columns(pl.col("time").cast(pl.String if self.plan.schema.clock.stamps else pl.Int64))


def write_frames(frames: Frames, path: Path) -> None:
    """Frames of the same columns as one file, Parquet or CSV by its name; made one after the other."""
    parts = [_part(frame, path, i) for i, frame in enumerate(frames)]
    if not parts:
        raise InputError(f"there is nothing to write to {path.name}: no realization has two steps in a row")
    if path.suffix == ".csv":
        with open(path, "wb") as whole:
            for part in parts:
                whole.write(part.read_bytes())
    else:
        pl.scan_parquet(parts).sink_parquet(path)
    for part in parts:
        os.remove(part)


def _part(frame: pl.DataFrame, path: Path, number: int) -> Path:
    part = path.with_name(f"{path.stem}.{number:06}{path.suffix}")
    if path.suffix == ".csv":
        frame.write_csv(part, include_header=number == 0)
    else:
        frame.write_parquet(part)
    return part


def first_rows(frames: Frames, number: int) -> tuple[str, bool]:
    """The first rows as text, columns of text to the left and of numbers to the right; and whether there are
    more."""
    found, rows = [], 0
    for frame in frames:
        found.append(frame)
        rows += len(frame)
        if rows > number:
            break
    if not rows:
        return "", False
    whole = pl.concat(found).head(number)
    columns = []
    for name in whole.columns:
        values = whole[name].to_list()
        cells = [f"{v:.4g}" if isinstance(v, float) else escape_controls(str(v)) for v in values]
        wide = max(map(len, [escape_controls(name), *cells]))
        aligned = str.ljust if whole[name].dtype == pl.String else str.rjust
        columns.append([aligned(text, wide) for text in [escape_controls(name), *cells]])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True)), rows > number
