import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.estimators.inference import jackknife
from aggmc_beam.fit.hypotheses import (
    Spread,
    box_test,
    equality,
    hotelling_test,
    jackknife_spread,
    stationarity,
    whitener,
    zero_order,
)
from aggmc_beam.simulation import random_chain, stationary_distribution

NOISE = am.Binomial(0.5)
KNOWN = {"noise": NOISE, "population": 100}
CHAIN = random_chain(np.random.default_rng(1), 5, 2.0, "regular")
SHARES = stationary_distribution(CHAIN)
NO_MEMORY = np.tile(SHARES, (5, 1))


def sticky(P, extra):
    return (1 - extra) * P + extra * np.eye(len(P))


def samples(P, runs, K, T, seed, noise=NOISE, **start):
    """[runs, K, T, S] from one call of the simulator."""
    y, _ = am.simulate(P, steps=T, realizations=runs * K, noise=noise, seed=seed, **start)
    return y.reshape(runs, K, T, -1)


def assert_uniform(p_values):
    """p-values under the hypothesis: their mean, and how many are below 20% and 5%, within 2.6 errors."""
    p = np.array(p_values)
    assert np.mean(p) == pytest.approx(0.5, abs=2.6 / np.sqrt(12 * len(p)))
    for level in (0.2, 0.05):
        assert np.mean(p < level) == pytest.approx(level, abs=2.6 * np.sqrt(level * (1 - level) / len(p)))


# The statistic


def wishart_rows(rng, root, degrees):
    return Spread(rng.normal(size=(degrees, len(root))) @ root / np.sqrt(degrees), float(degrees))


@pytest.mark.parametrize(("decay", "groups"), [(1.0, 8), (0.9, 15), (0.8, 19)])
def test_the_statistic_keeps_its_size_with_more_contrasts_than_groups(decay, groups):
    rng, runs = np.random.default_rng(0), 4000
    root = np.diag(decay ** np.arange(20.0))
    p = [box_test(rng.normal(size=20) @ root, [wishart_rows(rng, root, groups)])[3] for _ in range(runs)]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.01)


def test_the_statistic_keeps_its_size_for_two_sources_of_unequal_spread():
    rng, runs = np.random.default_rng(1), 4000
    roots = [np.diag(0.9 ** np.arange(12.0)), 2 * np.eye(12)]
    p = []
    for _ in range(runs):
        z = sum(rng.normal(size=12) @ root for root in roots)
        p.append(box_test(z, [wishart_rows(rng, root, n) for root, n in zip(roots, (30, 9), strict=True)])[3])
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.01)


def test_hotellings_test_keeps_its_size_in_the_tail_however_unequal_the_variances():
    rng, runs = np.random.default_rng(5), 4000
    root = np.diag([10.0, 1.0, 1.0, 1.0, 0.1])
    p = [hotelling_test(rng.normal(size=5) @ root, wishart_rows(rng, root, 20))[3] for _ in range(runs)]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.01)
    assert np.mean(np.array(p) < 0.0127) == pytest.approx(0.0127, abs=0.005)


def test_the_trace_of_the_squared_covariance_is_estimated_without_bias():
    rng = np.random.default_rng(2)
    root = np.diag([3.0, 2.0, 1.0, 1.0])
    found = [wishart_rows(rng, root, 6).trace_of_square for _ in range(8000)]
    assert np.mean(found) == pytest.approx(np.trace(root**4), rel=0.05)


def test_the_jackknife_spread_has_the_jackknife_errors_on_its_diagonal_also_for_unequal_groups():
    rng = np.random.default_rng(3)
    sizes = np.array([3, 5, 2, 7, 4, 4])
    x = [rng.normal(size=(m, 2)) for m in sizes]
    total, n = sum(g.sum(0) for g in x), sizes.sum()
    reduced = np.array([(total - g.sum(0)) / (n - len(g)) for g in x])
    spread = jackknife_spread(total / n, reduced, sizes / n)
    errors = jackknife(total / n, reduced, sizes / n)
    np.testing.assert_allclose(np.sqrt((spread.rows**2).sum(0)), errors, rtol=1e-12)
    assert spread.degrees == pytest.approx(n**2 / (sizes**2).sum() - 1)


def test_the_jackknife_spread_of_a_mean_is_its_covariance():
    x = np.random.default_rng(4).normal(size=(10, 3))
    spread = jackknife_spread(x.mean(0), (x.sum(0) - x) / 9, np.full(10, 0.1))
    np.testing.assert_allclose(spread.rows.T @ spread.rows, np.cov(x.T) / 10, rtol=1e-10)


def test_whitened_shares_have_identity_covariance_and_no_totals():
    mu = np.array([0.5, 0.3, 0.2, 0.0])
    c0 = np.diag(mu) - np.outer(mu, mu)
    W = whitener(mu, c0)
    assert W.shape == (4, 2)  # the fourth state is never seen
    np.testing.assert_allclose(W.T @ c0 @ W, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(mu @ W, 0, atol=1e-12)


# Size and power


def test_zero_order_keeps_its_size_over_realizations():
    for S, noise in [(5, NOISE), (10, am.Exact())]:
        P = np.tile(np.linspace(1, 3, S) / (2 * S), (S, 1))
        runs = samples(P, 50, 20, 25, S, noise)
        assert_uniform([zero_order(y, noise, 100).p_value for y in runs])


def test_zero_order_keeps_its_size_over_blocks_of_time():
    runs = samples(NO_MEMORY, 80, 1, 400, 7, am.Gaussian(2.0))
    assert_uniform([zero_order(y, am.Gaussian(2.0), 100, replicates=20).p_value for y in runs])


def test_zero_order_finds_memory_and_a_weak_tendency_to_stay():
    strong = samples(sticky(NO_MEMORY, 0.4), 15, 30, 30, 8)
    assert np.mean([zero_order(y, **KNOWN).p_value < 0.05 for y in strong]) >= 0.9
    weak = samples(sticky(NO_MEMORY, 0.1), 30, 30, 30, 9)
    anywhere = np.mean([zero_order(y, **KNOWN).p_value < 0.05 for y in weak])
    staying = np.mean([zero_order(y, **KNOWN, against="staying").p_value < 0.05 for y in weak])
    assert staying >= anywhere + 0.2


def test_stationarity_keeps_its_size_over_realizations_and_within_one():
    over = [stationarity(y, **KNOWN) for y in samples(CHAIN, 150, 25, 20, 40)]
    within = [stationarity(y, **KNOWN, replicates=5) for y in samples(CHAIN, 120, 1, 1000, 11)]
    for results in (over, within):
        assert 0.01 <= np.mean([r.p_value < 0.05 for r in results]) <= 0.09
        for name in results[0].contrasts:
            assert_uniform([r.contrasts[name] for r in results])


def test_stationarity_finds_a_start_elsewhere_and_says_so():
    first = 0.9 * SHARES + 0.1 * np.eye(5)[0]
    results = [stationarity(y, **KNOWN) for y in samples(CHAIN, 20, 30, 30, 12, start=first)]
    assert np.mean([r.p_value < 0.05 for r in results]) >= 0.9
    leading = [min(r.contrasts, key=r.contrasts.__getitem__) for r in results]
    assert leading.count("first step") >= 15


def test_stationarity_finds_a_slow_drift_of_one_realization_and_says_so():
    ramp = np.linspace(0, 0.05, 999)[:, None, None]
    drifting = (1 - ramp) * CHAIN + ramp * np.eye(5)[np.argmin(SHARES)]
    results = [stationarity(y, **KNOWN) for y in samples(drifting, 20, 1, 1000, 13)]
    assert np.mean([r.p_value < 0.05 for r in results]) >= 0.9
    leading = [min(r.contrasts, key=r.contrasts.__getitem__) for r in results]
    assert leading.count("trend") >= 15


def test_the_first_step_of_one_realization_is_found_to_be_elsewhere():
    y = samples(CHAIN, 1, 1, 1000, 14, start=np.eye(5)[np.argmin(SHARES)])[0]
    assert stationarity(y, **KNOWN).contrasts["first step"] == pytest.approx(1 / 1000)


@pytest.mark.parametrize("estimator", ["mom", "corrected-cls"])
def test_equality_keeps_its_size_for_sources_of_unequal_length(estimator):
    first, second = samples(CHAIN, 50, 20, 30, 15), samples(CHAIN, 50, 20, 60, 16)
    pairs = zip(first, second, strict=True)
    assert_uniform([equality(a, b, **KNOWN, estimator=estimator).p_value for a, b in pairs])


def test_equality_keeps_its_size_over_blocks_of_time():
    first, second = samples(CHAIN, 60, 1, 600, 17), samples(CHAIN, 60, 1, 600, 18)
    pairs = zip(first, second, strict=True)
    assert_uniform([equality(a, b, **KNOWN, replicates=20).p_value for a, b in pairs])


def test_equality_of_two_periods_keeps_its_size_where_independence_would_be_wrong():
    runs = samples(sticky(CHAIN, 0.95), 50, 20, 20, 19, am.Exact())
    halves = [(y[:, :10], y[:, 10:]) for y in runs]
    paired = [equality(a, b, paired=True).p_value for a, b in halves]
    apart = [equality(a, b).p_value for a, b in halves]
    assert_uniform(paired)
    assert np.mean(apart) > 0.6


def test_equality_finds_another_matrix_and_other_shares_without_memory():
    first, second = samples(CHAIN, 20, 30, 30, 20), samples(sticky(CHAIN, 0.25), 20, 30, 30, 21)
    pairs = list(zip(first, second, strict=True))
    assert np.mean([equality(a, b, **KNOWN).p_value < 0.05 for a, b in pairs]) >= 0.8
    # Lagged covariances are zero in both: only the means can tell.
    up, down = np.array([0.26, 0.25, 0.25, 0.24]), np.array([0.24, 0.25, 0.25, 0.26])
    a, b = (samples(np.tile(mu, (4, 1)), 1, 30, 30, 22 + i)[0] for i, mu in enumerate((up, down)))
    assert equality(a, b, **KNOWN).p_value < 1e-6


def test_an_estimated_scale_widens_the_spread():
    a, b = samples(CHAIN, 2, 30, 30, 24)
    noise = am.Binomial("estimate")
    given = equality(a, b, (NOISE, NOISE), (100, 100))
    found = equality(a, b, noise, against="staying")
    assert 0 < found.p_value <= 1
    assert given.degrees != found.degrees


# What data may look like


def test_digests_files_and_arrays_give_the_same_answer(tmp_path):
    a, b = samples(CHAIN, 2, 30, 20, 25)
    path = tmp_path / "a.moments"
    am.Sums.of(a).save(path)
    for test in (zero_order, stationarity):
        assert test(path, **KNOWN) == test(a, **KNOWN)
    assert equality(path, am.Sums.of(b), **KNOWN) == equality(a, b, **KNOWN)


def test_a_total_that_grows_is_neither_memory_nor_a_drift_of_shares():
    rng = np.random.default_rng(26)
    N = np.linspace(50, 150, 40).astype(int)
    counts = rng.multinomial(np.tile(N, (60, 1)), SHARES).astype(float)
    assert zero_order(counts, am.Gaussian(0.0), 100).p_value > 0.05
    assert stationarity(counts, am.Gaussian(0.0), 100).p_value > 0.05


def test_a_state_that_nobody_visits_changes_nothing():
    a, b = samples(CHAIN, 2, 30, 20, 27, am.Exact())
    wide = [np.concatenate([y, np.zeros_like(y[..., :1])], -1) for y in (a, b)]
    for test in (zero_order, stationarity):
        assert test(wide[0]).p_value == pytest.approx(test(a).p_value, rel=1e-6)
    for estimator in ("mom", "corrected-cls"):
        found, expected = equality(*wide, estimator=estimator), equality(a, b, estimator=estimator)
        assert found.p_value == pytest.approx(expected.p_value, rel=1e-5)


def test_missing_steps_and_unequal_populations_are_allowed():
    N = np.random.default_rng(28).integers(50, 300, 40)
    y, _ = am.simulate(CHAIN, steps=30, population=N, noise=NOISE, seed=29)
    y[::3, 5:8] = np.nan
    y[1::5, 25:] = np.nan
    assert stationarity(y, NOISE, N).p_value > 0.01
    assert zero_order(y, NOISE, N).p_value < 1e-6
    assert equality(y[:20], y[20:], NOISE, (N[:20], N[20:])).p_value > 0.01


def test_results_print_their_distribution():
    y = samples(NO_MEMORY, 1, 30, 20, 30)[0]
    assert str(zero_order(y, **KNOWN, against="staying")).startswith("F(1.0, 29.0) = ")


def test_what_cannot_be_tested_is_refused_in_the_users_terms():
    y = samples(CHAIN, 1, 30, 20, 31)[0]
    with pytest.raises(am.InputError, match="at least 5 jackknife groups"):
        zero_order(y, **KNOWN, replicates=3)
    with pytest.raises(am.InputError, match="against must be 'any' or 'staying'"):
        zero_order(y, **KNOWN, against="drift")
    with pytest.raises(am.InputError, match="5 and 4 states"):
        equality(y, y[..., :4], **KNOWN)
    with pytest.raises(am.InputError, match="same replicates"):
        equality(y[:5], y[:5], **KNOWN, paired=True)
    with pytest.raises(am.InputError, match="estimator must be one of mom, corrected-cls"):
        equality(y, y, **KNOWN, estimator="simplex")
    with pytest.raises(am.InputError, match="steps"):
        stationarity(y[:, :3], **KNOWN)
    with pytest.raises(am.InputError, match="never change"):
        zero_order(np.ones((30, 20, 3)))
