"""The simulator: moments of the aggregate process, stationary distributions, bad input."""

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggmc_beam.errors import InputError
from aggmc_beam.noise import Binomial, Exact, Gaussian, Linear, PerStep
from aggmc_beam.simulation import random_chain, simulate, stationary_distribution

P3 = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.0, 0.7]])


def by_eigenvector(P: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eig(P.T)
    v = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    return np.asarray(v / v.sum())


# ---- the aggregate process ----


def test_counts_have_the_mean_and_covariances_of_the_paper() -> None:
    N, K = 50, 40_000
    _, truth = simulate(P3, population=N, steps=3, realizations=K, seed=1)
    mu = truth.stationary
    n = truth.counts.astype(float)
    assert (np.abs(n.mean(axis=0) - N * mu) < 4.5 * np.sqrt(N * mu * (1 - mu) / K)).all()
    r = n - N * mu
    for s, t, Q in ((0, 0, np.eye(3)), (0, 1, P3), (1, 2, P3), (0, 2, P3 @ P3)):
        found = r[:, s].T @ r[:, t] / K
        expected = N * (np.diag(mu) @ Q - np.outer(mu, mu))
        spread = N * np.sqrt(np.outer(mu * (1 - mu), mu * (1 - mu)) * 2 / K)
        assert (np.abs(found - expected) < 4.5 * spread).all()


def test_every_realization_keeps_its_population() -> None:
    population = [10, 1000, 10**12]
    _, truth = simulate(P3, population=population, steps=50, seed=2)
    assert (truth.counts.sum(axis=-1) == np.array(population)[:, None]).all()
    np.testing.assert_array_equal(truth.population, population)
    assert (truth.counts >= 0).all()


def test_the_start_distribution_is_followed_by_the_mean() -> None:
    start = [0.0, 0.0, 1.0]
    _, truth = simulate(P3, population=1000, steps=4, realizations=2000, start=start, seed=3)
    share = truth.counts.mean(axis=0) / 1000
    for t in range(4):
        np.testing.assert_allclose(share[t], start @ np.linalg.matrix_power(P3, t), atol=0.002)


def test_a_stack_of_matrices_moves_step_by_step() -> None:
    flip = np.array([[0.0, 1.0], [1.0, 0.0]])
    stack = np.stack([flip, np.eye(2), flip])
    counts, truth = simulate(stack, population=7, start=[1.0, 0.0])
    np.testing.assert_array_equal(counts[0], [[7, 0], [0, 7], [0, 7], [7, 0]])
    assert truth.transition_matrix.shape == (3, 2, 2)


def test_nobody_takes_a_transition_of_probability_zero() -> None:
    # 0.1 + 0.2 + 0.7 is not 1 in floating point: what is left over must not go to the last state.
    row = [0.1, 0.2, 0.7, 0.0, 0.0]
    for start in ([1.0, 0.0, 0.0, 0.0, 0.0], row):
        _, truth = simulate([row] * 5, population=2**53, steps=20, realizations=50, start=start)
        assert truth.counts[..., 3:].sum() == 0


def test_a_billion_individuals_cost_no_more_than_a_hundred() -> None:
    def seconds(population: int) -> float:
        begin = time.perf_counter()
        simulate(P3, population=population, steps=300, realizations=50)
        return time.perf_counter() - begin

    seconds(100)
    assert min(seconds(10**9) for _ in range(3)) < 10 * min(seconds(100) for _ in range(3)) + 0.5


def test_noise_is_applied_to_the_true_counts() -> None:
    exact, truth = simulate(P3, steps=20, realizations=3, noise=Exact())
    np.testing.assert_array_equal(exact, truth.counts)
    assert exact.dtype == np.float64
    seen, truth = simulate(P3, steps=20, realizations=3, noise=Binomial(0.5))
    assert (seen <= truth.counts).all()
    assert (seen < truth.counts).any()
    assert truth.noise == Binomial(0.5)
    varying = PerStep([Exact(), Linear(2 * np.eye(3))])
    seen, truth = simulate(P3, steps=20, realizations=3, noise=varying)
    np.testing.assert_array_equal(seen[:, ::2], truth.counts[:, ::2])
    np.testing.assert_array_equal(seen[:, 1::2], 2 * truth.counts[:, 1::2])


def test_the_same_seed_gives_the_same_bytes() -> None:
    options: dict[str, Any] = {"steps": 30, "realizations": 4, "noise": Gaussian(1.0)}
    first, second, other = (simulate(seed=seed, **options) for seed in (5, 5, 6))
    assert first.counts.tobytes() == second.counts.tobytes()
    assert first.truth.transition_matrix.tobytes() == second.truth.transition_matrix.tobytes()
    assert first.counts.tobytes() != other.counts.tobytes()


def test_defaults_are_those_of_the_paper() -> None:
    counts, truth = simulate()
    assert counts.shape == (1, 100, 10)
    assert truth.states == tuple("0123456789")
    np.testing.assert_array_equal(simulate(0.5).counts, counts)
    assert simulate(2.0).counts.tobytes() == simulate(precision=2.0).counts.tobytes()


def test_states_may_be_counted_or_named() -> None:
    assert simulate(states=4).counts.shape[-1] == 4
    assert simulate(states=["home", "work"]).truth.states == ("home", "work")
    assert simulate(P3, states=["a", "b", "c"]).truth.states == ("a", "b", "c")
    assert simulate(states=1).counts[0, 0, 0] == 100


# ---- stationary distribution ----


def test_gth_agrees_with_the_eigenvector_and_is_stationary() -> None:
    rng = np.random.default_rng(0)
    for S in (2, 5, 20):
        P = random_chain(rng, S, precision=S)
        pi = stationary_distribution(P)
        np.testing.assert_allclose(pi, by_eigenvector(P), rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(pi @ P, pi, rtol=1e-12)


def test_gth_keeps_the_digits_of_rare_states() -> None:
    # A birth-death chain has pi_k proportional to (up / down)^k.
    S, up, down = 12, 1e-9, 0.5
    P = np.diag(np.full(S - 1, up), 1) + np.diag(np.full(S - 1, down), -1)
    P += np.diag(1 - P.sum(axis=1))
    pi = stationary_distribution(P)
    np.testing.assert_allclose(pi[1:] / pi[:-1], up / down, rtol=1e-13)


def test_a_state_that_is_hardly_ever_left_takes_all() -> None:
    np.testing.assert_allclose(stationary_distribution([[0.5, 0.5], [1e-320, 1.0]]), [0, 1])


def test_transient_states_have_no_share() -> None:
    P = [[0.5, 0.5, 0.0], [0.0, 0.2, 0.8], [0.0, 0.6, 0.4]]
    np.testing.assert_allclose(stationary_distribution(P), [0, 3 / 7, 4 / 7])


def test_several_recurrent_classes_share_by_where_a_uniform_start_ends() -> None:
    P = [[1, 0, 0, 0], [0.6, 0.25, 0.15, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    # State 1 ends in class {0} with probability 0.8 and in {2, 3} with 0.2.
    np.testing.assert_allclose(stationary_distribution(P), [0.45, 0, 0.275, 0.275])
    np.testing.assert_allclose(stationary_distribution(np.eye(4)), np.full(4, 0.25))


def test_a_periodic_chain_has_a_stationary_distribution() -> None:
    np.testing.assert_allclose(stationary_distribution([[0, 1], [1, 0]]), [0.5, 0.5])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.floats(1e-3, 50), st.integers(0, 10_000))
def test_every_drawn_chain_is_stochastic_with_a_stationary_distribution(
    S: int, precision: float, seed: int
) -> None:
    P = random_chain(np.random.default_rng(seed), S, precision)
    assert (P >= 0).all()
    np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-12)
    pi = stationary_distribution(P)
    assert (pi >= 0).all()
    assert np.isclose(pi.sum(), 1)
    np.testing.assert_allclose(pi @ P, pi, atol=1e-12)


# ---- random chains ----


def test_rows_have_the_mean_and_spread_of_the_dirichlet() -> None:
    rng = np.random.default_rng(4)
    D, S = 0.5, 10
    entries = np.concatenate([random_chain(rng, S, D).ravel() for _ in range(400)])
    assert entries.mean() == pytest.approx(1 / S)
    variance = (1 / S) * (1 - 1 / S) / (D + 1)
    assert entries.var() == pytest.approx(variance, rel=0.05)


def test_tiny_precision_gives_rows_of_a_single_state() -> None:
    for precision in (1e-300, 5e-324):
        P = random_chain(np.random.default_rng(0), 5, precision=precision)
        np.testing.assert_array_equal(np.sort(P, axis=1)[:, -1], 1)


def test_rows_that_underflow_become_a_single_state() -> None:
    class Underflowing(np.random.Generator):
        def dirichlet(self, alpha: Any, size: Any = None) -> Any:
            P = super().dirichlet(alpha, size)
            P[0], P[1] = np.nan, 0.0
            return P

    P = random_chain(Underflowing(np.random.PCG64(0)), 5)
    np.testing.assert_array_equal(np.sort(P[:2], axis=1), [[0, 0, 0, 0, 1]] * 2)


def test_regular_chains_visit_every_state_and_forget() -> None:
    rng = np.random.default_rng(7)
    for _ in range(5):
        P = random_chain(rng, 10, ensemble="regular")
        assert stationary_distribution(P).min() >= 0.01
        assert np.sort(np.abs(np.linalg.eigvals(P)))[-2] <= 0.95


# ---- bad input ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"P": [[0.5, 0.6], [0.5, 0.5]]}, r"row 0 .*sum 1\.1"),
        ({"P": [[1.5, -0.5], [0.5, 0.5]]}, "row 0"),
        ({"P": [[0.5, np.nan], [0.5, 0.5]]}, "row 0"),
        ({"P": [[[1.0, 0.0], [0.0, 0.5]]]}, r"row \(0, 1\)"),
        ({"P": [[0.5, 0.5]]}, "shape"),
        ({"P": [0.5, 0.5]}, "shape"),
        ({"P": [["a", "b"], ["c", "d"]]}, "array of numbers"),
        ({"P": "paper"}, "precision"),
        ({"P": np.zeros((0, 0))}, "empty"),
        ({"P": 0.0}, "precision must be"),
        ({"precision": -1.0}, "precision must be"),
        ({"precision": np.nan}, "precision must be"),
        ({"ensemble": "nice"}, "'paper' or 'regular'"),
        ({"ensemble": "regular", "states": 101}, "no regular chain"),
        ({"states": 0}, "states must be"),
        ({"states": "ab"}, "list of names"),
        ({"states": []}, "list of names"),
        ({"states": [1, 2]}, "list of names"),
        ({"states": ["a", "a"]}, "different names"),
        ({"P": P3, "states": 4}, "4 states are named"),
        ({"population": 0}, "population must be"),
        ({"population": 10.5}, "population must be"),
        ({"population": "many"}, "population must be"),
        ({"population": [[1]]}, "population must be"),
        ({"population": 2**60}, "population must be"),
        ({"population": [1, 2], "realizations": 3}, "2 entries for 3"),
        ({"realizations": 0}, "realizations must be"),
        ({"steps": 0}, "steps must be"),
        ({"steps": 2.5}, "steps must be"),
        ({"P": [P3], "steps": 5}, "make 2 steps"),
        ({"seed": -1}, "seed must be"),
        ({"seed": "x"}, "seed must be"),
        ({"start": "corner"}, "start must be 'stationary'"),
        ({"P": P3, "start": [1.0, 0.0]}, "start must have shape"),
        ({"P": P3, "start": [1.0, 1.0, 0.0]}, "sum to 1"),
        ({"noise": 0.5}, "noise must be"),
        ({"noise": Binomial("estimate")}, "estimated first"),
        ({"noise": Linear(np.eye(3))}, "10 states"),
    ],
)
def test_bad_input_is_refused_with_what_would_be_right(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(**options)


def test_a_state_that_is_hardly_ever_left_leaves_a_stationary_distribution():
    P = np.array([[1.0, 1e-17, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    pi = stationary_distribution(P)
    assert np.isfinite(pi).all()
    assert pi.sum() == pytest.approx(1)
