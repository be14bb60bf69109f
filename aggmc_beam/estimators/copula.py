"""From covariances of what is shown to those of the counts behind it, for counts that hang together as normal
variables do.

With X = g(Z) and X' = g'(Z'), Z and Z' normal with correlation rho, Cov(X, X') = sum_k c_k c'_k rho^k, where c_k is
the coefficient of g in normed Hermite polynomials (Mehler's formula). What is shown of X is a function of Z too,
with coefficients of its own: its covariance tells rho, and rho that of X.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from aggmc_beam.estimators.marginal import Marginal

#: Orders for the covariance of a count with itself at another step, which may be all but equal to it, and with that
#: of another state.
OWN, OTHERS = 200, 24
#: Largest correlation that is looked for, and halvings of the interval until it is found.
LARGEST, HALVINGS = 1 - 1e-7, 44
#: Waves of the error of rounding that matter.
WAVES = 6


def hermite(marginal: Marginal, values: np.ndarray, orders: int) -> np.ndarray:
    """c_1 ... c_orders of a function of the count that takes these `values` on its grid.

    >>> grid = np.linspace(-8, 8, 4001)
    >>> mass = np.exp(-grid**2 / 2)
    >>> normal = Marginal(grid, mass / mass.sum(), grid, 0 * grid, 0 * grid)
    >>> hermite(normal, grid, 3).round(3).tolist()
    [1.0, -0.0, -0.0]
    """
    below = np.cumsum(marginal.mass)[:-1]
    inside = (below > 1e-14) & (below < 1 - 1e-14)
    z = ndtri(below[inside])
    step = np.diff(values)[inside] * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    found = np.empty(orders)
    now, before = np.ones_like(z), np.zeros_like(z)
    for k in range(1, orders + 1):
        found[k - 1] = step @ now / np.sqrt(k)
        now, before = (z * now - np.sqrt(k - 1) * before) / np.sqrt(k), now
    return found


class Own:
    """The covariance of a state's count with itself at another step. `period` is that of rounding, if any: the
    part of its error that is beyond all orders is forgotten as a wave is when counts move by a part of its length.
    """

    def __init__(self, marginal: Marginal, period: float) -> None:
        self.hidden = hermite(marginal, marginal.values, OWN)
        self.shown = hermite(marginal, marginal.shown, OWN)
        mean = marginal.mass @ marginal.shown
        total = float(marginal.mass @ (marginal.shown - mean) ** 2)
        self.rest = max(total - float(self.shown @ self.shown), 0.0)
        waves = np.arange(1, WAVES + 1)
        self.decay = (
            (2 * np.pi * waves / period) ** 2 * marginal.variance if period else np.full(WAVES, np.inf)
        )
        self.waves = 6 / (np.pi * waves) ** 2

    def covariance_shown(self, rho: float) -> float:
        forgotten = self.waves @ np.exp(-np.minimum(self.decay * (1 - rho), 700.0))
        return _polynomial(self.shown**2, rho) + self.rest * float(forgotten)

    @property
    def slope(self) -> float:
        """Of the counts behind against what is shown, to first order."""
        return float(self.hidden[0] / self.shown[0])

    def lacking(self, covariance: float) -> float:
        """What the covariance of what is shown, times the square of the slope, lacks of that of the counts behind."""
        low, high = -LARGEST, LARGEST
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.covariance_shown(middle) < covariance else (low, middle)
        rho = (low + high) / 2
        return _polynomial(self.hidden**2, rho) - self.slope**2 * self.covariance_shown(rho)


def lacking(covariance: np.ndarray, shown: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """What covariances [S, S] of what is shown, times both slopes, lack of those of the counts behind, from the
    coefficients [S, orders] of both. Covariances beyond what such variables can have lack no more than those can."""
    products = np.einsum("ik,jk->kij", shown, shown)
    low, high = np.full(covariance.shape, -LARGEST), np.full(covariance.shape, LARGEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        less = _horner(products, middle) < covariance
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    rho, slope = (low + high) / 2, hidden[:, 0] / shown[:, 0]
    behind = _horner(np.einsum("ik,jk->kij", hidden, hidden), rho)
    return np.asarray(behind - np.outer(slope, slope) * _horner(products, rho))


def _polynomial(coefficients: np.ndarray, rho: float) -> float:
    return float(coefficients @ rho ** np.arange(1, len(coefficients) + 1))


def _horner(coefficients: np.ndarray, rho: np.ndarray) -> np.ndarray:
    found = np.zeros_like(rho)
    for c in coefficients[::-1]:
        found = (found + c) * rho
    return found
