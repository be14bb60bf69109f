import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.estimators.latent import Undo, closed, latent
from aggmc_beam.estimators.moment_methods import mom
from aggmc_beam.estimators.nonstationary import (
    ParametricFit,
    pooled,
    pooled_without_each,
    transition_matrices,
)
from aggmc_beam.sums.moments import Moments, add_moments

CORNER = np.array([[0.85, 0.1, 0.05], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7]])


def corner_start(K=60, T=15, seed=0, noise=None, population=200):
    return am.simulate(
        CORNER,
        steps=T,
        realizations=K,
        population=population,
        start=[1, 0, 0],
        noise=noise or am.Binomial(0.5),
        seed=seed,
    )


def test_a_step_estimate_is_equation_8_with_unbiased_covariances():
    y, _ = corner_start(K=7, T=4)
    est = am.estimate(y, noise=am.Binomial(0.5), population=200, chain="per-step", estimator="mom")
    for t in (1, 2):
        x, z = y[:, t] / 0.5, y[:, t + 1] / 0.5
        mu, nu = x.mean(0) / x.mean(0).sum(), z.mean(0) / z.mean(0).sum()
        Sigma = (x - x.mean(0)).T @ (z - z.mean(0)) / 6
        expected = (Sigma / 200 + np.outer(mu, nu)) / mu[:, None]
        np.testing.assert_allclose(est[est.cells.index(t)].transition_matrix, expected, rtol=1e-9)


def test_pooling_steps_beats_averaging_them_and_both_beat_the_stationary_form():
    P = am.simulate(1.0, states=6, seed=11, ensemble="regular").truth.transition_matrix
    setting = {"noise": am.Binomial(0.5), "population": 200}
    errors = []
    for seed in range(5):
        y, _ = am.simulate(P, steps=15, realizations=60, start=np.eye(6)[0], seed=seed, **setting)
        by_step = am.estimate(y, chain="per-step", estimator="mom", **setting)
        stationary = am.estimate(y, estimator="mom", **setting).transition_matrix
        matrices = (by_step.pooled.transition_matrix, by_step.average, stationary)
        errors.append([np.mean((found - P) ** 2) for found in matrices])
    pooled, average, global_centre = np.mean(errors, 0)
    assert pooled < 0.7 * average
    assert global_centre > 100 * average


def test_states_that_are_absent_at_a_step_have_no_row_there():
    y, _ = corner_start(noise=am.Exact())
    est = am.estimate(y, population=200, chain="per-step", estimator="mom")
    first = est[0]
    assert np.isnan(first.transition_matrix[1:]).all()
    np.testing.assert_allclose(first.transition_matrix[0], CORNER[0], atol=0.02)
    assert [f["flag"] for f in first.diagnostics["rows"]] == ["never-seen", "never-seen"]
    assert np.isfinite(est.pooled.transition_matrix).all()


def test_windows_follow_a_chain_that_switches():
    A, B = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([[0.4, 0.6], [0.6, 0.4]])
    stack = np.concatenate([np.repeat(A[None], 500, 0), np.repeat(B[None], 499, 0)])
    y, _ = am.simulate(stack, population=200, realizations=5, seed=1)
    est = am.estimate(y, chain=am.Window(500), estimator="mom")
    assert est.cells == [0, 500]
    assert est[0].window == {"start": 0, "end": 500}
    assert [e.counts["gaps"] for e in est] == [0, 0]
    np.testing.assert_allclose(est[0].transition_matrix, A, atol=0.05)
    np.testing.assert_allclose(est[1].transition_matrix, B, atol=0.06)


def daily(T=24 * 60, seed=2, K=1):
    """A chain whose moves depend on the hour."""
    hours = np.arange(T - 1) % 24
    out = 0.2 + 0.15 * np.cos(2 * np.pi * hours / 24)
    back = 0.3 + 0.2 * np.sin(2 * np.pi * hours / 24)
    stack = np.stack([np.stack([1 - out, out], -1), np.stack([back, 1 - back], -1)], 1)
    y, _ = am.simulate(stack, population=2000, realizations=K, seed=seed, noise=am.Binomial(0.5))
    return y, stack[:24]


def test_a_cycle_has_a_matrix_for_each_phase():
    y, P = daily(T=24 * 400)
    est = am.estimate(y, chain=am.Cycle(24), noise=am.Binomial(0.5), population=2000, estimator="mom")
    assert est.cells == list(range(24))
    error = est.transition_matrix - P
    assert np.sqrt(np.mean(error**2)) < 0.1
    z = np.abs(error) / est.standard_error
    assert 0.9 < np.mean(z < 2) <= 1


def test_harmonics_need_far_less_data_than_free_phases():
    y, P = daily()
    free = am.estimate(y, chain=am.Cycle(24), noise=am.Binomial(0.5), population=2000, estimator="mom")
    chain = am.Parametric.harmonics(24, order=2)
    smooth = am.estimate(y, chain=chain, noise=am.Binomial(0.5), population=2000)
    error_free = np.mean((free.transition_matrix - P) ** 2)
    error_smooth = np.mean((smooth.transition_matrix - P) ** 2)
    assert error_smooth < 0.4 * error_free
    assert smooth.coefficients.shape == (2, 2, 5)


def test_errors_of_a_parametric_fit_match_its_spread():
    setting = {"noise": am.Binomial(0.5), "population": 2000}
    fits = [am.estimate(daily(seed=s)[0], chain=am.Parametric.harmonics(24), **setting) for s in range(12)]
    spread = np.std([e.transition_matrix for e in fits], 0, ddof=1)
    claimed = np.mean([e.standard_error for e in fits], 0)
    assert 0.7 < np.sqrt(np.mean(claimed**2) / np.mean(spread**2)) < 1.3


def test_a_parametric_fit_recovers_its_own_coefficients():
    rng = np.random.default_rng(3)
    Z = np.column_stack([np.ones(12), rng.normal(size=(12, 2))])
    theta = rng.normal(0, 0.7, (3, 3, 3))
    theta -= theta.mean(1, keepdims=True)
    P = transition_matrices(theta, Z)
    np.testing.assert_allclose(P.sum(-1), 1)
    steps = []
    y, _ = am.simulate(np.eye(3), steps=5, realizations=3, start=[0.4, 0.3, 0.3], population=50)
    base = latent(am.Sums.of(y).total, am.Exact(), 50)
    for matrix in P:
        mu = np.array([0.5, 0.3, 0.2])
        c1 = np.diag(mu) @ matrix - np.outer(mu, mu @ matrix)
        steps.append(base.replaced(left=mu, right=mu @ matrix, c1=c1))
    np.testing.assert_allclose(mom(steps[0]), P[0], atol=1e-12)
    for weighting in ("plain", "shares"):
        fit = ParametricFit(Z, weighting)
        found = fit.fit(steps)
        np.testing.assert_allclose(transition_matrices(found, Z), P, atol=1e-4)
        np.testing.assert_allclose(found, theta, atol=5e-3)
        np.testing.assert_allclose(fit.response(steps, found), P, atol=1e-4)


def test_covariates_must_reach_as_far_as_the_data():
    y, _ = corner_start()
    with pytest.raises(am.InputError, match="steps 0 to 4, but the data run"):
        am.estimate(y, noise=am.Binomial(0.5), population=200, chain=am.Parametric(np.zeros((5, 1))))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: am.Window(0), "window size must be a whole number"),
        (lambda: am.Window(4, 1.5), "window every"),
        (lambda: am.Cycle(-1), "cycle period"),
        (lambda: am.Parametric(np.ones(3)), r"array \[T, q\]"),
        (lambda: am.Parametric(np.ones((3, 1)), period=4), "as many rows"),
        (lambda: am.Parametric(np.ones((3, 1)), weighting="x"), "'plain' or 'shares'"),
        (lambda: am.Parametric.harmonics(4, 2), "order below 2"),
        (lambda: am.estimate(np.ones((2, 4, 2)), chain="stationery"), "'stationery' is not known"),
    ],
)
def test_impossible_chains_are_refused(make, message):
    with pytest.raises(am.InputError, match=message):
        make()


def test_a_cell_without_enough_data_is_skipped_with_its_reason():
    y = np.full((2, 6, 2), np.nan)
    y[:, :3] = [[6, 4], [5, 5], [4, 6]]
    y[1, 3] = [3, 7]
    est = am.estimate(y, population=10, chain="per-step", estimator="mom")
    assert est.cells == [0, 1]
    assert "at least two pairs" in est.skipped[2]


@pytest.mark.parametrize("noise", [am.Binomial(0.5), am.Linear(np.array([[0.8, 0.1], [0.2, 0.9]]))])
@pytest.mark.parametrize("open_population", [False, True])
def test_pooled_without_each_replicate_is_pooled_of_the_rest(noise, open_population):
    rng = np.random.default_rng(8)
    y = rng.normal(100, 3, (6, 40, 2)) + rng.normal(0, 5, (6, 1, 2))
    y[2, :7] = np.nan
    sums = am.Sums.of(y, am.Cycle(4))
    undo, zero = Undo.of(noise, 2, 150.0), Moments.zero(2)
    parts = [sums.by_replicate([cell]) for cell in sums.cells]
    cells = [[part.get(r, zero) for r in sums.by_replicate(sums.cells)] for part in parts]
    found = pooled_without_each(cells, undo, open_population)
    for g in range(len(cells[0])):
        rest = [latent(add_moments(2, c[:g] + c[g + 1 :]), noise, 150.0, centred=True) for c in cells]
        rest = [closed(x) if open_population else x for x in rest]
        np.testing.assert_allclose(found[g], pooled(rest), rtol=1e-9, atol=1e-9)
    if not open_population:
        of_one_cell = mom(latent(add_moments(2, cells[1][1:]), noise, 150.0, centred=True))
        np.testing.assert_allclose(pooled_without_each(cells[1:2], undo, False)[0], of_one_cell, atol=1e-9)


def test_a_cell_of_one_replicate_cannot_be_pooled_without_it():
    sums = am.Sums.of(corner_start(K=1, T=3)[0])
    with pytest.raises(am.InputError, match="fewer than two pairs"):
        pooled_without_each(
            [list(sums.by_replicate(sums.cells).values())], Undo.of(am.Exact(), 3, 200), False
        )
