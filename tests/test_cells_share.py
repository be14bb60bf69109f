"""Cells of a cycle borrow from each other as far as the data ask for it."""

import json

import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.cli import main
from aggmc_beam.estimation import array_sums
from aggmc_beam.estimators.neighbours import Prior, Row, eliminate, posterior
from aggmc_beam.estimators.rates import Changes, rates
from aggmc_beam.fit.fit import Settings, estimate_sums

HALF = am.Binomial(0.5)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("cells", [1, 2, 3, 6])
@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_elimination_gives_what_the_dense_posterior_does(closed, cells, rho):
    rng, J, S = np.random.default_rng(0), 2, 3
    X = rng.normal(size=(cells, J, S, S))
    A, b = X @ X.swapaxes(-1, -2), rng.normal(size=(cells, J, S))
    row, prior = Row(cells, closed), Prior(0.7, 0.3, rho)
    found = eliminate(A, b, row, prior)
    mean, covariance = posterior(found, cells)
    K = np.linalg.inv(row.dense(rho) / prior.own) + prior.common
    np.testing.assert_allclose(np.diag(K), 1.0)
    evidence = 0.0
    for j in range(J):
        H = np.kron(np.linalg.inv(K), np.eye(S))
        evidence += np.linalg.slogdet(H)[1]
        for c in range(cells):
            H[c * S : c * S + S, c * S : c * S + S] += A[c, j]
        V, right = np.linalg.inv(H), b[:, j].ravel()
        np.testing.assert_allclose(mean[:, j].ravel(), V @ right, atol=1e-12)
        for c in range(cells):
            np.testing.assert_allclose(covariance[c, j], V[c * S : c * S + S, c * S : c * S + S], atol=1e-12)
        evidence += right @ V @ right - np.linalg.slogdet(H)[1]
    assert found.evidence == pytest.approx(evidence / 2)


def test_rates_are_those_of_the_changes():
    rng, true, pairs = np.random.default_rng(1), np.array([0.2, 0.4, 1.0, 2.0, 1.6, 0.8]), np.full(40, 20.0)
    expected = np.array([0.1, 0.05, 0.2])
    cells = [
        Changes(3 * rate * expected * rng.chisquare(20, (40, 3)), pairs, np.zeros(3), expected, expected)
        for rate in true
    ]
    found, _ = rates(cells, Row(6, True))
    np.testing.assert_allclose(found, true, rtol=0.1)
    equal = [Changes(expected * rng.chisquare(20, (40, 3)), pairs, np.zeros(3), expected, expected)] * 4
    np.testing.assert_allclose(rates(equal, Row(4))[0], 1.0, atol=0.02)


def walk(P, K, T, N, seed):
    """Counts [K, T, S] of N individuals who move by P[t mod C]."""
    rng, S = np.random.default_rng(seed), P.shape[1]
    n = rng.multinomial(N, np.full(S, 1 / S), size=K)
    y = np.zeros((K, T, S), int)
    for t in range(T):
        y[:, t] = n
        n = sum(rng.multinomial(n[:, i], P[t % len(P), i]) for i in range(S))
    return y


def matrices(kind, seed, C=6, S=4):
    rng = np.random.default_rng([seed, 7])
    base = 0.6 * np.eye(S) + 0.4 * rng.dirichlet(np.ones(S), S)
    if kind == "not at all":
        return np.tile(base, (C, 1, 1))
    if kind == "a little":
        return np.array([[rng.dirichlet(100 * row + 1e-3) for row in base] for _ in range(C)])
    return 0.3 * np.eye(S) + 0.7 * rng.dirichlet(np.ones(S), (C, S))


@pytest.mark.parametrize("noise", [am.Exact(), HALF], ids=str)
@pytest.mark.parametrize("kind", ["not at all", "a little", "wholly"])
def test_cells_that_share_are_no_worse_than_pooled_and_separate_ones_and_their_intervals_hold(kind, noise):
    errors, held = [], []
    for seed in range(3):
        P = matrices(kind, seed)
        n = walk(P, 40, 36, 300, seed)
        y = noise.sample(n, np.random.default_rng(seed))
        shared = am.estimate(y, noise=noise, population=300, chain=am.Cycle(6))
        plain = Settings(noise, chain=am.Cycle(6), pooling="none", states=tuple("abcd"))
        separate = estimate_sums(*array_sums(y, 300, plain, None)).transition_matrix
        pooled = shared.pooled.transition_matrix
        shares = np.stack([n[:, c::6].mean((0, 1)) for c in range(6)])[:, :, None] / 300
        errors.append(
            [
                np.sqrt((shares * (M - P) ** 2).sum((1, 2))).mean()
                for M in (shared.transition_matrix, pooled, separate)
            ]
        )
        lower, upper = shared.interval()
        held.append(((P >= lower) & (P <= upper)).mean())
        assert ((shared.transition_matrix >= lower) & (shared.transition_matrix <= upper)).all()
    ours, *others = np.mean(errors, 0)
    assert ours <= 1.02 * min(others)
    assert 0.9 <= np.mean(held)


def test_estimates_say_how_much_is_borrowed():
    y = walk(matrices("not at all", 1), 20, 24, 100, 1)
    found = am.estimate(y, population=100, chain=am.Cycle(6))
    borrowed = found[0].diagnostics["borrowed"]
    assert borrowed["share"] > 0.9
    assert "borrowed" in str(found[0])
    assert {"estimate", "identity", "naive"} <= set(found[0].diagnostics["scores"])
    assert am.Estimate.from_json(found[0].to_json()).diagnostics["borrowed"]["share"] == borrowed["share"]


@pytest.mark.parametrize(
    ("realizations", "days", "noise"),
    [(1, 60, am.Exact()), (1, 60, HALF), (10, 10, am.Exact()), (5, 30, HALF)],
)
def test_one_hour_in_which_many_move_is_not_taken_for_a_quiet_one(realizations, days, noise):
    quiet, rush = np.array([[0.98, 0.02], [0.03, 0.97]]), np.array([[0.4, 0.6], [0.6, 0.4]])
    P = np.array([rush if hour == 8 else quiet for hour in range(24)])
    y = walk(P, realizations, 24 * days, 1000, 0)
    if noise is HALF:
        y = np.random.default_rng(1).binomial(y, 0.5)
    found = am.estimate(y, noise=noise, population=1000, chain=am.Cycle(24))
    lower, upper = found[8].interval()
    assert ((lower <= rush) & (rush <= upper)).all()
    if realizations == 1:  # else movers are not surely independent, and only the interval tells of it
        np.testing.assert_allclose(found[8].transition_matrix, rush, atol=0.2)
    others = np.delete(found.transition_matrix, 8, 0)
    assert np.sqrt(np.mean((others - quiet) ** 2)) < 0.08


def test_steps_of_a_single_realization_are_too_little_each():
    y = walk(matrices("a little", 1), 1, 24, 100, 1)
    with pytest.raises(am.InputError, match="no cell has enough data"):
        am.estimate(y, population=100, chain="per-step")


def test_rules_are_kept_by_cells_that_share():
    y = walk(matrices("a little", 1), 20, 24, 100, 1)
    rules = am.Constraints(forbidden=[(0, 1)], fixed={(2, 3): 0.05})
    M = am.estimate(y, population=100, chain=am.Cycle(6), constraints=rules).transition_matrix
    np.testing.assert_allclose(M[:, 0, 1], 0.0)
    np.testing.assert_allclose(M[:, 2, 3], 0.05)
    np.testing.assert_allclose(M.sum(2), 1.0)


@pytest.mark.parametrize("chain", ["per-step", am.Window(8), am.Window(8, 4)], ids=str)
def test_steps_and_windows_share_too(chain):
    P = matrices("not at all", 2)
    y = walk(P, 60, 24, 200, 3)
    found = am.estimate(y, population=200, chain=chain)
    assert np.abs(found.transition_matrix - P[0]).max() < 0.05
    assert found[0].diagnostics["borrowed"]["share"] > 0.2


def test_windows_on_both_sides_of_a_change_share_little_and_the_one_across_it_is_no_sure_answer():
    P, Q = [[0.9, 0.1], [0.3, 0.7]], [[0.6, 0.4], [0.3, 0.7]]
    y, _ = am.simulate([P] * 200 + [Q] * 199, realizations=5, seed=1)
    found = am.estimate(y, chain=am.Window(50, every=25))
    lower, upper = found.cell(175).interval()
    mean = (np.array(P) + Q) / 2
    assert ((lower <= mean) & (mean <= upper)).all()
    assert found.cell(50).diagnostics["borrowed"]["rows"][0] < 0.1
    assert np.abs(found.cell(50).transition_matrix - P).max() < 0.05


def test_tests_of_differences_are_those_of_windows_that_do_not_share():
    y, _ = am.simulate(0.7 * np.eye(3) + 0.1, population=200, steps=200, realizations=3, seed=0)
    shared, own = (am.estimate(y, chain=am.Window(25), pooling=pooling) for pooling in ("cells", "none"))
    assert shared[0].diagnostics["borrowed"]["share"] > 0.3
    assert am.change(shared).p_value == am.change(own).p_value
    assert am.compare(shared[0], shared[1]).p_value == am.compare(own[0], own[1]).p_value


DAYS = am.Cycle.day_types(4, first="monday")


def day_counts(weeks=30, N=3000):
    """Two states in days of four steps from a Monday on; more move on days of rest."""
    work, rest = np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([[0.5, 0.5], [0.6, 0.4]])
    P = np.repeat([work] * 5 + [rest] * 2, 4, axis=0)
    return walk(P, 3, 28 * weeks, N, 5), work, rest


def test_working_days_and_days_of_rest_have_matrices_of_their_own():
    y, work, rest = day_counts()
    found = am.estimate(y, population=3000, chain=DAYS)
    assert found.cells == list(range(8))
    wrong = found.transition_matrix - np.array([work] * 4 + [rest] * 4)
    assert np.abs(wrong).mean() < 0.04
    assert (np.abs(wrong) < 4 * found.standard_error).all()
    saturday = found.forecast(y[0, 0], steps=1, time=5 * 4).mean[0]
    np.testing.assert_allclose(saturday, y[0, 0] @ found.cell(4).transition_matrix, rtol=1e-6)
    tuesday = found.forecast(y[0, 0], steps=1, time=28 + 4).mean[0]
    np.testing.assert_allclose(tuesday, y[0, 0] @ found.cell(0).transition_matrix, rtol=1e-6)


def test_day_types_of_time_stamps_and_of_a_config_are_the_same(tmp_path):
    y, *_ = day_counts(weeks=6)
    plain = am.estimate(y[:1], population=3000, chain=DAYS)
    monday = 1_767_571_200  # 2026-01-05
    lines = [
        {"realization": 0, "time": str(np.datetime64(monday + 6 * 3600 * t, "s")), "counts": c}
        for t, c in enumerate(y[0].tolist())
    ]
    (tmp_path / "feed.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "run.yaml").write_text(
        "states: ['0', '1']\npopulation: 3000\nchain: {day_types: {period: 4}}\n"
        f"input: {{files: '{tmp_path}/feed.jsonl', step: 6h}}\n"
        f"output: {{directory: '{tmp_path}/out', moments: true}}\n"
    )
    for engine in ("local", "beam"):
        main(["run", str(tmp_path / "run.yaml"), "--engine", engine, "--quiet"])
        found = am.read_estimates(tmp_path / "out")
        np.testing.assert_allclose(found.transition_matrix, plain.transition_matrix, atol=1e-9)
    again = am.estimate(tmp_path / "out" / "moments.aggmc", population=3000, chain=am.Cycle.day_types(4))
    np.testing.assert_allclose(again.transition_matrix, plain.transition_matrix, atol=1e-9)


def test_days_that_are_no_days_are_refused_by_name():
    with pytest.raises(am.InputError, match="did you mean 'saturday'"):
        am.Cycle.day_types(24, rest=["saterday"])
    with pytest.raises(am.InputError, match="days of rest and others"):
        am.Cycle.day_types(24, rest=[])
    with pytest.raises(am.InputError, match="numbers from 0 on"):
        am.Cycle(24, kinds=(0, 2))


@pytest.mark.parametrize("realizations", [10, 12])
def test_steps_of_few_realizations_share_all_their_pairs(realizations):
    """Each replicate of a step holds but one pair then."""
    P = np.array([[0.8, 0.15, 0.05], [0.2, 0.7, 0.1], [0.0, 0.3, 0.7]])
    y, _ = am.simulate(P, population=500, steps=30, realizations=realizations, seed=1)
    found = am.estimate(y, chain="per-step")
    assert len(found) == 29
    assert np.sqrt(np.mean((found.transition_matrix - P) ** 2)) < 0.06
