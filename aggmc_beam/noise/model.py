"""What every observation model answers: E[y | n] = A n + b, its covariance, and samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from aggmc_beam.errors import InputError
from aggmc_beam.noise.checks import FloatArray


class Noise(ABC):
    """What an observation model must answer; the defaults are those of A = I, b = 0.

    `S` is the number of states, `mean` the expected *true* counts E[n], shape [S].

    >>> import aggmc_beam as am
    >>> [model.name for model in (am.Exact(), am.Binomial(0.5), am.Gaussian(1.0))]
    ['exact', 'binomial', 'gaussian']
    """

    name: ClassVar[str]

    @property
    def is_known(self) -> bool:
        """False while a parameter is still "estimate"."""
        return True

    @property
    def varies(self) -> bool:
        """True when the model depends on the time step; then ask `at(t)` for A, b, covariance."""
        return False

    @property
    def diagonal(self) -> bool | None:
        """Whether the noise is independent between states; None when that is not known."""
        return True

    @property
    def additive(self) -> bool:
        """Whether A = I, b = 0 and the variance of the noise does not depend on n."""
        return False

    def at(self, t: int) -> Noise:
        """The model of step t (counted from 0)."""
        return self

    def matrix(self, S: int) -> FloatArray:
        """A, shape [S, S]."""
        return np.eye(S)

    def offset(self, S: int) -> FloatArray:
        """b, shape [S]."""
        return np.zeros(S)

    @abstractmethod
    def covariance(self, mean: ArrayLike) -> FloatArray | None:
        """E Cov(y | n), shape [S, S], on the scale of y (before A^-1); None when not known."""

    @abstractmethod
    def sample(self, n: ArrayLike, rng: np.random.Generator) -> FloatArray:
        """Draw y given true counts n, shape [..., S] (or [..., T, S] when the model varies)."""

    def with_value(self, value: float) -> Noise:
        """The completed model, once its "estimate" parameter has been found."""
        raise InputError(f"{self.name} noise has no parameter that is estimated from the data")

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able description that `noise_from_dict` reads back."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"model": self.name} | {k: _plain(v) for k, v in values.items() if v is not None}


def _plain(value: object) -> object:
    if isinstance(value, Noise):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
