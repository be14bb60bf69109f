"""Quadratic programs with non-negative variables, by block principal pivoting (Judice & Pires 1994)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

ITERATIONS = 200
#: Rounds that may fail to lower the number of wrong signs before these are changed one by one.
TRIES = 5
#: Up to so many states, columns are worked on together.
SMALL = 24
#: Sums are met to this.
SUMS = 1e-9
#: Signs are wrong beyond this: of probabilities, and of slopes relative to the curvature.
TOLERANCE = 1e-10


def nonnegative_qp(
    H: np.ndarray,
    b: np.ndarray,
    E: np.ndarray,
    e: np.ndarray,
    free: np.ndarray,
    start: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """argmin d'Hd/2 - b'd, d = x - start,  over  x >= 0, E x = e; and which x are not held at zero.

    H is positive definite, `free` is a guess of the free set. The nearer `start` (0 by default) is
    to the solution, the less is lost to rounding where H is ill-conditioned.

    Variables of the wrong sign, and held ones of the wrong multiplier, change sides together; if
    that does not help five times, one by one.

    >>> x, free = nonnegative_qp(np.eye(3), np.array([1.0, 0.6, -0.4]), np.ones((1, 3)),
    ...                          np.ones(1), np.ones(3, bool))
    >>> x.round(3).tolist(), free.tolist()
    ([0.7, 0.3, 0.0], [True, True, False])
    """
    from scipy import linalg

    n, scale = len(b), np.diag(H)
    best, tries = n + 1, TRIES
    start = np.zeros(n) if start is None else start
    x = np.zeros(n)
    for _ in range(ITERATIONS):
        i = np.flatnonzero(free)
        base = np.where(free, start, 0.0)
        downhill = b - H @ (base - start)
        L = linalg.cholesky(H[np.ix_(i, i)], lower=True, overwrite_a=True, check_finite=False)
        sides = np.column_stack([E[:, i].T, downhill[i]])
        solved = linalg.solve_triangular(L, sides, lower=True, check_finite=False)
        A, t = solved[:, :-1], solved[:, -1]
        multiplier = np.linalg.lstsq(A.T @ A, e - E @ base - A.T @ t, rcond=1e-12)[0]
        step = linalg.solve_triangular(L, t + A @ multiplier, lower=True, trans=1, check_finite=False)
        moved = np.zeros(n)
        moved[i] = step
        x = base + moved
        slope = H @ moved - downhill - E.T @ multiplier
        wrong = np.where(free, x < -TOLERANCE, slope < -TOLERANCE * scale)
        number = int(wrong.sum())
        if number == 0:
            break
        if number < best:
            best, tries = number, TRIES
        elif tries:
            tries -= 1
        else:
            wrong[np.flatnonzero(wrong)[:-1]] = False
        free = free ^ wrong
        # Every equality needs a free variable.
        for r in np.flatnonzero(((E != 0) @ free == 0) & (e > 0)):
            j = np.flatnonzero(E[r])
            free[j[np.argmax(x[j])]] = True
    return np.maximum(x, 0.0), free


@dataclass(frozen=True, eq=False)
class ColumnQuadratic:
    """sum_j p_j'H_j p_j / 2 - <F, P> over matrices P with columns p_j, where

    H_j = sum_n weights[n, j] matrices[n] + diag(diagonal[:, j])  is positive definite.

    As a whole it has S^2 variables; by columns it has S problems of S variables, which only the row
    sums of P tie together.
    """

    matrices: np.ndarray
    weights: np.ndarray
    diagonal: np.ndarray
    F: np.ndarray

    def apply(self, P: np.ndarray) -> np.ndarray:
        """The matrix with columns H_j p_j."""
        products = (self.matrices @ P) * self.weights[:, None]
        return np.asarray(products.sum(0) + self.diagonal * P)

    def dense(self) -> np.ndarray:
        """[S^2, S^2], for vec P by rows: what rules that mix columns need."""
        S = len(self.F)
        H = np.zeros((S, S, S, S))
        for j, column in enumerate(np.tensordot(self.weights.T, self.matrices, 1)):
            H[:, j, :, j] = column + np.diag(self.diagonal[:, j])
        return H.reshape(S * S, S * S)

    def minimum(
        self,
        rows: np.ndarray,
        allowed: np.ndarray,
        free: np.ndarray,
        shares: np.ndarray | None = None,
        columns: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best P >= 0 with zeros outside `allowed`, row sums `rows` and, if `shares` are given,
        shares'P = columns; and which cells are not held at zero, of which `free` is a guess.

        >>> q = ColumnQuadratic(np.eye(2)[None], np.ones((1, 2)), np.zeros((2, 2)),
        ...                     np.array([[0.9, 0.3], [-0.5, 0.9]]))
        >>> P, free = q.minimum(np.ones(2), np.ones((2, 2), bool), np.ones((2, 2), bool))
        >>> P.round(3).tolist()
        [[0.8, 0.2], [0.0, 1.0]]
        """
        best, tries = free.size + 1, TRIES
        free = free & allowed
        P = np.zeros_like(self.F)
        for _ in range(ITERATIONS):
            free = _with_a_free_cell(free, allowed, rows, P)
            face = _Face(self, free, shares)
            P, slope = face.minimum(rows, columns)
            short = allowed & _short(P, rows, shares, columns)
            if (short & ~free).any():  # the free cells cannot meet the sums
                free = free | short
                continue
            wrong = allowed & np.where(free, P < -TOLERANCE, slope < -TOLERANCE * self._curvature)
            number = int(wrong.sum())
            if number == 0:
                break
            if number < best:
                best, tries = number, TRIES
            elif tries:
                tries -= 1
            else:
                wrong.flat[np.flatnonzero(wrong)[:-1]] = False
            free = free ^ wrong
        return np.maximum(P, 0.0), free

    @cached_property
    def _curvature(self) -> np.ndarray:
        diagonals = np.diagonal(self.matrices, axis1=1, axis2=2)
        return np.asarray(diagonals.T @ self.weights + self.diagonal)


class _Face:
    """Where only the `free` cells differ from zero: a linear system in the multipliers of constraints."""

    def __init__(self, whole: ColumnQuadratic, free: np.ndarray, shares: np.ndarray | None) -> None:
        self.whole, self.free, self.shares = whole, free, shares
        S = len(free)
        together = [np.arange(S)] if S <= SMALL else np.arange(S)[:, None]
        self.parts = [self._part(columns) for columns in together]
        self.multipliers = self._multipliers()

    def _part(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """These columns, for each of them its free cells, others behind them where it has fewer, and
        the inverse of H_j on the free ones, zero on the others."""
        whole, free = self.whole, self.free.T[columns]
        most = int(free.sum(1).max())
        cells = np.argsort(~free, axis=1, kind="stable")[:, :most]
        size = np.sqrt(np.take_along_axis(whole._curvature.T[columns], cells, 1))
        scale = np.where(np.take_along_axis(free, cells, 1), 1 / size, 0.0)
        both = scale[:, :, None] * scale[:, None, :]
        H = np.tensordot(whole.weights.T[columns], whole.matrices, 1)
        among = H[np.arange(len(H))[:, None, None], cells[:, :, None], cells[:, None, :]] * both
        among[:, np.arange(most), np.arange(most)] = 1.0
        return columns, cells, _inverse(among) * both

    def _multipliers(self) -> np.ndarray:
        """The pseudo-inverse of the constraints' covariance E H^-1 E'."""
        S = len(self.free)
        rows = np.zeros((S, S))
        for _, cells, inverse in self.parts:
            if len(cells) == 1:
                rows[np.ix_(cells[0], cells[0])] += inverse[0]
            else:
                place = cells[:, :, None] * S + cells[:, None, :]
                rows += np.bincount(place.ravel(), inverse.ravel(), S * S).reshape(S, S)
        if self.shares is None:
            return _pseudo_inverse(rows)
        across = self.solve(np.repeat(self.shares[:, None], S, 1))
        return _pseudo_inverse(np.block([[rows, across], [across.T, np.diag(self.shares @ across)]]))

    def solve(self, X: np.ndarray) -> np.ndarray:
        """H_j^-1 x_j on the free cells, for the columns of X."""
        found, sides = np.zeros_like(X.T), X.T
        for columns, cells, inverse in self.parts:
            at = columns[:, None], cells
            found[at] = (inverse @ sides[at][:, :, None])[:, :, 0]
        return found.T

    def minimum(self, rows: np.ndarray, columns: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """P and the slope of the Lagrangian, which is zero on free cells."""
        S, whole, shares = len(rows), self.whole, self.shares
        P, price = np.zeros((S, S)), np.zeros((S, S))
        for _ in range(2):  # the second time takes rounding out
            downhill = whole.F - whole.apply(P) + price
            step = self.solve(downhill)
            missing = rows - (P + step).sum(1)
            if shares is not None and columns is not None:
                missing = np.concatenate([missing, columns - shares @ (P + step)])
            found = self.multipliers @ missing
            more = np.repeat(found[:S, None], S, 1)
            if shares is not None:
                more = more + np.outer(shares, found[S:])
            P, price = P + step + self.solve(more), price + more
        return P, whole.apply(P) - whole.F - price


def _with_a_free_cell(free: np.ndarray, allowed: np.ndarray, rows: np.ndarray, P: np.ndarray) -> np.ndarray:
    """Every row with something to share out needs a free cell."""
    for i in np.flatnonzero(~free.any(1) & allowed.any(1) & (rows > 0)):
        free[i, np.argmax(np.where(allowed[i], P[i], -np.inf))] = True
    return free


def _short(
    P: np.ndarray, rows: np.ndarray, shares: np.ndarray | None, columns: np.ndarray | None
) -> np.ndarray:
    """The cells of rows and columns whose sums are not met."""
    short = np.abs(P.sum(1) - rows)[:, None] > SUMS
    if shares is not None and columns is not None:
        short = short | (np.abs(shares @ P - columns) > SUMS)
    return np.broadcast_to(short, P.shape)


def _inverse(matrices: np.ndarray) -> np.ndarray:
    """Of positive definite matrices [n, m, m]: many small ones at once, a single one by Cholesky."""
    from scipy.linalg import lapack

    if len(matrices) > 1:
        return np.asarray(np.linalg.inv(matrices))
    factor, failed = lapack.dpotrf(matrices[0], lower=1)
    if failed:
        return np.asarray(np.linalg.inv(matrices))
    lower = np.tril(lapack.dpotri(factor, lower=1)[0])
    return np.asarray(lower + np.tril(lower, -1).T)[None]


def _pseudo_inverse(M: np.ndarray) -> np.ndarray:
    """Of a positive semidefinite matrix whose rows may differ much in size."""
    diagonal = np.diag(M)
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(M / size / size[:, None])
    used = values > 1e-12 * values.max()
    return np.asarray((vectors[:, used] / values[used]) @ vectors[:, used].T) / size / size[:, None]
