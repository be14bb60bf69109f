"""Alarms: steps whose counts are not what the steps before them led to expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.printing import aligned, wrapped
from aggmc_beam.tables import Columns, Tabular
from aggmc_beam.text import escape_controls
from aggmc_beam.uses.forecast import Tracked
from aggmc_beam.uses.given import Given, Labels
from aggmc_beam.uses.transitions import chance

#: Errors before a step with which its own is compared, at most.
COMPARED = 5000
#: Alarms that are printed.
SHOWN = 10


@dataclass(frozen=True, eq=False)
class Alarms(Tabular):
    """For each step of the series: `p_value` [T] of its count given those before it (NaN where too little
    came before), `raised` [T], and `state` [T], the number of the one that is farthest from its forecast. Of
    several realizations all are [K, T]. Tables have the steps that raised an alarm.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=600, population=1000, seed=1)
    >>> y[0, 500] += [-150, 150]
    >>> bool(am.alarms(y[0], am.estimate(y[:, :400]), rate=0.005).raised[500])
    True
    """

    p_value: np.ndarray
    raised: np.ndarray
    state: np.ndarray
    rate: float
    states: tuple[str, ...]
    labels: Labels

    forms = ("tidy",)

    def columns(self, form: str = "tidy") -> Columns:
        if form != "tidy":
            raise InputError(f"alarms have no table {form!r}, only 'tidy'")
        k, t = np.nonzero(np.atleast_2d(self.raised))
        p, state = np.atleast_2d(self.p_value)[k, t], np.atleast_2d(self.state)[k, t]
        return {
            **self.labels.columns(k, t),
            "state": [self.states[j] for j in state],
            "p_value": p.tolist(),
            "rate": [self.rate] * len(k),
        }

    def __str__(self) -> str:
        judged = int(np.isfinite(self.p_value).sum())
        number = int(self.raised.sum())
        least = int(np.ceil(1 / self.rate)) - 1
        head = (
            f"{number:,} of {judged:,} steps raise an alarm at a rate of {self.rate:g}; "
            f"{self.rate * judged:,.3g} would where nothing happens. Alarms begin after {least:,} steps."
        )
        found = self.columns()
        rows = [
            [escape_controls(str(time)), escape_controls(str(name)), escape_controls(state), f"{p:.2g}"]
            for name, time, state, p, _ in zip(*found.values(), strict=True)
        ]
        more = [f"... and {number - SHOWN:,} more"] if number > SHOWN else []
        table = [aligned([["time", "realization", "state", "p"], *rows[:SHOWN]])] if rows else []
        return "\n".join([wrapped(head), *table, *more])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from aggmc_beam.report.notebook import table_html

        return f"<div><p>{str(self).partition(chr(10))[0]}</p>{table_html(self.columns())}</div>"


def alarms(counts: Any, estimate: Any, *, rate: float = 0.01, time: Any = 0, **table: Any) -> Alarms:
    """Steps that differ more from their one-step forecast than all but a part `rate` of those before.

    counts: [T, S], a series whose first step is number `time`; or [K, T, S], realizations that come one after
    the other, such as days, or that each are compared with those listed before it; or a table, of which columns are
    named as for `am.estimate`: `realization`, `time`, `step` and so on. rate: how many alarms
    there are in steps where nothing happened. It holds whatever the distribution of errors, as long as it stays
    the same (the p-value is a rank among the errors so far); an alarm needs at least 1 / rate - 1 steps before it.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=3000, population=1000, seed=1)
    >>> found = am.alarms(y[0], am.estimate(y), rate=0.05)
    >>> bool(abs(found.raised[100:].mean() - 0.05) < 0.01)
    True
    """
    given = Given.of(counts, estimate, time, table)
    if not 0 < rate < 1:
        raise InputError(f"rate must lie between 0 and 1, such as 0.01; got {rate!r}")
    starts = given.labels.starts.tolist()
    found = [
        surprise(Tracked.of(y, given.chain, start)) for y, start in zip(given.counts, starts, strict=True)
    ]
    p = ranks(np.concatenate([s for s, _ in found]), rate).reshape(given.counts.shape[:2])
    state = np.stack([s for _, s in found])
    if given.single:
        p, state = p[0], state[0]
    return Alarms(p, p <= rate, state, rate, given.chain.states, given.labels)


def ranks(surprise: np.ndarray, rate: float, known: int = 0) -> np.ndarray:
    """p-values of surprises [n] among those before them; NaN where these are too few for an alarm at `rate`,
    and for the first `known`, which are only compared with."""
    p = np.full(len(surprise), np.nan)
    for t in np.flatnonzero(np.isfinite(surprise)):
        past = surprise[max(t - COMPARED, 0) : t]
        past = past[np.isfinite(past)]
        # The smallest p-value that rank can give is 1 / (n + 1).
        if t >= known and (len(past) + 1) * rate >= 1:
            p[t] = (1 + (past >= surprise[t]).sum()) / (len(past) + 1)
    return p


def surprise(tracked: Tracked) -> tuple[np.ndarray, np.ndarray]:
    """(how far each step is off [T], the state that is farthest off [T]).

    Something that moves members, or keeps them, shifts counts from one state to another: of all pairs of states
    the shift that explains the error best, squared and in units of its variance, which tells one flow among many
    better than the whole error does.
    """
    chain, T = tracked.chain, len(tracked.seen)
    S = tracked.seen.shape[1]
    P = chain.matrices[chain.at(tracked.start + np.arange(T - 1))]
    before = np.maximum(tracked.mean[:-1], 0.0)
    off = tracked.seen[1:] - np.einsum("ti,tij->tj", before, P)
    V = chance(before, P) + P.swapaxes(1, 2) @ tracked.covariance[:-1] @ P + tracked.noise[1:]
    size = np.trace(V, axis1=1, axis2=2)[:, None, None] / S
    V = V + (1e-3 * size + 1e-12) * np.eye(S)
    known = np.isfinite(off).all(1)
    filled = np.where(known[:, None], off, 0.0)
    inverse = np.linalg.inv(V)
    pull = np.einsum("tij,tj->ti", inverse, filled)
    own = np.diagonal(inverse, axis1=1, axis2=2)
    weight = own[:, :, None] + own[:, None, :] - 2 * inverse + np.eye(S)
    squares = ((pull[:, :, None] - pull[:, None, :]) ** 2 / weight).max((1, 2))
    far = np.abs(filled) / np.sqrt(np.diagonal(V, axis1=1, axis2=2))
    found = np.concatenate([[np.nan], np.where(known, squares, np.nan)])
    return found, np.concatenate([[0], far.argmax(1)])
