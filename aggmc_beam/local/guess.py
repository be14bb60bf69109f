"""A first config from a look at the data: what `aggmc init` writes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from aggmc_beam.errors import InputError
from aggmc_beam.local.sources import Source, open_files
from aggmc_beam.times import instant, microseconds

#: Rows that are looked at.
ROWS = 20_000
#: More values than this of a column are no states or groups.
MOST = 300
TIMES = (
    "time",
    "timestamp",
    "datetime",
    "date",
    "step",
    "hour",
    "t",
    "ds",
    "period",
    "week",
    "month",
    "year",
    "day",
)
RUNS = ("realization", "run", "series", "unit", "id", "site", "area", "district", "tract", "station", "panel", "day",
        "date", "region", "group")  # fmt: skip
STATES = ("state", "category", "class", "status", "party", "zone", "place", "kind", "name")
COUNTS = ("count", "counts", "n", "number", "value", "total", "people", "devices", "individuals")
STEPS = ("1m", "5m", "10m", "15m", "30m", "1h", "2h", "3h", "6h", "12h", "1d", "1w")


@dataclass(frozen=True)
class Guess:
    """What the columns seem to hold."""

    pattern: str
    columns: tuple[str, ...]
    realization: str | None
    time: str
    step: str | int
    states: tuple[str, ...]
    state: str | None
    count: str | None
    groups: tuple[str, ...]
    negative: bool
    totals_vary: bool


def guess(pattern: str) -> Guess:
    """Look at the first rows of files; `InputError` if they hold no times or counts."""
    source = open_files([pattern])[0]
    frame = _head(source)
    names = list(frame.columns)
    time = _named(names, TIMES) or next((c for c in names if frame[c].dtype.is_temporal()), None)
    if time is None:
        raise InputError(f"no column of {source.name} looks like a time; its columns are {_listed(names)}")
    rest = [c for c in names if c != time]
    texts = [c for c in rest if frame[c].dtype == pl.String]
    numbers = [c for c in rest if frame[c].dtype.is_numeric()]
    lists = [c for c in rest if isinstance(frame[c].dtype, pl.List)]
    state = _named(texts, STATES) if not lists else None
    count = _named(numbers, COUNTS) if state is not None else None
    if state is not None and count is None:
        state = None
    realization = _named([c for c in rest if c not in (state, count)], RUNS) if rest else None
    counted = [c for c in numbers if c != realization and c.lower() not in RUNS]
    if state is not None:
        states = tuple(str(s) for s in frame[state].unique(maintain_order=True).drop_nulls().head(MOST + 1))
        values = frame[str(count)]
    elif lists:
        states, values = (), frame[lists[0]].explode().cast(pl.Float64, strict=False)
    elif counted:
        states = tuple(counted)
        values = frame.select(pl.concat_list(counted).explode())[:, 0]
    else:
        raise InputError(f"no column of {source.name} looks like counts; its columns are {_listed(names)}")
    if len(states) > MOST:
        raise InputError(f"column {state!r} has more than {MOST} values, too many for states")
    groups = tuple(c for c in texts if c not in (state, realization) and frame[c].n_unique() <= MOST)
    totals = frame.select(pl.sum_horizontal(counted)) if state is None and counted else frame.head(0)
    return Guess(
        pattern, tuple(names), realization, time, _step(frame[time]), states, state, count, groups,
        bool((values.drop_nulls() < 0).any()), totals.width > 0 and totals[:, 0].n_unique() > 1,
    )  # fmt: skip


def config_text(found: Guess, name: str, directory: str) -> str:
    """The guess as a commented config."""
    realization = found.realization or "realization"
    columns = [f"realization: {_plain(realization)}", f"time: {_plain(found.time)}"]
    if found.state is not None:
        columns += [f"state: {_plain(found.state)}", f"counts: {_plain(str(found.count))}"]
    lines = [
        f"# Written from a look at {found.pattern}: check every line that ends in a question mark.",
        f"# Its columns: {', '.join(found.columns)}",
        "version: 1",
        f"name: {_plain(name)}",
        f"states: [{', '.join(map(_plain, found.states))}]" if found.states else "states: from-data",
        "",
        "input:",
        f"  files: {_plain(found.pattern)}",
        *(["  layout: long                 # a row for each state"] if found.state is not None else []),
        f"  columns: {{{', '.join(columns)}}}   # is this what they hold?",
        f"  step: {found.step}                      # from one record to the next?",
        *(["  absent: zero                 # what a state without a row means: zero, or missing?"]
          if found.state is not None else []),
    ]  # fmt: skip
    if found.realization is None:
        lines.insert(
            7,
            "  # No column tells independent series apart. Add one, which may hold the same value in every row.",
        )
    groups = [g for g in found.groups if g != realization]
    if groups:
        lines += [
            "",
            "# One matrix for each value of these columns?",
            f"# group_by: [{', '.join(map(_plain, groups))}]",
        ]
    return "\n".join([*lines, "", *_assumptions(found), "", *_output(directory), ""])


def _assumptions(found: Guess) -> list[str]:
    if found.negative:
        noise = ["# Counts below 0: noise was added to them. How much?", "noise: {model: laplace, scale: 1}"]
    else:
        noise = [
            "# How the counts came about? exact: everyone is counted. Others: {model: binomial, alpha: 0.5}, each",
            "# is seen with probability alpha; {model: panel}, one sample at all steps; {model: laplace, scale: 2}.",
            "noise: {model: exact}",
        ]
        if found.totals_vary:
            noise.insert(
                0, "# Totals change from row to row, so they are hardly exact counts of a closed population."
            )
    season = "  # try {cycle: 24} for hour of day" if found.step == "1h" else ""
    return [
        *noise,
        "population: estimate             # a number if it is known",
        f"chain: stationary                # one matrix for all times?{season}",
        "estimator: auto",
    ]


def _output(directory: str) -> list[str]:
    return ["output:", f"  directory: {_plain(directory)}", "  report: true", "  tables: [csv]"]


def _head(source: Source) -> pl.DataFrame:
    """The first rows, with numbers as numbers."""
    from aggmc_beam.records import Schema

    if source.format == "csv":
        return pl.read_csv(source.name, separator=source.separator, n_rows=ROWS, infer_schema_length=ROWS,
                           try_parse_dates=False, truncate_ragged_lines=True, ignore_errors=True)  # fmt: skip
    if source.format == "jsonl":
        with open(source.name, encoding="utf-8") as stream:
            rows = [json.loads(line) for line, _ in zip(stream, range(ROWS), strict=False) if line.strip()]
        return pl.from_dicts(rows, infer_schema_length=None)
    first = next(source.batches(Schema((), ""), list(source.columns)))()
    return first.frame.head(ROWS)


def _named(columns: Sequence[str], words: Sequence[str]) -> str | None:
    """The column that is called like the first word that one is called like."""
    for word in words:
        for column in columns:
            if word in re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column).lower()):
                return column
    return None


def _step(times: pl.Series) -> str | int:
    """The smallest gap between times."""
    if times.dtype == pl.String:
        try:
            moments = np.array([instant(t) for t in times.unique().drop_nulls().head(5000)])
        except InputError:
            return 1
    elif times.dtype.is_temporal():
        moments = times.cast(pl.Datetime("us")).dt.epoch("us").unique().drop_nulls().to_numpy()
    else:
        gaps = np.diff(np.unique(times.drop_nulls().to_numpy().astype(np.float64)))
        return max(int(gaps.min()), 1) if len(gaps) else 1
    gaps = np.diff(np.unique(moments))
    if not len(gaps):
        return "1d"
    gap = int(gaps.min())
    fitting = [step for step in STEPS if gap % microseconds(step) == 0]
    return _multiple(gap, fitting[-1]) if fitting else f"{max(gap // 10**6, 1)}s"


def _multiple(gap: int, unit: str) -> str:
    return f"{gap // microseconds(unit) * int(unit[:-1])}{unit[-1]}"


def _plain(text: str) -> str:
    """A YAML scalar; quoted unless it is a plain word."""
    bare = re.fullmatch(r"[A-Za-z_./][\w./*-]*", text) and text.lower() not in _WORDS
    return text if bare else json.dumps(text, ensure_ascii=False)


_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (" ..." if len(names) > 12 else "")


def config_name(pattern: str) -> str:
    """What a run over these files may be called."""
    stem = os.path.basename(pattern).split(".")[0]
    return re.sub(r"\W+", "-", stem).strip("-") or "run"
