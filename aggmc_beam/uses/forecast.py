"""Forecasts of counts, with bands from both sources of error: chance, and P itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.fit.observations import check_counts
from aggmc_beam.noise import Exact
from aggmc_beam.uses.latent_counts import run_filter, unmixed
from aggmc_beam.uses.transitions import Transitions, chance, noise_at

#: The latest origins of the history, which tell how far forecasts can be trusted; fewer than the least tell
#: nothing.
ORIGINS, LEAST = 1000, 20
#: Errors of the model's own size that are added to those observed.
PRIOR_ERRORS = 10
#: How much of a variance may be that of its time.
OWN = (1.0, 0.75, 0.5, 0.25, 0.0)
#: Steps whose noises are averaged where they differ.
NOISES = 200
#: Draws of the error of P.
DRAWS = 50
MAX_STEPS = 100_000


@dataclass(frozen=True, eq=False)
class Forecast:
    """`mean`, `standard_error`, `lower` and `upper` [steps, S] of the true counts of the next steps.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=500, realizations=4, seed=1)
    >>> found = forecast(am.estimate(y), [100, 0], steps=3)
    >>> found.mean.round(-1).tolist(), found.time.tolist()
    ([[90.0, 10.0], [80.0, 20.0], [80.0, 20.0]], [1, 2, 3])
    """

    states: tuple[str, ...]
    time: np.ndarray
    mean: np.ndarray
    standard_error: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    level: float

    def to_rows(self) -> list[dict[str, Any]]:
        """Tidy: time, state, mean, standard_error, lower, upper; for a frame or a file."""
        names = ("mean", "standard_error", "lower", "upper")
        return [
            {"time": int(t), "state": s} | {n: float(getattr(self, n)[h, j]) for n in names}
            for h, t in enumerate(self.time)
            for j, s in enumerate(self.states)
        ]


def forecast(
    estimate: Any, counts: Any, steps: int, time: int | None = None, *, level: float = 0.95
) -> Forecast:
    """What counts will be in the next steps.

    counts: the last record [S], or the records so far [T, S], which tell more: noisy counts are
    filtered over time, and the errors that forecasts made on them set the width of bands and how far P is
    trusted over persistence. time: step of the last record, which a chain that changes with time
    needs (T - 1 by default for records so far).

    >>> import aggmc_beam as am
    >>> from aggmc_beam.uses.forecast import forecast
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=500, realizations=4, seed=1)
    >>> found = forecast(am.estimate(y[:, :-1]), y[0, :-1], steps=1)
    >>> bool((found.lower <= y[0, -1]).all() and (y[0, -1] <= found.upper).all())
    True
    """
    chain = Transitions.of(estimate).determined()
    y, time = _records(counts, chain, time)
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or not 1 <= steps <= MAX_STEPS:
        raise InputError(f"steps must be a whole number from 1 to {MAX_STEPS:,}; got {steps!r}")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
    tracked = Tracked.of(y, chain, time - len(y) + 1)
    trust = calibrate(tracked, int(steps))
    last = np.array([len(y) - 1])
    m, variance = trust.apply(*paths(tracked, last, int(steps)))
    lower, upper = bands(m[0], variance[0], trust.degrees, level)
    ahead = time + 1 + np.arange(steps)
    return Forecast(chain.states, ahead, m[0], np.sqrt(variance[0]), lower, upper, level)


def _records(counts: Any, chain: Transitions, time: int | None) -> tuple[np.ndarray, int]:
    try:
        y = np.asarray(counts, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"counts must be numbers, [S] or [T, S]: {error}") from error
    S = len(chain.states)
    if y.ndim not in (1, 2) or y.shape[-1] != S or not len(y):
        raise InputError(f"counts must have shape [{S}] or [T, {S}], one per state; got {y.shape}")
    if time is None:
        if y.ndim == 1 and chain.kind != "stationary":
            raise InputError(
                "this chain changes with time, so a forecast needs time=, the step of the last record "
                f"(cells are {chain.cells[0]} to {chain.cells[-1]})"
            )
        time = 0 if y.ndim == 1 else len(y) - 1
    if isinstance(time, bool) or not isinstance(time, int | np.integer):
        raise InputError(f"time must be a whole number, the step of the last record; got {time!r}")
    y = np.atleast_2d(y)
    if not np.isfinite(y[-1]).all():
        raise InputError("the last record is not complete; a forecast starts from a record of all states")
    # The checks of counts ask for two steps.
    return check_counts(np.repeat(y, 2, 0) if len(y) == 1 else y)[0][-len(y) :], int(time)


@dataclass(frozen=True, eq=False)
class Tracked:
    """Records y [T, S] from step `start`, and true counts given the records so far: mean and covariance."""

    chain: Transitions
    seen: np.ndarray
    noise: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    start: int

    def until(self, end: int) -> Tracked:
        """What was known before step `end` of the records."""
        parts = (self.seen[:end], self.noise[:end], self.mean[:end], self.covariance[:end])
        return Tracked(self.chain, *parts, self.start)

    @classmethod
    def of(cls, y: np.ndarray, chain: Transitions, start: int, learn: int | None = None) -> Tracked:
        """`learn`: how many steps tell the dispersion of noisy counts, by default all."""
        T, S = y.shape
        chain = chain.from_step(start)
        cell = chain.at(start + np.arange(max(T - 1, 1)))
        seen = unmixed(y[None], chain.noise)[0]
        if isinstance(chain.noise, Exact) and not np.isnan(y).any():
            return cls(chain, seen, np.zeros((T, S, S)), y, np.zeros((T, S, S)), start)
        phi = one_step_dispersion(y[:learn], chain, cell[: None if learn is None else learn - 1])
        found = run_filter(y[None], chain.matrices[cell][None], chain.noise, phi)
        noise = np.zeros((T, S, S))
        for t in range(T):
            A, _, R = noise_at(chain.noise, t, found.mean[0, t][None])
            inverse = np.linalg.inv(A)
            noise[t] = inverse @ R[0] @ inverse.T
        return cls(chain, seen, noise, found.mean[0], found.covariance[0], start)


def one_step_dispersion(y: np.ndarray, chain: Transitions, cell: np.ndarray) -> float:
    """How many times as much one-step errors vary as those of independent movers, at least 1."""
    x = unmixed(y[None], chain.noise)[0]
    if len(x) < LEAST:
        return 1.0
    P, before = chain.matrices[cell], np.maximum(x[:-1], 0.0)
    off = x[1:] - np.einsum("ti,tij->tj", x[:-1], P)
    expected = np.trace(chance(np.nan_to_num(before), P), axis1=1, axis2=2)
    level = np.nanmean(x, 0)[None]
    noise = 0.0
    if not isinstance(chain.noise, Exact):
        R0 = np.zeros((len(x[0]), len(x[0])))
        for t in range(min(len(x), NOISES) if chain.noise.varies else 1):
            A, _, R = noise_at(chain.noise, t, level)
            inverse = np.linalg.inv(A)
            R0 += inverse @ R[0] @ inverse.T
        R0 /= min(len(x), NOISES) if chain.noise.varies else 1
        noise = float(np.trace(R0) + np.mean(np.trace(P.swapaxes(1, 2) @ R0 @ P, axis1=1, axis2=2)))
    ok = np.isfinite(off).all(1)
    observed = float((off[ok] ** 2).sum(1).mean()) - noise if ok.any() else 0.0
    return max(observed / max(float(expected[ok].mean()), 1e-300), 1.0) if ok.any() else 1.0


def paths(tracked: Tracked, origins: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(true counts at the origins [n, S], means [n, steps, S], variances by the model [n, steps, S])."""
    chain = tracked.chain
    m, C = np.maximum(tracked.mean[origins], 0.0), tracked.covariance[origins]
    start, (n, S) = m, m.shape
    means, variances = np.empty((n, steps, S)), np.empty((n, steps, S))
    wrong = _errors(chain)
    drift = np.zeros((n, DRAWS, S))
    for h in range(steps):
        cell = chain.at(tracked.start + origins + h)
        P = chain.matrices[cell]
        drift = drift @ P
        for c in np.unique(cell):
            at = cell == c
            drift[at] += np.einsum("ni,dij->ndj", m[at], wrong[c])
        C = P.swapaxes(1, 2) @ C @ P + chance(m, P)
        m = np.einsum("ni,nij->nj", m, P)
        means[:, h] = m
        variances[:, h] = np.diagonal(C, axis1=1, axis2=2) + (drift**2).mean(1)
    return start, means, variances


def _errors(chain: Transitions) -> np.ndarray:
    """[C, DRAWS, S, S]: errors of P that leave rows at 1 and mean shares where they are, which are known
    far better than P."""
    rng = np.random.default_rng(0)
    S = len(chain.states)
    E = rng.standard_normal((len(chain.matrices), DRAWS, S, S)) * np.minimum(chain.errors, 0.3)[:, None]
    square = np.minimum(chain.errors, 0.3) ** 2
    share = square / np.maximum(square.sum(2, keepdims=True), 1e-300)
    E = E - E.sum(3, keepdims=True) * share[:, None]
    return np.asarray(E - np.einsum("ci,cdij->cdj", chain.shares, E)[:, :, None, :])


@dataclass(frozen=True, eq=False)
class Trust:
    """`weight` [steps] of P against persistence, `inflation` [steps, S] of the model's variance, of which the
    part `own` [steps] is that of its time and the rest `typical` [steps, S] of all times; and the
    `degrees` of freedom it stands on."""

    weight: np.ndarray
    inflation: np.ndarray
    own: np.ndarray
    typical: np.ndarray
    degrees: float

    def apply(
        self, start: np.ndarray, means: np.ndarray, variances: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        m = start[:, None] + self.weight[:, None] * (means - start[:, None])
        own = self.own[:, None]
        return m, (own * variances + (1 - own) * self.typical) * self.inflation


def calibrate(tracked: Tracked, steps: int) -> Trust:
    """From the errors that forecasts made from the origins of the history.

    Where history is short they are those of the model: P is trusted and movers are independent (or as
    dispersed as one-step errors say).
    """
    T, S = tracked.seen.shape
    weight, inflation = np.ones(steps), np.ones((steps, S))
    count, own, typical = np.zeros(steps), np.ones(steps), np.zeros((steps, S))
    table = (weight, inflation, own, typical, count)
    if T - 1 >= LEAST:
        first = 0 if isinstance(tracked.chain.noise, Exact) else min(10, T // 4)
        first = max(first, T - 1 - ORIGINS)
        origins = np.arange(first, T - 1)
        far = min(steps, T - 1 - first)
        start, means, variances = paths(tracked, origins, far)
        for h in range(far):
            at = origins + h + 1 < T
            ends = origins[at] + h + 1
            ok = np.isfinite(tracked.seen[ends]).all(1)
            # Errors of origins less than h apart share their chances.
            count[h] = ok.sum() / (h + 1)
            if count[h] < LEAST / 2 or ok.sum() < LEAST:
                _carry_on(table, h)
                break
            v = variances[at, h][ok] + np.diagonal(tracked.noise[ends][ok], axis1=1, axis2=2)
            v = v + 1e-12 * np.maximum(v.max(), 1e-300)
            end, begin = tracked.seen[ends][ok], start[at][ok]
            told = means[at, h][ok] - begin
            weight[h] = _trust(end - begin, told, v, h + 1)
            off = (end - begin - weight[h] * told) ** 2
            model = variances[at, h][ok]
            typical[h] = model.mean(0)
            excess = np.maximum(off.mean(0) - (v - model).mean(0), 0.0)
            ratio = excess / np.maximum(typical[h], 1e-300)
            # Drawn to the step before, the first to 1, on the scale of logarithms: where P is hardly known
            # the model's own size says little.
            part = count[h] / (count[h] + PRIOR_ERRORS)
            inflation[h] = np.maximum(ratio, 1e-9) ** part * inflation[max(h - 1, 0)] ** (1 - part)
            own[h] = max(OWN, key=lambda part: _fit(part, off, model, typical[h], ratio, v - model))
        else:
            _carry_on(table, far)
    return Trust(weight, inflation, own, typical, float(tracked.chain.degrees))


def _trust(came: np.ndarray, told: np.ndarray, variance: np.ndarray, steps: int) -> float:
    """Weight of P against persistence: the regression of changes that came [n, S] on those that were told, drawn
    to 0 as one change of the size of its error would; errors of origins nearer than `steps` are shared."""
    power = float((told**2 / variance).sum())
    if power <= 0:
        return 1.0
    slope = float((came * told / variance).sum()) / power
    left = float(((came - slope * told) ** 2 / variance).mean())
    known = power / max(left, 1e-300) / steps
    return float(np.clip(slope * known / (known + 1), 0, 1))


def _carry_on(table: tuple[np.ndarray, ...], h: int) -> None:
    """Steps from h on, which history does not reach, are as those before; variances are their own."""
    for values in table:
        if h:
            values[h:] = values[h - 1]
    table[2][h:] = 1.0


def _fit(
    part: float,
    square: np.ndarray,
    model: np.ndarray,
    typical: np.ndarray,
    ratio: np.ndarray,
    noise: np.ndarray,
) -> float:
    """Log likelihood of squared errors under a variance of which `part` is that of its own time."""
    v = (part * model + (1 - part) * typical) * ratio + noise
    v = np.maximum(v, 1e-9 * max(float(v.max()), 1e-300))
    return float(-(np.log(v) + square / v).sum())


def bands(
    mean: np.ndarray, variance: np.ndarray, degrees: float, level: float
) -> tuple[np.ndarray, np.ndarray]:
    from aggmc_beam.estimators.inference import student_quantile

    half = student_quantile(level, max(int(degrees), 1)) * np.sqrt(variance)
    return np.maximum(mean - half, np.minimum(mean, 0.0)), mean + half
