"""What follows from P, with its errors."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import expm
from walks import chain, sure, walk

import aggmc_beam as am
from aggmc_beam.simulation import stationary_distribution
from aggmc_beam.uses.covariance import matrix_covariance, row_covariance
from aggmc_beam.uses.follows import follows, generator, hitting_times, mixing_time

QUANTITIES = {
    "stationary": lambda f: f.stationary(),
    "power": lambda f: f.power(5),
    "mean stay": lambda f: f.mean_stay(),
    "stay": lambda f: f.stay(4),
    "hitting": lambda f: f.hitting_times([0, "2"]),
    "return": lambda f: f.return_times(),
    "mixing": lambda f: f.mixing_time(),
    "flux": lambda f: f.flux(),
    "generator": lambda f: f.generator(),
}


@pytest.fixture(scope="module")
def template():
    n, _ = walk(chain())
    return am.estimate(n, population=300, estimator="mom")


def of(template, P, error=1e-3, degrees=1000):
    return follows(replace(sure(template, P, error), degrees=degrees))


def test_intervals_cover_when_standard_errors_are_right(template):
    """Rows of multinomial counts, whose errors are known."""
    Q = np.full((4, 4), 0.08)
    np.fill_diagonal(Q, -0.24)
    Q[0] *= 2
    P = expm(Q)
    truth = {name: f(of(template, P)).value for name, f in QUANTITIES.items()}
    rng = np.random.default_rng(0)
    inside = {name: [] for name in QUANTITIES}
    for _ in range(100):
        found = rng.multinomial(2000, P) / 2000
        error = np.sqrt(found * (1 - found) / 2000)
        known = replace(sure(template, found, error), degrees=1000)
        f = follows(known, covariance=row_covariance(error))
        for name, quantity in QUANTITIES.items():
            q = quantity(f)
            free = q.standard_error > 0
            inside[name].append(((q.lower <= truth[name]) & (truth[name] <= q.upper))[free].mean())
    for name, values in inside.items():
        assert 0.91 <= np.mean(values) <= 0.98, (name, np.mean(values))


def test_values_are_those_of_their_definitions(template):
    P = chain(seed=3)
    f = of(template, P)
    pi = f.stationary().value
    assert np.allclose(pi @ P, pi)
    assert np.allclose(f.power(3).value, P @ P @ P)
    assert np.allclose(f.mean_stay().value, 1 / (1 - np.diag(P)))
    assert np.allclose(f.stay(200).value.sum(0), 1, atol=1e-6)
    assert np.allclose(f.return_times().value, 1 / pi)
    assert np.allclose(f.flux().value.sum(1), 300 * pi)
    h = f.hitting_times("1").value
    assert h[1] == 0
    for i in (0, 2, 3):
        assert np.isclose(h[i], 1 + P[i] @ h)
    # A return is a step and then a hitting time.
    assert np.isclose(f.return_times().value[1], 1 + P[1] @ h)


def test_the_mixing_time_is_where_the_distance_falls_below_a_quarter():
    P = chain(seed=5, stay=0.9)
    pi = am.follows(sure(am.estimate(walk(P)[0], estimator="mom"), P)).stationary().value
    t = mixing_time(P)
    for h, mixed in ((int(np.floor(t)), False), (int(np.ceil(t)), True)):
        distance = 0.5 * np.abs(np.linalg.matrix_power(P, h) - pi).sum(1).max()
        assert (distance <= 0.25 + 1e-9) == mixed
    assert mixing_time(np.array([[0.0, 1.0], [1.0, 0.0]])) == np.inf


def test_a_target_that_is_never_reached_is_infinitely_far():
    P = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert hitting_times(P, [1]).tolist() == [np.inf, 0.0, np.inf]
    assert hitting_times(P, [1, 2]).tolist() == [2.0, 0.0, 0.0]


def test_a_generator_is_found_where_one_exists_and_refused_where_not(template):
    Q = np.array([[-0.3, 0.2, 0.1], [0.1, -0.2, 0.1], [0.05, 0.4, -0.45]])
    found, note = generator(expm(Q))
    assert np.allclose(found, Q)
    assert note == ""
    none, why = generator(np.array([[0.1, 0.9], [0.9, 0.1]]))
    assert none is None
    assert "negative eigenvalue" in why
    near, why = generator(np.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.1, 0.0, 0.9]]))
    assert "no generator has exactly this P" in why
    assert near[0, 2] >= 0
    assert np.allclose(near.sum(1), 0)


def test_errors_of_rows_make_up_for_each_other_in_what_mean_shares_decide():
    P = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.1, 0.3, 0.6]])
    inside, width = [], []
    for seed in range(25):
        y, _ = am.simulate(P, steps=200, realizations=10, population=200, seed=seed)
        est = am.estimate(y, population=200)
        C = matrix_covariance(est)
        assert np.allclose(np.sqrt(np.einsum("ijij->ij", C)), est.standard_error)
        q, alone = follows(est).stationary(), follows(est, covariance=row_covariance(est.standard_error))
        truth = stationary_distribution(P)
        inside.append(((q.lower <= truth) & (truth <= q.upper)).mean())
        width.append((q.standard_error / alone.stationary().standard_error).mean())
    assert 0.88 <= np.mean(inside) <= 0.995
    assert np.mean(width) < 0.8


def test_the_covariance_of_a_row_has_its_errors_and_a_fixed_sum():
    error = np.array([[0.09, 0.08, 0.05], [0.02, 0.02, 0.02], [0.03, 0.02, 0.03]])
    found = row_covariance(error)
    for i in range(3):
        assert np.allclose(np.diag(found[i, :, i]), error[i] ** 2, rtol=1e-2)
        assert np.allclose(found[i, :, i].sum(0), 0)
    assert (found[0, :, 1] == 0).all()


def test_a_given_covariance_takes_the_place_of_standard_errors(template):
    est = sure(template, chain())
    assert (follows(est, covariance=np.zeros((4, 4, 4, 4))).mean_stay().standard_error == 0).all()
    with pytest.raises(am.InputError, match="covariance must have shape"):
        follows(est, covariance=np.zeros((4, 4)))


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda f: f.power(0), "steps must be a whole number"),
        (lambda f: f.hitting_times("nowhere"), "target 'nowhere' is not a state"),
        (lambda f: f.hitting_times([]), "at least one target"),
        (lambda f: f.of(np.trace, "odd"), "kind must be one of"),
    ],
)
def test_bad_input_is_named(template, ask, words):
    with pytest.raises(am.InputError, match=words):
        ask(of(template, chain()))


def test_a_state_that_was_never_seen_is_named(template):
    P = chain()
    P[2] = np.nan
    with pytest.raises(am.InputError, match="state '2' was never seen"):
        of(template, P).stationary()
