from dataclasses import replace

import numpy as np
import pytest
from oracle import assert_same_moments

import aggmc_beam as am
from aggmc_beam.estimators.inference import jackknife, leave_one_out, student_quantile
from aggmc_beam.estimators.registry import SMOOTH
from aggmc_beam.fit.cell import CellFit
from aggmc_beam.fit.fit import Fit, Settings
from aggmc_beam.sums.moments import CoMoment, add_moments

NOISE = am.Binomial(0.5)


def test_leaving_one_out_is_the_sum_of_the_others():
    y = np.random.default_rng(0).normal(50, 5, (5, 8, 3))
    parts = [am.Sums.of(y[k : k + 1]).total for k in range(5)]
    for g, found in enumerate(leave_one_out(parts)):
        assert_same_moments(found, add_moments(3, parts[:g] + parts[g + 1 :]))


class Unwanted(CoMoment):
    """Its product must not be asked for."""

    def __getattribute__(self, name):
        assert name != "product"
        return super().__getattribute__(name)


def test_the_errors_of_mom_need_no_products_but_those_of_lag_1():
    y, _ = am.simulate(states=3, steps=20, realizations=30, noise=NOISE, seed=1)
    digest = am.Sums.of(y)
    parts = dict(enumerate(digest.parts.values()))
    fit = Fit(digest, Settings(NOISE, 100.0, "mom"))
    whole = CellFit(fit, parts, {})
    bare = {r: replace(m, lag2=Unwanted(*vars(m.lag2).values())) for r, m in parts.items()}
    found = CellFit(fit, bare, {}, whole.total).jackknifed("mom")
    np.testing.assert_array_equal(found, whole.jackknifed("mom"))


def test_the_jackknife_of_a_mean_is_its_textbook_error_also_for_unequal_groups():
    rng = np.random.default_rng(1)
    sizes = np.array([5, 1, 9, 3, 2, 7, 4, 6, 8, 5] * 20)
    errors, spread = [], []
    for _ in range(200):
        groups = [rng.normal(0, 1, m) for m in sizes]
        n, total = sizes.sum(), sum(g.sum() for g in groups)
        reduced = np.array([(total - g.sum()) / (n - len(g)) for g in groups])
        errors.append(jackknife(np.array(total / n), reduced, sizes / n))
        spread.append(total / n)
    assert np.mean(errors) == pytest.approx(1 / np.sqrt(sizes.sum()), rel=0.03)
    assert np.mean(errors) == pytest.approx(np.std(spread), rel=0.15)


def test_quantiles_are_those_of_the_t_distribution():
    assert student_quantile(0.95, 10) == pytest.approx(2.228139, abs=1e-6)
    assert np.isnan(student_quantile(0.95, 0))


def coverage(K, T, runs, seed):
    inside = []
    for run in range(runs):
        y, truth = am.simulate(steps=T, realizations=K, noise=NOISE, seed=seed + run, ensemble="regular")
        lower, upper = am.estimate(y, noise=NOISE, population=100, estimator="mom").interval(0.95)
        P = truth.transition_matrix
        inside.append(np.mean((lower <= P) & (upper >= P)))
    return np.mean(inside)


@pytest.mark.parametrize(("K", "T", "seed"), [(50, 200, 100), (1, 10_000, 200)])
def test_intervals_cover_at_their_level_over_realizations_and_over_time_blocks(K, T, seed):
    assert 0.93 < coverage(K, T, 40, seed) < 0.97


def test_an_estimated_population_widens_the_interval():
    y, _ = am.simulate(states=3, precision=3.0, steps=100, realizations=20, noise=NOISE, seed=1)
    known = am.estimate(y, noise=NOISE, population=100, estimator="mom")
    found = am.estimate(y, noise=am.Binomial("estimate"), estimator="mom")
    assert found.population == pytest.approx(100, rel=0.2)
    assert found.noise.alpha == pytest.approx(0.5, rel=0.2)
    assert np.all(found.standard_error > 0)
    relative = found.diagnostics["population"]["alpha_error"] / found.noise.alpha
    assert 0.01 < relative < 0.2
    assert found.standard_error.mean() > known.standard_error.mean()


@pytest.mark.parametrize(
    "estimator", ["auto", "gmm", "fast", "simplex", "mom", "cls", "corrected-cls", "naive"]
)
def test_an_interval_belongs_to_the_estimate_that_is_shown(estimator):
    y, _ = am.simulate(states=4, steps=60, realizations=30, noise=NOISE, seed=2)
    est = am.estimate(y, noise=NOISE, population=100, estimator=estimator)
    P, (lower, upper) = est.transition_matrix, est.interval()
    assert ((lower <= P) & (P <= upper) & (upper > lower)).all()
    half = student_quantile(0.95, est.degrees) * est.standard_error
    low, high = (
        (P - half, P + half) if estimator in SMOOTH else (np.maximum(P - half, 0), np.minimum(P + half, 1))
    )
    np.testing.assert_allclose([lower, upper], [low, high], atol=1e-12)
    parts = np.stack([est.sampling, est.differences, est.disagreement])
    np.testing.assert_allclose(est.standard_error**2, (parts**2).sum(0), rtol=1e-12)


def test_where_the_model_holds_only_sampling_widens_an_interval():
    y, _ = am.simulate(states=4, precision=4.0, steps=60, realizations=30, noise=NOISE, seed=2)
    est = am.estimate(y, noise=NOISE, population=100)
    assert est.diagnostics["ground"]["name"] == "independent"
    assert (est.sampling > 0).all()
    assert not est.differences.any()
    assert not est.disagreement.any()


def test_cells_that_are_fixed_have_no_interval_and_the_others_have():
    P = [[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.3, 0.7]]
    y, _ = am.simulate(P, steps=100, realizations=30, seed=3)
    rules = am.Constraints(forbidden=[(0, 2), (2, 0)])
    est = am.estimate(y, constraints=rules)
    fixed = np.array(P) == 0
    assert np.isnan(est.standard_error[fixed]).all()
    assert (est.standard_error[~fixed] > 0).all()


def test_one_group_gives_no_interval():
    y, _ = am.simulate(states=3, steps=3, seed=3)
    short = am.estimate(y, population=100, estimator="mom")
    assert np.isnan(short.standard_error).all()


def test_a_jackknife_group_without_data_changes_nothing():
    x = np.array([1.0, 2.0, 4.0, 5.0])
    reduced, share = (x.sum() - x) / 3, np.full(4, 1 / 4)
    alone = jackknife(x.mean(), reduced, share)
    among = jackknife(x.mean(), np.append(reduced, x.mean()), np.append(share, 0.0))
    assert among == alone
