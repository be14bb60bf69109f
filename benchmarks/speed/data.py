"""Data sets as users have them, their files in every format, and their sums from the definition."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from benchmarks.speed.sums import Sums

SEED = 20161
#: Records that are written at once.
PIECE = 250_000
#: Steps of a cycle, and of windows: a day of hours, and a week that moves on by a day.
CYCLE, SIZE, EVERY = 24, 168, 24


@dataclass(frozen=True)
class Data:
    """K realizations of T steps at S states, and how they come: how many groups, in which order, with which
    dirt, in how many files of which format. `chain`: what is estimated from them."""

    directory: Path
    K: int
    T: int
    S: int
    chain: str = "stationary"
    groups: int = 1
    order: str = "sorted"
    gaps: bool = False
    repeats: bool = False
    population: bool = False
    format: str = "parquet"
    files: int = 1

    @property
    def states(self) -> list[str]:
        return [f"s{i}" for i in range(self.S)]

    @property
    def name(self) -> str:
        return f"{self.K:,} x {self.T:,}, S = {self.S}"

    def shrunk(self, times: int) -> Data:
        """With so many times fewer realizations."""
        K = max(1, self.K // times)
        return replace(self, K=K, groups=min(self.groups, K), files=min(self.files, K))

    @property
    def group_of(self) -> np.ndarray:
        """[K]: realizations of a group follow each other."""
        return np.arange(self.K) * self.groups // self.K

    @property
    def people(self) -> np.ndarray:
        """[K]: individuals behind each realization."""
        return 1000 + np.arange(self.K) % 97

    @property
    def seen(self) -> np.ndarray:
        """[K, T]: whether there is a record."""
        found = np.ones((self.K, self.T), bool)
        if self.gaps:
            found = np.random.default_rng([SEED, 1]).random(found.shape) > 0.05
        return found

    @property
    def rows(self) -> np.ndarray:
        """Which record stands in which row: number of the realization times T plus the step."""
        found, rng = np.flatnonzero(self.seen), np.random.default_rng([SEED, 2])
        if self.repeats:
            again = rng.choice(len(found), len(found) // 100, replace=False)
            found = np.insert(found, again, found[again])
        return rng.permutation(found) if self.order == "shuffled" else found

    # What a reader is told.

    def config(self, **more: Any) -> dict[str, Any]:
        """As the YAML file of a run would have it."""
        columns = {"population": "people"} if self.population else {}
        return {
            "input": {
                "files": self.paths(),
                "layout": "long" if self.format == "long.csv" else "wide",
                "columns": columns,
            },
            "states": self.states,
            "group_by": ["group"] if self.groups > 1 else [],
            "noise": {"model": "poisson", "alpha": 1.0},
            **({} if self.population else {"population": 1000}),
            "chain": {
                "cycle": {"cycle": CYCLE},
                "window": {"window": {"size": SIZE, "every": EVERY}},
            }.get(self.chain, self.chain),
            "estimator": "mom",
            **more,
        }

    def script(self) -> dict[str, Any]:
        """What the author of a script knows of the data."""
        return {
            "paths": self.paths(),
            "states": self.states,
            "group": "group" if self.groups > 1 else None,
            "cell": {"cycle": CYCLE, "window": gcd(SIZE, EVERY), "per-step": 1}.get(self.chain),
            "chain": self.chain,
            "population": "people" if self.population else None,
            "is_sorted": self.order == "sorted",
            "has_repeats": self.repeats,
        }

    def paths(self) -> list[str]:
        """The files, which are written when they are first asked for."""
        dirt = (int(self.gaps), int(self.repeats), int(self.population))
        about = (self.K, self.T, self.S, self.groups, self.order, *dirt, self.files)
        folder = self.directory / "-".join(map(str, about)) / self.format
        if not folder.exists():
            aside = folder.with_name("unfinished")
            aside.mkdir(parents=True)
            for number, part in enumerate(np.array_split(self.rows, self.files)):
                self._write(part, aside / f"part{number:03}.{self.format}")
            aside.rename(folder)
        return [str(path) for path in sorted(folder.iterdir())]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(Path(path).stat().st_size for path in self.paths())

    # Writing.

    def _write(self, rows: np.ndarray, path: Path) -> None:
        if self.format == "parquet" or self.format == "list.parquet":
            pieces = [rows[i : i + PIECE] for i in range(0, len(rows), PIECE)]
            first = self._frame(pieces[0]).to_arrow()
            with pq.ParquetWriter(path, first.schema) as writer:
                for piece in pieces:
                    writer.write_table(self._frame(piece).to_arrow())
        elif self.format == "jsonl":
            self._frame(rows).write_ndjson(path)
        elif self.format == "csv.gz":
            plain = path.with_suffix("")
            self._frame(rows).write_csv(plain)
            with open(plain, "rb") as source, gzip.open(path, "wb", 1) as target:
                shutil.copyfileobj(source, target, 1 << 20)
            plain.unlink()
        else:
            self._frame(rows).write_csv(path)

    def _frame(self, rows: np.ndarray) -> pl.DataFrame:
        key, time = np.divmod(rows, self.T)
        values = drawn(self.K, self.T, self.S).reshape(-1, self.S)[rows].astype(np.int64)
        columns: dict[str, Any] = {}
        if self.groups > 1:
            names = pl.Series([f"group {g:05}" for g in range(self.groups)])
            columns["group"] = names.gather(self.group_of[key])
        columns |= {"realization": key, "time": time}
        if self.population:
            columns["people"] = self.people[key]
        if self.format in ("list.parquet", "jsonl"):
            counts = pl.Series("counts", values).cast(pl.List(pl.Int64))
            return pl.DataFrame(columns).with_columns(counts)
        frame = pl.DataFrame(columns | {s: values[:, i] for i, s in enumerate(self.states)})
        if self.format == "long.csv":
            frame = frame.unpivot(self.states, index=list(columns), variable_name="state", value_name="count")
            order = np.random.default_rng([SEED, 3]).permutation(frame.height)
            return frame[order] if self.order == "shuffled" else frame
        return frame

    # The definition.

    def sums(self) -> Sums:
        """From the definition, one label after the other; whole numbers, so that nothing is rounded."""
        return _summed(replace(self, directory=Path(), format="", files=1, order="", repeats=False))

    def cell_of(self, time: np.ndarray) -> np.ndarray:
        if self.chain == "cycle":
            return time % CYCLE
        if self.chain == "window":
            return time // gcd(SIZE, EVERY)
        return time if self.chain == "per-step" else np.zeros_like(time)


@lru_cache(1)
def drawn(K: int, T: int, S: int) -> np.ndarray:
    """[K, T, S] counts of a process with some memory, so that the lag's direction matters. The last are kept,
    since their sums, files and orders are asked for one after the other."""
    y = np.random.default_rng([SEED, K, T, S]).integers(0, 100, (K, T, S), dtype=np.int16)
    y[:, 1:, 1:] += y[:, :-1, :-1] // 4
    return y


@lru_cache(4)
def _summed(data: Data) -> Sums:
    y, seen = drawn(data.K, data.T, data.S), data.seen
    key, time = np.nonzero(seen[:, :-1] & seen[:, 1:])
    label = data.group_of[key] * data.T + data.cell_of(time)
    order = np.argsort(label, kind="stable")
    key, time = key[order], time[order]
    starts = np.flatnonzero(np.diff(label[order], prepend=-1))
    pairs = np.diff(starts, append=len(order))
    gram, cross = (np.zeros((len(starts), data.S, data.S)) for _ in range(2))
    for number, start in enumerate(starts):
        for begin in range(start, start + pairs[number], PIECE):
            part = slice(begin, min(begin + PIECE, start + pairs[number]))
            left, right = y[key[part], time[part]].astype(float), y[key[part], time[part] + 1].astype(float)
            if data.population:
                # Shares of the population, weighted by it.
                left, right = (a / np.sqrt(data.people[key[part], None]) for a in (left, right))
            gram[number] += left.T @ left
            cross[number] += left.T @ right
    return Sums(pairs, gram, cross)
