"""How good forecasts are: rolling origins, against what needs no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from aggmc_beam.clock import Clock
from aggmc_beam.errors import InputError
from aggmc_beam.estimation import is_table
from aggmc_beam.fit.observations import check_counts
from aggmc_beam.tables import Columns, Tabular
from aggmc_beam.uses.forecast import LEAST, Tracked, calibrate, paths
from aggmc_beam.uses.given import Given
from aggmc_beam.uses.transitions import Transitions

#: How often bands and trust are learned anew over the origins.
CALIBRATIONS = 20


@dataclass(frozen=True)
class Score:
    """Of one way to forecast, at one horizon: root mean square error, CRPS, interval score (both smaller
    is better, in people) and the coverage of its bands."""

    method: str
    horizon: int
    rmse: float
    crps: float
    interval_score: float
    coverage: float


@dataclass(frozen=True)
class Evaluation(Tabular):
    """`scores` by method and horizon over `origins` origins, none of which the history up to `start` holds.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=600, population=500, seed=1)
    >>> found = am.evaluate(y[0], am.estimate(y[:, :400]), horizons=[1], start=400)
    >>> found.ratio("estimate", 1) < 1
    True
    """

    scores: tuple[Score, ...]
    origins: int
    start: int
    level: float

    forms = ("tidy",)

    def columns(self, form: str = "tidy") -> Columns:
        if form != "tidy":
            raise InputError(f"an evaluation has no table {form!r}, only 'tidy'")
        names = [f.name for f in fields(Score)]
        return {name: [getattr(s, name) for s in self.scores] for name in names}

    def score(self, method: str, horizon: int) -> Score:
        for s in self.scores:
            if (s.method, s.horizon) == (method, horizon):
                return s
        raise InputError(f"there is no score of {method!r} at horizon {horizon}")

    def ratio(self, method: str, horizon: int, base: str = "persistence") -> float:
        """Root mean square error relative to that of another method."""
        return self.score(method, horizon).rmse / self.score(base, horizon).rmse

    def _repr_html_(self) -> str:
        from aggmc_beam.report.notebook import table_html

        return str(table_html(self.columns()))

    def __str__(self) -> str:
        lines = [f"{self.origins:,} origins from step {self.start}, bands of {self.level:g}"]
        lines.append(f"{'method':<14}{'horizon':>8}{'rmse':>11}{'crps':>11}{'interval':>11}{'coverage':>10}")
        for s in self.scores:
            numbers = f"{s.rmse:>11.4g}{s.crps:>11.4g}{s.interval_score:>11.4g}{s.coverage:>10.3f}"
            lines.append(f"{s.method:<14}{s.horizon:>8}{numbers}")
        return "\n".join(lines)


def evaluate(
    counts: Any,
    estimate: Any,
    horizons: Sequence[int] = (1, 3, 6),
    *,
    start: int | None = None,
    period: int | None = None,
    time: Any = 0,
    level: float = 0.95,
    **table: Any,
) -> Evaluation:
    """Forecasts from every step after `start`, compared with what came.

    counts: [T, S], a single series whose first step is number `time`; or a table of one, of which
    columns are named as for `am.estimate`. estimate: an `Estimate` or
    `Estimates` made of nothing but steps before `start` (half of the series by default), or a function of
    counts [1, start, S] that makes one. Bands and trust in P are learned from the records before an origin,
    as `forecast` does; P itself is not made anew.

    Beside the estimate stand persistence, the mean of the same phase of a `period` so far, and the pooled
    matrix where the estimate has cells.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=600, population=500, seed=1)
    >>> found = am.evaluate(y[0], am.estimate, horizons=[1, 5])
    >>> [(s.method, s.horizon) for s in found.scores]
    [('estimate', 1), ('estimate', 5), ('persistence', 1), ('persistence', 5)]
    """
    if callable(estimate):
        if is_table(counts):
            raise InputError("a function that makes estimates takes arrays; give counts [T, S]")
        y, clock = check_counts(counts), Clock()
    else:
        given = Given.of(counts, estimate, time, table)
        y, clock, time = given.counts, given.chain.clock, int(given.labels.starts[0])
    if len(y) != 1:
        raise InputError(f"evaluate takes a single series [T, S]; got {len(y)} realizations")
    y = y[0]
    T = len(y)
    start = T // 2 if start is None else start
    ahead = sorted(set(horizons))
    if not ahead or min(ahead) < 1:
        raise InputError(f"horizons must be numbers of steps of at least 1; got {list(horizons)}")
    if not LEAST < start <= T - 1 - max(ahead):
        raise InputError(
            f"start must leave more than {LEAST} steps before it and {max(ahead)} after it; "
            f"got {start} of {T} steps"
        )
    if callable(estimate):
        estimate = estimate(y[None, :start])
    methods: dict[str, Any] = {"estimate": Transitions.of(estimate, clock).determined()}
    if getattr(estimate, "pooled", None) is not None:
        methods["pooled"] = Transitions.of(estimate.pooled, clock).determined()
    origins = np.arange(start - 1, T - max(ahead))
    scores: list[Score] = []
    for name, chain in methods.items():
        tracked = Tracked.of(y, chain, time, start)
        mean, variance = _rolling(tracked, origins, max(ahead))
        for h in ahead:
            noise = np.diagonal(tracked.noise[origins + h], axis1=1, axis2=2)
            truth = tracked.seen[origins + h]
            sd = np.sqrt(variance[:, h - 1] + noise)
            scores.append(_score(name, h, mean[:, h - 1], sd, truth, level))
    truth = methods["estimate"]
    seen = Tracked.of(y, truth, time).seen
    for h in ahead:
        sd = _past_changes(seen, origins, h)
        scores.append(_score("persistence", h, seen[origins], sd, seen[origins + h], level))
    if period is not None:
        scores += [_seasonal(seen, origins, h, start, period, level) for h in ahead]
    return Evaluation(tuple(scores), len(origins), start, level)


def _past_changes(seen: np.ndarray, origins: np.ndarray, h: int) -> np.ndarray:
    """Root mean square [n, S] of all changes over h steps before each origin."""
    squares = (seen[h:] - seen[:-h]) ** 2
    there = np.cumsum(np.isfinite(squares), 0)
    return np.asarray(np.sqrt(np.cumsum(np.nan_to_num(squares), 0) / np.maximum(there, 1))[origins - h])


def _rolling(tracked: Tracked, origins: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Forecasts, calibrated anew some times on the way with the records that were there by then."""
    parts = []
    for block in np.array_split(origins, min(CALIBRATIONS, len(origins))):
        trust = calibrate(tracked.until(int(block[0]) + 1), steps)
        parts.append(trust.apply(*paths(tracked, block, steps)))
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _seasonal(seen: np.ndarray, origins: np.ndarray, h: int, start: int, period: int, level: float) -> Score:
    if start <= period:
        raise InputError(f"a seasonal mean needs more than one period of {period} before step {start}")
    phase = np.arange(start) % period
    mean = np.stack([np.nanmean(seen[:start][phase == p], 0) for p in range(period)])
    sd = np.sqrt(np.nanmean((seen[:start] - mean[phase]) ** 2, 0))
    ends = origins + h
    return _score(
        "seasonal mean", h, mean[ends % period], np.broadcast_to(sd, seen[ends].shape), seen[ends], level
    )


def _score(
    name: str, horizon: int, mean: np.ndarray, sd: np.ndarray, truth: np.ndarray, level: float
) -> Score:
    from scipy.special import ndtri

    ok = np.isfinite(truth) & np.isfinite(mean)
    m, s, x = mean[ok], np.maximum(sd[ok], 1e-300), truth[ok]
    half = ndtri((1 + level) / 2) * s
    outside = np.maximum(np.abs(x - m) - half, 0.0)
    return Score(
        name,
        horizon,
        float(np.sqrt(((x - m) ** 2).mean())),
        float(normal_crps(m, s, x).mean()),
        float((2 * half + 2 / (1 - level) * outside).mean()),
        float((outside <= 1e-9 * np.maximum(np.abs(m), s)).mean()),
    )


def normal_crps(mean: np.ndarray, sd: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Continuous ranked probability score of a normal forecast (Gneiting & Raftery 2007, eq. 21).

    >>> round(float(normal_crps(np.array(0.0), np.array(1.0), np.array(0.0))), 4)
    0.2337
    """
    from scipy.special import ndtr

    z = (truth - mean) / sd
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return np.asarray(sd * (z * (2 * ndtr(z) - 1) + 2 * density - np.pi**-0.5))
