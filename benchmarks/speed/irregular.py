"""What data cost that are less neat than those of the other cases, against neat ones of the same size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.speed.data import SEED, Data
from benchmarks.speed.harness import Bench, Contestant, Row, ratio
from benchmarks.speed.sums import Sums

KINDS = {
    "missing": "1 % of records missing / none",
    "names": "names of realizations that are text / whole numbers",
    "fractions": "counts with fractions / whole numbers",
}


@dataclass(frozen=True)
class Irregular(Data):
    """The same, of which 1 % of records are missing, whose realizations have names, or whose counts have
    fractions."""

    kind: str = "missing"

    def path(self, layout: str = "parquet") -> Path:
        path = self.directory / f"{self.K}x{self.T}x{self.S}-{self.kind}.{layout}"
        if not path.exists():
            self._write(path, self._wide)
        return path

    @cached_property
    def seen(self) -> np.ndarray:
        """[K, T]: whether there is a record."""
        rng = np.random.default_rng([SEED, self.K, self.T])
        return rng.random((self.K, self.T)) >= (0.01 if self.kind == "missing" else 0)

    @property
    def records(self) -> int:
        return int(self.seen.sum())

    @cached_property
    def rows(self) -> np.ndarray:
        return np.flatnonzero(self.seen)

    @property
    def added(self) -> float:
        return 0.25 if self.kind == "fractions" else 0

    def _keys(self, part: slice) -> dict[str, np.ndarray]:
        keys = super()._keys(part)
        if self.kind == "names":
            keys["realization"] = np.char.add("r", keys["realization"].astype(str))
        return keys

    def _values(self, part: slice) -> np.ndarray:
        values = super()._values(part)
        return values + self.added if self.added else values

    @cached_property
    def sums(self) -> Sums:
        """From the definition, one realization after the other."""
        total, cross, pairs = np.zeros(self.S), np.zeros((self.S, self.S)), 0
        for counts, seen in zip(self.counts, self.seen, strict=True):
            y, both = counts + self.added, seen[:-1] & seen[1:]
            total += y[seen].sum(0)
            cross += y[:-1][both].T.astype(float) @ y[1:][both]
            pairs += int(both.sum())
        return Sums(pairs, total / self.records, cross)


def cases(bench: Bench) -> Iterator[Row]:
    neat = bench.data(1000, 1000, 10)
    shape = neat.K, neat.T, neat.S, neat.order, neat.directory
    sets: dict[str, Data] = {"neat": neat} | {kind: Irregular(*shape, kind) for kind in KINDS}
    contestants = {
        name: Contestant("ours", "sums", {"path": str(data.path()), "states": data.states})
        for name, data in sets.items()
    }
    best = bench.race(sets, contestants)
    for kind, what in KINDS.items():
        yield Row(f"local, {what}", neat.name, None, ratio(best[kind], best["neat"]))
