"""Do the mean shares change with time? An alarm from the profile, and data with a trend taken out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from aggmc_beam.estimators.latent import Latent, Trajectory
from aggmc_beam.estimators.shrinkage import positive_shares
from aggmc_beam.estimators.spectrum import deviation
from aggmc_beam.estimators.stepwise import StepSums
from aggmc_beam.sums.moments import CoMoment, Moments
from aggmc_beam.sums.profile import RECORDS, SHIFT, Profile

LEVEL = 0.01
#: Stretches of time whose means are compared when realizations are too few to compare.
BLOCKS = 8
FEW_GROUPS = 5
#: First steps whose mean is compared with that of all.
STARTS = (1, 3, 8)


@dataclass(frozen=True)
class DriftAlarm:
    """The largest of `tests` standardised movements of mean shares, and its limit at 1% in all.

    `implied_bias` is the root mean square error that the movement would put into a stationary
    estimate of P.
    """

    statistic: float
    limit: float
    tests: int
    method: str
    implied_bias: float

    @property
    def raised(self) -> bool:
        return self.statistic > self.limit

    def words(self) -> str:
        return f"largest t {self.statistic:.1f}, limit {self.limit:.1f}"


def drift_alarm(x: Latent, P: np.ndarray, profile: Profile, sums: StepSums | None) -> DriftAlarm | None:
    """From realizations that can be compared, or from the long-run variance that P implies."""
    path = x.trajectory
    if path is None or len(path.time) < 4:
        return None
    bias = implied_bias(x, profile)
    if sums is not None and _comparable(sums):
        return _between_realizations(sums, bias)
    return _between_blocks(x, P, bias)


def _comparable(sums: StepSums) -> bool:
    """Whether there are enough replicates that each cover (nearly) all steps."""
    return bool(sums.groups >= FEW_GROUPS and ((sums.weight > 0).mean(1) > 0.9).all())


def _between_realizations(sums: StepSums, bias: float) -> DriftAlarm:
    """Contrasts over time of each replicate's shares: start, end, trend, halves and one wave."""
    from scipy import special

    B = sums.steps
    t, tenth = np.arange(B), max(1, B // 10)
    shapes = [t == 0, t < tenth, t >= B - tenth, t, t < B / 2, np.cos(2 * np.pi * t / B)]
    contrasts = np.array(shapes, float)
    contrasts -= contrasts.mean(1, keepdims=True)
    moved = np.einsum("wb,gbs->gws", contrasts, sums.left)
    mean = np.abs(moved.mean(0))
    error = moved.std(0, ddof=1) / np.sqrt(sums.groups)
    tests = mean.size
    # A contrast without any spread is either exactly nothing or certain.
    certain = np.where(mean > 1e-9, np.inf, 0.0)
    t_values = np.divide(mean, error, out=certain, where=error > 1e-12)
    limit = float(special.stdtrit(sums.groups - 1, 1 - LEVEL / 2 / tests))
    return DriftAlarm(float(t_values.max()), limit, tests, "between realizations", bias)


def _between_blocks(x: Latent, P: np.ndarray, bias: float) -> DriftAlarm:
    """Means of stretches of time against the variance that a stationary chain would give them."""
    from scipy import special

    path = x.trajectory
    assert path is not None
    mu = positive_shares(x.mu, x.individuals)
    variance = long_run_variance(x, P, mu)
    blocks = min(BLOCKS, len(path.time) // 2)
    at = np.arange(len(path.time)) * blocks // len(path.time)
    weight = np.bincount(at, path.weight)
    means = np.stack([np.bincount(at, path.weight * p) for p in path.shares.T], 1) / weight[:, None]
    error = np.sqrt(variance * (1 / weight - 1 / weight.sum())[:, None])
    z = np.abs(means - x.mu) / np.maximum(error, 1e-12)
    z = np.concatenate([z, _starts(x, path, variance)])
    limit = float(special.ndtri(1 - LEVEL / 2 / z.size))
    return DriftAlarm(float(z.max()), limit, z.size, "between blocks of time", bias)


def _starts(x: Latent, path: Trajectory, variance: np.ndarray) -> np.ndarray:
    """[m, S]: how far the means of the first steps are from the mean of all, in standard errors.

    Those of n steps have at most the variance of one, and of n that remember nothing beyond `variance`.
    """
    found = [np.zeros((0, len(variance)))]
    for n in (n for n in STARTS if 8 * n <= len(path.time)):
        weight = float(path.weight[:n].sum())
        first = path.weight[:n] @ path.shares[:n] / weight
        error = np.sqrt(np.minimum(n * np.diag(x.c0), variance) / weight)
        found.append(np.abs(first - x.mu)[None] / np.maximum(error, 1e-12))
    return np.concatenate(found)


def long_run_variance(x: Latent, P: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """[S]: variance of mean shares times the number of individual observations, if P holds."""
    Q = deviation(P, mu)
    radius = np.abs(np.linalg.eigvals(Q)).max()
    Q = Q * min(1.0, 0.98 / max(radius, 1e-300))
    carried = mu[:, None] * Q @ np.linalg.inv(np.eye(len(Q)) - Q)
    return np.asarray(np.maximum(np.diag(x.c0 + carried + carried.T), 1e-12))


def implied_bias(x: Latent, profile: Profile) -> float:
    """Root mean square of D^-1 Cov_t(mu_t, mu_t+1) N, less what sampling alone would give."""
    path = x.trajectory
    assert path is not None
    consecutive = np.flatnonzero(np.diff(path.time) == profile.width)
    if len(consecutive) < 2:
        return 0.0
    a = path.shares[consecutive] - x.mu
    b = path.shares[consecutive + 1] - x.mu
    per_step = path.weight.mean()
    moved = (a.T @ b / len(a) - x.c1 / per_step) * x.individuals / x.records
    seen = x.mu > 0
    return float(np.sqrt(np.mean((moved[seen] / x.mu[seen, None]) ** 2)))


def detrend(moments: Moments, profile: Profile, degree: int) -> tuple[Moments, Profile]:
    """The same data about a polynomial in time per state, fitted to the means of the steps."""
    return Trend.of(profile, degree).taken_out(moments, profile)


@dataclass(frozen=True, eq=False)
class Trend:
    """How the mean counts move with time: a polynomial per state, and waves of a period.

    `coefficients` [columns, S] are about `overall` [S]; `middle` and `half` bound the time. Of steps before
    `settled` nothing is used: each has a mean of its own.
    """

    degree: int
    period: int | None
    waves: int
    middle: float
    half: float
    overall: np.ndarray
    coefficients: np.ndarray
    settled: float = -np.inf

    @classmethod
    def of(cls, profile: Profile, degree: int, period: int | None = None, skipped: int = 0) -> Trend:
        """Weighted least squares of the means of the steps, on Legendre polynomials and waves; the first
        `skipped` bins are left out."""
        settled = float(profile.bins[skipped] * profile.width) if skipped else -np.inf
        profile = _from(profile, settled)
        time, overall = _middle_of_bins(profile), profile.mean(RECORDS)
        middle, half = (time[0] + time[-1]) / 2, max((time[-1] - time[0]) / 2, 1.0)
        # Half as many waves as phases tell all phases apart.
        waves = 0 if period is None else min(period // (2 * profile.width), len(time) // 8)
        empty = cls(degree, period, waves, middle, half, overall, np.zeros((0, 0)), settled)
        root = np.sqrt(profile.weight[:, 0])[:, None]
        moved = root * (profile.records - overall)
        return replace(empty, coefficients=np.linalg.lstsq(root * empty._basis(time), moved, rcond=None)[0])

    @property
    def form(self) -> str:
        if self.settled > -np.inf:
            return "settled"
        return "detrended" if self.period is None else "periodic"

    @property
    def words(self) -> str:
        if self.settled > -np.inf:
            return f"one mean from step {self.settled:.0f} on"
        trend = f"a trend of degree {self.degree}" if self.degree else ""
        period = "" if self.period is None else f"the mean of each of {self.period} steps"
        return " and ".join(w for w in (period, trend) if w)

    def at(self, time: np.ndarray) -> np.ndarray:
        return np.asarray(self.overall + self._basis(time) @ self.coefficients)

    def _basis(self, time: np.ndarray) -> np.ndarray:
        columns = [np.polynomial.legendre.legvander((time - self.middle) / self.half, self.degree)]
        for wave in range(1, self.waves + 1):
            assert self.period is not None
            angle = 2 * np.pi * wave * time[:, None] / self.period
            columns += [np.cos(angle), np.sin(angle)]
        return np.hstack(columns)

    def taken_out(self, moments: Moments, profile: Profile) -> tuple[Moments, Profile]:
        """Data of which this is the trend, or a part of them, about it.

        Means of left and right ends and of records are moved by what the trend explains of them, and the
        profile holds what it leaves.
        """
        time = _middle_of_bins(profile)
        early = profile.bins * profile.width < self.settled

        def about_trend(co: CoMoment, lag: int, right_lag: int) -> CoMoment:
            if co.pairs == 0:
                return co
            left, right = (RECORDS, RECORDS) if lag == 0 else (2 * lag - 1, 2 * lag)
            right = left if right_lag == 0 else right
            w, number = profile.weight[:, lag, None], profile.number[:, lag]
            L, R = profile.kind(left), profile.kind(right)
            moved = (w * (L - co.left)).T @ (R - co.right)
            # A step's own mean takes one of its records with it.
            taken = early & (number > 0)
            pairs = co.pairs - int(taken.sum())
            weight = co.weight - float((w[taken, 0] / number[taken]).sum())
            if pairs <= 0:
                return CoMoment.zero(len(co.left))
            L, R, kept = L - self.at(time), R - self.at(time + right_lag), np.where(early[:, None], 0.0, w)
            a, b = (kept * L).sum(0) / weight, (kept * R).sum(0) / weight
            product = co.product - moved + (kept * L).T @ R - weight * np.outer(a, b)
            return CoMoment(pairs, weight, self.overall + a, self.overall + b, product)

        shifts = SHIFT  # RECORDS, LEFT1, ...
        kinds = (profile.kind(kind) - self.at(time + by) + self.overall for kind, by in enumerate(shifts))
        lag0 = about_trend(moments.lag0, 0, 0)
        flat = replace(
            moments,
            lag0=lag0,
            inverse_weight=moments.inverse_weight * lag0.pairs / max(moments.records, 1),
            lag1=about_trend(moments.lag1, 1, 1),
            lag2=about_trend(moments.lag2, 2, 2),
            ends=about_trend(moments.ends, 1, 0),
        )
        means = np.stack(list(kinds), 1)
        found = Profile(profile.width, profile.bins, profile.number, profile.weight, means)
        return flat, _from(found, self.settled)


def _from(profile: Profile, step: float) -> Profile:
    """The bins that begin at a step or later."""
    kept = profile.bins * profile.width >= step
    if kept.all():
        return profile
    return Profile(
        profile.width, profile.bins[kept], profile.number[kept], profile.weight[kept], profile.means[kept]
    )


def _middle_of_bins(profile: Profile) -> np.ndarray:
    return np.asarray(profile.bins * float(profile.width) + (profile.width - 1) / 2)
