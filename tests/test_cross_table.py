"""Ecological inference: tables of units from their margins."""

import time

import numpy as np
import pytest
from scipy import stats

import aggmc_beam as am
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.uses.margins import fit_margins
from aggmc_beam.uses.simplex_sampler import MatrixNormal, draw, truncated_normal


def units(seed, U=80, R=4, C=4, size=500, rho=0.0, context=0.0, spread=0.0):
    """(before, after, true tables): rows of a unit vary together by `rho`, and with its composition."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(C, 0.6), R)
    composition = rng.dirichlet(2 * rng.dirichlet(np.full(R, 3.0)) * R, U)
    total = rng.integers(size // 2, size * 2, U) * np.exp(rng.normal(0, spread, U)) // 1
    before = np.array([rng.multinomial(int(n), c) for n, c in zip(total, composition, strict=True)])
    effect = rng.normal(0, 1, (R, R, C)) * context
    tables = np.zeros((U, R, C))
    for u in range(U):
        logits = np.log(P + 1e-3) + np.einsum("k,ikc->ic", composition[u] - composition.mean(0), effect)
        Q = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        if rho:
            Q = np.array([rng.dirichlet(q * (1 / rho - 1) + 1e-6) for q in Q])
        tables[u] = [rng.multinomial(before[u, i], Q[i]) for i in range(R)]
    return before, tables.sum(1), tables


def true_matrix(tables):
    return tables.sum(0) / tables.sum((0, 2))[:, None]


def covered(kind, runs=20):
    inside, width, square = [], [], []
    for seed in range(runs):
        before, after, tables = units(seed, **kind)
        found, truth = am.cross_table(before, after), true_matrix(tables)
        lower, upper = found.interval()
        inside.append((lower <= truth) & (truth <= upper))
        width.append(upper - lower)
        square.append((found.transition_matrix - truth) ** 2)
    smallest = np.mean([x[before.sum(0).argmin()] for x in inside])
    return np.mean(inside), smallest, np.mean(width) / (3.92 * np.sqrt(np.mean(square)))


@pytest.mark.parametrize("kind", [{}, {"rho": 0.02}, {"context": 1.0}], ids=str)
def test_intervals_cover_also_for_rows_that_vary_together_or_with_their_company(kind):
    inside, smallest, width = covered(kind)
    assert inside >= 0.90
    assert smallest >= 0.88
    assert width <= 1.7


def test_tables_add_up_to_both_margins_and_to_the_matrix():
    before, after, _ = units(3)
    found = am.cross_table(before, after)
    assert np.allclose(found.units.sum(2), before, rtol=0, atol=1e-6)
    assert np.allclose(found.units.sum(1), after, rtol=0, atol=1e-6)
    assert np.allclose(found.total / before.sum(0)[:, None], found.transition_matrix)
    assert (found.units >= 0).all()


def test_tables_of_units_are_nearer_than_the_common_matrix():
    before, after, tables = units(5, rho=0.05)
    found = am.cross_table(before, after)
    common = before[:, :, None] * found.transition_matrix
    assert np.abs(found.units - tables).sum() < 0.9 * np.abs(common - tables).sum()


def test_large_units_that_vary_do_not_decide_alone():
    """Against least squares of counts, rows projected to probabilities."""
    ratios = []
    for seed in range(12):
        before, after, tables = units(seed, rho=0.05, spread=1.5)
        truth = true_matrix(tables)
        plain = project_rows(np.linalg.lstsq(before, after, rcond=None)[0])
        found = am.cross_table(before, after).transition_matrix
        ratios.append(np.abs(found - truth).sum() / np.abs(plain - truth).sum())
    assert np.median(ratios) < 0.8


def test_the_same_seed_gives_the_same_table():
    before, after, _ = units(1)
    a, b = am.cross_table(before, after), am.cross_table(before, after)
    assert np.array_equal(a.transition_matrix, b.transition_matrix)
    assert np.array_equal(a.interval()[0], b.interval()[0])


def test_intervals_hold_their_estimate_and_grow_with_the_level():
    before, after, _ = units(2, U=12)
    found = am.cross_table(before, after)
    narrow, wide = found.interval(0.5), found.interval(0.99)
    for lower, upper in (narrow, wide):
        assert (lower <= found.transition_matrix).all()
        assert (found.transition_matrix <= upper).all()
    assert (wide[0] <= narrow[0]).all()
    assert (narrow[1] <= wide[1]).all()


def test_empty_units_rows_and_columns_take_no_part():
    before, after, _ = units(4)
    more = np.insert(np.insert(before, 2, 0, axis=1), 7, 0, axis=0)
    there = np.insert(np.insert(after, 1, 0, axis=1), 7, 0, axis=0)
    plain, found = am.cross_table(before, after), am.cross_table(more, there)
    assert np.isnan(found.transition_matrix[2]).all()
    assert (found.units[7] == 0).all()
    assert (found.units[:, :, 1] == 0).all()
    kept = np.delete(np.delete(found.transition_matrix, 2, 0), 1, 1)
    assert np.allclose(kept, plain.transition_matrix)


def test_many_units_take_seconds():
    rng = np.random.default_rng(0)
    before = rng.multinomial(600, rng.dirichlet(np.ones(8), 46_000)[:, None, :])[:, 0]
    P = rng.dirichlet(np.ones(10), 8)
    after = rng.multinomial(before, P).sum(1)
    began = time.process_time()
    found = am.cross_table(before, after)
    assert time.process_time() - began < 30
    assert np.abs(found.transition_matrix - P).max() < 0.01
    assert np.allclose(found.units.sum(2), before, atol=1e-5)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ([[1, 2]], [[1, 2], [3, 4]], "before has 1 units and after 2"),
        ([[1, 2]] * 5, [[1, 3]] * 5, "unit 0 has 3 members before and 4 after"),
        ([[1, -2]] * 5, [[1, 3]] * 5, "unit 0, state 1 is -2"),
        ([[1, 2]] * 3, [[1, 2]] * 3, "3 units with members are too few for 2 rows"),
        ([[1, 2]] * 5, [[3, 0]] * 5, "all members are in one column"),
        ([1, 2], [1, 2], "must be an array"),
        ("ab", [[1]], "must be numbers"),
    ],
)
def test_bad_input_is_named(before, after, words):
    with pytest.raises(am.InputError, match=words):
        am.cross_table(before, after)


def test_fitted_margins_keep_cross_products():
    """What proportional fitting leaves as it is, and so what characterises it."""
    rng = np.random.default_rng(0)
    first = rng.random((5, 3, 4)) + 0.1
    before = rng.random((5, 3))
    after = rng.random((5, 4))
    after *= (before.sum(1) / after.sum(1))[:, None]
    found = fit_margins(first, before, after)
    assert np.allclose(found.sum(2), before)
    assert np.allclose(found.sum(1), after)

    def odds(x):
        return x[:, :1, :1] * x[:, 1:, 1:] / (x[:, 1:, :1] * x[:, :1, 1:])

    assert np.allclose(odds(found), odds(first))


def test_draws_from_the_simplex_are_those_of_the_density():
    """One row of two cells: a normal variable cut to [0, 1]."""
    precision = 20.0 * np.eye(2)
    pull = np.array([[18.0, 2.0]])
    target = MatrixNormal(
        np.ones((40, 1, 1)), np.repeat(precision[None], 40, 0), np.repeat(pull[None], 40, 0)
    )
    found = draw(target, np.array([[0.5, 0.5]]), 300, 20, 0)[..., 0, 0].ravel()
    # -(20 p^2 + 20 (1 - p)^2) / 2 + 18 p + 2 (1 - p) = -20 (p - .9)^2 + ...
    sd = 40**-0.5
    exact = stats.truncnorm((0 - 0.9) / sd, (1 - 0.9) / sd, 0.9, sd)
    assert abs(found.mean() - exact.mean()) < 0.01
    assert abs(found.std() - exact.std()) < 0.01


@pytest.mark.parametrize("mean", [-60.0, -1.0, 0.4, 3.0, 60.0])
def test_truncated_normals_are_right_in_both_tails(mean):
    u = (np.arange(4000) + 0.5) / 4000
    one = np.ones(4000)
    found = truncated_normal(mean * one, one, 0 * one, one, u)
    assert ((found >= 0) & (found <= 1)).all()
    if abs(mean) < 30:
        exact = stats.truncnorm(-mean, 1 - mean, mean, 1.0)
        assert abs(found.mean() - exact.mean()) < 1e-3
    else:
        assert abs(found.mean() - (1 if mean > 0 else 0)) < 0.05
