import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.estimators.latent import latent
from aggmc_beam.estimators.moment_methods import corrected_cls, mom
from aggmc_beam.sums.moments import Moments


def test_unequal_populations_are_weighted_shares_and_beat_one_mean_population():
    rng = np.random.default_rng(0)
    N = rng.integers(20, 400, 60)
    noise = am.Poisson(0.6)  # may count more than there are, so that a wrong population is no contradiction
    y, truth = am.simulate(3.0, states=4, steps=200, population=N, noise=noise, seed=1, ensemble="regular")
    P = truth.transition_matrix
    shares = am.estimate(y, noise=noise, population=N, estimator="mom").transition_matrix
    mean = am.estimate(y, noise=noise, population=float(N.mean()), estimator="mom")
    assert np.mean((shares - P) ** 2) < 2e-3
    assert np.mean((mean.transition_matrix - P) ** 2) > 50 * np.mean((shares - P) ** 2)


def test_equal_populations_give_the_same_answer_as_one_number():
    noise = am.Gaussian(1.0)
    y, _ = am.simulate(3.0, states=3, steps=30, realizations=4, noise=noise, seed=2)
    weighted = am.Sums.of(y / 100, weight=np.full(4, 100.0)).total
    plain = am.Sums.of(y).total
    a, b = latent(weighted, noise, 1.0), latent(plain, noise, 100.0)
    for name in ("mu", "gram", "cross", "V"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-10)
    np.testing.assert_allclose(mom(a), mom(b), rtol=1e-9)
    np.testing.assert_allclose(corrected_cls(a), corrected_cls(b), rtol=1e-9)


def test_additive_noise_on_unequal_populations_is_corrected():
    rng = np.random.default_rng(3)
    N, noise = rng.integers(20, 300, 300), am.Gaussian(3.0)
    y, truth = am.simulate(3.0, states=3, steps=60, population=N, noise=noise, seed=4, ensemble="regular")
    found = am.estimate(y, noise=noise, population=N, estimator="corrected-cls").transition_matrix
    plain = am.estimate(y, noise=noise, population=N, estimator="cls").transition_matrix
    P = truth.transition_matrix
    assert np.abs(found - P).max() < 0.04
    assert np.abs(plain - P).max() > 0.08


def test_noise_that_changes_by_step_is_mapped_record_by_record():
    models = [am.Binomial(0.3), am.Binomial(0.9), am.Gaussian(2.0)]
    noise = am.PerStep(models)
    y, truth = am.simulate(3.0, states=3, steps=300, realizations=40, noise=noise, seed=5, ensemble="regular")
    for name in ("mom", "corrected-cls"):
        est = am.estimate(y, noise=noise, population=100, estimator=name)
        assert np.abs(est.transition_matrix - truth.transition_matrix).max() < 0.06, name
    wrong = am.estimate(y, noise=am.Poisson(0.6), population=100, estimator="mom")
    assert np.abs(wrong.transition_matrix - truth.transition_matrix).max() > 0.2


def test_per_step_matrices_and_offsets_are_undone():
    rng = np.random.default_rng(6)
    A = np.eye(3) + 0.2 * rng.random((4, 3, 3))
    b = rng.normal(0, 5, (4, 3))
    noise = am.Linear(A, b)
    y, truth = am.simulate(3.0, states=3, steps=40, realizations=5, noise=noise, seed=7)
    found = am.estimate(y, noise=noise, population=100, estimator="mom").transition_matrix
    n = truth.counts.astype(float)
    exact = am.estimate(n, population=100, estimator="mom").transition_matrix
    np.testing.assert_allclose(found, exact, rtol=1e-8, atol=1e-10)


def test_offsets_are_undone_also_when_populations_differ():
    noise = am.Linear(np.diag([0.5, 0.7]), np.array([3.0, -2.0]))
    N = np.array([50, 100, 150])
    y, truth = am.simulate([[0.8, 0.2], [0.4, 0.6]], steps=50, population=N, noise=noise, seed=8)
    found = am.estimate(y, noise=noise, population=N, estimator="mom").transition_matrix
    exact = am.estimate(truth.counts, population=N, estimator="mom").transition_matrix
    np.testing.assert_allclose(found, exact, rtol=1e-8)


def test_too_few_pairs_and_empty_counts_are_refused():
    with pytest.raises(am.InputError, match="at least one pair"):
        latent(Moments.zero(2), am.Exact(), 10)
    with pytest.raises(am.InputError, match="must be positive"):
        am.estimate(np.zeros((1, 5, 2)), population=10, noise=am.Binomial(0.5))


def test_the_condition_is_that_of_the_second_moments_of_left_ends():
    y, _ = am.simulate(states=4, steps=50, realizations=20, noise=am.Binomial(0.5), seed=2)
    found = am.estimate(y, noise=am.Binomial(0.5), population=100, estimator="mom")
    gram = latent(am.Sums.of(y).total, am.Binomial(0.5), 100).gram
    assert found.diagnostics["condition"] == pytest.approx(np.linalg.cond(gram), rel=1e-9)
