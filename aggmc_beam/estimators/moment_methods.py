"""The estimators of Bernstein & Sheldon (2016), and corrected least squares beside them.

Each is a function of `Latent`, the moments of the true counts.
"""

from __future__ import annotations

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.estimators.latent import Latent
from aggmc_beam.sums.moments import outer

#: Directions of the Gram matrix below this part of the largest carry no information.
RANK_TOLERANCE = 1e-12


def mom(x: Latent) -> np.ndarray:
    """Algorithm 1: P = diag(mu)^-1 (Sigma / N + mu mu'), as it comes: entries may leave [0, 1].

    With ends of their own, equation 8 at one step: diag(mu_t)^-1 (Sigma / N + mu_t mu_t+1').
    """
    return divide_rows(pairwise(x), x.left)


def divide_rows(M: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """diag(mass)^-1 M, with NaN rows where there is no mass."""
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.asarray(M / mass[:, None])
    out[mass == 0] = np.nan
    return out


def pairwise(x: Latent) -> np.ndarray:
    """The pairwise marginals mu_t,t+1(i, j) = P(x_t = i, x_t+1 = j) (Proposition 1)."""
    found = outer(x.left, x.right)
    found += x.c1
    return found


def cls(x: Latent) -> np.ndarray:
    """Conditional least squares (X'X)^-1 X'Y: the common method, inconsistent under noise.

    Its limit is (Lambda + V)^-1 Lambda P, with V the noise covariance.
    """
    return _solve(x.gram, x.cross)


def corrected_cls(x: Latent) -> np.ndarray:
    """Least squares with the noise covariance V taken off the Gram matrix: consistent if V is right."""
    if x.V is None:
        raise InputError(
            "corrected-cls needs the noise covariance; give Linear(A, b, covariance=...), or use an "
            "estimator that does without it, such as mom"
        )
    return _solve(x.gram - x.V, x.cross)


def naive(x: Latent) -> np.ndarray:
    """Every row equals the mean shares: the best guess if counts said nothing about moves."""
    return np.tile(x.right, (x.states, 1))


def _solve(gram: np.ndarray, cross: np.ndarray) -> np.ndarray:
    """gram^-1 cross, by least squares so that directions without data get nothing."""
    scale = np.sqrt(np.abs(np.diag(gram)))
    # Of a state that was never left, rounding may leave something, and scaled it would be huge.
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > RANK_TOLERANCE * scale.max())
    scaled = gram * np.outer(inverse, inverse)
    solution = np.linalg.lstsq(scaled, cross * inverse[:, None], rcond=RANK_TOLERANCE)[0]
    return np.asarray(solution * inverse[:, None])
