"""auto: which form it takes on which data, and that the form is the right one."""

import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.estimators.drift import drift_fit
from aggmc_beam.estimators.latent import latent
from aggmc_beam.estimators.stationarity import detrend
from aggmc_beam.estimators.stepwise import step_mom, step_mom_without_each, step_sums
from aggmc_beam.fit.cell import CellFit, prediction_error
from aggmc_beam.fit.fit import Fit, Settings
from aggmc_beam.sums.sums import Sums

STICKY = np.array([[0.95, 0.04, 0.01], [0.03, 0.94, 0.03], [0.01, 0.02, 0.97]])
HALF = am.Binomial(0.5)


def corner(seed=0, K=40, T=25, noise=HALF):
    return am.simulate(
        STICKY, steps=T, realizations=K, population=150, start=[1, 0, 0], noise=noise, seed=seed
    ).counts


def error(est, P):
    return np.mean((est.transition_matrix - P) ** 2)


def test_settled_counts_are_estimated_by_gmm_with_the_noise_as_stated():
    y, truth = am.simulate(steps=300, realizations=10, noise=HALF, seed=5, ensemble="regular")
    est = am.estimate(y, noise=HALF, population=100)
    choice = est.diagnostics["choice"]
    assert (choice["estimator"], choice["form"], choice["lag0"]) == ("gmm", "stationary", "known")
    assert not est.diagnostics["drift"]["raised"]
    mom = am.estimate(y, noise=HALF, population=100, estimator="mom")
    assert error(est, truth.transition_matrix) < 0.4 * error(mom, truth.transition_matrix)


def test_a_start_in_a_corner_is_noticed_and_each_step_gets_its_mean():
    for seed in range(3):
        y = corner(seed, T=60)
        est = am.estimate(y, noise=HALF, population=150)
        assert est.diagnostics["choice"]["form"] == "steps"
        assert est.diagnostics["drift"]["raised"]
        assert est.diagnostics["drift"]["implied_bias"] > 0.1
        mom = am.estimate(y, noise=HALF, population=150, estimator="mom")
        assert error(est, STICKY) < 0.02 * error(mom, STICKY)
        assert error(est, STICKY) < np.mean((np.eye(3) - STICKY) ** 2)


def test_a_trend_of_a_single_realization_is_taken_out():
    stack = np.stack([[[0.9 - 0.2 * u, 0.1 + 0.2 * u], [0.1, 0.9]] for u in np.linspace(0, 1, 799)])
    y, _ = am.simulate(stack, population=500, noise=HALF, seed=5)
    est = am.estimate(y, noise=HALF, population=500)
    assert est.diagnostics["choice"]["form"] == "detrended"
    assert error(est, stack.mean(0)) < 0.01
    lower, upper = est.interval()
    assert np.all((lower <= stack.mean(0)) & (upper >= stack.mean(0)))


@pytest.mark.parametrize(("K", "T"), [(30, 60), (2, 800)])
def test_false_alarms_are_rare(K, T):
    alarms = 0
    for seed in range(60):
        y, _ = am.simulate(states=4, precision=2.0, steps=T, realizations=K, noise=HALF, seed=seed,
                           ensemble="regular")  # fmt: skip
        digest = Sums.of(y)
        data = CellFit(Fit(digest, Settings(HALF, 100)), digest.by_replicate([0]), dict(digest.profiles))
        alarms += data.point().diagnostics["drift"]["raised"]
    assert alarms <= 3


def test_step_sums_are_those_of_the_definition():
    y = corner(K=7, T=5)
    y[2, 3] = np.nan
    digest = Sums.of(y, replicates=3)
    sums = step_sums(digest.by_replicate([0]), digest.profiles, HALF, 150.0)
    x = y / 0.5 / 150
    both = ~np.isnan(x[:, :-1, 0]) & ~np.isnan(x[:, 1:, 0])
    expected0, expected1 = np.zeros((3, 3)), np.zeros((3, 3))
    for t in range(4):
        a, b = x[both[:, t], t], x[both[:, t], t + 1]
        np.testing.assert_allclose(sums.mean_left[t], a.mean(0), atol=1e-12)
        np.testing.assert_allclose(sums.mean_right[t], b.mean(0), atol=1e-12)
        expected0 += 150 * (a - a.mean(0)).T @ (a - a.mean(0))
        expected1 += 150 * (a - a.mean(0)).T @ (b - b.mean(0))
    np.testing.assert_allclose(sums.ends.sum(0), expected0, rtol=1e-9)
    np.testing.assert_allclose(sums.lag1.sum(0), expected1, rtol=1e-9, atol=1e-12)


def test_step_mom_is_the_pooled_per_step_estimate_and_its_jackknife_leaves_out_for_real():
    y = corner(K=30)
    digest = Sums.of(y)
    sums = step_sums(digest.by_replicate([0]), digest.profiles, HALF, 150.0)
    by_step = am.estimate(y, noise=HALF, population=150, chain="per-step", estimator="mom")
    # Shares are not normalised step by step here, so the two differ by the noise of totals only.
    np.testing.assert_allclose(step_mom(sums), by_step.pooled.transition_matrix, atol=0.02)
    reduced = step_mom_without_each(sums)
    rest = Sums.of(np.delete(y, 4, axis=0))
    expected = step_mom(step_sums(rest.by_replicate([0]), rest.profiles, HALF, 150.0))
    np.testing.assert_allclose(reduced[4], expected, atol=1e-9)


def test_drift_fit_beats_the_pooled_moments_it_is_made_of():
    fits, plain = [], []
    for seed in range(6):
        digest = Sums.of(corner(seed))
        sums = step_sums(digest.by_replicate([0]), digest.profiles, HALF, 150.0)
        fits.append(np.mean((drift_fit(sums).P - STICKY) ** 2))
        plain.append(np.mean((step_mom(sums) - STICKY) ** 2))
    assert np.mean(fits) < 0.2 * np.mean(plain)


def test_intervals_of_drifting_data_cover_and_are_no_wider_than_the_errors_deserve():
    inside, half, missed = [], [], []
    for seed in range(30):
        est = am.estimate(corner(seed), noise=HALF, population=150)
        lower, upper = est.interval()
        inside.append(np.mean((lower <= STICKY) & (upper >= STICKY)))
        half.append((upper - lower).mean() / 2)
        missed.append(error(est, STICKY))
    assert np.mean(inside) > 0.93
    assert np.mean(half) < 1.3 * 1.96 * np.sqrt(np.mean(missed))


def test_detrending_takes_out_just_the_trend():
    rng = np.random.default_rng(1)
    flat = rng.normal(50, 3, (1, 400, 2))
    t = np.linspace(-1, 1, 400)[:, None]
    trended = flat + np.array([20.0, -15.0]) * t + np.array([5.0, 5.0]) * t**3
    found = []
    for y in (flat, trended):
        digest = Sums.of(y)
        moments, profile = detrend(digest.total, digest.profile, 3)
        found.append(moments)
        assert np.ptp(profile.mean(0) - moments.lag0.left) < 1e-9
    for name in ("lag0", "lag1", "lag2", "ends"):
        a, b = (getattr(m, name).product for m in found)
        np.testing.assert_allclose(a, b, atol=1e-6 * np.abs(a).max() + 30)


def test_scores_tell_an_estimate_that_predicts_from_one_that_does_not():
    y, _ = am.simulate(steps=300, realizations=10, noise=HALF, seed=5, ensemble="regular")
    scores = am.estimate(y, noise=HALF, population=100).diagnostics["scores"]
    assert scores["estimate"] < 0.5 * min(scores["identity"], scores["naive"])
    shares = np.array([0.5, 0.3, 0.2])
    y, _ = am.simulate(np.tile(shares, (3, 1)), steps=300, realizations=10, noise=HALF, seed=6)
    scores = am.estimate(y, noise=HALF, population=100).diagnostics["scores"]
    assert scores["estimate"] == pytest.approx(scores["naive"], rel=0.03)
    assert scores["identity"] > 1.5 * scores["naive"]


def test_the_score_is_the_mean_squared_error_of_predicting_true_counts():
    mixing = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]])
    y, truth = am.simulate(mixing, steps=10_000, realizations=5, noise=HALF, seed=7)
    n = truth.counts.astype(float)
    x = latent(am.Sums.of(y).total, HALF, 100)
    for P in (mixing, np.eye(3)):
        expected = np.mean(((n[:, 1:] - n[:, :-1] @ P) ** 2).sum(-1)) / 100
        assert prediction_error(P, x) == pytest.approx(expected, rel=0.1)


def test_an_open_population_is_estimated_from_varying_totals():
    """Each step a share leaves and Poisson many enter in proportion to the stationary shares."""
    rng = np.random.default_rng(8)
    P = np.array([[0.85, 0.15], [0.3, 0.7]])
    pi = np.array([2 / 3, 1 / 3])
    n, path = rng.poisson(300 * pi), []
    for _ in range(6000):
        path.append(n)
        stay = rng.binomial(n, 0.9)
        n = np.array([rng.multinomial(s, row) for s, row in zip(stay, P, strict=True)]).sum(0)
        n = n + rng.poisson(30 * pi)
    y = np.array(path, float)[None]
    found = am.estimate(y, open_population=True, estimator="mom").transition_matrix
    # Joint shares are those of individuals who stay; rows are scaled by the share that stays.
    joint = 0.9 * P + 0.1 * pi
    np.testing.assert_allclose(found, joint, atol=0.05)
    with pytest.raises(am.InputError, match="totals of exact counts change"):
        am.estimate(y, estimator="mom")


@pytest.mark.parametrize("noise", [am.Exact(), am.Binomial(0.5)], ids=["exact", "binomial"])
def test_an_outside_state_makes_entry_and_exit_ordinary_moves(noise):
    P = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]])
    y, _ = am.simulate(P, steps=800, realizations=10, noise=noise, seed=9)
    est = am.estimate(y[..., :2], states=["a", "b"], noise=noise, population=100, outside="away")
    assert est.states == ("a", "b", "away")
    assert np.abs(est.transition_matrix - P).max() < 0.06
    with pytest.raises(am.InputError, match="needs the population"):
        am.estimate(y[..., :2], outside="away", noise=noise)


@pytest.mark.parametrize("T", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("K", [1, 3, 50])
def test_very_short_data_are_estimated_without_a_warning(K, T):
    y = corner(K=K, T=T)
    est = am.estimate(y, noise=HALF, population=150)
    seen = ~np.isnan(est.transition_matrix).any(1)
    np.testing.assert_allclose(est.transition_matrix[seen].sum(1), 1, atol=1e-9)
