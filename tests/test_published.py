"""Counts as publishers show them: suppressed, rounded, clipped. What is behind them, and what cannot be told."""

from __future__ import annotations

import json
import pickle

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom, nbinom, norm

import aggmc_beam as am
from aggmc_beam.chain import Stationary
from aggmc_beam.errors import InputError
from aggmc_beam.estimators.copula import OTHERS, Own, hermite, lacking
from aggmc_beam.estimators.marginal import Marginal, fit_marginal
from aggmc_beam.fit.published import as_published
from aggmc_beam.noise import noise_from_dict
from aggmc_beam.sums.records import Records
from aggmc_beam.sums.spec import SumSpec
from aggmc_beam.sums.state import AggregationState

P = np.array([[0.8, 0.15, 0.05], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
LAYERS = [
    am.Suppressed(5),
    am.Suppressed(5, "missing"),
    am.Suppressed(8, 3, zeros=True),
    am.Suppressed(10, "zero", am.Binomial(0.5)),
    am.Rounded(5),
    am.Rounded(3, random=True),
    am.Clipped(noise=am.Laplace(4.0)),
    am.Rounded(5, noise=am.Suppressed(6, noise=am.Gaussian(2.0))),
]


def label(noise):
    return json.dumps(noise.to_dict())[:70]


def simulated(noise, N=100, K=10, T=200, seed=1):
    return am.simulate(P, population=N, steps=T, realizations=K, noise=noise, seed=seed)


def error(estimate, P=P):
    return float(np.sqrt(((estimate.transition_matrix - P) ** 2).sum(1).mean()))


@pytest.mark.parametrize("noise", LAYERS, ids=label)
def test_a_layer_survives_json_and_pickle_and_keeps_what_lies_below(noise):
    assert noise_from_dict(json.loads(json.dumps(noise.to_dict()))) == noise
    assert pickle.loads(pickle.dumps(noise)) == noise
    assert eval(repr(noise), vars(am)) == noise
    assert noise.over(am.Poisson(0.5)).innermost == am.Poisson(0.5)
    np.testing.assert_array_equal(noise.matrix(2), noise.innermost.matrix(2))


@pytest.mark.parametrize("noise", LAYERS, ids=label)
def test_what_is_shown_of_a_count_has_the_mean_and_variance_that_are_stated(noise):
    """The layers alone: over exact counts, since what they say is of noisy ones."""
    alone, n = noise.over(am.Exact()), np.arange(20)
    mean, variance, hidden = alone.seen_through(n.astype(float))
    y = np.nan_to_num(alone.sample(np.tile(n, (40_000, 1)), np.random.default_rng(1)))
    np.testing.assert_allclose(y.mean(0), mean, atol=0.05)
    np.testing.assert_allclose(y.var(0), variance, atol=0.1)
    assert hidden[-1] == 0


@pytest.mark.parametrize(
    ("law", "mean", "variance"), [(nbinom(4, 0.25), 12.0, 48.0), (binom(30, 0.4), 12.0, 7.2)]
)
@pytest.mark.parametrize("noise", [am.Suppressed(9), am.Rounded(7), am.Rounded(7, random=True)], ids=label)
def test_a_distribution_is_found_from_the_mean_and_variance_of_what_is_shown(noise, law, mean, variance):
    values = np.arange(400.0)
    shown, spread, _ = noise.seen_through(values)
    mass = law.pmf(values)
    seen = mass @ shown
    found = fit_marginal(noise, seen, mass @ ((shown - seen) ** 2 + spread))
    assert found.fitted
    np.testing.assert_allclose([found.mean, found.variance], [mean, variance], rtol=1e-5)


def marginal(noise, mean, variance):
    values = np.arange(90.0)
    mass = nbinom(mean**2 / (variance - mean), mean / variance).pmf(values)
    return Marginal(values, mass / mass.sum(), *noise.seen_through(values))


def covariance(a, b, x, y, rho):
    """Of x(count a) and y(count b) under a normal copula, by summing over both: the definition."""

    def function(m, values):
        below = norm.ppf(np.clip(np.cumsum(m.mass), 1e-300, 1 - 1e-16))
        edges = np.concatenate([[-np.inf], below[:-1], [np.inf]])

        def mean(z):  # E[values | Z = z], Z' = rho z + sqrt(1 - rho^2) e
            t = (edges[None] - rho * z[:, None]) / np.sqrt(1 - rho**2)
            return np.diff(norm.cdf(t), axis=1) @ values

        return mean

    grid = np.linspace(-8.5, 8.5, 4_001)
    density = norm.pdf(grid) * (grid[1] - grid[0])
    first = x[np.minimum(np.searchsorted(np.cumsum(a.mass), norm.cdf(grid)), len(x) - 1)]
    left = density @ (first * function(b, y)(grid))
    return left - (a.mass @ x) * (b.mass @ y)


@pytest.mark.parametrize("noise", [am.Suppressed(9), am.Rounded(10)], ids=label)
@pytest.mark.parametrize("rho", [-0.3, 0.2, 0.9])
def test_covariances_of_what_is_shown_lead_back_to_those_of_the_counts(noise, rho):
    a, b = marginal(noise, 12.0, 30.0), marginal(noise, 20.0, 26.0)
    seen = covariance(a, b, a.shown, b.shown, rho)
    behind = covariance(a, b, a.values, b.values, rho)
    hidden, shown = (
        np.stack([hermite(m, getattr(m, of), OTHERS) for m in (a, b)]) for of in ("values", "shown")
    )
    matrix = np.array([[1.0, seen], [seen, 1.0]])
    slope = hidden[:, 0] / shown[:, 0]
    found = slope[0] * slope[1] * seen + lacking(matrix, shown, hidden)[0, 1]
    assert found == pytest.approx(behind, rel=0.01)
    own = covariance(a, a, a.shown, a.shown, rho)
    period = 10.0 if isinstance(noise, am.Rounded) else 0.0
    made = Own(a, period)
    found = made.slope**2 * own + made.lacking(own)
    assert found == pytest.approx(covariance(a, a, a.values, a.values, rho), rel=0.01)


@pytest.mark.parametrize(
    ("noise", "below"),
    [
        (am.Suppressed(10), am.Exact()),
        (am.Suppressed(10, "missing"), am.Exact()),
        (am.Suppressed(10, 4), am.Exact()),
        (am.Rounded(10), am.Exact()),
        (am.Rounded(5, noise=am.Suppressed(5)), am.Exact()),
        (am.Suppressed(6, noise=am.Binomial(0.5)), am.Binomial(0.5)),
        (am.Clipped(noise=am.Laplace(4.0)), am.Laplace(4.0)),
    ],
    ids=label,
)
def test_estimates_are_nearly_as_good_as_without_the_layer(noise, below):
    with_layer, without, blind = [], [], []
    for seed in range(4):
        y, _ = simulated(noise, seed=seed)
        with_layer.append(error(am.estimate(y, noise=noise, population=100)))
        blind.append(error(am.estimate(np.nan_to_num(y), noise=am.Gaussian(1e-3), population=100)))
        y, _ = simulated(below, seed=seed)
        without.append(error(am.estimate(y, noise=below, population=100)))
    assert np.mean(with_layer) < 1.5 * np.mean(without) + 0.002
    assert np.mean(with_layer) < np.mean(blind)


def test_counts_of_which_no_step_has_small_ones_stay_as_they_are_though_their_mean_moves_far():
    """All start in one state: over all steps its counts spread so much that some would seem to be small."""
    Q = np.array([[0.6, 0.2, 0.2], [0.06, 0.84, 0.1], [0.06, 0.1, 0.84]])
    told, plain = [], []
    for seed in range(3):
        y, truth = am.simulate(
            Q, population=200, steps=30, realizations=40, noise=am.Suppressed(5), start=[1, 0, 0], seed=seed
        )
        found = am.estimate(y, noise=am.Suppressed(5), population=200)
        assert found.diagnostics["published"]["suppressed"][0] < 1e-3
        told.append(error(found, Q))
        plain.append(error(am.estimate(truth.counts, population=200), Q))
    assert np.mean(told) < 1.3 * np.mean(plain)


@pytest.mark.parametrize("shown", ["zero", "missing"])
def test_intervals_hold_the_truth_as_often_as_they_say(shown):
    noise, held = am.Suppressed(12, shown), []
    for seed in range(15):
        y, _ = simulated(noise, K=20, T=50, seed=100 + seed)
        lower, upper = am.estimate(y, noise=noise, population=100).interval()
        held.append(((lower <= P) & (upper >= P)).mean())
    assert 0.88 < np.mean(held) <= 1.0


def test_suppressed_entries_may_be_zero_or_missing_and_true_zeros_shown_or_not():
    y, _ = simulated(am.Suppressed(12, "missing"))
    missing = am.estimate(y, noise=am.Suppressed(12, "missing"), population=100)
    zero = am.estimate(np.nan_to_num(y), noise=am.Suppressed(12), population=100)
    np.testing.assert_array_equal(missing.transition_matrix, zero.transition_matrix)


def test_parameters_below_a_layer_are_estimated():
    y, _ = simulated(am.Suppressed(6, noise=am.Binomial(0.5)), K=20, T=500)
    found = am.estimate(y, noise=am.Suppressed(6, noise=am.Binomial("estimate")), population=100)
    assert found.noise.to_dict()["noise"]["alpha"] == pytest.approx(0.5, abs=0.01)


def test_a_state_whose_counts_are_nearly_all_suppressed_is_not_told():
    y, _ = simulated(am.Suppressed(45))
    found = am.estimate(y, noise=am.Suppressed(45))
    lower, upper = found.interval()
    lost = np.array(found.diagnostics["published"]["lost"])
    assert lost.any()
    assert (lower[lost] == 0).all()
    assert (upper[lost] == 1).all()
    assert "hardly tell" in found.warnings[0]
    assert any("were suppressed" in sentence for sentence in found.warnings)


def test_a_single_state_that_is_never_shown_is_what_the_others_leave_of_the_population():
    Q = np.array([[0.9, 0.08, 0.02], [0.1, 0.85, 0.05], [0.4, 0.4, 0.2]])
    noise, told, plain = am.Suppressed(30), [], []
    for seed in range(3):
        y, truth = am.simulate(Q, population=150, steps=200, realizations=10, noise=noise, seed=seed)
        assert not y[..., 2].any()
        found = am.estimate(y, noise=noise, population=150)
        assert found.diagnostics["published"]["rest"] == 2
        told.append(error(found, Q))
        plain.append(error(am.estimate(truth.counts, population=150), Q))
    assert np.mean(told) < 1.5 * np.mean(plain)
    unknown = am.estimate(y, noise=noise)
    assert unknown.diagnostics["published"]["lost"] == [False, False, True]


def test_where_records_may_show_nothing_at_all_nothing_is_told():
    noise = am.Suppressed(45, "missing")
    y, _ = simulated(noise)
    assert np.isnan(y).all(2).mean() > 0.02
    lower, upper = am.estimate(y, noise=noise, population=100).interval()
    assert (lower == 0).all()
    assert (upper == 1).all()


def test_counts_that_vary_less_than_they_are_rounded_to_are_not_told():
    y, _ = simulated(am.Rounded(200), N=10_000, T=100)
    found = am.estimate(y, noise=am.Rounded(200), population=10_000)
    assert found.diagnostics["published"]["lost"] or found.diagnostics["published"]["assumed"]
    assert found.warnings


def test_sums_of_parts_are_those_of_the_whole_and_can_be_saved(tmp_path):
    noise = am.Suppressed(12, "missing")
    y, _ = simulated(noise)
    spec = SumSpec.plan(("a", "b", "c"), Stationary(), noise, 100.0, block=20)
    whole, halves = AggregationState(spec), [AggregationState(spec), AggregationState(spec)]
    block = Records.of_array(y)
    whole.add(block)
    side = np.random.default_rng(2).random(len(block)) < 0.5
    halves[0].add(block.take(np.flatnonzero(side)))
    halves[1].add(block.take(np.flatnonzero(~side)))
    joined = halves[0] + halves[1]
    path = tmp_path / "sums.moments"
    path.write_bytes(joined.to_bytes())
    one = am.estimate(path, noise=noise, population=100)
    state = AggregationState.from_bytes(whole.to_bytes())
    two = am.estimate(state, noise=noise, population=100)
    np.testing.assert_allclose(one.transition_matrix, two.transition_matrix, atol=1e-10)
    with pytest.raises(InputError, match="they were suppressed"):
        am.estimate(path, noise=am.Exact(), population=100)


def test_populations_that_differ_are_taken_as_the_mean_one_and_that_is_said():
    noise = am.Suppressed(10)
    N = np.repeat([90, 110], 5)
    y, _ = simulated(noise, N=N)
    found = am.estimate(y, noise=noise, population=N)
    assert error(found) < 0.05
    assert any("populations differ" in sentence for sentence in found.warnings)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: am.Suppressed(0), "below must be above 0"),
        (lambda: am.Suppressed(5, "blank"), "zero, missing or a number"),
        (lambda: am.Suppressed(5, 7), "less than below"),
        (lambda: am.Suppressed(5, noise="exact"), "lies over a noise model"),
        (lambda: am.Rounded(-1), "base must be above 0"),
        (lambda: am.Rounded(5, random="yes"), "true or false"),
        (lambda: am.Clipped("zero"), "finite number"),
        (lambda: am.Suppressed(5, noise=am.PerStep([am.Exact(), am.Binomial(0.5)])), "differs by time step"),
        (lambda: am.PerStep([am.Suppressed(5)]), "no layer"),
        (lambda: noise_from_dict({"model": "suppressed"}), "needs below"),
        (lambda: noise_from_dict({"model": "rounded", "base": 5, "noise": {"model": "binomal"}}), "binomial"),
    ],
)
def test_what_is_no_layer_is_refused_by_name(made, words):
    with pytest.raises(InputError, match=words):
        made()


def test_layers_are_told_in_a_description_by_name_alone_or_in_full():
    assert noise_from_dict({"model": "clipped"}) == am.Clipped()
    assert noise_from_dict({"model": "suppressed", "below": 5, "noise": "exact"}) == am.Suppressed(5)


def test_sums_of_counts_that_are_nowhere_touched_stay_what_they_are():
    y, _ = simulated(am.Exact(), N=1000)
    found, noise = as_published(am.Sums.of(y), am.Suppressed(5))
    np.testing.assert_array_equal(found.product, am.Sums.of(y).product)
    assert not noise.extra.any()


def test_a_table_with_suppressed_entries_gives_what_the_array_gives():
    noise = am.Suppressed(12, "missing")
    y, _ = simulated(noise)
    key, time = np.nonzero(~np.isnan(y).all(2))
    rows = {"realization": key, "time": time, **{s: y[key, time, i] for i, s in enumerate("abc")}}
    frame = pl.DataFrame(rows).fill_nan(None)
    from_array = am.estimate(y, noise=noise, population=100)
    wide = am.estimate(frame, list("abc"), noise=noise, population=100)
    long = frame.unpivot(
        list("abc"), index=["realization", "time"], variable_name="state", value_name="count"
    )
    tall = am.estimate(long, list("abc"), noise=noise, population=100, state="state")
    short = am.estimate(
        long.drop_nulls(), list("abc"), noise=noise, population=100, state="state", absent="missing"
    )
    for found in (wide, tall, short):
        np.testing.assert_allclose(found.transition_matrix, from_array.transition_matrix, atol=1e-10)
