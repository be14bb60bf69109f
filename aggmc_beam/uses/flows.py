"""Flows: how many moved from each state to each other in every step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.noise import Exact
from aggmc_beam.printing import LISTED, aligned, clipped, number_table
from aggmc_beam.tables import Columns, Tabular
from aggmc_beam.uses.activity import Activity, Habits, activity, learn
from aggmc_beam.uses.bands import count_bands
from aggmc_beam.uses.given import Given, Labels
from aggmc_beam.uses.latent_counts import LatentCounts, smooth
from aggmc_beam.uses.margins import fit_margins
from aggmc_beam.uses.transitions import Transitions, powered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: A move that P excludes keeps this part of its row: counts may show that it happened.
FLOOR = 1e-6
#: Pairs whose variances are found at once.
BLOCK = 512


@dataclass(frozen=True, eq=False)
class Flows(Tabular):
    """`mean` [K, T - 1, S, S]: expected moves from state i to j between step t and the next, which add up to
    `counts` [K, T, S], the true counts as estimated. `lower` and `upper` hold each flow with probability
    `level`. `activity` [K, T - 1] is how much moved, 1 being what P says; `dispersion` how many times as
    much flows vary as those of independent movers. Of a table, rows behind the end of a shorter realization are
    NaN, and `labels` tells names and times, which tables (`to_frame()` and others) have as columns.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=50, realizations=4, seed=1)
    >>> found = am.flows(y, am.estimate(y))
    >>> bool(np.allclose(found.mean.sum(2), found.counts[:, 1:]))
    True
    """

    states: tuple[str, ...]
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    counts: np.ndarray
    activity: np.ndarray
    dispersion: float
    level: float
    labels: Labels

    forms = ("tidy",)

    def columns(self, form: str = "tidy") -> Columns:
        if form != "tidy":
            raise InputError(f"flows have no table {form!r}, only 'tidy'")
        S = len(self.states)
        k, t = np.nonzero(np.isfinite(self.mean[:, :, 0, 0]))
        places = {
            name: [v for v in values for _ in range(S * S)]
            for name, values in self.labels.columns(k, t).items()
        }
        found: Columns = {
            **places,
            "from": [s for s in self.states for _ in range(S)] * len(k),
            "to": list(self.states) * (S * len(k)),
        }
        return found | {
            name: getattr(self, name)[k, t].ravel().tolist() for name in ("mean", "lower", "upper")
        }

    def to_rows(self) -> list[dict[str, Any]]:
        """Tidy: realization, time, from, to, mean, lower, upper; for a frame or a file."""
        columns = self.columns()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    @property
    def per_step(self) -> np.ndarray:
        """Flows [S, S] of a step, on average over all steps and realizations."""
        return np.asarray(np.nanmean(self.mean, (0, 1)))

    def plot(self, entries: Any = None, realization: Any = None) -> Figure:
        """Flows over time with their bands; needs matplotlib (the extra `report`).

        entries: pairs of states, by default the six that move most. realization: its name; by default the first.
        """
        from aggmc_beam.report.series import plot_flows_over_time

        return plot_flows_over_time(self, entries, realization)

    def _head(self) -> str:
        known = np.isfinite(self.mean[:, :, 0, 0])
        return (
            f"Flows in {known.sum():,} steps of {len(known):,} realizations, {len(self.states)} states, bands of "
            f"{100 * self.level:g}%"
        )

    def __str__(self) -> str:
        mean = self.per_step
        table = number_table(self.states, mean)
        lines = [self._head(), "On average in a step:"]
        if table is None:
            S, moves = len(self.states), np.where(np.eye(len(mean)), -1.0, mean)
            pairs = [divmod(int(k), S) for k in np.argsort(-moves, axis=None)[:LISTED]]
            rows = [
                [f"  {clipped(self.states[i])} → {clipped(self.states[j])}", f"{mean[i, j]:,.4g}"]
                for i, j in pairs
            ]
            table = aligned([["  from → to", "people"], *rows])
        lines.append(table)
        low, high = np.nanquantile(self.activity, [0.1, 0.9])
        if high > 1.1 * low:
            lines.append(f"In 80% of steps {low:.2g} to {high:.2g} times as much moves as the matrix says.")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from aggmc_beam.report.notebook import matrix_html

        return matrix_html(f"{self._head()}; on average in a step", self.states, self.per_step)


def flows(counts: Any, estimate: Any, *, time: Any = 0, level: float | None = None, **table: Any) -> Flows:
    """How many moved from i to j in each step, given the counts before and after it and P.

    counts: [K, T, S] or [T, S], noisy as those that `estimate` was made of, NaN rows being missing steps; or a
    table, of which columns are named as for `am.estimate`: `realization`, `time`, `step` and so on.
    estimate: an `Estimate` or `Estimates`; cells use their own matrix, `time` being the number of the
    first step of an array. level: of the bands, by default that of the estimate.

    Expected flows n_t(i) P(i, j) are scaled by the step's activity and fitted to both margins. Noisy
    counts are smoothed over time first. Bands carry chance, dispersion, the error of P and of activity, and
    the noise of the counts (docs/flows.md).

    >>> import aggmc_beam as am
    >>> y, truth = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=50, population=1000, seed=1)
    >>> found = am.flows(y, am.estimate(y))
    >>> found.mean.shape, y[0, :2].tolist(), found.mean[0, 0].round().tolist()
    ((1, 49, 2, 2), [[754.0, 246.0], [764.0, 236.0]], [[683.0, 71.0], [81.0, 165.0]])
    """
    given = Given.of(counts, estimate, time, table)
    y, chain, labels = given.counts, given.chain, given.labels
    level = chain.level if level is None else level
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
    if y.shape[1] < 2:
        raise InputError("there is only one time step; flows need at least two in a row")
    if chain.noise.varies:
        if len(set(labels.starts.tolist())) > 1:
            raise InputError(
                "the noise differs by step, and realizations begin at different ones; give one of them"
            )
        chain = chain.from_step(int(labels.starts[0]))
    for name, counts in zip(labels.names, y if isinstance(chain.noise, Exact) else (), strict=False):
        why = not_closed(counts)
        if why is not None:
            raise InputError(f"realization {name}: {why}")
    cell = chain.at(given.steps[:, :-1])
    found = expected(y, chain, cell, learn(y, chain, cell), level)
    found = replace(found, labels=labels)
    return _ended(found, given.ends) if (given.ends < y.shape[1] - 1).any() else found


def _ended(found: Flows, end: np.ndarray) -> Flows:
    """Without what lies behind the last steps `end` [K] of shorter realizations."""
    T = found.counts.shape[1]
    out = np.arange(T - 1) >= end[:, None]
    later = np.arange(T) > end[:, None]
    hidden = [np.where(out[:, :, None, None], np.nan, a) for a in (found.mean, found.lower, found.upper)]
    counts = np.where(later[:, :, None], np.nan, found.counts)
    active = np.where(out, np.nan, found.activity)
    return replace(found, mean=hidden[0], lower=hidden[1], upper=hidden[2], counts=counts, activity=active)


def expected(y: np.ndarray, chain: Transitions, cell: np.ndarray, habits: Habits, level: float) -> Flows:
    """Flows in y [K, T, S], whose pairs belong to cells [K, T - 1], of movers with known habits."""
    K, T, S = y.shape
    how = activity(y, chain, cell, habits)
    P = powered(habits.matrices[cell], how.mean)
    latent = smooth(y, P, chain.noise, habits.spread)
    before, after = _margins(latent)
    first = before[:, :, :, None] * np.maximum(P, FLOOR)
    mean = fit_margins(first.reshape(-1, S, S), before.reshape(-1, S), after.reshape(-1, S))
    mean = mean.reshape(K, T - 1, S, S)
    lower, upper = count_bands(mean, _variance(mean, chain, how, habits, latent, cell), level)
    shown = np.concatenate([before, after[:, -1:]], 1)
    return Flows(chain.states, mean, lower, upper, shown, how.mean, habits.spread, level, Labels.plain(K))


def not_closed(counts: np.ndarray) -> str | None:
    """Why exact counts [T, S] have no flows, if they have none: members are neither made nor lost."""
    totals = counts.sum(1)
    if (counts < 0).any():
        return "exact counts cannot be negative; name the noise model when estimating"
    low, high = np.nanmin(totals), np.nanmax(totals)
    if high - low > 1e-6 * high:
        return (
            f"its total changes from {low:g} to {high:g}; flows need a closed population: estimate with an "
            "outside state, or name the noise model"
        )
    return None


def _margins(latent: LatentCounts) -> tuple[np.ndarray, np.ndarray]:
    """Counts before and after each step, not negative and with one total for each realization."""
    n = np.maximum(latent.mean, 0.0)
    total = np.maximum(latent.mean.sum(2).mean(1), 1e-300)
    size = np.maximum(n.sum(2), 1e-300)
    if not np.allclose(size, total[:, None], rtol=1e-12, atol=0):
        n = n * (total[:, None] / size)[:, :, None]
    return n[:, :-1], n[:, 1:]


def _variance(
    mean: np.ndarray,
    chain: Transitions,
    how: Activity,
    habits: Habits,
    latent: LatentCounts,
    cell: np.ndarray,
) -> np.ndarray:
    """[K, T - 1, S, S]: of the flow given both margins, with the errors of all that stands behind it.

    Given its margins a table G has covariance phi (D - D B'(B D B')^-1 B D), D = diag(G), B taking row and
    column sums; what changes the expected table is fitted to the margins by the same matrix.
    """
    S = mean.shape[3]
    # Of moves from i to j by each member of i: the standard error of P, and what is between it and the
    # matrix that is used; no probability is more uncertain than a uniform one.
    off_by = (chain.matrices - habits.matrices) ** 2
    doubt = np.minimum(chain.errors**2 + off_by, 1 / 12)[cell].reshape(-1, S, S)
    spread = how.variance / np.maximum(how.mean, 1e-9) ** 2
    flat = mean.reshape(-1, S, S)
    found = np.empty_like(flat)
    off = 1.0 - np.eye(S)
    margin = _margin_covariance(latent).reshape(-1, 2 * S, 2 * S)
    for start in range(0, len(flat), BLOCK):
        block = slice(start, start + BLOCK)
        G = flat[block]
        M = _inverse_of_margins(G)
        rows, cols, mixed = M[:, :S, :S], M[:, S:, S:], M[:, :S, S:]
        q = np.diagonal(rows, axis1=1, axis2=2)[:, :, None] + np.diagonal(cols, axis1=1, axis2=2)[:, None, :]
        free = np.clip(1 - G * (q + 2 * mixed), 0.0, 1.0)
        moved = G * off
        sums = np.concatenate([moved.sum(2), moved.sum(1)], 1)
        solved = np.einsum("nij,nj->ni", M, sums)
        shift = moved - G * (solved[:, :S, None] + solved[:, None, S:])
        variance = habits.spread * G * free
        members = G.sum(2, keepdims=True) * how.mean.reshape(-1)[block, None, None]
        variance += (members * free) ** 2 * doubt[block]
        variance += shift**2 * spread.reshape(-1)[block, None, None]
        if margin.any():
            around = M @ margin[block] @ M
            part = np.diagonal(around[:, :S, :S], axis1=1, axis2=2)[:, :, None]
            part = part + np.diagonal(around[:, S:, S:], axis1=1, axis2=2)[:, None, :]
            variance += G**2 * np.maximum(part + 2 * around[:, :S, S:], 0.0)
        found[block] = variance
    return found.reshape(mean.shape)


def _inverse_of_margins(G: np.ndarray) -> np.ndarray:
    """(B D B')^+ [n, 2S, 2S]; rows and columns share their total, so the inverse is a general one."""
    S = G.shape[1]
    M = np.zeros((len(G), 2 * S, 2 * S))
    index = np.arange(S)
    M[:, index, index] = G.sum(2)
    M[:, S + index, S + index] = G.sum(1)
    M[:, :S, S:], M[:, S:, :S] = G, G.swapaxes(1, 2)
    size = np.maximum(np.trace(M, axis1=1, axis2=2), 1e-300)[:, None, None]
    null = np.concatenate([np.ones(S), -np.ones(S)])
    # The one direction that margins share is filled in, and weighs nothing on margins that agree.
    return np.asarray(np.linalg.inv(M + size * (np.outer(null, null) / (2 * S) + 1e-12 * np.eye(2 * S))))


def _margin_covariance(latent: LatentCounts) -> np.ndarray:
    C, X = latent.covariance, latent.cross
    top = np.concatenate([C[:, :-1], X], 3)
    return np.concatenate([top, np.concatenate([X.swapaxes(2, 3), C[:, 1:]], 3)], 2)
