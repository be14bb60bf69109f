"""How much noise a privacy budget asks for: (epsilon, delta) or rho to sigma or scale."""

from __future__ import annotations

import math

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.noise.checks import FloatArray, positive


def gaussian_sigma(
    name: str, epsilon: float | None, delta: float | None, rho: float | None, sensitivity: float
) -> float:
    """Least sigma of continuous Gaussian noise; `name` is that of the model, for messages.

    >>> gaussian_sigma("gaussian", None, None, rho=0.5, sensitivity=3.0)
    3.0
    """
    sensitivity = positive(f"{name} sensitivity", sensitivity)
    budget = _budget(name, epsilon, delta, rho)
    if isinstance(budget, float):
        return sensitivity / math.sqrt(2 * budget)
    return sensitivity * _analytic_gaussian_sigma(*budget)


def discrete_gaussian_sigma(
    name: str, epsilon: float | None, delta: float | None, rho: float | None, sensitivity: float
) -> float:
    """As `gaussian_sigma` for discrete noise, where (epsilon, delta) goes through rho.

    >>> discrete_gaussian_sigma("discrete-gaussian", None, None, rho=0.5, sensitivity=3.0)
    3.0
    """
    sensitivity = positive(f"{name} sensitivity", sensitivity)
    budget = _budget(name, epsilon, delta, rho)
    spent = budget if isinstance(budget, float) else _largest_zcdp_rho(*budget)
    return sensitivity / math.sqrt(2 * spent)


def laplace_scale(name: str, epsilon: float, sensitivity: float) -> float:
    """Scale of Laplace noise, continuous or discrete, for epsilon-differential privacy.

    >>> laplace_scale("laplace", epsilon=0.5, sensitivity=1.0)
    2.0
    """
    return positive(f"{name} sensitivity", sensitivity) / positive(f"{name} epsilon", epsilon)


def _budget(
    name: str, epsilon: float | None, delta: float | None, rho: float | None
) -> float | tuple[float, float]:
    """rho, or (epsilon, delta), whichever is given."""
    if rho is not None:
        if epsilon is not None or delta is not None:
            raise InputError(f"{name} noise: give either rho or epsilon and delta, not both")
        return positive(f"{name} rho", rho)
    if epsilon is None or delta is None:
        raise InputError(
            f"{name} noise needs rho, or epsilon and delta together (no Gaussian noise is private "
            "with delta = 0)"
        )
    epsilon, delta = positive(f"{name} epsilon", epsilon), positive(f"{name} delta", delta)
    if delta >= 1:
        raise InputError(f"{name} delta must be between 0 and 1, got {delta:g}")
    return epsilon, delta


def _analytic_gaussian_sigma(epsilon: float, delta: float) -> float:
    """Smallest sigma at sensitivity 1 that is (epsilon, delta)-private (Balle & Wang 2018)."""

    def leaked(sigma: float) -> float:
        near, far = 0.5 / sigma, epsilon * sigma
        # Beyond epsilon = 600 the second term is out of range; leaving it out is on the safe side.
        second = math.exp(epsilon) * _normal_cdf(-near - far) if epsilon < 600 else 0.0
        return _normal_cdf(near - far) - second

    low = high = 1.0
    while leaked(high) > delta:
        high *= 2
    while leaked(low) <= delta:
        low /= 2
    for _ in range(60):  # `high` is private throughout, so rounding never errs on the other side
        middle = math.sqrt(low * high)
        low, high = (low, middle) if leaked(middle) <= delta else (middle, high)
    return high


def _normal_cdf(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def _largest_zcdp_rho(epsilon: float, delta: float) -> float:
    """Largest rho found for which rho-zCDP implies (epsilon, delta)-differential privacy.

    For every order a > 1, rho-zCDP gives
    delta = exp((a - 1)(a rho - epsilon)) (1 - 1/a)^a / (a - 1); solved for rho here. Any order is
    sound, so the search need not be exact.
    """

    def rho(log_excess: FloatArray) -> FloatArray:
        excess = np.exp(log_excess)  # a - 1
        a = 1 + excess
        slack = math.log(delta) + log_excess - a * (log_excess - np.log1p(excess))
        return np.asarray((epsilon + slack / excess) / a)

    low, high = -20.0, 60.0
    for _ in range(12):
        grid = np.linspace(low, high, 401)
        best = int(np.argmax(rho(grid)))
        low, high = grid[max(best - 2, 0)], grid[min(best + 2, 400)]
    return float(rho(np.array([(low + high) / 2]))[0])
