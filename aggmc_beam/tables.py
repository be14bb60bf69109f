"""Results as tables: columns by name, and what other programs take: frames, CSV, Excel, Arrow."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.errors import InputError, nearest
from aggmc_beam.printing import people_per_step
from aggmc_beam.text import check_cells, escape_controls

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from aggmc_beam.result import Estimate

Columns = dict[str, list[Any]]

#: Columns that stand before the others where there are values for them.
PLACES = ("group", "cell", "window", "window_end", "refresh")
#: Those among all columns that hold whole numbers, and texts.
WHOLE = ("cell", "refresh", "records", "pairs", "warnings")
TEXTS = ("group", "window", "window_end", "from", "to", "estimator", "ground", "largest_from", "largest_to")
#: Columns of the tidy table of transitions.
TIDY = ("from", "to", "probability", "error", "lower", "upper")
FORMS = ("tidy", "matrix", "summary")
#: Tables that runs write, by the names of their files, and in which formats.
WRITTEN = {"transitions": "tidy", "summary": "summary"}
FORMATS = ("csv", "parquet")
#: Rows and columns of a sheet of Excel.
SHEET = (1_048_576, 16_384)


class Tabular:
    """A result that `columns` makes tables of; the rest is the same for all of them."""

    def _columns(self, form: str) -> Columns:
        """The columns of a table, as lists; None and NaN where there is no number."""
        found: Columns = self.columns(form)  # type: ignore[attr-defined]
        return found

    def to_frame(self, form: str = "tidy") -> pl.DataFrame:
        """A Polars frame, with null where there is no number."""
        return typed(self._columns(form))

    def to_pandas(self, form: str = "tidy") -> pd.DataFrame:
        """A pandas frame, with NaN where there is no number."""
        return need("pandas", "pandas").DataFrame(self._columns(form))

    def to_arrow(self, form: str = "tidy") -> pa.Table:
        """An Arrow table, with null where there is no number."""
        arrow = need("pyarrow", "pyarrow")
        columns = {
            name: arrow.array(values, from_pandas=True) for name, values in self._columns(form).items()
        }
        return arrow.table(columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The tidy table for whoever reads Arrow: Polars, DuckDB, pandas and others."""
        return self.to_frame().__arrow_c_stream__(requested_schema)

    def to_csv(self, path: str | os.PathLike[str] | None = None, form: str = "tidy") -> str | None:
        """CSV into a file, or as text if no path is given; empty where there is no number."""
        text = csv_text(self._columns(form), "the file" if path is None else path)
        if path is None:
            return text
        with open(path, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        return None

    def to_excel(self, path: str | os.PathLike[str]) -> None:
        """A workbook with a sheet for each form of the table; needs XlsxWriter (the extra `excel`)."""
        write_excel({form: self._columns(form) for form in self.forms}, path)

    #: The forms that there are.
    forms: tuple[str, ...] = FORMS


def need(module: str, package: str) -> Any:
    """A library that not everybody has, or an `InputError` that says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"{package} is needed for that: pip install {package}") from error


def columns_of(estimates: Sequence[Estimate], form: str = "tidy", always: Sequence[str] = ()) -> Columns:
    """The table of some estimates: "tidy" has a row per transition, "matrix" one per state with a column for
    each state that it leads to, "summary" one per estimate. Places that no estimate has are left out, but for
    those in `always`.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=50, seed=1)
    >>> columns_of([am.estimate(y, states=["in", "out"])])["to"]
    ['in', 'out', 'in', 'out']
    """
    if form not in FORMS:
        raise InputError(f"there is no table {form!r}; {nearest(form, FORMS)}")
    rows = {"tidy": _tidy, "matrix": _matrix, "summary": _summary}[form](estimates)
    repeats = [
        len(e.states) ** 2 if form == "tidy" else len(e.states) if form == "matrix" else 1 for e in estimates
    ]
    places: Columns = {name: [] for name in PLACES}
    for e, times in zip(estimates, repeats, strict=True):
        for name, value in place_of(e).items():
            places[name] += [value] * times
    kept = {name: v for name, v in places.items() if name in always or any(x not in (None, 0) for x in v)}
    if any(e.cell is not None for e in estimates):
        kept["cell"] = places["cell"]
    return {name: kept[name] for name in PLACES if name in kept} | rows


def place_of(e: Estimate) -> dict[str, Any]:
    """Where an estimate belongs: the values of its group with commas between, its cell, its window."""
    window = e.window or {}
    return {
        "group": None if not e.group else ", ".join(str(v) for v in e.group.values()),
        "cell": e.cell,
        "window": window.get("start"),
        "window_end": window.get("end"),
        "refresh": e.refresh,
    }


def _tidy(estimates: Sequence[Estimate]) -> Columns:
    found: Columns = {name: [] for name in TIDY}
    for e in estimates:
        S = len(e.states)
        lower, upper = e.interval()
        found["from"] += [s for s in e.states for _ in range(S)]
        found["to"] += list(e.states) * S
        for name, values in zip(TIDY[2:], (e.transition_matrix, e.standard_error, lower, upper), strict=True):
            found[name] += values.ravel().tolist()
    return found


def _matrix(estimates: Sequence[Estimate]) -> Columns:
    names = list(dict.fromkeys(s for e in estimates for s in e.states))
    first = next(name for name in ("from", "from_state", "from_state_") if name not in names)
    found: Columns = {first: [s for e in estimates for s in e.states]}
    for name in names:
        found[name] = [
            value
            for e in estimates
            for value in (
                e.transition_matrix[:, e.states.index(name)].tolist()
                if name in e.states
                else [float("nan")] * len(e.states)
            )
        ]
    return found


def _summary(estimates: Sequence[Estimate]) -> Columns:
    rows = [summary_of(e) for e in estimates]
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}


def summary_of(e: Estimate) -> dict[str, Any]:
    """An estimate in a row: what it was made from, how many stay, and the move that most people make.

    `stay` is the share of people who stay from one step to the next in the long run.
    """
    P, moves = e.transition_matrix, people_per_step(e)
    known = np.isfinite(np.diag(P)) & (e.stationary > 0)
    weight = e.stationary[known].sum()
    np.fill_diagonal(moves, np.nan)
    i, j = divmod(int(np.nanargmax(moves)), len(P)) if np.isfinite(moves).any() else (0, 0)
    has_move = i != j
    return {
        "records": int(e.counts["records"]),
        "pairs": int(e.counts["pairs"]),
        "population": float(e.population),
        "estimator": e.estimator,
        "ground": (e.diagnostics.get("ground") or {}).get("name"),
        "stay": float(e.stationary[known] @ np.diag(P)[known] / weight) if weight > 0 else float("nan"),
        "largest_from": e.states[i] if has_move else None,
        "largest_to": e.states[j] if has_move else None,
        "probability": float(P[i, j]) if has_move else float("nan"),
        "error": float(e.standard_error[i, j]) if has_move else float("nan"),
        "warnings": len(e.warnings),
    }


def csv_text(columns: Mapping[str, Sequence[Any]], file: object) -> str:
    """The table as CSV; `InputError` if a spreadsheet would run one of its texts."""
    for name, values in columns.items():
        check_cells([name, *dict.fromkeys(v for v in values if isinstance(v, str))], file)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(v) for v in row] for row in zip(*columns.values(), strict=True))
    return stream.getvalue()


def _cell(value: Any) -> Any:
    return "" if value is None or (isinstance(value, float) and not np.isfinite(value)) else value


def table_files(
    estimates: Sequence[Estimate], formats: Sequence[str], always: Sequence[str] = ()
) -> Iterator[tuple[str, str, bytes]]:
    """(name, format, content) of the tables that a run writes."""
    for name, form in WRITTEN.items() if formats else ():
        columns = columns_of(estimates, form, always)
        for format in formats:
            if format == "csv":
                yield name, format, csv_text(columns, f"{name}.csv").encode(errors="backslashreplace")
                continue
            stream = io.BytesIO()
            typed(columns).write_parquet(stream)
            yield name, format, stream.getvalue()


def typed(columns: Columns) -> pl.DataFrame:
    """A Polars frame whose columns have their types even where all values are missing."""
    polars = need("polars", "polars")
    frame: pl.DataFrame = polars.DataFrame(columns, strict=False).fill_nan(None)
    unknown = [name for name, kind in frame.schema.items() if kind == polars.Null]
    kinds: Any = {
        name: polars.Int64 if name in WHOLE else polars.String if name in TEXTS else polars.Float64
        for name in unknown
    }
    return frame.cast(kinds)


def write_excel(sheets: Mapping[str, Columns], path: str | os.PathLike[str]) -> None:
    """A workbook; texts are written as texts, so that none of them is run as a formula."""
    for name, columns in sheets.items():
        size = (1 + max(map(len, columns.values()), default=0), len(columns))
        if size[0] > SHEET[0] or size[1] > SHEET[1]:
            raise InputError(
                f"the table {name!r} has {size[0]:,} rows, more than a sheet holds; write CSV or Parquet"
            )
    workbook = need("xlsxwriter", "xlsxwriter").Workbook(os.fspath(path))
    with workbook:
        bold = workbook.add_format({"bold": True})
        for name, columns in sheets.items():
            sheet = workbook.add_worksheet(name)
            sheet.freeze_panes(1, 0)
            for k, (title, values) in enumerate(columns.items()):
                sheet.write_string(0, k, escape_controls(title), bold)
                for n, value in enumerate(values, 1):
                    if isinstance(value, str):
                        sheet.write_string(n, k, escape_controls(value))
                    elif _cell(value) != "":
                        sheet.write_number(n, k, value)
