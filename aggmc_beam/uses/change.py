"""Did P change, when, and by how much? From the estimates of windows, groups or runs."""

from __future__ import annotations

import html
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.estimators.inference import student_quantile
from aggmc_beam.printing import matrix_table
from aggmc_beam.result import Estimate, read_estimates
from aggmc_beam.tables import Columns, Tabular
from aggmc_beam.uses.covariance import row_covariance
from aggmc_beam.uses.transitions import known_errors

#: Directions of P with less than this part of the variance of the largest are rounding.
TOLERANCE = 1e-8
#: Estimates from which their order is exchanged, and their errors are scaled by how much neighbours differ.
EXCHANGED = 8
SIMULATIONS = 4000


@dataclass(frozen=True, eq=False)
class Change(Tabular):
    """The most likely change of P: `index`, `cell` and `window` of the first estimate after it, and the p-value of
    the hypothesis that there is none. `before`, `after` [S, S] are mean matrices, `difference` and its
    `standard_error` what changed, `size` its root mean square. `scale` is how large errors are in truth,
    relative to the standard errors of the estimates.

    >>> import aggmc_beam as am
    >>> P, Q = [[0.9, 0.1], [0.3, 0.7]], [[0.6, 0.4], [0.3, 0.7]]
    >>> y, _ = am.simulate([P] * 500 + [Q] * 499, realizations=5, seed=1)
    >>> found = am.change(am.estimate(y, chain=am.Window(50)))
    >>> found.cell, found.p_value < 0.02, found.difference[0].round(1).tolist()
    (500, True, [-0.3, 0.3])
    """

    states: tuple[str, ...]
    index: int
    cell: int | None
    window: Mapping[str, Any] | None
    p_value: float
    before: np.ndarray
    after: np.ndarray
    difference: np.ndarray
    standard_error: np.ndarray
    size: float
    scale: float

    forms = ("tidy",)

    def columns(self, form: str = "tidy") -> Columns:
        if form != "tidy":
            raise InputError(f"a change has no table {form!r}, only 'tidy'")
        S = len(self.states)
        lower, upper = self.interval()
        arrays = {"before": self.before, "after": self.after, "difference": self.difference,
                  "error": self.standard_error, "lower": lower, "upper": upper}  # fmt: skip
        names: Columns = {"from": [s for s in self.states for _ in range(S)], "to": list(self.states) * S}
        return names | {name: values.ravel().tolist() for name, values in arrays.items()}

    def _repr_html_(self) -> str:
        from aggmc_beam.report.notebook import table_html

        return f"<div><p>{html.escape(str(self).partition(chr(10))[0])}</p>{table_html(self.columns())}</div>"

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Of each difference [S, S], given that the date is right."""
        if not 0 < level < 1:
            raise InputError(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
        half = student_quantile(level, 1000) * self.standard_error
        return self.difference - half, self.difference + half

    def __str__(self) -> str:
        where = f"estimate {self.index}" if self.cell is None else f"cell {self.cell}"
        if self.window is not None:
            where = str(self.window["start"])
        head = f"Change of P at {where}: p = {self.p_value:.2g}, root mean square {self.size:.3g}\n"
        return head + matrix_table(self.states, self.difference, self.standard_error)


def change(estimates: Sequence[Estimate] | Any, *, seed: int = 0) -> Change:
    """Test for one change of P along a sequence of estimates, and its date and size.

    estimates: `Estimates` of windows that do not overlap, or estimates of runs or groups in their order;
    two are compared with each other; or the path of what a run of windows wrote. Windows that share are taken
    each by itself. It is the matrices that are compared, not mean shares, which move while P stays.

    The statistic is the greatest difference of means before and after, in standard errors, over all dates.
    With eight estimates or more its p-value comes from exchanging their order, so that standard errors
    need not be right; with fewer from simulated sequences. Assumes errors of different estimates to be
    independent, and as large beside each other as their standard errors.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=1000, realizations=5, seed=1)
    >>> am.change(am.estimate(y, chain=am.Window(100))).p_value > 0.05
    True
    """
    items = list(read_estimates(estimates) if isinstance(estimates, str | os.PathLike) else estimates)
    _check(items)
    items = [e.own for e in items]
    P = np.stack([e.transition_matrix for e in items])
    error = np.stack([e.standard_error for e in items])
    rows = np.isfinite(P).all((0, 2)) & np.isfinite(error).any(2).all(0)
    error = np.stack([known_errors(e) for e in error])
    if not rows.any():
        raise InputError("no state has a row in all estimates, so nothing can be compared")
    z, covariance = _whitened(P[:, rows], error[:, rows])
    W, d = z.shape
    if d == 0:
        raise InputError("the standard errors are all 0, so there is nothing to compare differences with")
    size = np.nanmean(error[:, rows] ** 2, (1, 2))
    # How large the errors of each estimate are beside the average one.
    own = np.maximum(size / size.mean(), 1e-3)
    scale = _scale(z, own)
    statistic, index = _greatest(z[None], own)
    rng = np.random.default_rng(seed)
    if W >= EXCHANGED:
        # Any order is as likely without a change, whatever the errors' covariance.
        orders = rng.permuted(np.tile(np.arange(W), (SIMULATIONS, 1)), axis=1)
        null = z[orders] / np.sqrt(own)[orders][:, :, None] * np.sqrt(own)[:, None]
    else:
        # Few estimates carry their own degrees of freedom only.
        degrees = max(min(e.degrees for e in items), 1)
        null = rng.standard_normal((SIMULATIONS, W, d)) * np.sqrt(own)[:, None]
        null *= np.sqrt(degrees / rng.chisquare(degrees, (SIMULATIONS, 1, 1)))
    simulated = _greatest(null, own)[0] * (1 + 1e-9)
    p_value = float((1 + (simulated >= statistic[0]).sum()) / (SIMULATIONS + 1))
    s = int(index[0])
    weight = 1 / own
    before, after = np.average(P[:s], 0, weight[:s]), np.average(P[s:], 0, weight[s:])
    part = np.full(P.shape[1:], np.nan)
    part[rows] = np.einsum("iaia->ia", covariance)[:, :]
    spread = np.sqrt(scale * part * (1 / weight[:s].sum() + 1 / weight[s:].sum()))
    moved = float(np.sqrt(np.nanmean((after - before) ** 2)))
    names = items[0].states
    return Change(
        names,
        s,
        items[s].cell,
        items[s].window,
        p_value,
        before,
        after,
        after - before,
        spread,
        moved,
        float(np.sqrt(scale)),
    )


def apart(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Of windows that overlap those that do not, counted from the last; all of what are no windows.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=400, seed=1)
    >>> [e.cell for e in apart(am.estimate(y, chain=am.Window(100, every=50)))]
    [-50, 50, 150, 250, 350]
    """
    kept: list[Estimate] = []
    for e in reversed(list(estimates)):
        if not kept or e.window is None or e.window["end"] <= kept[-1].window["start"]:  # type: ignore[index]
            kept.append(e)
    return kept[::-1]


def _check(items: list[Any]) -> None:
    if len(items) < 2 or not all(isinstance(e, Estimate) for e in items):
        raise InputError(
            "a change needs at least two estimates, such as those of am.estimate(chain=Window(...))"
        )
    if len({e.states for e in items}) > 1:
        raise InputError("the estimates have different states, so they cannot be compared")
    windows = [e.window for e in items]
    for a, b in itertools.pairwise(windows):
        if a is not None and b is not None and a["end"] > b["start"]:
            raise InputError(
                "the windows overlap, so their errors depend on each other; use Window(size) alone"
            )


def _whitened(P: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(deviations [W, d] that have identity covariance if standard errors are right, covariance of P)."""
    W, R, S = P.shape
    square = np.zeros((S, S))
    square[:R] = np.sqrt((error**2).mean(0))
    covariance = row_covariance(square)[:R, :, :R]
    values, vectors = np.linalg.eigh(covariance.reshape(R * S, R * S))
    kept = values > TOLERANCE * max(values[-1], 0.0)
    kept &= values > 0
    deviations = (P - P.mean(0)).reshape(W, -1)
    return deviations @ vectors[:, kept] / np.sqrt(values[kept]), covariance


def _scale(z: np.ndarray, own: np.ndarray) -> float:
    """Variance of z [W, d] from the median step between neighbours, which one change hardly moves."""
    from scipy.special import chdtri

    W, d = z.shape
    if W < EXCHANGED:
        return 1.0
    steps = ((z[1:] - z[:-1]) ** 2).sum(1) / (own[1:] + own[:-1])
    return max(float(np.median(steps)) / float(chdtri(d, 0.5)), 1e-12)


def _greatest(z: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For sequences [n, W, d] with variances `own` [W]: the greatest squared difference of means, in units of
    its variance, over all dates, and the date."""
    s = np.arange(1, z.shape[1])
    weight = np.cumsum(1 / own)
    left, right = weight[:-1], weight[-1] - weight[:-1]
    sums = np.cumsum(z / own[:, None], 1)
    total = sums[:, -1:]
    first = sums[:, :-1]
    difference = (total - first) / right[:, None] - first / left[:, None]
    squares = (difference**2).sum(2) / (1 / left + 1 / right)
    best = squares.argmax(1)
    return squares[np.arange(len(z)), best], s[best]
