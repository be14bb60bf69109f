"""fast, gmm and the noise test, against exact moments, dense algebra and simulations."""

from dataclasses import replace

import numpy as np
import pytest
from oracle import population_moments

import aggmc_beam as am
from aggmc_beam.estimators.auto import View, stationary_choice
from aggmc_beam.estimators.constraints import Rules
from aggmc_beam.estimators.fast import fast
from aggmc_beam.estimators.gmm import Problem, gmm
from aggmc_beam.estimators.latent import latent
from aggmc_beam.estimators.noise_test import noise_test
from aggmc_beam.estimators.quadratic import nonnegative_qp
from aggmc_beam.estimators.shrinkage import without_totals
from aggmc_beam.estimators.spectrum import Spectrum, conjugate_gradients, inner
from aggmc_beam.simulation import random_chain, stationary_distribution

NOISES = [am.Exact(), am.Binomial(0.5), am.Gaussian(2.0), am.Detection([0.4, 0.6, 0.8, 0.9, 0.5])]


@pytest.fixture(scope="module")
def P():
    return random_chain(np.random.default_rng(2), 5, precision=5.0, ensemble="regular")


@pytest.mark.parametrize("noise", NOISES, ids=lambda n: n.name)
def test_fast_and_gmm_return_p_on_moments_of_endless_data(P, noise):
    """With the number of pairs the ridge loses its weight."""
    x = latent(population_moments(P, 200, noise, n=1e12), noise, 200)
    assert np.abs(fast(x) - P).max() < 1e-6
    for lag0 in ("any", "known", *(["diagonal"] if noise.name != "exact" else [])):
        assert np.abs(gmm(x, lag0=lag0) - P).max() < 1e-5, lag0


def test_an_estimate_is_a_stochastic_matrix_with_the_margins_of_the_data():
    y, _ = am.simulate(states=6, steps=100, realizations=3, noise=am.Gaussian(2.0), seed=3)
    x = latent(am.Sums.of(y).total, am.Gaussian(2.0), 100)
    for P in (fast(x), gmm(x)):
        assert np.all(P >= 0)
        np.testing.assert_allclose(P.sum(1), 1, atol=1e-9)
    mu = np.maximum(x.mu, 0.5 / x.individuals)
    mu /= mu.sum()
    np.testing.assert_allclose(mu @ fast(x), mu, atol=1e-8)


@pytest.mark.parametrize("lag0", ["any", "known"])
def test_rounding_is_not_enlarged(lag0):
    """Many individuals make the shares nearly certain: the curvature's condition is about 1e7."""
    y, _ = am.simulate(states=3, steps=40, realizations=8, population=200, noise=am.Binomial(0.5), seed=5)
    moments, rng = am.Sums.of(y).total, np.random.default_rng(6)
    expected = gmm(latent(moments, am.Binomial(0.5), 200), lag0=lag0)

    def shaken(part):
        product = part.product * (1 + 2e-16 * rng.choice([-1, 1], part.product.shape))
        return replace(part, product=product)

    for _ in range(10):
        parts = {name: shaken(getattr(moments, name)) for name in ("lag0", "lag1", "lag2")}
        near = replace(moments, **parts)
        assert np.abs(gmm(latent(near, am.Binomial(0.5), 200), lag0=lag0) - expected).max() < 3e-12


def test_a_single_step_pair_per_realization_is_enough():
    y, _ = am.simulate(states=3, precision=3.0, steps=2, realizations=400, seed=4)
    est = am.estimate(y, population=100, estimator="gmm")
    assert np.isfinite(est.transition_matrix).all()


def test_the_spectrum_turns_covariances_into_densities(P):
    """f is the Fourier sum of the autocovariances D Q^l."""
    mu, V = stationary_distribution(P), np.diag(np.arange(1.0, 6.0)) / 50
    spectrum = Spectrum(P, mu, V, np.eye(5), lags=2, floor=0.0)
    w = 2 * np.pi * (np.arange(32) + 0.5) / 64
    Q = P - mu
    for n in (0, 13, 31):
        f = (np.diag(mu) - np.outer(mu, mu) + V).astype(complex)
        for lag in range(1, 400):
            term = np.diag(mu) @ np.linalg.matrix_power(Q, lag) * np.exp(-1j * w[n] * lag)
            f += term + term.conj().T
        np.testing.assert_allclose(spectrum.f[n], f, atol=1e-10)


def test_the_covariance_of_autocovariances_is_what_simulations_show(P):
    """<R, covariance R> is the variance of <R, c> times the number of records, for Gaussian data."""
    rng = np.random.default_rng(5)
    S, mu, V = 5, stationary_distribution(P), np.eye(5) * 0.1
    Q = P - mu
    innovation = np.linalg.cholesky(
        np.diag(mu) - np.outer(mu, mu) - Q.T @ np.diag(mu) @ Q + 1e-12 * np.eye(S)
    )
    runs, T = 300, 400
    x = np.zeros((runs, S))
    path = np.empty((runs, T, S))
    for t in range(-200, T):
        x = x @ Q + rng.normal(size=(runs, S)) @ innovation.T
        if t >= 0:
            path[:, t] = x
    path += rng.normal(size=path.shape) * np.sqrt(0.1)
    R = rng.normal(size=(2, S, S))
    R[0] += R[0].T
    c = np.stack(
        [
            np.einsum("rti,rtj->rij", path, path) / T,
            np.einsum("rti,rtj->rij", path[:, :-1], path[:, 1:]) / (T - 1),
        ],
        1,
    )
    # Lag 0 is symmetric: half of the full sum is the sum over distinct moments.
    statistic = 0.5 * (c[:, 0] * R[0]).sum((1, 2)) + (c[:, 1] * R[1]).sum((1, 2))
    spectrum = Spectrum(P, mu, V, np.eye(S), lags=1, floor=0.0)
    image = spectrum.covariance(R)
    expected = 0.5 * (R[0] * image[0]).sum() + (R[1] * image[1]).sum()
    assert statistic.var(ddof=1) * T == pytest.approx(expected, rel=0.25)


def test_the_information_is_the_curvature_of_the_whittle_likelihood(P):
    """Against finite differences of the density: H = Re mean tr(f^-1 df_a f^-1 df_b) / 2 x 2 sides."""
    mu, V = stationary_distribution(P), np.eye(5) * 0.05
    spectrum = Spectrum(P, mu, V, np.eye(5), lags=0, floor=0.0)
    H = spectrum.information(None)
    rng = np.random.default_rng(6)
    for _ in range(3):
        d = rng.normal(size=(5, 5))
        change = spectrum.X @ d @ spectrum.Y
        change = change + change.conj().swapaxes(1, 2)
        scaled = spectrum.inverse @ change
        expected = 0.5 * np.einsum("wij,wji->w", scaled, scaled).real.mean()
        assert d.ravel() @ H @ d.ravel() == pytest.approx(expected, rel=1e-8)


def test_taking_out_totals_leaves_closed_moments_alone_and_cleans_noisy_ones():
    rng = np.random.default_rng(7)
    closed = rng.normal(size=(2, 4, 4))
    closed -= closed.mean(1, keepdims=True)
    closed -= closed.mean(2, keepdims=True)
    closed[0] = closed[0] @ closed[0].T
    np.testing.assert_array_equal(without_totals(closed), closed)
    noisy = closed.copy()
    noisy[0] += np.diag([1.0, 2.0, 3.0, 4.0])
    cleaned = without_totals(noisy)
    np.testing.assert_allclose(cleaned.sum((1, 2)), 0, atol=1e-12)
    np.testing.assert_allclose(cleaned[1], closed[1], atol=1e-12)


def test_quadratic_programs_are_solved_to_their_optimality_conditions():
    rng = np.random.default_rng(8)
    for _ in range(20):
        A = rng.normal(size=(12, 9))
        H, b = A.T @ A + 0.1 * np.eye(9), rng.normal(size=9) * 3
        E = np.kron(np.eye(3), np.ones((1, 3)))
        x, free = nonnegative_qp(H, b, E, np.ones(3), np.ones(9, bool))
        np.testing.assert_allclose(E @ x, 1, atol=1e-8)
        gradient = H @ x - b
        for row in range(3):
            cells = np.arange(3 * row, 3 * row + 3)
            level = gradient[cells][free[cells]]
            np.testing.assert_allclose(level, level[0], atol=1e-6)
            assert np.all(gradient[cells][~free[cells]] >= level[0] - 1e-6)


def test_the_noise_test_keeps_its_size_and_finds_noise_that_is_not_as_said():
    accepted, rejected, J = 0, 0, []
    for seed in range(25):
        y, _ = am.simulate(states=6, steps=200, realizations=5, noise=am.Gaussian(2.0), seed=seed,
                           ensemble="regular")  # fmt: skip
        x = latent(am.Sums.of(y).total, am.Gaussian(2.0), 100)
        P = fast(x)
        test = noise_test(x, P, "known")
        J.append(test.J)
        accepted += test.accepted and noise_test(x, P, "diagonal").accepted
        wrong = latent(am.Sums.of(y).total, am.Gaussian(3.0), 100)
        rejected += not noise_test(wrong, P, "known").accepted
    assert accepted == 25
    assert rejected == 25
    assert np.mean(J) == pytest.approx(test.degrees, rel=0.2)


def test_correlated_noise_is_found_and_lag_0_left_out():
    rng = np.random.default_rng(9)
    y, truth = am.simulate(states=5, steps=400, realizations=5, seed=10, ensemble="regular")
    y = y + 3.0 * rng.normal(size=y.shape[:2])[..., None] * np.array([1, 1, 1, 0, 0.5])
    x = latent(am.Sums.of(y).total, am.Linear(np.eye(5)), 100)
    choice = stationary_choice(View(x))
    assert choice.numbers["lag0"] == "any"
    assert not choice.numbers["noise_test"]["diagonal"]["accepted"]
    forced = gmm(x, lag0="diagonal")
    P = truth.transition_matrix
    assert np.mean((choice.P - P) ** 2) < np.mean((forced - P) ** 2)


def test_counts_without_noise_are_handled_in_the_space_in_which_they_vary(P):
    y, _ = am.simulate(P, steps=50, realizations=4, seed=11)
    x = latent(am.Sums.of(y).total, am.Exact(), 100)
    problem = Problem.of(x, Rules.none(5), "known")
    assert problem.basis.shape == (5, 4)
    np.testing.assert_allclose(problem.basis.sum(0), 0, atol=1e-12)


def test_rare_and_absent_states_do_not_upset_the_estimate():
    P = np.array([[0.9, 0.0999, 0.0001], [0.2, 0.8, 0.0], [0.5, 0.5, 0.0]])
    for noise in (am.Exact(), am.Gaussian(2.0), am.Binomial(0.3)):
        y, _ = am.simulate(P, steps=200, realizations=2, noise=noise, seed=12)
        est = am.estimate(y, noise=noise, population=100)
        seen = ~np.isnan(est.transition_matrix).any(1)
        assert np.all(est.transition_matrix[seen] >= 0)
        assert np.abs(est.transition_matrix[:2, :2] - P[:2, :2]).max() < 0.2


def test_many_states_use_the_transport_projection():
    y, _ = am.simulate(20.0, states=70, steps=30, realizations=3, population=1000, seed=13)
    est = am.estimate(y, population=1000)
    assert est.diagnostics["choice"]["estimator"] == "fast"
    np.testing.assert_allclose(est.transition_matrix.sum(1), 1, atol=1e-9)


def test_a_hopeless_noise_test_stops_early_and_decides_as_the_exact_one():
    y, _ = am.simulate(
        states=8, steps=300, realizations=5, noise=am.Gaussian(3.0), seed=3, ensemble="regular"
    )
    x = latent(am.Sums.of(y).total, am.Gaussian(1.0), 100)
    test = noise_test(x, fast(x), "known")
    assert not test.accepted
    right = latent(am.Sums.of(y).total, am.Gaussian(3.0), 100)
    exact = noise_test(right, fast(right), "known")
    assert exact.accepted

    def apply(r):
        return np.array([[2.0, 0.5], [0.5, 1.0]]) @ r

    solve = {"apply": apply, "precondition": lambda r: r, "right": np.array([[[1.0, 0.0], [0.0, 3.0]]])}
    whole = conjugate_gradients(**solve, tolerance=1e-12, iterations=50)
    np.testing.assert_allclose(apply(whole), solve["right"], atol=1e-9)
    enough = inner(solve["right"], whole) / 2
    early = conjugate_gradients(**solve, tolerance=1e-12, iterations=50, stop=enough)
    assert enough < inner(solve["right"], early) < 2 * enough
