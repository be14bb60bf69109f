"""The table of trials, and what is read off it: curves, slopes and levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from benchmarks.paper.trial import Row

Statistic = Callable[[np.ndarray], float]


@dataclass(frozen=True, eq=False)
class Curve:
    """For each abscissa x: mean with half its 95% interval, and median, over n trials."""

    x: np.ndarray
    mean: np.ndarray
    half: np.ndarray
    median: np.ndarray
    n: np.ndarray

    def slope(self, of: str, start: float = 0.0) -> float:
        """Of log `of` (mean or median) against log x, from x = start on.

        >>> curve = Curve(*np.array([[1, 10], [2, .2], [0, 0], [3, .03], [9, 9]]))
        >>> round(curve.slope("median"), 6)
        -2.0
        """
        chosen = self.x >= start
        return float(np.polyfit(np.log(self.x[chosen]), np.log(getattr(self, of)[chosen]), 1)[0])


class Trials:
    """Rows as columns."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns = columns

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Trials:
        rows = list(rows)
        columns = {f.name: np.array([getattr(row, f.name) for row in rows]) for f in fields(Row)}
        return cls({**columns, "TK": columns["T"] * columns["K"], "M": columns["N"] * columns["K"]})

    def __len__(self) -> int:
        return len(self.columns["trial"])

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def where(self, **values: Any) -> Trials:
        """Rows whose columns have these values, or one of these where several are given."""
        chosen = np.ones(len(self), bool)
        for name, value in values.items():
            chosen &= np.isin(self[name], value)
        return self._of(chosen)

    def between(self, name: str, low: float, high: float = np.inf) -> Trials:
        return self._of((self[name] >= low) & (self[name] <= high))

    def _of(self, chosen: np.ndarray) -> Trials:
        return Trials({name: column[chosen] for name, column in self.columns.items()})

    def names(self, name: str) -> list[Any]:
        """Different values of a column, in order of appearance."""
        return list(dict.fromkeys(self[name].tolist()))

    def curve(self, x: str, y: str) -> Curve:
        """Column y against column x; all trials with the same x count alike, as in the paper."""
        from scipy import stats

        points = []
        for at in np.unique(self[x]):
            values = self[y][self[x] == at]
            values = values[np.isfinite(values)]
            n = len(values)
            if n:
                half = stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
                points.append((at, values.mean(), half, np.median(values), n))
        return Curve(*np.array(points, float).reshape(-1, 5).T)

    def paired(self, y: str, estimator: str, to: str) -> np.ndarray:
        """Ratio of y of one estimator to that of another, trial by trial."""
        a, b = self.where(estimator=estimator), self.where(estimator=to)
        return np.asarray(a[y] / b[y])
