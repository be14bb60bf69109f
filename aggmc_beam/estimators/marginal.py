"""The distribution of a noisy count before publishers changed it, fitted to the mean and variance of what they show.

The family has two parameters, as many as there are moments: binomial where counts vary less than a Poisson
variable of their mean, negative binomial where they vary more, with the noise added to it if that is additive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import betainc, ndtr

from aggmc_beam.noise import DiscreteLaplace, Laplace, Layer

#: Standard deviations to each side that hold all of a distribution, as far as moments are concerned.
REACH = 12.0
#: Points of the grid that stands for a distribution.
POINTS = 1 << 13
#: Steps of Newton's method, which takes 4 to 8 of them, and the relative error that is small enough.
STEPS, EXACT_ENOUGH = 50, 1e-9
#: Halvings of an interval until a mean is found.
HALVINGS = 50
#: What is not met to this part is no solution.
FITTED = 1e-4


@dataclass(frozen=True, eq=False)
class Marginal:
    """`values` [n], evenly spaced, with their probabilities `mass` [n]. What is `shown` of each on average, with what
    `spread` (a variance), and how likely it is `hidden`, each [n]. `fitted` is False where no distribution has the
    moments that are seen."""

    values: np.ndarray
    mass: np.ndarray
    shown: np.ndarray
    spread: np.ndarray
    hidden: np.ndarray
    fitted: bool = True

    @property
    def mean(self) -> float:
        return float(self.mass @ self.values)

    @property
    def variance(self) -> float:
        return float(self.mass @ (self.values - self.mean) ** 2)

    @property
    def touched(self) -> float:
        """The probability that a count is suppressed or cut."""
        return float(self.mass @ self.hidden)

    def seen(self) -> tuple[float, float]:
        """Mean and variance of what is shown."""
        mean = float(self.mass @ self.shown)
        return mean, float(self.mass @ ((self.shown - mean) ** 2 + self.spread))


class Family:
    """The distributions of y = n + k on a grid, seen through layers; k has the `variance` of additive noise below
    them, and is left out where the noise is not additive."""

    def __init__(self, layer: Layer, variance: float, mean: float, spread: float) -> None:
        """For a count that is shown with this mean and standard deviation."""
        below = layer.innermost
        self.kernel_variance = variance
        self._laplace = isinstance(below, Laplace | DiscreteLaplace)
        width = spread + layer.size + np.sqrt(variance) + 5.0
        top = max(mean, 0.0) + REACH * width
        bottom = -REACH * np.sqrt(variance)
        # A distribution of counts is one of whole numbers, unless these are so many that it is as good as smooth.
        self.spacing = float(2.0 ** max(0, np.ceil(np.log2((top - bottom) / POINTS))))
        low, high = int(np.floor(bottom / self.spacing)), int(np.ceil(top / self.spacing))
        self.values: np.ndarray = self.spacing * np.arange(low, high + 1)
        self.seen = layer.seen_through(self.values.astype(np.float64))

    def at(self, mean: float, variance: float) -> Marginal:
        """With this mean and variance of y."""
        edges = self.values + self.spacing / 2
        cdf = _count_cdf(edges, mean, variance - self.kernel_variance, self.spacing)
        mass = np.diff(cdf, prepend=0.0)
        if self.kernel_variance > 0:
            mass = np.maximum(fftconvolve(mass, self._kernel(), "same"), 0.0)
        total = mass.sum()
        mass = mass / total if total > 0 else np.full(len(mass), np.nan)
        return Marginal(self.values, mass, *self.seen)

    def _kernel(self) -> np.ndarray:
        reach = int(np.ceil(REACH * np.sqrt(self.kernel_variance) / self.spacing)) + 1
        edges = (np.arange(-reach, reach + 2) - 0.5) * self.spacing
        if self._laplace:
            scale = np.sqrt(self.kernel_variance / 2)
            cdf = np.where(
                edges < 0, 0.5 * np.exp(-np.abs(edges) / scale), 1 - 0.5 * np.exp(-np.abs(edges) / scale)
            )
        else:
            cdf = ndtr(edges / np.sqrt(self.kernel_variance))
        return np.asarray(np.diff(cdf))


def fit_marginal(layer: Layer, mean: float, variance: float) -> Marginal:
    """The distribution whose shown counts have this mean and variance, by Newton's method.

    >>> import aggmc_beam as am
    >>> y = am.Suppressed(5).sample(np.random.default_rng(0).poisson(6, 100_000), np.random.default_rng(1))
    >>> found = fit_marginal(am.Suppressed(5), y.mean(), y.var())
    >>> round(found.mean, 1), round(found.variance, 1)
    (6.0, 6.0)
    """
    family, extra = _family(layer, mean, variance)
    least = extra + 1e-3
    m, v = mean, max(variance, least + 1e-3)
    found = family.at(m, v)
    for _ in range(STEPS):
        seen = np.array(found.seen())
        away = np.array([mean, variance]) - seen
        if abs(away[0]) < EXACT_ENOUGH * np.sqrt(v) and abs(away[1]) < EXACT_ENOUGH * v:
            break
        dm, dv = 1e-4 * np.sqrt(v), 1e-4 * v
        slope = np.column_stack(
            [(np.array(family.at(*p).seen()) - seen) / d for p, d in (((m + dm, v), dm), ((m, v + dv), dv))]
        )
        try:
            by = np.linalg.solve(slope, away)
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(by).all():
            break
        most = np.sqrt(v) + 0.5
        m = max(m + float(np.clip(by[0], -most, most)), 1e-3 if extra == 0 else -np.inf)
        v = max(v + float(np.clip(by[1], -v / 2, v)), least)
        found = family.at(m, v)
    seen = np.array(found.seen())
    fits = abs(seen[0] - mean) <= FITTED * np.sqrt(variance) and abs(seen[1] - variance) <= FITTED * variance
    return replace(found, fitted=bool(fits))


def fit_mean(layer: Layer, mean: float, variance: float, population: float) -> Marginal:
    """The distribution whose shown counts have this mean, and whose variance is that of `population` independent
    individuals: for counts that hardly show how much they vary."""
    family, extra = _family(layer, mean, max(variance, layer.size**2))

    def at(m: float) -> Marginal:
        return family.at(m, extra + max(m * (1 - m / population), 1e-3))

    low, high = 1e-3, min(mean + 2 * layer.size, population * (1 - 1e-6))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle).seen()[0] < mean else (low, middle)
    found = at((low + high) / 2)
    return replace(found, fitted=bool(abs(found.seen()[0] - mean) <= FITTED * max(mean, layer.size)))


def _family(layer: Layer, mean: float, variance: float) -> tuple[Family, float]:
    """The family, and the variance of additive noise in it."""
    noise = layer.innermost
    kernel = noise.covariance(np.zeros(1)) if noise.additive and noise.is_known else None
    extra = 0.0 if kernel is None else float(kernel[0, 0])
    return Family(layer, extra, mean, float(np.sqrt(max(variance, 0.0)))), extra


def _count_cdf(edges: np.ndarray, mean: float, variance: float, spacing: float) -> np.ndarray:
    """P(n <= x), of counts n with this mean and variance, at all `edges` between their values."""
    mean, variance = max(mean, 1e-9), max(variance, 1e-9)
    x = np.floor(edges + 1e-9 if spacing == 1 else edges)
    there = x >= 0
    x = np.maximum(x, 0.0)
    ratio = variance / mean
    if ratio > 1 + 1e-7:  # negative binomial, with r = m^2 / (v - m)
        size = mean**2 / (variance - mean)
        cdf = betainc(size, x + 1, 1 / ratio)
    else:  # binomial, also of a number n = m / (1 - v/m) that is not whole
        ratio = min(max(ratio, 1e-3), 1 - 1e-7)
        n = mean / (1 - ratio)
        cdf = np.where(x >= n, 1.0, betainc(np.maximum(n - x, 1e-9), x + 1, ratio))
    return np.where(there, cdf, 0.0)
