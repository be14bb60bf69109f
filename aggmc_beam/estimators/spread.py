"""Is a vector of contrasts zero? Its covariance is known from the scatter of few groups only.

The statistic is z'z / tr V, referred to Box's approximation F(h, f): h = (tr V)^2 / tr V^2 contrasts that
count, f the degrees of freedom of tr V, the traces being free of bias (Box 1954; Brunner, Dette & Munk
1997).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aggmc_beam.errors import InputError


@dataclass(frozen=True, eq=False)
class Spread:
    """A covariance rows'rows estimated with so many degrees of freedom; `rows` [m, p]."""

    rows: np.ndarray
    degrees: float

    @property
    def trace(self) -> float:
        return float((self.rows**2).sum())

    @property
    def trace_of_square(self) -> float:
        """Of V, not of its estimate: the part that estimation adds is taken off."""
        square, nu = _trace_of_product(self, self), self.degrees
        if np.isinf(nu):
            return square
        return nu**2 / ((nu - 1) * (nu + 2)) * max(square - self.trace**2 / nu, 0.0)


def jackknife_spread(full: np.ndarray, reduced: np.ndarray, share: np.ndarray) -> Spread:
    """The jackknife covariance of `full` [p] from the values without each group, `reduced` [G, p].

    Its diagonal is the square of `inference.jackknife`.
    """
    h = 1.0 / share[:, None]
    pseudo = h * full - (h - 1.0) * reduced
    centre = len(reduced) * full - ((1.0 - share[:, None]) * reduced).sum(0)
    rows = (pseudo - centre) / np.sqrt((h - 1.0) * len(reduced))
    return Spread(rows, 1.0 / float((share**2).sum()) - 1.0)


def box_test(z: np.ndarray, spreads: Sequence[Spread]) -> tuple[float, float, float, float]:
    """(F, h, f, p-value) of z = 0, the covariance of z being the sum of independent spreads.

    >>> F, h, f, p = box_test(np.array([3.0]), [Spread(np.array([[1.0]]), 10.0)])
    >>> F, round(h), round(f), round(p, 4)                                 # Student's t, squared
    (9.0, 1, 10, 0.0133)
    """
    from scipy import special

    total = sum(s.trace for s in spreads)
    if not total > 0:
        raise InputError("the groups do not differ at all, so there is no variance to compare with")
    squares = [s.trace_of_square for s in spreads]
    second = sum(squares) + 2 * sum(
        _trace_of_product(s, t) for i, s in enumerate(spreads) for t in spreads[:i]
    )
    error = sum(q / s.degrees for q, s in zip(squares, spreads, strict=True))
    first = max(total**2 - 2 * error, 0.0)
    h = float(np.clip(first / second, 1.0, len(z))) if second > 0 else float(len(z))
    f = float(first / error) if error > 0 else sum(s.degrees for s in spreads) * h
    F = float(z @ z) / total
    return F, h, f, float(special.fdtrc(h, f, F))


def hotelling_test(z: np.ndarray, spread: Spread) -> tuple[float, float, float, float]:
    """As `box_test`, for a covariance with many more degrees of freedom than contrasts.

    >>> F, p, f, p_value = hotelling_test(np.array([3.0]), Spread(np.array([[1.0]]), 10.0))
    >>> F, p, f, round(p_value, 4)
    (9.0, 1.0, 10.0, 0.0133)
    """
    from scipy import special

    p, nu = float(len(z)), spread.degrees
    f = nu - p + 1
    F = float(z @ np.linalg.solve(spread.rows.T @ spread.rows, z)) * f / (p * nu)
    return F, p, f, float(special.fdtrc(p, f, F))


def _trace_of_product(a: Spread, b: Spread) -> float:
    return float(((a.rows @ b.rows.T) ** 2).sum())


def excess(z: np.ndarray, spreads: Sequence[Spread], level: float = 0.01) -> float:
    """The F statistic of z = 0 over what it exceeds with probability `level`: above 1, z is not zero.

    >>> round(excess(np.array([3.0]), [Spread(np.array([[1.0]]), 10.0)]), 2)
    0.9
    """
    from scipy import special

    try:
        F, h, f, _ = box_test(z, spreads)
    except InputError:
        return 0.0 if not np.abs(z).max(initial=0.0) > 1e-6 else np.inf
    return F / float(special.fdtri(h, f, 1 - level))


def scattered(values: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Deviations of groups' contributions [G, ...], whose squares sum to the variance of their sum."""
    f = share.reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray((values - f * values.sum(0)) / np.sqrt(max(1 - float((share**2).sum()), 1e-12)))
