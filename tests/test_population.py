"""N, alpha and sigma: consistency, calibrated errors, and refusals that say why."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from aggmc_beam.errors import InputError
from aggmc_beam.fit.population import (
    BinomialPopulation,
    audit_variance,
    binomial_from_moments,
    binomial_from_scale,
    binomial_from_summary,
    binomial_from_totals,
    exact_population,
    jackknife_error,
    scale_from_lag0,
    scale_from_lags,
    sigma_from_totals,
)
from aggmc_beam.noise import Binomial, DiscreteLaplace, Gaussian, Laplace, Noise, Poisson
from aggmc_beam.simulation import simulate

P3 = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.3, 0.1, 0.6]])


def from_moments(z: np.ndarray) -> BinomialPopulation:
    return binomial_from_moments(z.mean(), z.var(ddof=1), len(z))


def from_summary(z: np.ndarray) -> BinomialPopulation:
    return binomial_from_summary(z.mean(), z.var(ddof=1), len(z))


def scales(sums: list[np.ndarray], counts: list[int], centre: np.ndarray) -> tuple[float, float]:
    """Both scales from sums of (left, right, product) of counts less `centre`, at lags 0 to 2."""
    mean = centre + sums[0][0] / counts[0]
    c0, c1, c2 = (
        s[2:] / count - np.outer(s[0] / count, s[1] / count) for s, count in zip(sums, counts, strict=True)
    )
    return scale_from_lag0(mean, c0), scale_from_lags(mean, c1, c2)


# ---- binomial totals ----


@pytest.mark.parametrize(
    ("estimate", "N", "alpha", "n"),
    [
        (from_moments, 100, 0.5, 2000),
        (from_moments, 12, 0.9, 500),
        (from_moments, 2, 0.5, 500),
        (from_moments, 10**9, 0.3, 3000),
        (from_summary, 200, 0.5, 200),
        (from_summary, 10**9, 0.5, 200),
        (binomial_from_totals, 100, 0.5, 200),
        (binomial_from_totals, 20, 0.5, 200),
        (binomial_from_totals, 100, 0.9, 100),
        (binomial_from_totals, 10**9, 0.8, 60),
        (binomial_from_totals, 100, 0.4, 1500),
    ],
)
def test_binomial_estimates_are_unbiased_with_honest_errors_and_intervals(
    estimate: Callable[[np.ndarray], BinomialPopulation], N: int, alpha: float, n: int
) -> None:
    rng = np.random.default_rng(1)
    runs = 250
    found = [estimate(rng.binomial(N, alpha, n)) for _ in range(runs)]
    population = np.array([f.population for f in found])
    detection = np.array([f.alpha for f in found])
    error = math.sqrt(np.mean([f.population_error**2 for f in found]))
    assert 0.8 < population.std() / error < 1.25
    assert np.isclose(np.median(population), N, atol=4 * 1.25 * error / math.sqrt(runs) + 0.01 * N)
    alpha_error = math.sqrt(np.mean([f.alpha_error**2 for f in found]))
    assert 0.8 < detection.std() / alpha_error < 1.25
    covered = np.mean([f.interval[0] <= N <= f.interval[1] for f in found])
    assert 0.9 <= covered <= 0.99


def test_the_relative_error_of_large_populations_is_the_known_formula() -> None:
    N, alpha, n = 1e6, 0.3, 5000
    found = binomial_from_moments(N * alpha, N * alpha * (1 - alpha), n)
    assert found.population == pytest.approx(N)
    assert found.alpha == pytest.approx(alpha)
    expected = (1 - alpha) / alpha * math.sqrt(2 / n)
    assert found.population_error / found.population == pytest.approx(expected, rel=1e-3)


def test_integrated_likelihood_tames_small_alpha_where_moments_fail() -> None:
    rng = np.random.default_rng(2)
    totals = [rng.binomial(100, 0.25, 100) for _ in range(200)]
    likelihood = np.array([binomial_from_totals(z, significance=1).population for z in totals])
    moments = np.array([z.mean() ** 2 / (z.mean() - z.var(ddof=1)) for z in totals])
    assert math.sqrt(np.mean((likelihood / 100 - 1) ** 2)) < 0.4
    assert math.sqrt(np.mean((moments / 100 - 1) ** 2)) > 0.8


def test_the_likelihood_is_that_of_carroll_and_lombard() -> None:
    from scipy.special import betaln, gammaln

    z = np.random.default_rng(3).binomial(60, 0.6, 80)
    N = z.max() + np.arange(4000.0)
    density = (gammaln(N + 1) - gammaln(N - z[:, None] + 1)).sum(axis=0)
    density += betaln(z.sum() + 1, len(z) * N - z.sum() + 1) - 2 * np.log(N)
    mass = np.exp(density - density.max())
    mass /= mass.sum()
    found = binomial_from_totals(z)
    assert found.method == "likelihood"
    median = np.interp(0.5, np.cumsum(mass) - mass / 2, N)
    assert found.population == pytest.approx(median, rel=1e-6)
    spread = math.sqrt((mass / N**2).sum() - (mass / N).sum() ** 2)
    assert found.population_error == pytest.approx(median**2 * spread, rel=1e-4)


def test_a_summary_says_nearly_what_the_totals_say() -> None:
    z = np.random.default_rng(4).binomial(500, 0.5, 300)
    totals, summary = binomial_from_totals(z), from_summary(z)
    assert summary.population == pytest.approx(totals.population, rel=0.01)
    assert summary.population_error == pytest.approx(totals.population_error, rel=0.05)


def test_perfect_detection_gives_the_total_itself() -> None:
    found = binomial_from_totals([100] * 50)
    assert found.population == pytest.approx(100, abs=0.01)
    assert found.alpha == pytest.approx(1, abs=1e-3)
    assert binomial_from_moments(100.0, 0.0, 50).population == 100


def test_poisson_totals_are_refused_or_left_unbounded() -> None:
    rng = np.random.default_rng(5)
    refused = unbounded = 0
    for _ in range(200):
        try:
            found = binomial_from_totals(rng.poisson(50, 200))
        except InputError:
            refused += 1
        else:
            unbounded += math.isinf(found.interval[1])
    assert refused > 150
    assert refused + unbounded > 185


@pytest.mark.parametrize("estimate", [binomial_from_moments, binomial_from_summary])
def test_a_variance_above_the_mean_is_refused(
    estimate: Callable[..., BinomialPopulation],
) -> None:
    with pytest.raises(InputError, match="mean 50 and variance 51 of 5000 totals pass for Poisson"):
        estimate(50.0, 51.0, 5000)


def test_the_moment_formula_never_gives_a_negative_population() -> None:
    with pytest.raises(InputError, match="not below their mean"):
        binomial_from_moments(50.0, 50.0, 100, significance=1)


# ---- without totals ----


@pytest.mark.parametrize("noise", [Binomial(0.5), Poisson(0.5)], ids=lambda m: m.name)
def test_lag0_and_lags_find_the_scale_with_an_honest_jackknife(noise: Noise) -> None:
    # 200 runs, since the ratio of spread to error is itself uncertain by 1 / sqrt(2 runs).
    runs, G, K, T, S = 200, 20, 5, 40, 3
    y, _ = simulate(P3, population=100, steps=T, realizations=runs * G * K, noise=noise, seed=9)
    centre = y.mean(axis=(0, 1))
    grouped = (y - centre).reshape(runs, G, K, T, S)
    sums = []
    for lag in range(3):
        left, right = grouped[..., : T - lag, :], grouped[..., lag:, :]
        products = left.reshape(runs, G, -1, S).swapaxes(2, 3) @ right.reshape(runs, G, -1, S)
        ends = np.stack([left.sum(axis=(2, 3)), right.sum(axis=(2, 3))], axis=2)
        sums.append(np.concatenate([ends, products], axis=2))
    pairs = [K * (T - lag) for lag in range(3)]
    estimates, errors = np.empty((runs, 2)), np.empty((runs, 2))
    for run in range(runs):
        total = [s[run].sum(axis=0) for s in sums]
        estimates[run] = scales(total, [G * c for c in pairs], centre)
        left_out = [
            scales(
                [t - s[run, g] for t, s in zip(total, sums, strict=True)],
                [(G - 1) * c for c in pairs],
                centre,
            )
            for g in range(G)
        ]
        errors[run] = [jackknife_error(column) for column in np.transpose(left_out)]
    error = np.sqrt((errors**2).mean(axis=0))
    np.testing.assert_allclose(estimates.mean(axis=0), 25, rtol=0.02)
    ratio = estimates.std(axis=0) / error
    assert (ratio > 0.8).all()
    assert (ratio < 1.25).all()


def test_lag_identities_hold_exactly_on_population_moments() -> None:
    values, vectors = np.linalg.eig(P3.T)
    mu = np.real(vectors[:, np.argmax(np.real(values))])
    mu /= mu.sum()
    B1, B2 = (40 * (np.diag(mu) @ Q - np.outer(mu, mu)) for Q in (P3, P3 @ P3))
    assert scale_from_lags(80 * mu, B1, B2) == pytest.approx(40, rel=1e-12)
    c0 = 80 * np.diag(mu) - 40 * np.outer(mu, mu)
    assert scale_from_lag0(80 * mu, c0) == pytest.approx(40, rel=1e-12)


def test_scale_and_mean_total_give_alpha_and_N() -> None:
    found = binomial_from_scale(50.0, 25.0, 1.0)
    assert (found.population, found.alpha, found.method) == (100.0, 0.5, "scale")
    assert (found.population_error, found.alpha_error) == pytest.approx((4.0, 0.02))
    assert found.interval[0] < 100 < found.interval[1]
    assert math.isnan(binomial_from_scale(50.0, 25.0).population_error)
    assert math.isnan(binomial_from_scale(50.0, 25.0).interval[1])


# ---- additive noise ----


@pytest.mark.parametrize(("noise", "kurtosis", "variance"), [(Gaussian(2.0), 0, 4.0), (Laplace(1.5), 3, 4.5)])
def test_sigma_from_totals_is_unbiased_with_an_honest_error(
    noise: Noise, kurtosis: float, variance: float
) -> None:
    rng = np.random.default_rng(6)
    runs, n, S = 400, 150, 3
    y = noise.sample(np.full((runs, n, S), 40), rng).sum(axis=-1)
    found = [sigma_from_totals(z.mean(), z.var(ddof=1), n, S, excess_kurtosis=kurtosis) for z in y]
    values = np.array([f.variance for f in found])
    error = math.sqrt(np.mean([f.variance_error**2 for f in found]))
    assert values.mean() == pytest.approx(variance, abs=4 * error / math.sqrt(runs))
    assert 0.88 < values.std() / error < 1.12
    sigmas = np.array([f.sigma for f in found])
    assert 0.85 < sigmas.std() / np.mean([f.sigma_error for f in found]) < 1.15
    populations = np.array([f.population for f in found])
    assert 0.85 < populations.std() / np.mean([f.population_error for f in found]) < 1.15
    # The audit of the true variance rejects at its level.
    p_values = np.array([audit_variance(variance, f).p_value for f in found])
    assert 0.02 <= (p_values < 0.05).mean() <= 0.09


def test_an_audit_notices_a_release_with_half_the_declared_noise() -> None:
    declared = DiscreteLaplace(10.0).covariance(np.ones(1))[0, 0]
    y = DiscreteLaplace(10 / math.sqrt(2)).sample(np.full((500, 4), 1000), np.random.default_rng(7))
    z = y.sum(axis=1)
    audit = audit_variance(declared, sigma_from_totals(z.mean(), z.var(ddof=1), 500, 4, 3.0))
    assert audit.z < -5
    assert audit.p_value < 1e-6
    assert audit.found == pytest.approx(declared / 2, rel=0.2)


def test_exact_counts_have_a_constant_total() -> None:
    assert exact_population(100.0, 0.0) == 100
    assert exact_population(1e9, 1e-4) == 1e9
    with pytest.raises(InputError, match=r"totals vary \(mean 100, standard deviation 2\)"):
        exact_population(100.0, 4.0)


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    x = np.random.default_rng(8).normal(size=30)
    left_out = (x.sum() - x) / 29
    assert jackknife_error(left_out) == pytest.approx(x.std(ddof=1) / math.sqrt(30))


# ---- bad input ----


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: binomial_from_totals([5]), "at least 2 totals"),
        (lambda: binomial_from_totals([5.5, 6.0]), "whole numbers"),
        (lambda: binomial_from_totals([-1, 6]), "whole numbers"),
        (lambda: binomial_from_totals([[5, 6]]), "list of finite"),
        (lambda: binomial_from_totals([5, math.nan]), "list of finite"),
        (lambda: binomial_from_totals(["a"]), "list of finite"),
        (lambda: binomial_from_totals([0, 0, 0]), "mean total must be finite and above 0"),
        (lambda: binomial_from_moments(-5.0, 1.0, 100), "mean total"),
        (lambda: binomial_from_moments(5.0, -1.0, 100), "variance"),
        (lambda: binomial_from_moments(5.0, 1.0, 1), "n must be a whole number of at least 2"),
        (lambda: binomial_from_moments(5.0, 1.0, 100, significance=0.0), "significance"),
        (lambda: binomial_from_summary(math.inf, 1.0, 100), "mean total"),
        (lambda: binomial_from_scale(50.0, 25.0, 20.0), "no upper bound"),
        (lambda: binomial_from_scale(50.0, 80.0, 1.0), "above 1"),
        (lambda: binomial_from_scale(50.0, -1.0), "scale must be"),
        (lambda: scale_from_lag0([1.0, 1.0], np.ones((2, 2))), "the noise is correlated"),
        (lambda: scale_from_lag0([1.0, 1.0], np.ones((3, 3))), "cov0_y"),
        (lambda: scale_from_lag0([1.0, -1.0], np.eye(2)), "positive total"),
        (lambda: scale_from_lags([1.0, 0.0], np.eye(2), np.eye(2)), "never seen"),
        (lambda: scale_from_lags([1.0, 1.0], np.eye(2), -np.eye(2)), "lags 1 and 2 do not agree"),
        (lambda: scale_from_lags([1.0, 1.0], np.zeros((2, 2)), np.eye(2)), "do not agree"),
        (lambda: sigma_from_totals(5.0, 1.0, 100, 0), "S must be"),
        (lambda: sigma_from_totals(5.0, 1.0, 100, 2, excess_kurtosis=-3), "excess_kurtosis"),
        (lambda: audit_variance(0.0, sigma_from_totals(5.0, 1.0, 100, 2)), "declared variance"),
        (lambda: jackknife_error([1.0]), "at least 2 groups"),
        (lambda: exact_population(0.0, 0.0), "mean total"),
    ],
)
def test_bad_input_is_refused_with_the_reason(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
