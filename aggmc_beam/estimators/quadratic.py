"""Quadratic programs with non-negative variables, by block principal pivoting (Judice & Pires 1994)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

ITERATIONS = 200
#: Rounds that may fail to lower the number of wrong signs before these are changed one by one.
TRIES = 5
#: Up to so many states, columns are worked on together, whichever of their cells are free.
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
        for j, column in enumerate(self._columns):
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

    @cached_property
    def _size(self) -> np.ndarray:
        return np.asarray(np.sqrt(self._curvature))

    @cached_property
    def _columns(self) -> np.ndarray:
        """[S, S, S]: H_j without its diagonal part."""
        return np.asarray(np.tensordot(self.weights.T, self.matrices, 1))


class _Face:
    """Where only the `free` cells differ from zero: a linear system in the multipliers of constraints."""

    def __init__(self, whole: ColumnQuadratic, free: np.ndarray, shares: np.ndarray | None) -> None:
        self.whole, self.free, self.shares = whole, free, shares
        inverse = _Together if len(free) <= SMALL else _Apart
        self.inverse = inverse(whole, free)
        self.multipliers = self._multipliers()

    def _multipliers(self) -> np.ndarray:
        """The pseudo-inverse of the constraints' covariance E H^-1 E'."""
        rows = self.inverse.sum()
        if self.shares is None:
            return _pseudo_inverse(rows)
        across = self.inverse.apply(np.repeat(self.shares[:, None], len(rows), 1))
        return _pseudo_inverse(np.block([[rows, across], [across.T, np.diag(self.shares @ across)]]))

    def minimum(self, rows: np.ndarray, columns: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """P and the slope of the Lagrangian, which is zero on free cells."""
        S, whole, shares = len(rows), self.whole, self.shares
        P, price = np.zeros((S, S)), np.zeros((S, S))
        for _ in range(2):  # the second time takes rounding out
            downhill = whole.F - whole.apply(P) + price
            step = self.inverse.apply(downhill)
            missing = rows - (P + step).sum(1)
            if shares is not None and columns is not None:
                missing = np.concatenate([missing, columns - shares @ (P + step)])
            found = self.multipliers @ missing
            more = np.repeat(found[:S, None], S, 1)
            if shares is not None:
                more = more + np.outer(shares, found[S:])
            P, price = P + step + self.inverse.apply(more), price + more
        return P, whole.apply(P) - whole.F - price


class _Together:
    """The inverses of all H_j on the free cells of their columns, zero elsewhere; for few states."""

    def __init__(self, whole: ColumnQuadratic, free: np.ndarray) -> None:
        scale = np.where(free.T, 1 / whole._size.T, 0.0)
        both = scale[:, :, None] * scale[:, None, :]
        among, S = whole._columns * both, len(free)
        among[:, np.arange(S), np.arange(S)] = 1.0
        self.inverses = np.linalg.inv(among) * both

    def sum(self) -> np.ndarray:
        return np.asarray(self.inverses.sum(0))

    def apply(self, X: np.ndarray) -> np.ndarray:
        """H_j^-1 x_j for the columns of X."""
        return np.asarray((self.inverses @ X.T[:, :, None])[:, :, 0].T)


class _Apart:
    """The same for many states, where most cells may be held: each column is as large as its free cells."""

    def __init__(self, whole: ColumnQuadratic, free: np.ndarray) -> None:
        self.cells = [np.flatnonzero(column) for column in free.T]
        self.inverses = [self._inverse(whole, j, cells) for j, cells in enumerate(self.cells)]

    @staticmethod
    def _inverse(whole: ColumnQuadratic, j: int, cells: np.ndarray) -> np.ndarray:
        from scipy.linalg import lapack

        H = np.tensordot(whole.weights[:, j], whole.matrices, 1)[np.ix_(cells, cells)]
        scale = 1 / whole._size[cells, j]
        both = scale[:, None] * scale
        H *= both
        np.fill_diagonal(H, 1.0)
        factor, failed = lapack.dpotrf(H, lower=1)
        if failed:
            return np.asarray(np.linalg.inv(H) * both)
        lower = np.tril(lapack.dpotri(factor, lower=1)[0])
        return np.asarray((lower + np.tril(lower, -1).T) * both)

    def sum(self) -> np.ndarray:
        total = np.zeros((len(self.cells),) * 2)
        for cells, inverse in zip(self.cells, self.inverses, strict=True):
            total[np.ix_(cells, cells)] += inverse
        return total

    def apply(self, X: np.ndarray) -> np.ndarray:
        """H_j^-1 x_j for the columns of X."""
        found = np.zeros_like(X)
        for j, (cells, inverse) in enumerate(zip(self.cells, self.inverses, strict=True)):
            found[cells, j] = inverse @ X[cells, j]
        return found


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


def _pseudo_inverse(M: np.ndarray) -> np.ndarray:
    """Of a positive semidefinite matrix whose rows may differ much in size."""
    diagonal = np.diag(M)
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(M / size / size[:, None])
    used = values > 1e-12 * values.max()
    return np.asarray((vectors[:, used] / values[used]) @ vectors[:, used].T) / size / size[:, None]
