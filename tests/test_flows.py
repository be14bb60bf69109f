"""Flows: how many moved from each state to each other."""

from dataclasses import replace

import numpy as np
import pytest
from walks import chain, sure, walk

import aggmc_beam as am
from aggmc_beam.uses.bands import count_bands
from aggmc_beam.uses.latent_counts import smooth

OFF = ~np.eye(4, dtype=bool)


def covered(found, moves):
    inside = (found.lower <= moves) & (moves <= found.upper)
    return inside[:, :, OFF].mean()


def right(counts, P, noise=None, N=300):
    noise = am.Exact() if noise is None else noise
    return sure(am.estimate(counts, noise=noise, population=N, estimator="mom"), P)


@pytest.mark.parametrize(
    "noise", [am.Exact(), am.Binomial(0.6), am.Gaussian(4.0), am.Detection([0.5, 0.9, 0.7, 0.8])], ids=str
)
def test_bands_cover_the_moves_under_every_noise(noise):
    P = chain()
    n, moves = walk(P)
    y = noise.sample(n, np.random.default_rng(1))
    found = am.flows(y, right(y, P, noise))
    assert 0.90 <= covered(found, moves) <= 0.99
    assert (found.lower <= found.mean).all()
    assert (found.mean <= found.upper).all()


def test_noise_that_differs_by_step_is_that_of_its_step():
    P = chain()
    n, moves = walk(P)
    noise = am.PerStep([am.Binomial(0.5), am.Binomial(0.9)])
    y = noise.sample(n, np.random.default_rng(1))
    est = sure(am.estimate(y, noise=noise, population=300), P)
    found, later = am.flows(y, est), am.flows(y[:, 1:], est, time=1)
    assert np.allclose(found.counts.sum(2), 300, rtol=0.03)
    assert np.allclose(later.counts.sum(2), 300, rtol=0.03)
    assert 0.90 <= covered(found, moves) <= 0.99
    ahead = est.forecast(y[0, :-1], 1)
    assert abs(ahead.mean.sum() - 300) < 12


def test_exact_flows_add_up_to_the_counts_on_both_sides():
    P = chain()
    n, _ = walk(P)
    found = am.flows(n, right(n, P))
    assert np.allclose(found.mean.sum(3), n[:, :-1], atol=1e-5)
    assert np.allclose(found.mean.sum(2), n[:, 1:], atol=1e-5)


def test_noisy_flows_add_up_to_the_smoothed_counts_which_are_nearer():
    P, noise = chain(), am.Gaussian(8.0)
    n, _ = walk(P)
    y = noise.sample(n, np.random.default_rng(1))
    found = am.flows(y, right(y, P, noise))
    assert np.allclose(found.mean.sum(3), found.counts[:, :-1], atol=1e-5)
    assert np.allclose(found.mean.sum(2), found.counts[:, 1:], atol=1e-5)
    assert ((found.counts - n) ** 2).mean() < 0.6 * ((y - n) ** 2).mean()


def test_margins_tell_more_than_the_matrix_alone():
    P = chain()
    n, moves = walk(P)
    found = am.flows(n, right(n, P))
    alone = n[:, :-1, :, None] * P
    assert ((found.mean - moves) ** 2).mean() < 0.85 * ((alone - moves) ** 2).mean()
    assert found.dispersion < 1.5


def test_hours_in_which_much_moves_are_found():
    P = chain(stay=0.9)
    activity = np.random.default_rng(3).gamma(1.0, 1.0, (5, 39)).clip(0, 6)
    n, moves = walk(P, N=600, activity=activity)
    found = am.flows(n, right(n, P, N=600))
    total = moves[:, :, OFF].sum(2).ravel()
    alone = (n[:, :-1, :, None] * P)[:, :, OFF].sum(2).ravel()
    assert np.corrcoef(found.mean[:, :, OFF].sum(2).ravel(), total)[0, 1] > 0.7
    assert abs(np.corrcoef(alone, total)[0, 1]) < 0.5
    assert covered(found, moves) > 0.88


def test_those_who_move_together_make_bands_wider():
    P = chain()
    n, moves = walk(P, N=1000, batch=5)
    found = am.flows(n, right(n, P, N=1000))
    assert 3 < found.dispersion < 8
    assert covered(found, moves) > 0.88


def test_cells_use_their_own_matrix():
    P, Q = chain(seed=1), chain(seed=2, stay=0.4)
    both = np.array([P, Q] * 20)[:-1]
    n, moves = walk(both, T=40)
    cycle = am.estimate(n, population=300, chain=am.Cycle(2), estimator="mom")
    cycle = replace(cycle, items=tuple(sure(e, M) for e, M in zip(cycle, (P, Q), strict=True)))
    pooled = am.flows(n, sure(cycle[0], (P + Q) / 2))
    own = am.flows(n, cycle)
    assert ((own.mean - moves) ** 2).mean() < 0.9 * ((pooled.mean - moves) ** 2).mean()
    shifted = am.flows(n[:, 1:], cycle, time=1)
    assert ((shifted.mean - moves[:, 1:]) ** 2).mean() < 1.1 * ((own.mean - moves) ** 2).mean()


def test_a_missing_step_is_filled_in():
    P = chain()
    n, moves = walk(P)
    y = n.astype(float)
    y[:, 10] = np.nan
    found = am.flows(y, right(n, P))
    assert np.isfinite(found.mean).all()
    assert np.abs(found.counts[:, 10] - n[:, 10]).mean() < 6
    assert covered(found, moves) > 0.88


def test_rows_are_tidy():
    P = chain()
    n, _ = walk(P, K=2, T=3)
    found = am.flows(n, right(n, P))
    rows = found.to_rows()
    assert len(rows) == 2 * 2 * 16
    assert rows[1] == {
        "realization": 0,
        "time": 0,
        "from": "0",
        "to": "1",
        "mean": found.mean[0, 0, 0, 1],
        "lower": found.lower[0, 0, 0, 1],
        "upper": found.upper[0, 0, 0, 1],
    }


def test_the_smoother_is_the_normal_distribution_given_all_records():
    """Against the joint normal distribution of three steps, conditioned by hand."""
    P = chain(S=3)
    y = np.array([[[50.0, 30.0, 20.0], [45.0, 38.0, 20.0], [52.0, 28.0, 25.0]]])
    one = smooth(y, P[None, None].repeat(2, 1), am.Gaussian(3.0), 1.0)
    twice = smooth(np.repeat(y, 2, 0), P[None, None].repeat(2, 1), am.Gaussian(3.0), 1.0)
    assert np.allclose(one.mean[0], twice.mean[1])
    # The last step's covariance is the filter's, and smoothing never adds to one.
    assert (np.linalg.eigvalsh(one.covariance[0]) > -1e-6).all()
    assert np.trace(one.covariance[0, 0]) < 27
    # Cov(n_1, n_2 | y) is symmetric in time: transposed when time is turned round is not asked, but
    # it bounds correlations.
    sd = np.sqrt(np.einsum("tii->ti", one.covariance[0]))
    for t in range(2):
        assert (np.abs(one.cross[0, t]) <= np.outer(sd[t], sd[t + 1]) * (1 + 1e-6)).all()


@pytest.mark.parametrize(("mean", "variance"), [(3.0, 3.0), (3.0, 9.0), (400.0, 400.0)])
def test_bands_of_counts_hold_them(mean, variance):
    rng = np.random.default_rng(0)
    scale = variance / mean
    x = rng.poisson(mean if scale == 1 else rng.gamma(mean / (scale - 1), scale - 1, 20_000), 20_000)
    lower, upper = count_bands(np.full(1, mean), np.full(1, variance), 0.95)
    assert 0.93 <= ((lower <= x) & (x <= upper)).mean() <= 0.99


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda n: n[:, :, :3], "counts have 3 states, the estimate has 4"),
        (lambda n: n + np.arange(40)[None, :, None], "realization 0: its total changes"),
        (lambda n: n[:, :1], "only one time step"),
    ],
)
def test_bad_input_is_named(change, words):
    P = chain()
    n, _ = walk(P)
    with pytest.raises(am.InputError, match=words):
        am.flows(change(n), right(n, P))


def test_another_thing_than_an_estimate_is_refused():
    with pytest.raises(am.InputError, match="an Estimate or Estimates is needed, not ndarray"):
        am.flows(np.ones((1, 3, 2)), np.eye(2))
