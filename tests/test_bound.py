"""The information bound of the accuracy benchmark: closed form, brute force, and simulation."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.estimators.gmm import gmm
from aggmc_beam.estimators.latent import latent
from aggmc_beam.simulation import stationary_distribution

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from bound import directions, information, information_bound

THREE = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.05, 0.7]])
NOISES = [am.Exact(), am.Binomial(0.4), am.Detection([0.3, 0.6, 0.9]), am.Poisson(0.5), am.Gaussian(2.0)]


@pytest.mark.parametrize(("a", "b"), [(0.1, 0.3), (0.5, 0.5), (0.8, 0.7)])
def test_two_states_without_noise_are_an_autoregression(a: float, b: float) -> None:
    """AR(1) with mean m, coefficient r and innovation variance s has information N (1 - r)^2 / s,
    1 / (1 - r^2) and 1 / (2 s^2); here m = b / (a + b), r = 1 - a - b, s = m (1 - m)(1 - r^2)."""
    N, m, r = 50, b / (a + b), 1 - a - b
    v = m * (1 - m)
    s = v * (1 - r**2)
    dm = np.array([-b, a]) / (a + b) ** 2
    dr = np.array([-1.0, -1.0])
    ds = (1 - 2 * m) * (1 - r**2) * dm - 2 * r * v * dr
    expected = (
        N * (1 - r) ** 2 / s * np.outer(dm, dm)
        + np.outer(dr, dr) / (1 - r**2)
        + np.outer(ds, ds) / (2 * s**2)
    )
    variances = np.diag(np.linalg.inv(expected))
    P = np.array([[1 - a, a], [b, 1 - b]])
    # a and b stand in two entries each.
    assert information_bound(P, am.Exact(), N) == pytest.approx(2 * variances.sum() / 4, rel=1e-10)


@pytest.mark.parametrize("noise", NOISES, ids=lambda n: n.name)
def test_information_is_that_of_autocovariances_summed_by_brute_force(noise: am.Noise) -> None:
    N, step, lags = 30.0, 1e-5, np.arange(-60, 61)
    grid = 2 * np.pi * (np.arange(256) + 0.5) / 256
    keep = slice(0, 2) if isinstance(noise, am.Exact) else slice(0, 3)  # the last count tells nothing new

    def densities(P: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
        mu = stationary_distribution(P)
        inverse = np.linalg.inv(noise.matrix(3))
        gamma = []
        for lag in lags:
            joint = np.diag(mu) @ np.linalg.matrix_power(P, abs(lag)) - np.outer(mu, mu)
            gamma.append(joint if lag >= 0 else joint.T)
        gamma[60] = gamma[60] + inverse @ noise.covariance(N * mu) @ inverse.T / N
        waves = np.exp(-1j * np.outer(frequencies, lags))
        return np.einsum("wl,lij->wij", waves, np.array(gamma))[:, keep, keep]

    E = directions(3)
    df = np.stack([densities(THREE + step * e, grid) - densities(THREE - step * e, grid) for e in E])
    dmu = np.stack(
        [stationary_distribution(THREE + step * e) - stationary_distribution(THREE - step * e) for e in E]
    )
    df, dmu = df / (2 * step), dmu[:, keep] / (2 * step)
    inverse = np.linalg.inv(densities(THREE, grid))
    expected = np.einsum("wij,awjk,wkl,bwli->ab", inverse, df, inverse, df, optimize=True).real / (
        2 * len(grid)
    )
    expected += N * dmu @ np.linalg.solve(densities(THREE, np.zeros(1))[0].real, dmu.T)
    np.testing.assert_allclose(information(THREE, noise, N), expected, rtol=1e-5, atol=1e-5 * expected.max())


@pytest.mark.parametrize("noise", [am.Exact(), am.Binomial(0.5)], ids=lambda n: n.name)
def test_an_efficient_estimator_reaches_the_bound(noise: am.Noise) -> None:
    """gmm that knows the noise uses nearly all there is; the mean over runs has an error near 8%."""
    N, T, K, runs = 200, 200, 10, 80
    y, _ = am.simulate(THREE, population=N, steps=T, realizations=K * runs, noise=noise, seed=5)
    found = [gmm(latent(am.Sums.of(part).total, noise, N), lag0="known") for part in np.split(y, runs)]
    error = float(np.mean([(P - THREE) ** 2 for P in found]))
    assert 0.8 < error * T * K / information_bound(THREE, noise, N) < 1.4


def test_noise_only_takes_information_away() -> None:
    bounds = [
        information_bound(THREE, noise, 100) for noise in (am.Exact(), am.Binomial(0.5), am.Binomial(0.2))
    ]
    assert bounds == sorted(bounds)
    assert bounds[0] < 0.5 * bounds[1] < 0.25 * bounds[2]
