"""A long dirty feed of any size, and its exact sums by brute force, from whole numbers alone.

All realizations are alive from the first step to the last. Within a step they come in random order; some
records never come, some come many steps late, and some come again, at once or many steps later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

S = 4
STATES = [f"s{i}" for i in range(S)]
#: Shares of records that never come, come late, come again at once, and come again late.
MISSING, LATE, AGAIN, LATE_AGAIN = 0.001, 0.0004, 0.05, 0.0004
#: Steps by which late ones are late, at most.
LAG = 30

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass
class Exact:
    """Number of pairs and sums of x, y and xy' over the pairs of one lag, in whole numbers."""

    pairs: int = 0
    left: np.ndarray = field(default_factory=lambda: np.zeros(S, np.int64))
    right: np.ndarray = field(default_factory=lambda: np.zeros(S, np.int64))
    product: np.ndarray = field(default_factory=lambda: np.zeros((S, S), np.int64))

    def add(self, x: np.ndarray, y: np.ndarray) -> None:
        self.pairs += len(x)
        self.left += x.sum(0)
        self.right += y.sum(0)
        self.product += x.T @ y

    def error(self, found) -> float:
        """The greatest error of a CoMoment, against exact fractions, relative to its largest entry."""
        if found.pairs != self.pairs:
            return float("inf")
        a, b, n = self.left.tolist(), self.right.tolist(), self.pairs
        exact = [[Fraction(int(self.product[i, j])) - Fraction(a[i] * b[j], n) for j in range(S)]
                 for i in range(S)]  # fmt: skip
        scale = max(abs(v) for row in exact for v in row)
        return max(float(abs(Fraction(float(found.product[i, j])) - exact[i][j]) / scale)
                   for i in range(S) for j in range(S))  # fmt: skip


@dataclass
class Feed:
    """`records` distinct records, or a few more, of `realizations` realizations.

    Once `pieces` has been read to its end, `sums` holds the exact sums of lags 0, 1, 2 and of the left
    ends of lag-1 pairs, `distinct` and `rows` what was handed out.
    """

    records: int
    realizations: int
    seed: int = 0
    sums: dict[str, Exact] = field(default_factory=lambda: defaultdict(Exact))
    distinct: int = 0
    rows: int = 0

    @property
    def steps(self) -> int:
        return -(-self.records // int(self.realizations * (1 - 2 * MISSING)))

    def pieces(self, size: int) -> Iterator[Rows]:
        """(realization, time, counts [n, S]) in the order of arrival, about `size` rows at a time."""
        waiting: list[Rows] = []
        for rows in self._arrivals():
            waiting.append(rows)
            self.rows += len(rows[0])
            if sum(len(key) for key, _, _ in waiting) >= size:
                yield _joined(waiting)
                waiting = []
        if waiting:
            yield _joined(waiting)

    def _arrivals(self) -> Iterator[Rows]:
        rng = np.random.default_rng(self.seed)
        due: dict[int, list[Rows]] = defaultdict(list)
        for t, present, Y in self._truth(rng):
            key = rng.permutation(np.flatnonzero(present))
            late = rng.random(len(key)) < LATE
            again = rng.random(len(key)) < AGAIN
            late_again = rng.random(len(key)) < LATE_AGAIN
            for chosen in (key[late], key[late_again]):
                for k, lag in zip(chosen, rng.integers(1, LAG, len(chosen)), strict=True):
                    one = np.array([k])
                    due[min(t + int(lag), self.steps - 1)].append((one, np.array([t]), Y[one]))
            now = np.concatenate([key[~late], rng.permutation(key[again & ~late])])
            yield _joined([(now, np.full(len(now), t), Y[now]), *due.pop(t, [])])
        yield from (_joined(rest) for rest in due.values())

    def _truth(self, rng: np.random.Generator) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(step, which realizations have a record, counts); the exact sums are kept on the way."""
        K = self.realizations
        Y = rng.integers(0, 50, (K, S))
        before: list[tuple[np.ndarray, np.ndarray]] = []
        for t in range(self.steps):
            present = rng.random(K) >= MISSING
            self.distinct += int(present.sum())
            self.sums["lag0"].add(Y[present], Y[present])
            for lag, (there, X) in enumerate(reversed(before), 1):
                both = there & present
                self.sums[f"lag{lag}"].add(X[both], Y[both])
                if lag == 1:
                    self.sums["ends"].add(X[both], X[both])
            yield t, present, Y
            before = [*before[-1:], (present, Y)]
            Y = (Y + rng.integers(0, 7, (K, S))) % 50


def _joined(parts: list[Rows]) -> Rows:
    key, time, values = zip(*parts, strict=True)
    return np.concatenate(key), np.concatenate(time), np.concatenate(values)
