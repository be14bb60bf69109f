"""One matrix from many steps: the paper's section on non-stationary processes, and better.

The inputs are the latent moments of each step (or phase), with the two ends of pairs centred at
their own means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.estimators.inference import leave_each_out
from aggmc_beam.estimators.latent import Latent, Undo
from aggmc_beam.estimators.moment_methods import divide_rows, mom, pairwise
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.sums.moments import Moments


def average(steps: Sequence[Latent]) -> np.ndarray:
    """The paper's form: the plain average of the P_t, for a constant P and any start.

    A row is averaged over the steps at which its state was there.
    """
    P = np.stack([mom(x) for x in steps])
    there = ~np.isnan(P).any(-1, keepdims=True)
    return divide_rows(np.where(there, P, 0.0).sum(0), there[..., 0].sum(0))


def pooled(steps: Sequence[Latent]) -> np.ndarray:
    """P_i = sum_t M_t(i, .) / sum_t mu_t(i): expected moves over expected visits.

    Steps at which state i is rare no longer spoil its row, as they do in the average.
    """
    moves = sum(x.pairs * pairwise(x) for x in steps)
    visits = sum(x.pairs * x.left for x in steps)
    return divide_rows(np.asarray(moves), np.asarray(visits))


def pooled_without_each(cells: Sequence[Sequence[Moments]], undo: Undo, open_population: bool) -> np.ndarray:
    """[G, S, S]: `pooled` without each of the replicates, given as moments [cell][replicate].

    As `pooled` of the latent moments of what is left, but for all of them at once.
    """
    pairs = np.array([[m.pairs for m in cell] for cell in cells]).T
    rest = pairs.sum(0) - pairs  # [G, C]
    if rest.min() < 2:
        raise InputError("without one of the replicates, a cell has fewer than two pairs")
    weight = np.array([[m.lag1.weight for m in cell] for cell in cells]).T[:, :, None]
    left, right, product = (
        np.stack([[getattr(m.lag1, name) for m in cell] for cell in cells], 1)
        for name in ("left", "right", "product")
    )
    # About one point of each cell, sums can be added as they are.
    whole = weight.sum(0)
    at_left, at_right = ((weight * ends).sum(0) / whole for ends in (left, right))
    from_left, from_right = weight * (left - at_left), right - at_right
    size = leave_each_out(weight)
    a, b = leave_each_out(from_left) / size, leave_each_out(weight * from_right) / size
    product = leave_each_out(product + from_left[..., None] * from_right[..., None, :])
    product -= (size * a)[..., None] * b[..., None, :]
    mu, nu = ((at + by - undo.offset) @ undo.inverse.T for at, by in ((at_left, a), (at_right, b)))
    mu, nu = mu / mu.sum(-1, keepdims=True), nu / nu.sum(-1, keepdims=True)
    joint = mu[..., None] * nu[..., None, :]
    c1 = undo.covariance(product / (rest - 1)[..., None, None])
    if open_population:
        c1 = c1 - c1.sum((-2, -1), keepdims=True) * joint
    moves = (rest[..., None, None] * (joint + c1)).sum(1)
    visits = (rest[..., None] * mu).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(visits[..., None] == 0, np.nan, moves / visits[..., None]))


@dataclass(frozen=True)
class ParametricFit:
    """Least squares of P_t(theta) to the P_t of cells with covariates `Z` [C, q + 1].

    Minimises sum_t,i w_t(i) |P_t(theta)(i, .) - P_t(i, .)|^2, the paper's criterion where w = 1.
    """

    Z: np.ndarray
    weighting: str

    def target(self, steps: Sequence[Latent]) -> tuple[np.ndarray, np.ndarray]:
        """P_t [C, S, S] and weights [C, S] that add to 1; rows of absent states weigh nothing."""
        P = np.stack([mom(x) for x in steps])
        weight = np.ones(P.shape[:2])
        if self.weighting == "shares":
            weight = np.stack([np.maximum(x.left, 0.0) ** 2 * x.pairs for x in steps])
        weight = np.where(np.isnan(P).any(-1), 0.0, weight)
        return np.nan_to_num(P), weight / weight.sum()

    def fit(self, steps: Sequence[Latent]) -> np.ndarray:
        """theta [S, S, q + 1], with mean zero over j since only differences matter."""
        from scipy import optimize

        target, weight = self.target(steps)
        S, q = target.shape[1], self.Z.shape[1]
        theta = np.zeros((S, S, q))
        theta[:, :, 0] = np.log(project_rows(pooled(steps)) + 1.0 / (10 * S))

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            P = transition_matrices(flat.reshape(S, S, q), self.Z)
            miss = P - target
            slope = 2 * weight[:, :, None] * miss
            into_logits = P * (slope - (P * slope).sum(-1, keepdims=True))
            gradient = np.einsum("tij,tq->ijq", into_logits, self.Z)
            return float((weight[:, :, None] * miss**2).sum()), gradient.ravel()

        found = optimize.minimize(
            objective,
            theta.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 2000, "ftol": 1e-13, "gtol": 1e-9},
        )
        fitted = found.x.reshape(S, S, q)
        return np.asarray(fitted - fitted.mean(1, keepdims=True))

    def response(self, steps: Sequence[Latent], theta: np.ndarray) -> np.ndarray:
        """P_t(theta) [C, S, S] refitted to slightly other data, to first order.

        The miss of each row is projected on the directions in which theta can move it. This is
        what a jackknife needs, without a search for each group.
        """
        target, weight = self.target(steps)
        P = transition_matrices(theta, self.Z)
        S = P.shape[1]
        moved = P.copy()
        for i in range(S):
            row, root = P[:, i], np.sqrt(weight[:, i])[:, None]
            # d P(i, k) / d logit(i, j) = P_k (delta_jk - P_j)
            slope = row[:, :, None] * (np.eye(S) - row[:, None, :])
            J = np.einsum("tkj,tq->tkjq", slope, self.Z).reshape(len(row), S, -1)
            weighted = (J * root[:, :, None]).reshape(-1, J.shape[2])
            miss = ((target[:, i] - row) * root).ravel()
            moved[:, i] += J @ np.linalg.lstsq(weighted, miss, rcond=1e-6)[0]
        return moved


def transition_matrices(theta: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """[T, S, S]: P_t(i, j) proportional to exp(theta_ij . z_t)."""
    logits = np.einsum("ijq,tq->tij", theta, Z)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))
