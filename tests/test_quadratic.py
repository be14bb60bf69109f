"""Quadratic programs over transition matrices: by columns as by the dense form, and optimal."""

import numpy as np
import pytest

from aggmc_beam.estimators.quadratic import ColumnQuadratic, nonnegative_qp


def problem(rng, S, forbidden=0.0, far=5.0):
    """Normal equations as estimators have them: full, means of low rank, one direction, a ridge."""
    A, B, c = rng.normal(size=(S, S)), rng.normal(size=(S, 2)), rng.random((S, 1))
    matrices = np.stack([A @ A.T, B @ B.T, c @ c.T])
    weights = np.exp(rng.normal(0, 2, (3, S)))
    P = 0.7 * np.eye(S) + 0.3 * rng.dirichlet(np.full(S, 0.2), S)
    allowed = (rng.random((S, S)) > forbidden) | np.eye(S, dtype=bool)
    diagonal = 0.1 * np.exp(rng.normal(0, 1, (S, S)))
    F = ColumnQuadratic(matrices, weights, diagonal, P).apply(P) + rng.normal(size=(S, S)) * (
        S if far is None else far
    )
    return ColumnQuadratic(matrices, weights, diagonal, F), allowed


def optimal(q, P, allowed, rows):
    """Feasible, and with a duality gap of nothing: the gap of the row prices that suit P best."""
    np.testing.assert_allclose(P.sum(1), rows, atol=1e-9)
    assert P.min() >= 0
    assert not P[~allowed].any()
    slope = np.where(allowed, q.apply(P) - q.F, np.inf)
    price = slope.min(1, keepdims=True, initial=1e300)
    gap = (P[allowed] * (slope - price)[allowed]).sum()
    return gap <= 1e-8 * (P * q.apply(P)).sum()


@pytest.mark.parametrize("S", [2, 5, 12, 30])
def test_columns_give_what_the_dense_form_gives(S):
    rng = np.random.default_rng(S)
    for _ in range(10 if S < 20 else 1):
        q, allowed = problem(rng, S, forbidden=0.3)
        rows, some = np.full(S, 0.9), allowed
        P, _ = q.minimum(rows, allowed, some)
        assert optimal(q, P, allowed, rows)
        cells = np.flatnonzero(allowed)
        E = np.kron(np.eye(S), np.ones((1, S)))[:, cells]
        x, _ = nonnegative_qp(
            q.dense()[np.ix_(cells, cells)], q.F.ravel()[cells], E, rows, np.ones(len(cells), bool)
        )
        np.testing.assert_allclose(P.ravel()[cells], x, atol=1e-8)


def test_margins_of_shares_are_kept_as_by_the_dense_form():
    rng = np.random.default_rng(3)
    S = 6
    for _ in range(10):
        q, _ = problem(rng, S, far=0.5)
        mu, everywhere = rng.dirichlet(np.full(S, 3.0)), np.ones((S, S), bool)
        P, _ = q.minimum(np.ones(S), everywhere, everywhere, mu, mu)
        np.testing.assert_allclose(mu @ P, mu, atol=1e-9)
        np.testing.assert_allclose(P.sum(1), 1, atol=1e-9)
        E = np.vstack([np.kron(np.eye(S), np.ones((1, S))), np.kron(mu[None], np.eye(S))])
        x, _ = nonnegative_qp(q.dense(), q.F.ravel(), E, np.r_[np.ones(S), mu], everywhere.ravel())
        np.testing.assert_allclose(P.ravel(), x, atol=1e-8)


def test_any_guess_of_the_free_cells_ends_at_the_same_matrix():
    rng = np.random.default_rng(4)
    q, allowed = problem(rng, 30)
    expected, _ = q.minimum(np.ones(30), allowed, allowed)
    for share in (0.0, 0.1, 0.9):
        P, _ = q.minimum(np.ones(30), allowed, rng.random((30, 30)) < share)
        np.testing.assert_allclose(P, expected, atol=1e-9)


def test_rows_that_are_spoken_for_stay_empty():
    q, _ = problem(np.random.default_rng(5), 4)
    allowed = np.ones((4, 4), bool)
    allowed[2] = False
    rows = np.array([1.0, 0.5, 0.0, 1.0])
    P, _ = q.minimum(rows, allowed, allowed)
    assert optimal(q, P, allowed, rows)
