"""Exact identities: on population moments every consistent estimator returns P."""

import numpy as np
import pytest
from oracle import population_moments
from scipy import optimize

import aggmc_beam as am
from aggmc_beam.estimators.latent import latent
from aggmc_beam.estimators.limle import limle
from aggmc_beam.estimators.moment_methods import cls, corrected_cls, mom, naive
from aggmc_beam.estimators.registry import NAMES
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.simulation import random_chain, stationary_distribution

S, N = 5, 200
RNG = np.random.default_rng(0)
MIX = np.eye(S) + 0.1 * RNG.random((S, S))
NOISES = [
    am.Exact(),
    am.Binomial(0.4),
    am.Detection(np.linspace(0.3, 0.9, S)),
    am.Poisson(0.6),
    am.Gaussian(2.0),
    am.Laplace(1.5),
    am.DiscreteGaussian(1.7),
    am.DiscreteLaplace(2.2),
    am.Linear(MIX, np.arange(S) + 1.0, covariance=np.diag(np.arange(S) + 1.0)),
]


@pytest.fixture(scope="module")
def P():
    return random_chain(np.random.default_rng(1), S, precision=5.0, ensemble="regular")


@pytest.fixture(params=NOISES, ids=lambda n: n.name)
def noise(request):
    return request.param


def test_mom_is_exact_on_population_moments(P, noise):
    x = latent(population_moments(P, N, noise), noise, N)
    assert np.abs(mom(x) - P).max() < 1e-12
    np.testing.assert_allclose(mom(x).sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(x.mu @ mom(x), x.mu, atol=1e-12)


def test_corrected_least_squares_is_exact_on_population_moments(P, noise):
    x = latent(population_moments(P, N, noise), noise, N)
    assert np.abs(corrected_cls(x) - P).max() < 1e-12


def test_plain_least_squares_has_the_limit_of_the_paper(P, noise):
    moments = population_moments(P, N, noise)
    x = latent(moments, noise, N)
    mu, A = stationary_distribution(P), np.linalg.inv(noise.matrix(S))
    Lambda = N * (np.diag(mu) + (N - 1) * np.outer(mu, mu))
    V = A @ noise.covariance(N * mu) @ A.T
    limit = np.linalg.solve(Lambda + V, Lambda @ P)
    assert np.abs(cls(x) - limit).max() < 1e-12
    if not isinstance(noise, am.Exact):
        assert np.abs(limit - P).max() > 1e-3


def test_second_lags_follow_the_square_of_p(P, noise):
    x = latent(population_moments(P, N, noise), noise, N)
    np.testing.assert_allclose(x.c2, np.diag(x.mu) @ P @ P - np.outer(x.mu, x.mu), atol=1e-12)
    np.testing.assert_allclose(x.c0 - x.V, np.diag(x.mu) - np.outer(x.mu, x.mu), atol=1e-12)


def test_naive_repeats_the_mean_shares(P, noise):
    x = latent(population_moments(P, N, noise), noise, N)
    np.testing.assert_allclose(naive(x), np.tile(stationary_distribution(P), (S, 1)), atol=1e-12)


def test_algorithm_1_equals_its_definition_on_data():
    """Step by step as the paper prints it, on data with an offset-free noise."""
    noise = am.Detection([0.3, 0.6, 0.9])
    y, _ = am.simulate(2.0, states=3, steps=40, realizations=3, noise=noise, seed=3)
    K, T, _ = y.shape
    A, m_y = noise.matrix(3), y.mean((0, 1))
    m_n = np.linalg.inv(A) @ m_y
    mu = m_n / m_n.sum()
    r = y - m_y
    total = sum(np.outer(r[k, t], r[k, t + 1]) for k in range(K) for t in range(T - 1))
    Sigma = np.linalg.inv(A) @ total @ np.linalg.inv(A).T / ((T - 1) * K)
    expected = np.diag(1 / mu) @ (Sigma / 100 + np.outer(mu, mu))
    found = am.estimate(y, noise=noise, population=100, estimator="mom").transition_matrix
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_least_squares_equals_its_definition_on_data():
    y, _ = am.simulate(2.0, states=3, steps=40, realizations=3, noise=am.Gaussian(1.0), seed=4)
    X, Y = y[:, :-1].reshape(-1, 3), y[:, 1:].reshape(-1, 3)
    expected = np.linalg.lstsq(X, Y, rcond=None)[0]
    found = am.estimate(y, noise=am.Gaussian(1.0), population=100, estimator="cls")
    np.testing.assert_allclose(found.transition_matrix, expected, rtol=1e-9)


def test_corrected_least_squares_needs_to_know_the_noise():
    y, _ = am.simulate(states=3, seed=1)
    with pytest.raises(am.InputError, match="needs the noise covariance"):
        am.estimate(y, noise=am.Linear(np.eye(3)), population=100, estimator="corrected-cls")


def test_projection_onto_the_simplex_is_the_nearest_point():
    rng = np.random.default_rng(5)
    for row in rng.normal(0.3, 0.6, (20, 4)):
        best = optimize.minimize(
            lambda p, row=row: ((p - row) ** 2).sum(),
            np.full(4, 0.25),
            bounds=[(0, 1)] * 4,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(project_rows(row[None])[0], best.x, atol=1e-5)
    inside = rng.dirichlet(np.ones(4), 3)
    np.testing.assert_allclose(project_rows(inside), inside, atol=1e-15)


def test_limle_recovers_p_from_moving_means():
    P = np.array([[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.25, 0.05, 0.7]])
    y, _ = am.simulate(P, population=20_000, steps=8, realizations=200, start=[1, 0, 0], seed=6)
    found = am.estimate(y, population=20_000, estimator="limle").transition_matrix
    assert np.abs(found - P).max() < 0.02


def test_limle_knows_the_stationary_distribution_but_not_p():
    y, truth = am.simulate(states=4, precision=4.0, steps=200, realizations=5, seed=7)
    est = am.estimate(y, population=100, estimator="limle")
    assert np.abs(est.stationary - truth.stationary).max() < 0.03
    assert np.abs(est.transition_matrix - truth.transition_matrix).max() > 0.1


def test_limle_needs_the_means_of_the_steps():
    y, _ = am.simulate(states=3, seed=1)
    with pytest.raises(am.InputError, match="mean of each step"):
        limle(latent(am.Sums.of(y).total, am.Exact(), 100))


def test_a_data_set_in_which_everybody_stays_in_one_state_is_estimated_by_every_estimator():
    y = np.zeros((1, 100, 3))
    y[..., 1] = 10
    for name in NAMES:
        P = am.estimate(y, estimator=name).transition_matrix
        np.testing.assert_array_equal(P[1], [0, 1, 0])
        assert np.isnan(P[[0, 2]]).all()


def test_least_squares_gives_nothing_to_a_state_of_which_only_rounding_is_left():
    y, _ = am.simulate(steps=50, states=3, population=100, seed=1, ensemble="regular")
    x = latent(am.Sums.of(np.concatenate([y, np.zeros((1, 50, 1))], axis=2)).total, am.Exact(), 100)
    gram, cross = x.gram.copy(), x.cross.copy()
    gram[3, 3], cross[3, :3] = 1e-34, 1e-17
    P = cls(x.replaced(gram=gram, cross=cross))
    np.testing.assert_array_equal(P[3], 0)
    np.testing.assert_allclose(P[:3, :3], cls(x.restricted(np.array([1, 1, 1, 0], bool))), atol=1e-9)
