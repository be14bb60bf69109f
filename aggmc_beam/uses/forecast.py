"""Forecasts of counts, with bands from both sources of error: chance, and P itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.estimation import is_table, refuse_options
from aggmc_beam.fit.observations import check_counts
from aggmc_beam.noise import Exact
from aggmc_beam.printing import WIDTH, aligned, clipped, width, wrapped
from aggmc_beam.tables import Columns, Tabular
from aggmc_beam.text import escape_controls
from aggmc_beam.uses.given import Given, Labels
from aggmc_beam.uses.latent_counts import run_filter, unmixed
from aggmc_beam.uses.transitions import Transitions, chance, noise_at

#: The latest origins of the history, which tell how far forecasts can be trusted; fewer than the least tell
#: nothing.
ORIGINS, LEAST = 1000, 20
#: Errors of the model's own size that are added to those observed.
PRIOR_ERRORS = 10
#: Mean of the squared t statistic of a random walk's return to its mean (Dickey & Fuller 1979: mean -1.53, standard
#: deviation .84).
RETURN = 3.0
#: How much of a variance may be that of its time.
OWN = (1.0, 0.75, 0.5, 0.25, 0.0)
#: Steps whose noises are averaged where they differ.
NOISES = 200
#: Draws of the error of P.
DRAWS = 50
MAX_STEPS = 100_000
#: Steps before the end of a realization that its forecast learns from.
HISTORY = 2000
#: Steps that are printed.
SHOWN = 12
#: Arrays of a forecast.
PARTS = ("time", "mean", "standard_error", "lower", "upper")

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Forecast(Tabular):
    """`mean`, `standard_error`, `lower` and `upper` [steps, S] of the true counts of the next steps, which are those
    of `time` [steps]. Of a table with realizations all are [K, steps, S], and [K, steps]; `labels` tells their names
    and times, which tables (`to_frame()` and others) have as columns.

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
    labels: Labels = field(default_factory=lambda: Labels.plain(1))

    forms = ("tidy",)

    def columns(self, form: str = "tidy") -> Columns:
        if form != "tidy":
            raise InputError(f"a forecast has no table {form!r}, only 'tidy'")
        *K, steps, S = self.mean.shape
        k, h = np.divmod(np.arange(len(self.labels.names) * steps), steps)
        places = {
            name: [v for v in values for _ in range(S)] for name, values in self.labels.columns(k, h).items()
        }
        if not K:
            del places["realization"]
        found: Columns = {**places, "state": list(self.states) * len(k)}
        return found | {
            n: getattr(self, n).ravel().tolist() for n in ("mean", "standard_error", "lower", "upper")
        }

    def to_rows(self) -> list[dict[str, Any]]:
        """Tidy: time, state, mean, standard_error, lower, upper; for a frame or a file."""
        columns = self.columns()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def plot(self, counts: Any = None, realization: Any = None) -> Figure:
        """The forecast with its bands, after the last of `counts` [T, S] if these are given; needs matplotlib (the
        extra `report`). realization: its name; by default the first."""
        from aggmc_beam.report.series import plot_forecast

        return plot_forecast(self, counts, realization)

    def __str__(self) -> str:
        mean, error = (a.reshape(-1, *a.shape[-2:]) for a in (self.mean, self.standard_error))
        K, steps, S = mean.shape
        head = f"Forecast of {steps:,} steps for {S} states, bands of {100 * self.level:g}%"
        if K > 1:
            head += f", of {K:,} realizations; the first, {escape_controls(str(self.labels.names[0]))}:"
        times = [escape_controls(str(t)) for t in self.labels.times(steps)[0]]
        shown = (
            range(steps) if steps <= SHOWN else [*range(SHOWN // 2), -1, *range(steps - SHOWN // 2, steps)]
        )
        rows = [
            ["...", *[""] * S] if h < 0 else [times[h], *map(people, mean[0, h], error[0, h])] for h in shown
        ]
        table = aligned([["time", *map(clipped, self.states)], *rows])
        if width(table.partition("\n")[0]) > WIDTH:
            ends = [0] if steps == 1 else [0, steps - 1]
            rows = [
                [clipped(name), *(people(mean[0, h, j], error[0, h, j]) for h in ends)]
                for j, name in enumerate(self.states)
            ]
            table = aligned([["state", *(times[h] for h in ends)], *rows])
        return "\n".join([wrapped(head), table, "± is one standard error"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from aggmc_beam.report.notebook import table_html

        return f"<div><p>{str(self).partition(chr(10))[0]}</p>{table_html(self.columns())}</div>"


def people(value: float, error: float) -> str:
    """A number of people with its error: two digits of the error, or whole numbers.

    >>> people(1234.56, 12.3), people(3.456, 0.123)
    ('1,235 ± 12', '3.46 ± 0.12')
    """
    digits = int(np.clip(1 - np.floor(np.log10(error)), 0, 3)) if error > 0 and np.isfinite(error) else 1
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"


def forecast(
    estimate: Any, counts: Any, steps: int, time: Any = None, *, level: float | None = None, **table: Any
) -> Forecast:
    """What counts will be in the next steps.

    counts: the last record [S], or the records so far [T, S], which tell more: noisy counts are
    filtered over time, and the errors that forecasts made on them set the width of bands and how far P is
    trusted over persistence. time: step of the last record, which a chain that changes with time
    needs (T - 1 by default for records so far). Or counts are a table, of which columns are named as for
    `am.estimate`: `realization`, `time`, `step` and so on; every realization has a forecast from its last record on.

    >>> import aggmc_beam as am
    >>> from aggmc_beam.uses.forecast import forecast
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=500, realizations=4, seed=1)
    >>> found = forecast(am.estimate(y[:, :-1]), y[0, :-1], steps=1)
    >>> bool((found.lower <= y[0, -1]).all() and (y[0, -1] <= found.upper).all())
    True
    """
    if is_table(counts):
        given = Given.of(counts, estimate, time, table)
        return _of_realizations(given, steps, given.chain.level if level is None else level)
    refuse_options(counts, table)
    chain = Transitions.of(estimate)
    y, time = _records(counts, chain, time)
    return forecast_series(chain, y, steps, time, chain.level if level is None else level)


def _of_realizations(given: Given, steps: int, level: float) -> Forecast:
    """Of realizations that a long gap parted, the last part counts."""
    last = {name: k for k, name in enumerate(given.labels.names)}
    kept = list(last.values())
    found = []
    for k in kept:
        end = int(given.ends[k])
        y = given.counts[k, max(end + 1 - HISTORY, 0) : end + 1]
        found.append(forecast_series(given.chain, y, steps, int(given.steps[k, end]), level))
    if given.single:
        return replace(found[0], labels=replace(found[0].labels, clock=given.labels.clock))
    stacked = {n: np.stack([getattr(f, n) for f in found]) for n in PARTS}
    starts = np.array([f.time[0] for f in found])
    return Forecast(
        given.chain.states, **stacked, level=level, labels=Labels(tuple(last), starts, given.labels.clock)
    )


def forecast_series(chain: Transitions, y: np.ndarray, steps: int, time: int, level: float) -> Forecast:
    """After the records y [T, S], of which the last is that of step `time`. Where the last are not complete, it
    starts from the one before them."""
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or not 1 <= steps <= MAX_STEPS:
        raise InputError(f"steps must be a whole number from 1 to {MAX_STEPS:,}; got {steps!r}")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
    chain = chain.determined()
    gap = int(np.isfinite(y).all(1)[::-1].argmax())
    y, steps, first = y[: len(y) - gap], int(steps) + gap, time + 1
    tracked = Tracked.of(y, chain, time - gap - len(y) + 1)
    trust = calibrate(tracked, steps)
    last = np.array([len(y) - 1])
    m, variance = trust.apply(*paths(tracked, last, steps))
    mean, spread = m[0, gap:], variance[0, gap:]
    lower, upper = bands(mean, spread, trust.degrees, level)
    ahead = first + np.arange(steps - gap)
    return Forecast(chain.states, ahead, mean, np.sqrt(spread), lower, upper, level, Labels.plain(1, first))


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
    if not np.isfinite(y).all(1).any():
        raise InputError(
            "the last record is not complete, nor any before it; a forecast starts from a record of all states"
        )
    # The checks of counts ask for two steps.
    y = check_counts(np.repeat(y, 2, 0) if len(y) == 1 else y, gaps=True)[0][-len(y) :]
    return np.where(np.isnan(y).any(1, keepdims=True), np.nan, y), int(time)


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
        C = P.swapaxes(1, 2) @ C @ P + chain.dispersion[cell][:, None, None] * chance(m, P)
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
            weight[h] = _trust(end - begin, told, v, h + 1, tracked.chain.realizations)
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


def _trust(came: np.ndarray, told: np.ndarray, variance: np.ndarray, steps: int, realizations: int) -> float:
    """Weight of P against persistence: the regression of changes that came [n, S] on those that were told, drawn
    to 0 as one change of the size of its error would; errors of origins nearer than `steps` are shared.

    A walk without any memory of a mean seems to return to the mean of its own records: that alone has the squared t
    statistic `RETURN` in each direction, as far as P was learned from these records. It is taken off.
    """
    power = float((told**2 / variance).sum())
    if power <= 0:
        return 1.0
    slope = float((came * told / variance).sum()) / power
    left = float(((came - slope * told) ** 2 / variance).mean())
    known = power / max(left, 1e-300) / steps
    own = RETURN * (told.shape[1] - 1) / realizations
    real = max(1 - own / max(slope**2 * known, 1e-300), 0.0)
    return float(np.clip(slope * real * known / (known + 1), 0, 1))


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
