"""Published data whose moves are known, as counts: bicycles, elections, labour force.

A folder DIR holds what is found of `bikes/trips.csv` and `bikes/stations.csv` (San Francisco Bay Area, R's
bikeshare14), `elections/*.csv` with `*_truth.csv` (New Zealand, R's ei.Datasets) and `labour/flows.csv`
(CPS gross flows).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from violations import Case

import aggmc_beam as am
from aggmc_beam.chain import WEEK

HOUR, DAY = 3600, 86400
#: Local time is eight hours behind.
SHIFT = 8 * HOUR
#: Parties with less than this share of the votes of a district are counted together.
SMALL = 0.03


def first_day(folder: Path) -> str:
    """The day of the week of the first hour in `bikes`."""
    start = int(pl.scan_csv(folder / "trips.csv").select(pl.col("start").min()).collect().item())
    days = (start + (SHIFT - start) % DAY - SHIFT) // DAY
    return WEEK[days % 7]


def bikes(folder: Path, by: str) -> tuple[np.ndarray, np.ndarray]:
    """Places [bikes, hours] of every bike at full hours of whole days, and their number of states.

    `by`: "area", "town", or a town whose stations are states, and the rest one more. A bike is where its last
    trip ended, before its first trip where that began.
    """
    trips = pl.read_csv(folder / "trips.csv").sort("bike", "end")
    stations = pl.read_csv(folder / "stations.csv")
    if by not in stations.columns:
        own = (
            pl.when(pl.col("town") == by)
            .then(pl.col("station").cast(pl.String))
            .otherwise(pl.lit("elsewhere"))
        )
        stations, by = stations.with_columns(own.alias("state")), "state"
    names = stations[by].unique().sort().to_list()
    place = dict(
        zip(stations["station"].to_list(), (names.index(v) for v in stations[by].to_list()), strict=True)
    )
    start = int(trips["start"].min())  # type: ignore[arg-type]
    start += (SHIFT - start) % DAY
    days = (int(trips["end"].quantile(0.999) or 0) - start) // DAY
    hours = start + HOUR * np.arange(24 * days + 1)
    paths = []
    for _, g in trips.group_by("bike", maintain_order=True):
        last = np.searchsorted(g["end"].to_numpy(), hours, "right") - 1
        to = np.array([place.get(s, -1) for s in g["to_station"].to_list()])
        paths.append(np.where(last >= 0, to[np.maximum(last, 0)], place.get(int(g["from_station"][0]), -1)))
    found = np.array(paths)
    return found[(found >= 0).all(1)], np.arange(len(names))


def bike_cases(folder: Path, noises: dict[str, am.Noise], seed: int = 0) -> Iterator[tuple[str, str, Case]]:
    """(set, noise, case): by area and by town, days as realizations and as one series."""
    for by in ("area", "town"):
        at, states = bikes(folder, by)
        S, N = len(states), len(at)
        moves = np.bincount((at[:, :-1] * S + at[:, 1:]).ravel(), minlength=S * S).reshape(S, S)
        truth, visits = moves / moves.sum(1, keepdims=True), moves.sum(1)
        n = np.stack([(at[:, :-1] == s).sum(0) for s in range(S)], 1)
        for form, counts in (("days", n.reshape(-1, 24, S)), ("one series", n[None])):
            for noise, model in noises.items():
                y = model.sample(counts, np.random.default_rng([seed, S]))
                name = f"bikes by {by}, {form}"
                everywhere = np.ones((S, S), bool)
                yield name, noise, Case(name, y, model, N, truth, visits / visits.sum(), everywhere)


def elections(folder: Path, every: int = 6) -> Iterator[Case]:
    """Every n-th district: polling stations are realizations, party and candidate votes two steps."""
    for file in sorted(folder.glob("*_truth.csv")):
        votes, table = pl.read_csv(str(file).replace("_truth", "")), pl.read_csv(file)
        for district in votes["district"].unique().sort().to_list()[::every]:
            found = _district(district, votes, table)
            if found is not None:
                yield found


def _district(district: str, votes: pl.DataFrame, table: pl.DataFrame) -> Case | None:
    def cast(vote: str) -> pl.DataFrame:
        own = votes.filter((pl.col("district") == district) & (pl.col("vote") == vote))
        wide = own.pivot("choice", index="station", values="count", aggregate_function="sum")
        return wide.fill_null(0).sort("station")

    first, second = cast("first"), cast("second")
    both = sorted(set(first["station"]) & set(second["station"]))
    first, second = (t.filter(pl.col("station").is_in(both)).drop("station") for t in (first, second))
    A, B = first.to_numpy().astype(float), second.to_numpy().astype(float)
    moves = np.zeros((A.shape[1], B.shape[1]))
    rows = {name: i for i, name in enumerate(first.columns)}
    columns = {name: j for j, name in enumerate(second.columns)}
    own = table.filter(pl.col("district") == district).select("first", "second", "votes")
    for a, b, number in own.iter_rows():
        if a in rows and b in columns:
            moves[rows[a], columns[b]] += number
    big, large = A.sum(0) / A.sum() > SMALL, B.sum(0) / B.sum() > SMALL
    A, B = _pooled(A, big), _pooled(B, large)
    moves = _pooled(_pooled(moves, large).T, big).T
    total = A.sum(1)
    kept = (total > 30) & (np.abs(total - B.sum(1)) < 1e-6)
    if kept.sum() < 10:
        return None
    A, B, total = A[kept], B[kept], total[kept]
    a, b = A.shape[1], B.shape[1]
    y = np.zeros((len(A), 2, a + b))
    y[:, 0, :a], y[:, 1, a:] = A, B
    truth, judged = np.zeros((a + b, a + b)), np.zeros((a + b, a + b), bool)
    truth[:a, a:] = moves / moves.sum(1, keepdims=True)
    judged[:a, a:] = True
    shares = np.r_[moves.sum(1), np.zeros(b)] / moves.sum()
    return Case(f"election, {district}", y, am.Exact(), total, truth, shares, judged)


def _pooled(x: np.ndarray, kept: np.ndarray) -> np.ndarray:
    return np.column_stack([x[:, kept], x[:, ~kept].sum(1)])


def labour(file: Path, population: int = 60_000) -> Case:
    """The stocks of a country, month by month, as counts of a survey of 60,000."""
    table = pl.read_csv(file).drop_nulls().drop("month").to_numpy().reshape(-1, 3, 3)
    flows = table / table.sum((1, 2), keepdims=True)
    visits = flows.sum((0, 2))
    y = population * flows.sum(2)
    everywhere: Any = np.ones((3, 3), bool)
    truth = flows.sum(0) / visits[:, None]
    return Case("labour", y[None], am.Exact(), population, truth, visits / visits.sum(), everywhere)
