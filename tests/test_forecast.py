"""Forecasts, their bands, and how they are evaluated."""

from dataclasses import replace

import numpy as np
import pytest
from walks import chain, sure, walk

import aggmc_beam as am
from aggmc_beam.uses.evaluate import evaluate, normal_crps
from aggmc_beam.uses.forecast import forecast


def right(counts, P, noise=None, error=1e-3):
    noise = am.Exact() if noise is None else noise
    return sure(am.estimate(counts, noise=noise, population=300, estimator="mom"), P, error)


def test_means_are_powers_of_the_matrix():
    P = chain()
    n, _ = walk(P)
    found = forecast(right(n, P), [300, 0, 0, 0], 5)
    for h in range(5):
        assert np.allclose(found.mean[h], np.array([300, 0, 0, 0]) @ np.linalg.matrix_power(P, h + 1))
    assert found.time.tolist() == [1, 2, 3, 4, 5]
    assert (found.lower <= found.mean).all()
    assert (found.mean <= found.upper).all()


def test_variance_is_that_of_independent_movers_where_p_is_known():
    P = chain()
    n, _ = walk(P)
    found = forecast(right(n, P, error=0.0), [300, 0, 0, 0], 3)
    for h in range(3):
        p = np.linalg.matrix_power(P, h + 1)[0]
        assert np.allclose(found.standard_error[h] ** 2, 300 * p * (1 - p))


@pytest.mark.parametrize("noise", [am.Exact(), am.Binomial(0.6), am.Gaussian(5.0)], ids=str)
@pytest.mark.parametrize("history", [True, False], ids=["with history", "without"])
def test_bands_cover_what_comes(noise, history):
    P = chain()
    inside = []
    for seed in range(3):
        n, _ = walk(P, K=25, T=80, seed=seed)
        y = noise.sample(n, np.random.default_rng(seed))
        est = right(y, P, noise)
        for k in range(25):
            if history:
                found = forecast(est, y[k, :74], 6)
            elif isinstance(noise, am.Exact):
                found = forecast(est, y[k, 73], 6)
            else:
                continue
            inside.append((found.lower <= n[k, 74:]) & (n[k, 74:] <= found.upper))
    assert not inside or 0.90 <= np.mean(inside) <= 0.985


def test_the_error_of_p_makes_bands_wider_but_not_for_shares_that_have_settled():
    P = chain()
    n, _ = walk(P)
    known, unknown = right(n, P), right(n, P, error=0.03)
    corner, settled = [300, 0, 0, 0], 300 * known.stationary
    wider = forecast(unknown, corner, 4).standard_error / forecast(known, corner, 4).standard_error
    hardly = forecast(unknown, settled, 4).standard_error / forecast(known, settled, 4).standard_error
    assert wider.mean() > 1.2
    assert hardly.mean() < 1.1


def test_those_who_move_together_make_bands_wider_without_a_history():
    P, inside, alone = chain(), [], []
    n, _ = walk(P, N=300, K=40, T=41, batch=5)
    est = am.estimate(n, population=300)
    for k in range(40):
        found = est.forecast(n[k, 39], 1)
        inside.append((found.lower <= n[k, 40]) & (n[k, 40] <= found.upper))
        known = forecast(right(n, est.transition_matrix), n[k, 39], 1)
        alone.append((known.lower <= n[k, 40]) & (n[k, 40] <= known.upper))
    assert np.mean(inside) > 0.9 > 0.8 > np.mean(alone)


def test_those_who_move_together_are_seen_in_the_history():
    P = chain()
    n, _ = walk(P, N=1000, K=1, T=400, batch=10)
    est = sure(am.estimate(n, estimator="mom"), P)
    alone, learned = forecast(est, n[0, -1], 1), forecast(est, n[0], 1)
    ratio = learned.standard_error / alone.standard_error
    assert 2.2 < ratio.mean() < 4.2  # the root of 10


def test_a_matrix_that_is_wrong_is_not_trusted_over_persistence():
    P = chain(stay=0.99)
    n, _ = walk(P, K=1, T=300)
    wrong = sure(am.estimate(n, estimator="mom"), np.roll(np.eye(4), 1, 1))
    found = forecast(wrong, n[0], 3)
    assert np.abs(found.mean - n[0, -1]).max() < 15


def test_a_cycle_uses_the_hours_to_come():
    P, Q = chain(seed=1), chain(seed=2, stay=0.3)
    n, _ = walk(np.array([P, Q] * 20)[:-1], T=40)
    cycle = am.estimate(n, population=300, chain=am.Cycle(2), estimator="mom")
    cycle = replace(cycle, items=tuple(sure(e, M) for e, M in zip(cycle, (P, Q), strict=True)))
    start = np.array([300, 0, 0, 0])
    even, odd = forecast(cycle, start, 3, time=10), forecast(cycle, start, 3, time=11)
    assert np.allclose(even.mean[-1], start @ P @ Q @ P)
    assert np.allclose(odd.mean[-1], start @ Q @ P @ Q)
    with pytest.raises(am.InputError, match="needs time="):
        forecast(cycle, start, 3)


def test_rows_are_tidy():
    P = chain()
    n, _ = walk(P)
    rows = forecast(right(n, P), n[0, -1], 2, time=9).to_rows()
    assert [r["time"] for r in rows] == [10] * 4 + [11] * 4
    assert set(rows[0]) == {"time", "state", "mean", "standard_error", "lower", "upper"}


@pytest.mark.parametrize(
    ("counts", "steps", "words"),
    [
        ([1, 2], 3, r"counts must have shape \[4\] or \[T, 4\]"),
        ([1, 2, 3, np.nan], 3, "the last record is not complete"),
        ([1, 2, 3, 4], 0, "steps must be a whole number from 1"),
        ("abcd", 1, "counts must be numbers"),
    ],
)
def test_bad_input_is_named(counts, steps, words):
    P = chain()
    n, _ = walk(P)
    with pytest.raises(am.InputError, match=words):
        forecast(right(n, P), counts, steps)


def test_evaluation_prefers_the_truth_and_its_bands_cover():
    P = chain(stay=0.7)
    n, _ = walk(P, K=1, T=600)
    found = evaluate(n[0], right(n, P), [1, 4], period=5)
    assert found.ratio("estimate", 1) < 0.95
    for h in (1, 4):
        best = found.score("estimate", h)
        assert 0.92 <= best.coverage <= 0.98
        for method in ("persistence", "seasonal mean"):
            assert best.crps <= found.score(method, h).crps * 1.02
            assert best.interval_score <= found.score(method, h).interval_score * 1.05
    assert "coverage" in str(found)


def test_evaluation_makes_the_estimate_of_what_comes_before_alone():
    P = chain()
    n, _ = walk(P, K=1, T=200)
    seen = []

    def fit(counts):
        seen.append(counts.shape)
        return right(n, P)

    evaluate(n[0], fit, [1], start=120)
    assert seen == [(1, 120, 4)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"start": 5}, "start must leave more than 20 steps"),
        ({"horizons": [0]}, "horizons must be"),
        ({"period": 500}, "more than one period"),
    ],
)
def test_an_evaluation_that_cannot_be_made_says_why(change, words):
    P = chain()
    n, _ = walk(P, K=1, T=200)
    with pytest.raises(am.InputError, match=words):
        evaluate(n[0], right(n, P), **change)


def test_the_crps_is_the_integral_that_defines_it():
    from scipy import integrate, stats

    m, s, x = 1.0, 2.0, 3.5
    a = integrate.quad(lambda v: stats.norm.cdf(v, m, s) ** 2, -30, x)[0]
    b = integrate.quad(lambda v: (1 - stats.norm.cdf(v, m, s)) ** 2, x, 30)[0]
    assert np.isclose(normal_crps(np.array(m), np.array(s), np.array(x)), a + b)


def test_estimates_forecast_by_themselves():
    P = chain()
    n, _ = walk(P)
    est = right(n, P)
    assert np.array_equal(est.forecast(n[0], 3).mean, forecast(est, n[0], 3).mean)
    cycle = am.estimate(n, population=300, chain=am.Cycle(2), estimator="mom")
    assert cycle.forecast(n[0, -1], 3, time=39).mean.shape == (3, 4)
    assert np.allclose(est.follows().power(2).value, P @ P)


def test_states_of_which_nothing_is_known_stay_as_they_are():
    P = chain()
    n, _ = walk(P)
    error = np.full((4, 4), 1e-3)
    error[2] = 1.0
    found = forecast(right(n, P, error=error), [0, 0, 300, 0], 2)
    assert found.mean.round(6).tolist() == [[0, 0, 300, 0]] * 2
