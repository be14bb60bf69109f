"""Data sets and their files in every layout, and the sums from the definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from benchmarks.speed.sums import Sums

SEED = 20161
#: Records that are written at once.
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

    @property
    def counts(self) -> np.ndarray:
        return drawn(self.K, self.T, self.S)

    @property
    def sums(self) -> Sums:
        return summed(self.K, self.T, self.S)

    def path(self, layout: str = "parquet") -> Path:
        """The file in a layout: a column per state, lists, a row per state, CSV or JSON lines."""
        ending = {"list": "list.parquet", "long": "long.parquet"}.get(layout, layout)
        path = self.directory / f"{self.K}x{self.T}x{self.S}-{self.order}.{ending}"
        if not path.exists():
            self._write(path, {"parquet": self._wide, "csv": self._wide, "list": self._lists,
                               "jsonl": self._lists, "long": self._long}[layout])  # fmt: skip
        return path

    @cached_property
    def rows(self) -> np.ndarray:
        """The order in which records are written."""
        if self.order == "sorted":
            return np.arange(self.records)
        return np.random.default_rng([SEED, self.records]).permutation(self.records)

    def _keys(self, part: slice) -> dict[str, np.ndarray]:
        key, step = np.divmod(self.rows[part], self.T)
        return {"realization": key, "time": step}

    def _values(self, part: slice) -> np.ndarray:
        return self.counts.reshape(-1, self.S)[self.rows[part]].astype(np.int64)

    def _wide(self, part: slice) -> pl.DataFrame:
        values = self._values(part)
        return pl.DataFrame(self._keys(part) | {s: values[:, i] for i, s in enumerate(self.states)})

    def _lists(self, part: slice) -> pl.DataFrame:
        values = pl.Series("counts", self._values(part)).cast(pl.List(pl.Int64))
        return pl.DataFrame(self._keys(part)).with_columns(values)

    def _long(self, part: slice) -> pl.DataFrame:
        values = self._values(part)
        keys = {name: np.repeat(column, self.S) for name, column in self._keys(part).items()}
        states = pl.Series("state", self.states * len(values))
        return pl.DataFrame(keys).with_columns(states, pl.Series("count", values.ravel()))

    def _write(self, path: Path, frame: Callable[[slice], pl.DataFrame]) -> None:
        """Parquet files of every layout are written alike: by Arrow, as it does by itself, in pieces, as
        large files are."""
        if path.suffix == ".csv":
            frame(slice(None)).write_csv(path)
        elif path.suffix == ".jsonl":
            frame(slice(None)).write_ndjson(path)
        else:
            first = frame(slice(0, PIECE)).to_arrow()
            with pq.ParquetWriter(path, first.schema) as writer:
                for start in range(0, self.records, PIECE):
                    writer.write_table(frame(slice(start, start + PIECE)).to_arrow())


@lru_cache(1)
def drawn(K: int, T: int, S: int) -> np.ndarray:
    """[K, T, S] counts of a process with some memory, so that the lag's direction matters. The last are kept,
    since their sums, files and orders are asked for one after the other."""
    y = np.random.default_rng([SEED, K, T, S]).integers(0, 100, (K, T, S), dtype=np.int16)
    y[:, 1:, 1:] += y[:, :-1, :-1] // 4
    return y


@cache
def summed(K: int, T: int, S: int) -> Sums:
    """From the definition, one realization after the other; whole numbers, so that nothing is rounded."""
    total, cross = np.zeros(S), np.zeros((S, S))
    for part in drawn(K, T, S):
        y = part.astype(float)
        total += y.sum(0)
        cross += y[:-1].T @ y[1:]
    return Sums(K * (T - 1), total / (K * T), cross)


def wrong(found: Sums, right: Sums) -> str | None:
    """What is wrong with a contestant's sums, if anything."""
    if found.pairs != right.pairs:
        return f"{found.pairs:,} pairs instead of {right.pairs:,}"
    for name in ("mean", "cross"):
        a, b = getattr(found, name), getattr(right, name)
        if a.shape != b.shape or not np.allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max()):
            return f"{name} differs from the definition"
    return None
