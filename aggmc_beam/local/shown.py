"""What a report shows of the tables of flows, forecasts and alarms that a run has written: a few rows of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

#: Rows of each table, and steps of a forecast.
ROWS, STEPS = 30, 12


def shown_tables(directory: Path, group_by: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By name of the table: `columns`, as lists, and a sentence that says of what they are."""
    found = {}
    for name, show in (("flows", _flows), ("forecast", _forecast), ("alarms", _alarms)):
        table = _table(directory, name)
        if table is not None:
            said, rows = show(table, [g for g in group_by if g in table.collect_schema()])
            found[name] = {"said": said, "columns": rows.to_dict(as_series=False)}
    return found


def _table(directory: Path, name: str) -> pl.LazyFrame | None:
    for path, scan in (
        (directory / f"{name}.parquet", pl.scan_parquet),
        (directory / f"{name}.csv", pl.scan_csv),
    ):
        if path.is_file():
            return scan(path)
    return None


def _flows(table: pl.LazyFrame, group_by: list[str]) -> tuple[str, pl.DataFrame]:
    moves = table.filter(pl.col("from") != pl.col("to"))
    mean = (
        moves.group_by([*group_by, "from", "to"])
        .agg(pl.col("mean").mean().alias("per step"), pl.col("mean").sum().alias("in all"))
        .sort("in all", "from", "to", descending=[True, False, False])
        .collect()
    )
    said = "How many moved, on average over all steps and realizations"
    return f"{said}{_of(len(mean))}. {_file('flows')}", mean.head(ROWS)


def _forecast(table: pl.LazyFrame, group_by: list[str]) -> tuple[str, pl.DataFrame]:
    places = [*group_by, "realization"]
    first = table.select(places).head(1).collect()
    if not len(first):
        return "No realization has a forecast.", pl.DataFrame()
    own = table
    for name in places:
        own = own.filter(pl.col(name) == first[name][0])
    rows = own.select("time", "state", "mean", "standard_error", "lower", "upper").collect()
    times = rows["time"].unique(maintain_order=True).head(STEPS)
    number = table.select(pl.struct(places).n_unique()).collect().item()
    named = ", ".join(str(v) for v in first.row(0))
    others = f", the first of {number:,} realizations" if number > 1 else ""
    said = f"Counts of the next steps in {named}{others}. {_file('forecast')}"
    return said, rows.filter(pl.col("time").is_in(times.implode()))


def _alarms(table: pl.LazyFrame, group_by: list[str]) -> tuple[str, pl.DataFrame]:
    rows = table.sort("time", descending=True).collect()
    rate = f" A part {rate[0]:g} of steps would where nothing happens." if len(rate := rows["rate"]) else ""
    said = f"{len(rows):,} steps raised an alarm, the latest first{_of(len(rows))}.{rate} {_file('alarms')}"
    return said, rows.drop("rate").head(ROWS)


def _of(number: int) -> str:
    return "" if number <= ROWS else f"; {ROWS} of {number:,} rows"


def _file(name: str) -> str:
    return f"All are in the file {name}."
