"""What the constrained estimators share: positive shares, totals taken out, and the ridge."""

from __future__ import annotations

import numpy as np

from aggmc_beam.estimators.constraints import Rules
from aggmc_beam.estimators.latent import Latent


def positive_shares(mu: np.ndarray, individuals: float) -> np.ndarray:
    """Shares that sum to 1 and are at least half an individual's: weights need them positive.

    >>> positive_shares(np.array([0.7, 0.31, -0.01]), individuals=50).round(3).tolist()
    [0.686, 0.304, 0.01]
    """
    positive = np.maximum(mu, 0.5 / individuals)
    return np.asarray(positive / positive.sum())


def without_totals(c: np.ndarray) -> np.ndarray:
    """Covariances [L, S, S] of r - w (1'r), with w = V1 / 1'V1.

    In a closed population the total of r is noise alone, so it is taken out where it came in. V1
    is the row sum of c[0], since that of D - mu mu' is zero.
    """
    excess = np.maximum(c[0].sum(1), 0.0)
    if excess.sum() <= 1e-9 * np.trace(c[0]):
        return c
    S = len(excess)
    projection = np.eye(S) - np.outer(excess / excess.sum(), np.ones(S))
    return np.asarray(projection @ c @ projection.T)


def prior(x: Latent, mu: np.ndarray, c1: np.ndarray, rules: Rules) -> tuple[np.ndarray, np.ndarray]:
    """Centre and precision [S, S] of the prior of P: the user's, or the ridge towards naive."""
    if rules.prior is not None and rules.precision is not None:
        return rules.prior, rules.precision
    return np.tile(mu, (len(mu), 1)), ridge_precision(x, mu, c1)


def ridge_precision(x: Latent, mu: np.ndarray, c1: np.ndarray) -> np.ndarray:
    """Precision of P_ij around mu_j: 1 / (tau' (mu_j / 2 + 1 / 2S)), tau' = tau (1 + 20 tau).

    tau is the part of the chain that is not naive, by moments: phi = sum c1_ij^2 / (a_i a_j), with
    a = diag c0, less what noise alone would give, over what P = I would give.
    """
    S = len(mu)
    a = lag0_scale(x, mu)
    phi = (c1**2 / np.outer(a, a)).sum()
    rho = (mu * (1 - mu) / a).sum()
    tau = np.clip((phi - (S - 1) ** 2 / x.pairs) / (rho**2 / S), 1e-3, 1.0) if rho > 0 else 1.0
    return np.tile(1 / (tau * (1 + 20 * tau) * (mu / 2 + 0.5 / S)), (S, 1))


def lag0_scale(x: Latent, mu: np.ndarray) -> np.ndarray:
    """diag c0, at least that of counts without noise: c1_ij has variance near a_i a_j / n1."""
    return np.asarray(np.maximum(np.diag(x.c0), mu * (1 - mu)))
