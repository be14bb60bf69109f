"""A quadratic program with non-negative variables, by block principal pivoting."""

from __future__ import annotations

import numpy as np

ITERATIONS = 200


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
    that does not help five times, one by one, which must end (Judice & Pires 1994).

    >>> x, free = nonnegative_qp(np.eye(3), np.array([1.0, 0.6, -0.4]), np.ones((1, 3)),
    ...                          np.ones(1), np.ones(3, bool))
    >>> x.round(3).tolist(), free.tolist()
    ([0.7, 0.3, 0.0], [True, True, False])
    """
    from scipy import linalg

    n, scale = len(b), np.diag(H)
    best, tries = n + 1, 5
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
        x = base
        x[i] += step
        slope = H[:, i] @ step - downhill - E.T @ multiplier
        wrong = np.where(free, x < -1e-10, slope < -1e-10 * scale)
        number = int(wrong.sum())
        if number == 0:
            break
        if number < best:
            best, tries = number, 5
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
