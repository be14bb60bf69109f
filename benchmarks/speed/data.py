"""Data sets and their files in every layout, and the sums from the definition."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from benchmarks.speed.sums import Sums

SEED = 20161
#: Rows that are written at once.
PIECE = 250_000


@dataclass(frozen=True)
class Data:
    """K realizations of T steps at S states; rows sorted by realization and time, or shuffled."""

    K: int
    T: int
    S: int
    order: str
    directory: Path

    @property
    def name(self) -> str:
        return f"K={self.K:,} x T={self.T:,}, S={self.S}, {self.order}"

    @property
    def records(self) -> int:
        return self.K * self.T

    @property
    def states(self) -> list[str]:
        return [f"s{i}" for i in range(self.S)]

    @cached_property
    def counts(self) -> np.ndarray:
        """[K, T, S] counts of a process with some memory, so that the lag's direction matters."""
        rng = np.random.default_rng([SEED, self.K, self.T, self.S])
        y = rng.integers(0, 100, (self.K, self.T, self.S), dtype=np.int16)
        y[:, 1:, 1:] += y[:, :-1, :-1] // 4
        return y

    @cached_property
    def sums(self) -> Sums:
        """From the definition, step by step; whole numbers, so that nothing is rounded."""
        y = self.counts
        cross = np.zeros((self.S, self.S))
        for t in range(self.T - 1):
            cross += y[:, t].astype(float).T @ y[:, t + 1].astype(float)
        total = sum(y[:, t].sum(0, dtype=np.int64) for t in range(self.T))
        return Sums(self.K * (self.T - 1), total / self.records, cross)

    def path(self, layout: str = "parquet") -> Path:
        """The file in a layout: a column per state, lists, a row per state, CSV or JSON lines."""
        ending = {"list": "list.parquet", "long": "long.parquet"}.get(layout, layout)
        path = self.directory / f"{self.K}x{self.T}x{self.S}-{self.order}.{ending}"
        if not path.exists():
            {"parquet": self._wide, "csv": self._wide, "list": self._lists, "jsonl": self._lists,
             "long": self._long}[layout](path)  # fmt: skip
        return path

    @cached_property
    def rows(self) -> np.ndarray:
        """The order in which records are written."""
        if self.order == "sorted":
            return np.arange(self.records)
        return np.random.default_rng([SEED, self.records]).permutation(self.records)

    def _keys(self) -> dict[str, np.ndarray]:
        key, step = np.divmod(self.rows, self.T)
        return {"realization": key, "time": step}

    def _values(self) -> np.ndarray:
        return self.counts.reshape(-1, self.S)[self.rows].astype(np.int64)

    def _wide(self, path: Path) -> None:
        if path.suffix == ".csv":
            self._frame(slice(None)).write_csv(path)
            return
        # In pieces, as large files are written.
        first = self._frame(slice(0, PIECE)).to_arrow()
        with pq.ParquetWriter(path, first.schema) as writer:
            for start in range(0, self.records, PIECE):
                writer.write_table(self._frame(slice(start, start + PIECE)).to_arrow())

    def _frame(self, part: slice) -> pl.DataFrame:
        rows = self.rows[part]
        values = self.counts.reshape(-1, self.S)[rows].astype(np.int64)
        key, step = np.divmod(rows, self.T)
        columns = {s: values[:, i] for i, s in enumerate(self.states)}
        return pl.DataFrame({"realization": key, "time": step} | columns)

    def _lists(self, path: Path) -> None:
        values = pl.Series("counts", self._values()).cast(pl.List(pl.Int64))
        frame = pl.DataFrame(self._keys()).with_columns(values)
        frame.write_ndjson(path) if path.suffix == ".jsonl" else frame.write_parquet(path)

    def _long(self, path: Path) -> None:
        keys = {name: np.repeat(column, self.S) for name, column in self._keys().items()}
        states = pl.Series("state", self.states * self.records)
        frame = pl.DataFrame(keys).with_columns(states, pl.Series("count", self._values().ravel()))
        frame.write_parquet(path)


def wrong(found: Sums, right: Sums) -> str | None:
    """What is wrong with a contestant's sums, if anything."""
    if found.pairs != right.pairs:
        return f"{found.pairs:,} pairs instead of {right.pairs:,}"
    for name in ("mean", "cross"):
        a, b = getattr(found, name), getattr(right, name)
        if a.shape != b.shape or not np.allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max()):
            return f"{name} differs from the definition"
    return None
