"""Settling what the user left open: the population, and noise parameters given as "estimate"."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aggmc_beam.errors import InputError
from aggmc_beam.fit.population import binomial_from_summary, exact_population, sigma_from_totals
from aggmc_beam.fit.restored import Restored
from aggmc_beam.noise import Binomial, Exact, Laplace, Noise, Panel
from aggmc_beam.sums.moments import Moments


@dataclass(frozen=True)
class Resolved:
    """A complete noise model and population.

    `scale` is what lagged covariances are divided by: N, or 1 for sums of weighted shares.
    `relative_error` is that of alpha^2 N, by which the lagged covariances of y are divided in all.
    `note` tells how values were found, for diagnostics.
    """

    noise: Noise
    population: float
    scale: float
    relative_error: float
    note: dict[str, Any]


@dataclass(frozen=True)
class Mapped(Noise):
    """Records that were mapped by x_t = A_t^-1 (y_t - b_t): A = I, and the mean of their noise
    covariances over the steps, counted from `start`."""

    original: Noise
    steps: int
    start: int = 0

    name: ClassVar[str] = "mapped"

    @property
    def diagonal(self) -> bool | None:
        return self.original.diagonal

    def covariance(self, mean: ArrayLike) -> NDArray[np.float64] | None:
        S = len(np.asarray(mean))
        total = np.zeros((S, S))
        for t in range(self.start, self.start + self.steps):
            at = self.original.at(t)
            covariance = at.covariance(mean)
            if covariance is None:
                return None
            inverse = np.linalg.inv(at.matrix(S))
            total += inverse @ covariance @ inverse.T
        return np.asarray(total / self.steps)

    def sample(self, n: ArrayLike, rng: np.random.Generator) -> NDArray[np.float64]:
        raise InputError("records that were mapped already are not sampled; use the original model")

    def to_dict(self) -> dict[str, Any]:
        return self.original.to_dict()


def resolve(
    noise: Noise, population: float | str, weighted: bool, moments: Moments, extra: float = 0.0
) -> Resolved:
    """Complete `noise` and `population` from the moments of all data; refuse where they cannot tell.
    `extra`: what the variance of totals has beside the noise.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate(states=3, steps=4000, noise=am.Binomial(0.5), seed=2)
    >>> found = resolve(am.Binomial("estimate"), "estimate", False, am.Sums.of(y).total)
    >>> round(found.population), round(found.noise.alpha, 2)
    (102, 0.49)
    """
    if isinstance(noise, Restored) and not noise.is_known:
        found = resolve(noise.below, population, weighted, moments, float(noise.extra.sum()))
        return replace(found, noise=noise.over(found.noise))
    mean = float(moments.lag0.left.sum())
    if weighted:
        return _resolve_weighted(noise, mean, moments)
    n = moments.records
    variance = float(moments.lag0.product.sum()) / (n - 1) - extra if n > 1 else np.nan
    if not noise.is_known:
        return _resolve_noise(noise, population, mean, variance, moments)
    if population != "estimate":
        N = float(population)
        if isinstance(noise, Panel) and abs(mean - N) > 1e-6 * N:
            raise InputError(
                f"a panel counts its own members, who are {mean:,.6g} by the counts, not {N:,.6g}; leave the "
                "population out, or give the size of the panel"
            )
        return Resolved(noise, N, N, 0.0, {"method": "given"})
    if isinstance(noise, Exact):
        N = exact_population(mean, max(variance, 0.0))
        return Resolved(noise, N, N, 0.0, {"method": "the constant total of exact counts"})
    S = moments.states
    inverse = np.linalg.inv(noise.matrix(S))
    sums = inverse.sum(0)
    N = float(sums @ (moments.lag0.left - noise.offset(S)))
    if not N > 0:
        raise InputError(f"the counts add up to a population of {N:g}; check the noise model, or give it")
    error = float(np.sqrt(max(sums @ moments.lag0.product @ sums, 0.0))) / n
    note = {"method": "mean total of the counts with the noise undone", "standard_error": error}
    return Resolved(noise, N, N, error / N, note)


def _resolve_weighted(noise: Noise, mean: float, moments: Moments) -> Resolved:
    N = moments.lag0.weight / moments.records
    relative, note = 0.0, {"method": "given for each realization; the mean over records is shown"}
    if isinstance(noise, Binomial) and not noise.is_known:
        noise, error = _alpha(noise, mean, moments.lag0.weight)
        relative = 2 * error
        note["alpha_error"] = f"{error:.3g}"
    if not noise.is_known:
        raise InputError(
            f"the parameter of {noise.name} noise cannot be estimated when populations differ; give it"
        )
    return Resolved(noise, N, 1.0, relative, note)


def _resolve_noise(
    noise: Noise, population: float | str, mean: float, variance: float, moments: Moments
) -> Resolved:
    n, S = moments.records, moments.states
    if isinstance(noise, Binomial):
        if population != "estimate":
            N = float(population)
            known, error = _alpha(noise, mean / N, N * n)
            return Resolved(
                known,
                N,
                N,
                2 * error,
                {"method": "alpha = mean total / population", "alpha_error": error},
            )
        found = binomial_from_summary(mean, variance, n)
        note = {
            "method": f"{found.method} of the totals",
            "standard_error": found.population_error,
            "alpha_error": found.alpha_error,
        }
        relative = found.alpha_error / found.alpha
        return Resolved(noise.with_value(found.alpha), found.population, found.population, relative, note)
    kurtosis = 3.0 if isinstance(noise, Laplace) else 0.0
    scale = sigma_from_totals(mean, variance, n, S, kurtosis)
    value = scale.sigma / np.sqrt(2) if isinstance(noise, Laplace) else scale.sigma
    N = scale.population if population == "estimate" else float(population)
    note = {
        "method": "mean and variance of the totals",
        "sigma": scale.sigma,
        "sigma_error": scale.sigma_error,
    }
    relative = scale.population_error / N if population == "estimate" else 0.0
    return Resolved(noise.with_value(float(value)), N, N, relative, note)


def _alpha(noise: Binomial, alpha: float, individuals: float) -> tuple[Noise, float]:
    """The share of `individuals` observations that was counted, with its relative error."""
    if not 0 < alpha <= 1:
        raise InputError(
            f"the counts are {alpha:.4g} of the population, but a detection probability lies in (0, 1]; "
            "check the population"
        )
    return noise.with_value(alpha), float(np.sqrt((1 - alpha) / (alpha * individuals)))
