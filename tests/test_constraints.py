import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.estimators.transport import transport

STATES = ("a", "b", "c", "d")
NOISE = am.Binomial(0.6)
TRUTH = np.array(
    [
        [0.8, 0.2, 0.0, 0.0],
        [0.1, 0.7, 0.2, 0.0],
        [0.0, 0.15, 0.75, 0.1],
        [0.05, 0.0, 0.25, 0.7],
    ]
)
ZEROS = [(STATES[i], STATES[j]) for i, j in np.argwhere(TRUTH == 0)]


def stationary_data(seed=0, T=300, K=10):
    return am.simulate(TRUTH, steps=T, realizations=K, noise=NOISE, seed=seed).counts


def drifting_data(seed=0):
    start = [1, 0, 0, 0]
    return am.simulate(TRUTH, steps=30, realizations=40, noise=NOISE, start=start, seed=seed).counts


def fitted(y, estimator, **rules):
    return am.estimate(
        y,
        states=STATES,
        noise=NOISE,
        population=100,
        estimator=estimator,
        constraints=am.Constraints(**rules) if rules else None,
    )


@pytest.mark.parametrize("data", [stationary_data, drifting_data], ids=["stationary", "drifting"])
@pytest.mark.parametrize("estimator", ["simplex", "fast", "gmm", "auto"])
def test_forbidden_and_fixed_cells_are_kept_exactly(estimator, data):
    fixed = {("a", "b"): 0.2, (1, 1): 0.7}
    P = fitted(data(), estimator, forbidden=ZEROS, fixed=fixed).transition_matrix
    assert np.all(P[TRUTH == 0] == 0)
    assert P[0, 1] == pytest.approx(0.2, abs=1e-12)
    assert P[1, 1] == pytest.approx(0.7, abs=1e-12)
    np.testing.assert_allclose(P.sum(1), 1, atol=1e-9)
    assert np.all(P >= 0)


@pytest.mark.parametrize("estimator", ["fast", "gmm", "auto"])
def test_true_zeros_make_the_estimate_better(estimator):
    errors = []
    for seed in range(6):
        y = stationary_data(seed, T=100, K=5)
        P = [fitted(y, estimator, **r).transition_matrix for r in ({}, {"forbidden": ZEROS})]
        errors.append([np.mean((p - TRUTH) ** 2) for p in P])
    without, with_zeros = np.mean(errors, 0)
    assert with_zeros < 0.8 * without


@pytest.mark.parametrize("estimator", ["simplex", "fast", "gmm", "auto"])
def test_an_absorbing_state_is_never_left(estimator):
    P = np.array([[0.9, 0.08, 0.02], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]])
    y, _ = am.simulate(P, steps=12, realizations=60, start=[0.6, 0.4, 0.0], noise=NOISE, seed=1)
    rules = am.Constraints(absorbing=["2"])
    est = am.estimate(y, noise=NOISE, population=100, estimator=estimator, constraints=rules)
    np.testing.assert_array_equal(est.transition_matrix[2], [0, 0, 1])
    if estimator == "auto":
        assert np.abs(est.transition_matrix - P).max() < 0.1


@pytest.mark.parametrize("estimator", ["fast", "gmm", "auto"])
def test_a_known_stationary_distribution_is_kept(estimator):
    pi = am.simulate(TRUTH).truth.stationary
    P = fitted(stationary_data(), estimator, stationary=pi).transition_matrix
    np.testing.assert_allclose(pi @ P, pi, atol=1e-7)


@pytest.mark.parametrize("estimator", ["fast", "gmm"])
def test_a_reversible_estimate_has_symmetric_flows(estimator):
    est = fitted(stationary_data(), estimator, reversible=True)
    flows = est.stationary[:, None] * est.transition_matrix
    np.testing.assert_allclose(flows, flows.T, atol=2e-6)


@pytest.mark.parametrize("estimator", ["fast", "gmm", "auto"])
def test_a_prior_draws_the_estimate_to_it_by_its_weight(estimator):
    y, centre = stationary_data(T=40, K=2), np.full((4, 4), 0.25)
    distances = [
        np.abs(fitted(y, estimator, prior=centre, prior_weight=w).transition_matrix - centre).max()
        for w in (1.0, 1e3, 1e7)
    ]
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 0.02


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"forbidden": [("a", "x")]}, "a state 'x'"),
        ({"fixed": {("a", "b"): 1.2}}, r"does not lie in \[0, 1\]"),
        ({"fixed": {("a", "b"): 0.5, ("a", "c"): 0.6}}, "sum to 1.1"),
        ({"fixed": {("a", j): 0.2 for j in "abcd"}}, "sum to 0.8"),
        ({"forbidden": [("a", "b")], "fixed": {("a", "b"): 0.5}}, "two probabilities"),
        ({"absorbing": ["a"], "fixed": {("a", "b"): 0.5}}, "two probabilities"),
        ({"stationary": [0.5, 0.5, 0.2, 0.1]}, "positive shares that sum to 1"),
        ({"prior": np.eye(3)}, r"matrix \[4, 4\]"),
        ({"prior": np.full((4, 4), 0.25), "prior_weight": -1}, "prior_weight"),
        ({"forbidden": [(i, j) for i in "abc" for j in "d"] + [("d", j) for j in "abc"],
          "stationary": [0.25] * 4, "fixed": {("d", "d"): 1.0, ("a", "a"): 0.0, ("b", "a"): 0.0,
                                              ("c", "a"): 0.0}}, "no transition matrix meets"),
    ],
)  # fmt: skip
def test_impossible_constraints_are_refused(rules, message):
    with pytest.raises(am.InputError, match=message):
        fitted(stationary_data(T=30), "fast", **rules)


def test_estimators_that_cannot_keep_constraints_say_so():
    with pytest.raises(am.InputError, match="mom cannot keep constraints"):
        fitted(stationary_data(), "mom", forbidden=ZEROS)
    with pytest.raises(am.InputError, match="simplex treats each row by itself"):
        fitted(stationary_data(), "simplex", reversible=True)


def test_the_transport_projection_is_the_nearest_point():
    """Against a general solver, with uneven weights, zeros and unequal margins."""
    from scipy import optimize

    rng = np.random.default_rng(1)
    for trial in range(4):
        row, column = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
        C, W = rng.normal(0.06, 0.1, (4, 4)), rng.exponential(1, (4, 4))
        if trial % 2:
            W[0, 1] = 0
        M = transport(C, W, row, column)
        np.testing.assert_allclose(M.sum(1), row, atol=1e-9)
        np.testing.assert_allclose(M.sum(0), column, atol=1e-9)
        assert np.all(M[W == 0] == 0)
        free = W > 0
        bounds = [(0, None) if f else (0, 0) for f in free.ravel()]
        inverse = np.divide(1, W, out=np.zeros_like(W), where=free)
        best = optimize.minimize(
            lambda m, C=C, inverse=inverse: (((m.reshape(4, 4) - C) ** 2) * inverse).sum(),
            np.outer(row, column).ravel() * free.ravel(),
            bounds=bounds,
            constraints=[
                {"type": "eq", "fun": lambda m, row=row: m.reshape(4, 4).sum(1) - row},
                {"type": "eq", "fun": lambda m, c=column: (m.reshape(4, 4).sum(0) - c)[:3]},
            ],
            options={"ftol": 1e-14, "maxiter": 500},
        )
        found = ((M - C) ** 2 * inverse).sum()
        assert found <= best.fun * (1 + 1e-6)
