"""Projection onto the transport polytope: joint shares M >= 0 with given row and column sums."""

from __future__ import annotations

import numpy as np

from aggmc_beam.errors import InputError

#: Margins are met to this part of themselves; tiny ones to this part of `SMALL` of the total.
TOLERANCE, SMALL = 1e-10, 1e-7
ITERATIONS = 100
#: Newton is given up after this many iterations without halving the error.
PATIENCE = 20


def transport(
    C: np.ndarray,
    W: np.ndarray,
    row: np.ndarray,
    column: np.ndarray,
    fixed: np.ndarray | None = None,
    slack: np.ndarray | None = None,
) -> np.ndarray:
    """argmin sum (M - C)^2 / W + sum_j s_j^2 / slack_j  over  M >= 0, M 1 = row, M' 1 = column + s.

    Cells with W = 0 keep the value `fixed` (0 by default). With slack 0, the default, column sums
    are exact, and margins that the free cells cannot meet are an `InputError`.

    Solved in the dual, where M = max(C + W (a_i + b_j), 0), by a damped semismooth Newton method:
    eliminating `a` leaves one Cholesky factorisation of S x S per iteration.

    >>> M = transport(np.array([[0.5, -0.1], [0.2, 0.3]]), np.ones((2, 2)),
    ...               row=np.array([0.6, 0.4]), column=np.array([0.6, 0.4]))
    >>> M.round(3).tolist()
    [[0.525, 0.075], [0.075, 0.325]]
    """
    problem = _Problem(C, W, row, column, fixed, slack)
    return problem.solve()


class _Problem:
    def __init__(
        self,
        C: np.ndarray,
        W: np.ndarray,
        row: np.ndarray,
        column: np.ndarray,
        fixed: np.ndarray | None,
        slack: np.ndarray | None,
    ) -> None:
        self.total = row.sum()
        self.slack = np.zeros_like(column) if slack is None else slack
        self.hard = self.slack == 0
        self.kept = np.zeros_like(C) if fixed is None else np.where(W > 0, 0.0, fixed)
        r, c = row - self.kept.sum(1), column - self.kept.sum(0)
        unequal = self.hard.all() and abs(self.total - column.sum()) > 1e-9 * self.total
        if r.min() < -1e-12 * self.total or (c < -1e-12 * self.total)[self.hard].any() or unequal:
            raise _infeasible()
        self.r, self.c = np.maximum(r, 0.0), np.where(self.hard, np.maximum(c, 0.0), c)
        tiny = 1e-15 * self.total
        self.free = (W > 0) & (self.r > tiny)[:, None] & (~self.hard | (self.c > tiny))
        self.W, self.C = np.where(self.free, W, 0.0), np.where(self.free, C, 0.0)
        self.inverse = np.divide(1.0, self.W, out=np.zeros_like(C), where=self.free)
        self.wr, self.wc = self.W.sum(1), self.W.sum(0)
        stuck_row = self.r[self.wr == 0] > TOLERANCE * self.total
        stuck_column = self.c[(self.wc == 0) & self.hard] > TOLERANCE * self.total
        if stuck_row.any() or stuck_column.any():
            raise _infeasible()
        self.wr, self.wc = np.where(self.wr > 0, self.wr, 1.0), np.where(self.wc > 0, self.wc, 1.0)

    def dual(self, a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray]:
        """The dual objective, to be minimised, and the M that belongs to it."""
        M = np.maximum(self.C + self.W * (a[:, None] + b), 0.0)
        value = 0.5 * np.einsum("ij,ij,ij->", M, M, self.inverse) + 0.5 * (self.slack @ b**2)
        return float(value - a @ self.r - b @ self.c), M

    def solve(self) -> np.ndarray:
        row_size = np.maximum(self.r, SMALL * self.total)
        column_size = np.maximum(np.abs(self.c), SMALL * self.total)
        a, b = (self.r - self.C.sum(1)) / self.wr, np.zeros(len(self.c))
        value, M = self.dual(a, b)
        damping, best, stalled, error = 1e-8, np.inf, 0, np.inf
        for _ in range(ITERATIONS):
            ga, gb = M.sum(1) - self.r, M.sum(0) - self.c + self.slack * b
            error = max(np.abs(ga / row_size).max(), np.abs(gb / column_size).max())
            best, stalled = (error, 0) if error < 0.5 * best else (best, stalled + 1)
            if error < TOLERANCE or stalled > PATIENCE:
                break
            step = self.newton(M, ga, gb, damping)
            if step is None:
                damping = min(10 * damping, 1.0)
                continue
            pa, pb = step
            slope, t = ga @ pa + gb @ pb, 1.0
            while True:
                new_value, new_M = self.dual(a + t * pa, b + t * pb)
                if new_value <= value + 1e-4 * t * slope + 1e-14 * abs(value) or t < 1e-6:
                    break
                t *= 0.5
            a, b, value, M = a + t * pa, b + t * pb, new_value, new_M
            damping = min(max(damping * (0.1 if t == 1.0 else 4.0), 1e-12), 1e-1)
        if error > 1e-6 and self.hard.all() and not self.feasible():
            raise _infeasible()
        return np.asarray(M + self.kept)

    def newton(
        self, M: np.ndarray, ga: np.ndarray, gb: np.ndarray, damping: float
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """The step of [[diag(A1), A], [A', diag(A'1)]], A = W on the positive cells of M."""
        from scipy import linalg

        active = np.where(M > 0, self.W, 0.0)
        dr = active.sum(1) + damping * self.wr
        dc = active.sum(0) + self.slack + damping * self.wc
        root = np.sqrt(dc)
        B = active / np.sqrt(dr)[:, None] / root
        H = -(B.T @ B)
        H[np.diag_indices_from(H)] += 1 + 1e-12
        try:
            factor = linalg.cho_factor(H, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            return None
        pb = linalg.cho_solve(factor, (active.T @ (ga / dr) - gb) / root, check_finite=False) / root
        return -(ga + active @ pb) / dr, pb

    def feasible(self) -> bool:
        """Whether any M meets the margins on the free cells; asked only when Newton stalls."""
        from scipy import optimize, sparse

        if self.free[np.ix_(self.r > 0, self.c > 0)].all():
            return True
        i, j = np.nonzero(self.free)
        cell = np.arange(len(i))
        places = (np.r_[i, len(self.r) + j], np.r_[cell, cell])
        shape = (len(self.r) + len(self.c), len(i))
        margins = sparse.coo_array((np.ones(2 * len(i)), places), shape=shape).tocsr()
        found = optimize.linprog(np.zeros(len(i)), A_eq=margins, b_eq=np.r_[self.r, self.c], method="highs")
        return bool(found.status != 2)


def _infeasible() -> InputError:
    return InputError(
        "no transition matrix meets these constraints together with the shares of the states; "
        "fewer fixed cells or forbidden moves are needed"
    )
