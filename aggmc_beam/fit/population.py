"""Population size N, detection probability alpha and noise scale, from totals and moments.

Totals z_t = 1'y_t of a closed population vary only through the noise, so their variance tells
alpha or sigma, and with it N. Totals are independent between steps, also when the counts are not.

A closed population, the same N in all totals given, and noise of the named kind are assumed
throughout. What cannot be told from the data is refused, with the reason, by `InputError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aggmc_beam.errors import InputError

__all__ = [
    "BinomialPopulation",
    "NoiseScale",
    "VarianceAudit",
    "audit_variance",
    "binomial_from_moments",
    "binomial_from_scale",
    "binomial_from_summary",
    "binomial_from_totals",
    "exact_population",
    "jackknife_error",
    "scale_from_lag0",
    "scale_from_lags",
    "sigma_from_totals",
]

FloatArray = NDArray[np.float64]

# From here on the plain formula is as good as the integrated likelihood.
_MANY_TOTALS = 1000
# Refuse N when alpha is less than about one standard error above 0.
_SIGNIFICANCE = 0.16


@dataclass(frozen=True)
class BinomialPopulation:
    """N and alpha with their standard errors (NaN: not known) and how they were found.

    `method` is "moments", "likelihood", "normal likelihood" or "scale". `interval` is the 95%
    interval of N; its upper end is infinite when the data cannot exclude that.

    >>> binomial_from_moments(mean=50.0, variance=25.0, n=10_000).population
    100.0
    """

    population: float
    population_error: float
    alpha: float
    alpha_error: float
    method: str
    interval: tuple[float, float]


@dataclass(frozen=True)
class NoiseScale:
    """Standard deviation and variance of additive noise per state, and the population.

    `freedom` are the degrees of freedom of the variance: its relative error is sqrt(2 / freedom).

    >>> sigma_from_totals(mean=100.0, variance=20.0, n=800, S=5).sigma
    2.0
    """

    sigma: float
    sigma_error: float
    variance: float
    variance_error: float
    population: float
    population_error: float
    freedom: float


@dataclass(frozen=True)
class VarianceAudit:
    """A declared noise variance against the one found: z > 0 means more noise than declared.

    >>> audit_variance(4.0, sigma_from_totals(100.0, 20.0, n=800, S=5)).p_value > 0.9
    True
    """

    declared: float
    found: float
    z: float
    p_value: float


def exact_population(mean_total: float, variance_total: float) -> float:
    """N of exact counts: the total, which must be constant.

    >>> exact_population(100.0, 0.0)
    100.0
    """
    _check_moments(mean_total, variance_total)
    spread = math.sqrt(variance_total)
    if spread > 1e-6 * mean_total:
        raise InputError(
            f"the totals vary (mean {mean_total:.6g}, standard deviation {spread:.3g}), but exact "
            "counts of a closed population have a constant total; name the noise, or give the "
            "population of each realization"
        )
    return float(mean_total)


def binomial_from_moments(
    mean: float, variance: float, n: int, significance: float = _SIGNIFICANCE
) -> BinomialPopulation:
    """alpha = 1 - s2 / zbar and N = zbar / alpha, from mean and variance of n binomial totals.

    The standard errors are those of the delta method with the cumulants of the binomial; for large
    N the relative error of N is ((1 - alpha) / alpha) sqrt(2 / n). Refused when the totals pass
    for Poisson totals (N without bound), which they do when the dispersion test's p-value is above
    `significance`. For n below a thousand `binomial_from_summary` is far more stable.

    >>> found = binomial_from_moments(mean=50.0, variance=25.0, n=20_000)
    >>> found.population, round(found.population_error, 2)
    (100.0, 1.0)
    """
    _check_underdispersed(mean, variance, n, significance)
    if variance >= mean:
        raise InputError(
            f"the variance of the totals, {variance:.6g}, is not below their mean, {mean:.6g}: "
            "alpha = 1 - variance / mean is not positive; give alpha or the population"
        )
    alpha = 1 - variance / mean
    N = mean / alpha
    skew, tail = variance * (1 - 2 * alpha), variance * (1 - 6 * alpha * (1 - alpha))
    moments = np.array([[variance / n, skew / n], [skew / n, tail / n + 2 * variance**2 / (n - 1)]])
    to_alpha = np.array([variance / mean**2, -1 / mean])
    to_N = np.array([(2 * alpha - 1) / alpha**2, 1 / alpha**2])
    return BinomialPopulation(
        population=N,
        population_error=_root(to_N @ moments @ to_N),
        alpha=alpha,
        alpha_error=(error := _root(to_alpha @ moments @ to_alpha)),
        method="moments",
        interval=_interval(mean, alpha, error),
    )


def binomial_from_totals(totals: ArrayLike, significance: float = _SIGNIFICANCE) -> BinomialPopulation:
    """N and alpha from totals z_i ~ Binomial(N, alpha), i = 1..n, independent.

    Below a thousand totals this is the posterior median of N under the beta-integrated likelihood
    (Carroll & Lombard 1985), L(N) = prod C(N, z_i) B(Z + 1, nN - Z + 1) with Z = sum z_i: alpha
    uniform, and N with a prior flat in 1/N, the scale on which the data's information is nearly
    normal. The error of N is N^2 times the posterior standard deviation of 1/N. From a thousand
    totals on it is `binomial_from_moments`. Refused as there; significance=1 never refuses.

    At N = 100, alpha = 0.25, n = 100 the root mean square relative error is 0.31 with nothing
    refused (18% are by default); that of the moment formula is above 2, and has no limit. The
    interval covered N in 94 to 96% of simulations, alpha 0.05 to 0.75.

    >>> found = binomial_from_totals([52, 47, 50, 55, 46, 49, 51, 50, 53, 48] * 10)
    >>> round(found.population, 1), round(found.population_error, 1)
    (59.0, 1.4)
    """
    z = np.asarray(totals)
    if z.ndim != 1 or z.dtype.kind not in "iuf" or not np.isfinite(z).all():
        raise InputError("totals must be a list of finite numbers")
    if (z < 0).any() or (z != np.floor(z)).any():
        raise InputError("totals of binomial counts must be whole numbers of at least 0")
    if len(z) < 2:
        raise InputError(f"at least 2 totals are needed to estimate N, got {len(z)}")
    z = z.astype(float)
    n, mean, variance = len(z), float(z.mean()), float(z.var(ddof=1))
    if n >= _MANY_TOTALS:
        return binomial_from_moments(mean, variance, n, significance)
    p_value = _check_underdispersed(mean, variance, n, significance)
    value, times = np.unique(z, return_counts=True)

    def log_likelihood(N: FloatArray) -> FloatArray:
        # B(Z + 1, M - Z + 1) = 1 / ((M + 1) C(M, Z)) with M = nN. Both C are taken times the same
        # p^Z (1 - p)^(M - Z), p = zbar / N, so that no large numbers are subtracted.
        p = mean / N
        each = times @ _log_binomial(value[:, None], N, p)
        return np.asarray(each - np.log(n * N + 1) - _log_binomial(n * mean, n * N, p))

    return _posterior(log_likelihood, mean, float(z.max()), p_value, "likelihood")


def binomial_from_summary(
    mean: float, variance: float, n: int, significance: float = _SIGNIFICANCE
) -> BinomialPopulation:
    """N and alpha as `binomial_from_totals`, from no more than mean and variance of the totals.

    Takes the totals as normal, which is good for totals of about 20 and more.

    >>> found = binomial_from_summary(mean=50.0, variance=25.0, n=100)
    >>> round(found.population, 1), round(found.population_error, 1)
    (100.5, 14.5)
    """
    if n >= _MANY_TOTALS:
        return binomial_from_moments(mean, variance, n, significance)
    p_value = _check_underdispersed(mean, variance, n, significance)

    def log_likelihood(N: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = mean * (1 - mean / N)
            log_density = -0.5 * (n - 1) * (np.log(spread) + variance / spread) - np.log(N)
        return np.where(spread > 0, log_density, -np.inf)

    return _posterior(log_likelihood, mean, math.ceil(mean), p_value, "normal likelihood")


def binomial_from_scale(mean_total: float, scale: float, scale_error: float = math.nan) -> BinomialPopulation:
    """alpha = s / m and N = m^2 / s from s = alpha^2 N and the mean total m = alpha N.

    `scale` comes from `scale_from_lag0` or `scale_from_lags`, its error from `jackknife_error`.
    The error of m is left out: it is small beside that of s.

    >>> found = binomial_from_scale(mean_total=50.0, scale=25.0, scale_error=1.0)
    >>> found.population, found.population_error, found.alpha
    (100.0, 4.0, 0.5)
    """
    mean_total, scale = _positive("mean_total", mean_total), _positive("scale", scale)
    if scale_error > scale / 2:
        raise InputError(
            f"scale {scale:.3g} has a standard error of {scale_error:.3g}, so N has no upper "
            "bound; more data is needed, or give the population"
        )
    alpha, N = scale / mean_total, mean_total**2 / scale
    relative = scale_error / scale
    if alpha > 1 and not alpha * (1 - 2 * relative) <= 1:
        raise InputError(
            f"the moments give alpha = {alpha:.3g}, above 1: counts are not a binomial share of a "
            "closed population; if people are counted more than once use Poisson noise"
        )
    error = alpha * relative
    interval = _interval(mean_total, alpha, error)
    return BinomialPopulation(N, N * relative, alpha, error, "scale", interval)


def scale_from_lag0(mean_y: ArrayLike, cov0_y: ArrayLike) -> float:
    """s = alpha^2 N from the off-diagonals at lag 0, Cov(y_i, y_j) = -s mu_i mu_j.

    Shapes [S] and [S, S]; the noise must be independent between states, and the mean constant in
    time. For any A other than alpha I, map both by A^-1 first: then s = N. For an error, pass the
    estimates from delete-one-group moments to `jackknife_error`.

    >>> mu = np.array([0.5, 0.3, 0.2])
    >>> round(scale_from_lag0(50 * mu, 50 * np.diag(mu) - 25 * np.outer(mu, mu)), 10)
    25.0
    """
    mu, covariance = _shares(mean_y), _square("cov0_y", cov0_y, mean_y)
    apart = ~np.eye(len(mu), dtype=bool)
    found, unit = -covariance[apart].sum(), np.outer(mu, mu)[apart].sum()
    if found <= 0 or unit <= 0:
        raise InputError(
            f"the covariances between states at lag 0 sum to {-found:.3g}, but in a closed "
            "population with independent noise they are negative; the noise is correlated, the "
            "population is open, or the means drift"
        )
    return float(found / unit)


def scale_from_lags(mean_y: ArrayLike, cov1_y: ArrayLike, cov2_y: ArrayLike) -> float:
    """s = alpha^2 N from the lagged covariances alone, whatever the noise.

    B_l = s (D P^l - mu mu'), D = diag(mu), obey B1 D^-1 B1 = s B2: s is the ratio of the norms of
    the two sides, with states weighted by D^-1/2. (A regression of one side on the other is biased
    by the errors of the regressor; the ratio is the geometric mean of both regressions.) Refused
    when the two sides do not point the same way. For an error see `scale_from_lag0`.

    >>> mu, P = np.array([0.75, 0.25]), np.array([[0.9, 0.1], [0.3, 0.7]])
    >>> B1, B2 = (25 * (np.diag(mu) @ Q - np.outer(mu, mu)) for Q in (P, P @ P))
    >>> round(scale_from_lags(50 * mu, B1, B2), 10)
    25.0
    """
    mu = _shares(mean_y)
    if (mu <= 0).any():
        raise InputError("every state needs a positive mean; leave out states that are never seen")
    weight = 1 / np.sqrt(np.outer(mu, mu))
    once = weight * _square("cov1_y", cov1_y, mean_y)
    left, right = once @ once, weight * _square("cov2_y", cov2_y, mean_y)
    size = float(np.linalg.norm(left) * np.linalg.norm(right))
    agreement = float((left * right).sum()) / size if size > 0 else 0.0
    if agreement < 0.5:
        raise InputError(
            f"lags 1 and 2 do not agree (cosine {agreement:.2f}): the chain forgets too fast, or "
            "there is too little data, to tell the population from lags; give the population"
        )
    return float(np.linalg.norm(left) / np.linalg.norm(right))


def jackknife_error(estimates: ArrayLike) -> float:
    """Standard error from estimates that each leave out one of G groups of like size.

    >>> round(jackknife_error([24.8, 25.1, 25.3, 24.8]), 3)
    0.367
    """
    values = np.asarray(estimates, dtype=float)
    if values.ndim != 1 or len(values) < 2:
        raise InputError("a jackknife needs the estimates of at least 2 groups")
    G = len(values)
    return float(math.sqrt((G - 1) / G * ((values - values.mean()) ** 2).sum()))


def sigma_from_totals(
    mean: float, variance: float, n: int, S: int, excess_kurtosis: float = 0.0
) -> NoiseScale:
    """Additive noise, independent between S states: its variance is Var(z) / S.

    The relative error of the variance is sqrt(2 / n) for Gaussian noise; `excess_kurtosis` of the
    noise of one state (3 for Laplace) widens it to sqrt((2 + kurtosis / S) / n). Discrete noise
    is measured by its variance, not by its parameter.

    >>> found = sigma_from_totals(mean=100.0, variance=20.0, n=800, S=5)
    >>> found.variance, found.variance_error
    (4.0, 0.2)
    """
    _check_moments(mean, variance)
    n, S = _whole("n", n, 2), _whole("S", S, 1)
    if excess_kurtosis < -2:
        raise InputError(f"excess_kurtosis must be at least -2, got {excess_kurtosis:g}")
    freedom = n / (1 + excess_kurtosis / (2 * S))
    per_state = variance / S
    return NoiseScale(
        sigma=math.sqrt(per_state),
        sigma_error=math.sqrt(per_state) / math.sqrt(2 * freedom),
        variance=per_state,
        variance_error=per_state * math.sqrt(2 / freedom),
        population=float(mean),
        population_error=math.sqrt(variance / n),
        freedom=freedom,
    )


def audit_variance(declared: float, found: NoiseScale) -> VarianceAudit:
    """Test a declared noise variance per state, such as that of a privacy release.

    `declared` is the variance, e.g. `DiscreteLaplace(10).covariance(mean)[0, 0]`. The z statistic
    is Wilson and Hilferty's cube root, near normal from about 5 degrees of freedom on.

    >>> found = sigma_from_totals(mean=100.0, variance=20.0, n=800, S=5)
    >>> round(audit_variance(5.0, found).z, 1)
    -4.3
    """
    declared = _positive("declared variance", declared)
    z = _cube_root_z(found.variance / declared, found.freedom)
    return VarianceAudit(declared, found.variance, z, math.erfc(abs(z) / math.sqrt(2)))


def _posterior(
    log_likelihood: Callable[[FloatArray], FloatArray],
    mean: float,
    lowest: float,
    p_value: float,
    method: str,
) -> BinomialPopulation:
    """Posterior median of N >= lowest, prior flat in 1/N; alpha is integrated out already."""
    # Whole numbers near the lowest possible N, then in steps of 1 to 4 percent, up to 10^4 times.
    above = np.unique(np.round(np.expm1(np.linspace(0, math.log1p(1e4 * lowest), 1000))))
    N = np.asarray(lowest + above, dtype=np.float64)
    log_density = log_likelihood(N) - 2 * np.log(N)
    mass = np.exp(log_density - log_density.max()) * np.gradient(above)
    mass /= mass.sum()
    low, median, high = np.interp([0.025, 0.5, 0.975], np.cumsum(mass) - mass / 2, N).tolist()
    inverse = 1 / N - 1 / median
    spread = _root((mass * inverse**2).sum() - (mass * inverse).sum() ** 2)
    return BinomialPopulation(
        population=median,
        population_error=median**2 * spread,
        alpha=min(mean / median, 1.0),
        alpha_error=mean * spread,
        method=method,
        # Where Poisson totals are possible, an upper end would come from the prior alone.
        interval=(low, high if p_value < 0.025 else math.inf),
    )


def _interval(mean: float, alpha: float, error: float) -> tuple[float, float]:
    """95% interval of N = mean / alpha, taken on the scale of alpha, where errors are normal."""
    if math.isnan(error):
        return math.nan, math.nan
    low, high = alpha - 1.96 * error, alpha + 1.96 * error
    return mean / min(high, 1.0), (mean / low if low > 0 else math.inf)


def _log_binomial(z: FloatArray | float, N: FloatArray, p: FloatArray) -> FloatArray:
    """log of C(N, z) p^z (1-p)^(N-z) for whole z and N, exact also for N = 10^12 (Loader 2000)."""
    rest = N - z
    deviance = _deviance(z, N * p) + _deviance(rest, N - N * p)
    return np.asarray(_stirling(N) - _stirling(z) - _stirling(rest) - deviance)


def _deviance(x: FloatArray | float, expected: FloatArray) -> FloatArray:
    """x log(x / expected) - x + expected, without cancellation near x = expected."""
    with np.errstate(divide="ignore", invalid="ignore"):
        u = np.where(expected > 0, (x - expected) / expected, 0.0)
        logarithm = np.where(u > -1, (1 + u) * np.log1p(u), 0.0)
    return np.asarray(expected * (logarithm - u))


_LOG_FACTORIAL = np.cumsum(np.log(np.maximum(np.arange(16.0), 1)))


def _stirling(x: FloatArray | float) -> FloatArray:
    """log x! - (x log x - x) for whole x >= 0."""
    small = np.minimum(x, 15).astype(int)
    k = np.maximum(small, 1)
    direct = _LOG_FACTORIAL[small] - small * np.log(k) + small
    large = np.maximum(x, 15.0)
    series = 1 / (12 * large) - 1 / (360 * large**3) + 1 / (1260 * large**5)
    return np.where(x < 15, direct, 0.5 * np.log(2 * math.pi * large) + series)


def _cube_root_z(ratio: float, freedom: float) -> float:
    """Normal score of chi-square(freedom) / freedom = ratio (Wilson & Hilferty 1931)."""
    width = 2 / (9 * freedom)
    return float((max(ratio, 0.0) ** (1 / 3) - (1 - width)) / math.sqrt(width))


def _check_underdispersed(mean: float, variance: float, n: int, significance: float) -> float:
    """Refuse totals that N -> infinity (Poisson) explains; return the p-value of that."""
    _check_moments(mean, variance)
    n = _whole("n", n, 2)
    if not 0 < significance <= 1:
        raise InputError(f"significance must be above 0 and at most 1, got {significance!r}")
    p_value = NormalDist().cdf(_cube_root_z(variance / mean, n - 1))
    if p_value > significance:
        raise InputError(
            f"the totals cannot tell N: mean {mean:.6g} and variance {variance:.6g} of {n} totals "
            f"pass for Poisson totals, for which N is infinite (p = {p_value:.2g}; it must be "
            f"below {significance:g}); give alpha or the population, or more steps"
        )
    return p_value


def _check_moments(mean: float, variance: float) -> None:
    _positive("the mean total", mean)
    if not (math.isfinite(variance) and variance >= 0):
        raise InputError(f"the variance of the totals must be finite and at least 0, got {variance}")


def _positive(what: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{what} must be finite and above 0, got {value}")
    return float(value)


def _whole(what: str, value: float, least: int) -> int:
    if not (math.isfinite(value) and value == int(value) and value >= least):
        raise InputError(f"{what} must be a whole number of at least {least}, got {value}")
    return int(value)


def _shares(mean_y: ArrayLike) -> FloatArray:
    mean = np.asarray(mean_y, dtype=float)
    if mean.ndim != 1 or not np.isfinite(mean).all() or not mean.sum() > 0:
        raise InputError("mean_y must be finite mean counts of shape [S] with a positive total")
    return np.asarray(mean / mean.sum())


def _square(what: str, covariance: ArrayLike, mean_y: ArrayLike) -> FloatArray:
    S, matrix = len(np.asarray(mean_y)), np.asarray(covariance, dtype=float)
    if matrix.shape != (S, S) or not np.isfinite(matrix).all():
        raise InputError(f"{what} must be finite and of shape [{S}, {S}], got {list(matrix.shape)}")
    return matrix


def _root(variance: float) -> float:
    return math.sqrt(max(float(variance), 0.0))
