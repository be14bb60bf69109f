"""Do the mean shares change with time? An alarm from the profile, and data with a trend taken out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from aggmc_beam.estimators.shrinkage import positive_shares
from aggmc_beam.estimators.spectrum import deviation
from aggmc_beam.latent import Latent
from aggmc_beam.moments import CoMoment, Moments
from aggmc_beam.profile import RECORDS, SHIFT, Profile
from aggmc_beam.stepwise import StepSums

LEVEL = 0.01
#: Stretches of time whose means are compared when realizations are too few to compare.
BLOCKS = 8
FEW_GROUPS = 5


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
    limit = float(special.ndtri(1 - LEVEL / 2 / z.size))
    return DriftAlarm(float(z.max()), limit, z.size, "between blocks of time", bias)


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
    """The same data about a polynomial in time per state, fitted to the means of the steps.

    Means of left and right ends and of records are set to the overall mean, and the profile holds
    what the trend leaves.
    """
    overall = profile.mean(RECORDS)
    trend = _polynomial(profile, overall, degree)
    steps = profile.bins * float(profile.width)

    def about_trend(co: CoMoment, lag: int, right_lag: int) -> CoMoment:
        if co.pairs == 0:
            return co
        left, right = (RECORDS, RECORDS) if lag == 0 else (2 * lag - 1, 2 * lag)
        right = left if right_lag == 0 else right
        w = profile.weight[:, lag, None]
        L, R = profile.kind(left), profile.kind(right)
        moved = (w * (L - co.left)).T @ (R - co.right)
        off = (w * (L - trend(steps))).T @ (R - trend(steps + right_lag))
        return CoMoment(co.pairs, co.weight, overall, overall, co.product - moved + off)

    shifts = [0, *SHIFT]  # RECORDS, LEFT1, ...
    means = np.stack([profile.kind(kind) - trend(steps + by) + overall for kind, by in enumerate(shifts)], 1)
    flat = replace(
        moments,
        lag0=about_trend(moments.lag0, 0, 0),
        lag1=about_trend(moments.lag1, 1, 1),
        lag2=about_trend(moments.lag2, 2, 2),
        ends=about_trend(moments.ends, 1, 0),
    )
    return flat, Profile.of(profile.width, profile.bins, profile.number, profile.weight, means)


def _polynomial(profile: Profile, overall: np.ndarray, degree: int) -> Callable[[np.ndarray], np.ndarray]:
    """Weighted least squares of the step means on Legendre polynomials of time."""
    steps = profile.bins * float(profile.width)
    middle, half = (steps[0] + steps[-1]) / 2, max((steps[-1] - steps[0]) / 2, 1.0)

    def basis(t: np.ndarray) -> np.ndarray:
        return np.polynomial.legendre.legvander((t - middle) / half, degree)

    root = np.sqrt(profile.weight[:, 0])[:, None]
    coefficients = np.linalg.lstsq(root * basis(steps), root * (profile.records - overall), rcond=None)[0]
    return lambda t: np.asarray(overall + basis(t) @ coefficients)
