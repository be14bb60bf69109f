"""Trials on simulated data, and the figures that a right implementation must reach.

Chains are of the regular ensemble (S = 10, precision 0.5, N = 100, K = 10). The reference
figures are geometric means over chains, measured with an independent implementation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import aggmc_beam as am
from aggmc_beam.estimators.gmm import gmm
from aggmc_beam.estimators.latent import Latent, latent
from aggmc_beam.estimators.registry import apply
from aggmc_beam.simulation import random_chain, simulate, stationary_distribution

S, N, K = 10, 100, 10
STEPS = (100, 1000, 5000)


@dataclass(frozen=True)
class Case:
    """A noise model with the reference value of mom's mean squared error times T K."""

    noise: am.Noise
    mom_times_TK: float
    cls_high: float = 1.06


CASES = {
    "exact": Case(am.Exact(), 1.50),
    "binomial .75": Case(am.Binomial(0.75), 2.65),
    "binomial .5": Case(am.Binomial(0.5), 6.6),
    "binomial .25": Case(am.Binomial(0.25), 28.7),
    "gaussian s2=1": Case(am.Gaussian(1.0), 2.27, cls_high=1.10),
    "gaussian s2=5": Case(am.Gaussian(np.sqrt(5.0)), 6.5),
    "poisson .5": Case(am.Poisson(0.5), 15.4),
    "laplace 1": Case(am.Laplace(1.0), 3.1),
}


def cls_limit(P: np.ndarray, noise: am.Noise) -> np.ndarray:
    """(Lambda + V)^-1 Lambda P, what least squares converges to."""
    mu = stationary_distribution(P)
    Lambda = N * (np.diag(mu) + (N - 1) * np.outer(mu, mu))
    inverse = np.linalg.inv(noise.matrix(S))
    V = inverse @ noise.covariance(N * mu) @ inverse.T
    return np.linalg.solve(Lambda + V, Lambda @ P)


def trials(case: Case, estimators: list[str], T: int, runs: int, seed: int) -> dict[str, np.ndarray]:
    """Mean squared errors [runs] of each estimator, and of the limit of least squares."""
    rng = np.random.default_rng([seed, T])
    errors: dict[str, list[float]] = {name: [] for name in [*estimators, "cls limit"]}
    for _ in range(runs):
        P = random_chain(rng, S, ensemble="regular")
        y, _ = simulate(P, population=N, steps=T, realizations=K, noise=case.noise, seed=rng)
        x = latent(am.Sums.of(y).total, case.noise, N)
        found = {name: _estimate(name, x) for name in estimators}
        found["cls limit"] = cls_limit(P, case.noise)
        for name, estimate in found.items():
            errors[name].append(float(np.mean((estimate - P) ** 2)))
    return {name: np.array(values) for name, values in errors.items()}


def _estimate(name: str, x: Latent) -> np.ndarray:
    """By name; "gmm any", "gmm diagonal" and "gmm known" say what lag 0 is taken for."""
    if name.startswith("gmm "):
        return gmm(x, lag0=name.removeprefix("gmm "))
    return apply(name, x)


def geometric_mean(values: np.ndarray) -> float:
    return float(np.exp(np.mean(np.log(values))))
