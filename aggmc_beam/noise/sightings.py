"""Sightings: counts of the individuals that were seen, each with some probability or rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from aggmc_beam.errors import InputError
from aggmc_beam.noise.checks import FloatArray, Parameter, known, positive, probability, vector, whole
from aggmc_beam.noise.model import Noise


@dataclass(frozen=True)
class Binomial(Noise):
    """Everyone is seen with probability alpha: y_i ~ Binomial(n_i, alpha).

    `alpha` is in (0, 1], or "estimate".

    >>> Binomial(0.5).covariance([60, 40])
    array([[15.,  0.],
           [ 0., 10.]])
    """

    alpha: Parameter

    name: ClassVar[str] = "binomial"

    def __post_init__(self) -> None:
        if self.alpha != "estimate":
            object.__setattr__(self, "alpha", probability("binomial alpha", self.alpha))

    @property
    def is_known(self) -> bool:
        return self.alpha != "estimate"

    def matrix(self, S: int) -> FloatArray:
        return known("binomial alpha", self.alpha) * np.eye(S)

    def covariance(self, mean: ArrayLike) -> FloatArray:
        alpha = known("binomial alpha", self.alpha)
        return np.diag(alpha * (1 - alpha) * vector(mean))

    def sample(self, n: ArrayLike, rng: np.random.Generator) -> FloatArray:
        return rng.binomial(whole(n), known("binomial alpha", self.alpha)).astype(float)

    def with_value(self, value: float) -> Binomial:
        return Binomial(value)


@dataclass(frozen=True)
class Detection(Noise):
    """Detection differs by state: y_i ~ Binomial(n_i, alpha_i); `alpha` has one entry per state.

    >>> Detection([0.5, 0.9]).matrix(2)
    array([[0.5, 0. ],
           [0. , 0.9]])
    """

    alpha: Sequence[float]

    name: ClassVar[str] = "detection"

    def __post_init__(self) -> None:
        if isinstance(self.alpha, str) or np.ndim(self.alpha) != 1 or len(self.alpha) == 0:
            raise InputError(
                "detection alpha must be a list of probabilities, one per state, got "
                f"{self.alpha!r}; for one probability shared by all states use Binomial(alpha)"
            )
        checked = (probability(f"detection alpha[{i}]", a) for i, a in enumerate(self.alpha))
        object.__setattr__(self, "alpha", tuple(checked))

    def matrix(self, S: int) -> FloatArray:
        return np.diag(self._alpha(S))

    def covariance(self, mean: ArrayLike) -> FloatArray:
        expected = vector(mean)
        alpha = self._alpha(len(expected))
        return np.diag(alpha * (1 - alpha) * expected)

    def sample(self, n: ArrayLike, rng: np.random.Generator) -> FloatArray:
        counts = whole(n)
        return rng.binomial(counts, self._alpha(counts.shape[-1])).astype(float)

    def _alpha(self, S: int) -> FloatArray:
        if len(self.alpha) != S:
            raise InputError(
                f"detection noise gives {len(self.alpha)} probabilities for {S} states; "
                "give one per state, in the order of the states"
            )
        return np.array(self.alpha)


@dataclass(frozen=True)
class Poisson(Noise):
    """y_i ~ Poisson(alpha n_i): sightings that may count a person more than once.

    `alpha` > 0 is the expected number of sightings per person; it may exceed 1. Totals of Poisson
    counts say nothing about alpha, so it cannot be "estimate".

    >>> Poisson(0.5).covariance([60, 40])
    array([[30.,  0.],
           [ 0., 20.]])
    """

    alpha: float

    name: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        if isinstance(self.alpha, str):
            raise InputError(
                "poisson alpha cannot be estimated: the totals of Poisson counts depend on alpha N "
                "only; give alpha as a number"
            )
        object.__setattr__(self, "alpha", positive("poisson alpha", self.alpha))

    def matrix(self, S: int) -> FloatArray:
        return self.alpha * np.eye(S)

    def covariance(self, mean: ArrayLike) -> FloatArray:
        return np.diag(self.alpha * vector(mean))

    def sample(self, n: ArrayLike, rng: np.random.Generator) -> FloatArray:
        return rng.poisson(self.alpha * whole(n)).astype(float)
