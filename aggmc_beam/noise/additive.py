"""Additive noise: y = n + k, with k independent of n and between states."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aggmc_beam.noise.checks import FloatArray, Parameter, known, spread, vector, whole
from aggmc_beam.noise.discrete import (
    discrete_gaussian_variance,
    discrete_laplace_variance,
    sample_discrete_gaussian,
    sample_discrete_laplace,
)
from aggmc_beam.noise.model import Noise
from aggmc_beam.noise.privacy import discrete_gaussian_sigma, gaussian_sigma, laplace_scale


class Additive(Noise):
    """What the models below share; each states the variance of its k and how to draw it."""

    @abstractmethod
    def _variance(self) -> float:
        """Var(k)."""

    @abstractmethod
    def _draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64] | FloatArray:
        """Independent values of k."""

    @property
    def additive(self) -> bool:
        return True

    def covariance(self, mean: ArrayLike) -> FloatArray:
        return self._variance() * np.eye(len(vector(mean)))

    def sample(self, n: ArrayLike, rng: np.random.Generator) -> FloatArray:
        counts = whole(n)
        return (counts + self._draw(counts.shape, rng)).astype(float)


@dataclass(frozen=True)
class Exact(Additive):
    """y = n.

    >>> Exact().covariance([60, 40]).sum()
    np.float64(0.0)
    """

    name: ClassVar[str] = "exact"

    def _variance(self) -> float:
        return 0.0

    def _draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        return np.zeros(shape, dtype=np.int64)


@dataclass(frozen=True)
class Panel(Exact):
    """The same individuals are seen at every step, a panel of devices say: exact counts of its members.

    Whether the panel is half of all is no noise: its members are followed, not drawn anew at each step, as
    `Binomial` says. The population is the size of the panel, which its totals tell.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], population=80, steps=500, seed=1)
    >>> am.estimate(y, noise=am.Panel()).population
    80.0
    """

    name: ClassVar[str] = "panel"


@dataclass(frozen=True)
class Gaussian(Additive):
    """y_i = n_i + N(0, sigma^2), independent between states; `sigma` >= 0 or "estimate".

    >>> Gaussian(2.0).covariance([60, 40])
    array([[4., 0.],
           [0., 4.]])
    """

    sigma: Parameter

    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        if self.sigma != "estimate":
            object.__setattr__(self, "sigma", spread("gaussian sigma", self.sigma))

    @classmethod
    def private(
        cls,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        rho: float | None = None,
        sensitivity: float = 1.0,
    ) -> Gaussian:
        """The least noise for (epsilon, delta)-differential privacy, or for rho-zCDP.

        `sensitivity` is the largest Euclidean change of one published vector y_t: 1 when
        neighbours differ by one person present or absent, sqrt(2) when one person moves to another
        state. The guarantee is for one step: whoever is counted in T steps spends T times rho.

        (epsilon, delta) is met exactly (Balle & Wang 2018, Theorem 8); rho gives
        sigma^2 = sensitivity^2 / (2 rho).

        >>> round(Gaussian.private(epsilon=1, delta=1e-5).sigma, 4)
        3.7306
        """
        return cls(gaussian_sigma(cls.name, epsilon, delta, rho, sensitivity))

    @property
    def is_known(self) -> bool:
        return self.sigma != "estimate"

    def with_value(self, value: float) -> Gaussian:
        return Gaussian(value)

    def matrix(self, S: int) -> FloatArray:
        known("gaussian sigma", self.sigma)
        return super().matrix(S)

    def _variance(self) -> float:
        return known("gaussian sigma", self.sigma) ** 2

    def _draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        return rng.normal(0.0, known("gaussian sigma", self.sigma), shape)


@dataclass(frozen=True)
class Laplace(Additive):
    """y_i = n_i + Laplace noise of scale b (variance 2 b^2); `scale` >= 0 or "estimate".

    >>> Laplace(1.0).covariance([60, 40])
    array([[2., 0.],
           [0., 2.]])
    """

    scale: Parameter

    name: ClassVar[str] = "laplace"

    def __post_init__(self) -> None:
        if self.scale != "estimate":
            object.__setattr__(self, "scale", spread("laplace scale", self.scale))

    @classmethod
    def private(cls, epsilon: float, sensitivity: float = 1.0) -> Laplace:
        """Noise for epsilon-differential privacy: scale = sensitivity / epsilon.

        `sensitivity` is the largest change of one published vector y_t, summed over states: 1 when
        one person is added or removed, 2 when one person moves. The guarantee is for one step.

        >>> Laplace.private(epsilon=0.5)
        Laplace(scale=2.0)
        """
        return cls(laplace_scale(cls.name, epsilon, sensitivity))

    @property
    def is_known(self) -> bool:
        return self.scale != "estimate"

    def with_value(self, value: float) -> Laplace:
        return Laplace(value)

    def matrix(self, S: int) -> FloatArray:
        known("laplace scale", self.scale)
        return super().matrix(S)

    def _variance(self) -> float:
        return 2 * known("laplace scale", self.scale) ** 2

    def _draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        return rng.laplace(0.0, known("laplace scale", self.scale), shape)


@dataclass(frozen=True)
class DiscreteGaussian(Additive):
    """y_i = n_i + k, P(k) proportional to exp(-k^2 / (2 sigma^2)) on the integers.

    The variance is just below sigma^2, and far below it when sigma is small.

    >>> DiscreteGaussian(0.3).covariance([60])
    array([[0.00767252]])
    """

    sigma: float

    name: ClassVar[str] = "discrete-gaussian"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", spread("discrete-gaussian sigma", self.sigma))

    @classmethod
    def private(
        cls,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        rho: float | None = None,
        sensitivity: float = 1.0,
    ) -> DiscreteGaussian:
        """Noise for rho-zCDP, sigma^2 = sensitivity^2 / (2 rho), or for (epsilon, delta).

        Sensitivity and steps are as in `Gaussian.private`. (epsilon, delta) goes through the best
        zCDP conversion of Canonne, Kamath & Steinke (2020, Corollary 13): sound for any
        sensitivity and number of states, at the price of 5 to 11% more sigma than the tight value
        for a single count (up to 25% when sigma is below 1).

        >>> round(DiscreteGaussian.private(epsilon=1, delta=1e-5).sigma, 4)
        4.0451
        """
        return cls(discrete_gaussian_sigma(cls.name, epsilon, delta, rho, sensitivity))

    def _variance(self) -> float:
        return discrete_gaussian_variance(self.sigma)

    def _draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        return sample_discrete_gaussian(self.sigma, shape, rng)


@dataclass(frozen=True)
class DiscreteLaplace(Additive):
    """y_i = n_i + k, P(k) proportional to exp(-|k| / scale): the geometric mechanism.

    The variance is 2 q / (1 - q)^2 with q = exp(-1 / scale), just below that of Laplace noise.

    >>> DiscreteLaplace(1.0).covariance([60])
    array([[1.84134719]])
    """

    scale: float

    name: ClassVar[str] = "discrete-laplace"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", spread("discrete-laplace scale", self.scale))

    @classmethod
    def private(cls, epsilon: float, sensitivity: float = 1.0) -> DiscreteLaplace:
        """Noise for epsilon-differential privacy, scale = sensitivity / epsilon (as in Laplace).

        >>> DiscreteLaplace.private(epsilon=0.5)
        DiscreteLaplace(scale=2.0)
        """
        return cls(laplace_scale(cls.name, epsilon, sensitivity))

    def _variance(self) -> float:
        return discrete_laplace_variance(self.scale)

    def _draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        return sample_discrete_laplace(self.scale, shape, rng)
