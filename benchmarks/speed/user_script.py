"""What a competent user writes for the same job: the peer in every case.

Polars reads and sorts, numpy finds the neighbours, BLAS multiplies. It trusts the data to be what its author
knows of them: no row is checked, no count of what was left out, no standard error, one number to a name. By
itself: `python benchmarks/speed/user_script.py counts.parquet --states a b c`.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import polars as pl

KEYS = ("realization", "time")
#: Pairs that are multiplied at once: what is copied for it is still at hand then.
BLOCK = 5_000


def read(paths: list[str], states: list[str], group: str | None, population: str | None) -> pl.DataFrame:
    """All rows, with a column of counts for each state."""
    keys = [*([group] if group else []), *KEYS, *([population] if population else [])]
    path = paths[0]
    if path.endswith(".long.csv"):
        names = pl.Enum(states)
        rows = pl.read_csv(paths, schema_overrides={"state": names}).sort(*keys, "state")
        # A record has a row for every state, so that the sorted counts are the matrix.
        counts = rows["count"].to_numpy().reshape(-1, len(states))
        frame = rows[:: len(states)].select(keys)
        return frame.with_columns(pl.Series(s, counts[:, i]) for i, s in enumerate(states))
    if path.endswith((".csv", ".csv.gz")):
        return pl.read_csv(paths)
    if path.endswith((".jsonl", ".list.parquet")):
        frame = pl.read_ndjson(paths) if path.endswith(".jsonl") else pl.read_parquet(paths)
        counts = frame["counts"].list.to_array(len(states)).to_numpy()
        return frame.select(keys).with_columns(pl.Series(s, counts[:, i]) for i, s in enumerate(states))
    return pl.read_parquet(paths, columns=[*keys, *states])


def sums_by_label(
    frame: pl.DataFrame,
    states: list[str],
    group: str | None = None,
    chain: str = "stationary",
    cell: int | None = None,
    population: str | None = None,
    is_sorted: bool = True,
    has_repeats: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number of neighbouring pairs, sums of y_t y_t' and of y_t y_t+1', for each group and cell."""
    by = [*([group] if group else []), *KEYS]
    if has_repeats:
        frame = frame.unique(subset=by, keep="any" if not is_sorted else "first", maintain_order=is_sorted)
    if not is_sorted:
        frame = frame.sort(by)
    key = frame.select(pl.struct(by[:-1]).rle_id()).to_series().to_numpy()
    time = frame["time"].to_numpy()
    values = frame.select(pl.col(states).cast(pl.Float64)).to_numpy(order="c")
    if population:
        # Shares of the population, weighted by it.
        values = values / np.sqrt(frame[population].to_numpy())[:, None]
    left = np.flatnonzero((key[1:] == key[:-1]) & (time[1:] == time[:-1] + 1))
    label = np.zeros(len(left), np.int64)
    if group:
        label += frame[group].rle_id().to_numpy()[left].astype(np.int64) * (int(time.max()) + 1)
    if chain == "cycle":
        label += time[left] % cell
    elif cell:
        label += time[left] // cell
    if group or cell:
        order = np.argsort(label, kind="stable")
        left, label = left[order], label[order]
    starts = np.flatnonzero(np.diff(label, prepend=-1))
    pairs = np.diff(starts, append=len(left))
    gram, cross = (np.zeros((len(starts), len(states), len(states))) for _ in range(2))
    for i, (start, number) in enumerate(zip(starts, pairs, strict=True)):
        for begin in range(start, start + number, BLOCK):
            here = left[begin : min(begin + BLOCK, start + number)]
            a, b = values[here], values[here + 1]
            gram[i] += a.T @ a
            cross[i] += a.T @ b
    return pairs, gram, cross


def script(paths: list[str], states: list[str], **options: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    frame = read(paths, states, options.get("group"), options.get("population"))
    if paths[0].endswith(".long.csv"):
        options["is_sorted"] = True  # they were sorted to be put together
    return sums_by_label(frame, states, **options)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("paths", nargs="+")
    options.add_argument("--states", nargs="+", required=True)
    options.add_argument("--group")
    given = options.parse_args()
    pairs, gram, cross = script(given.paths, given.states, group=given.group)
    for number, a, b in zip(pairs, gram, cross, strict=True):
        print(number, "pairs; least squares:")
        print(np.linalg.solve(a, b).round(3))


if __name__ == "__main__":
    main()
