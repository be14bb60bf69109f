"""Noise that differs between time steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aggmc_beam.errors import InputError
from aggmc_beam.noise.checks import FloatArray, whole
from aggmc_beam.noise.layers import Layer
from aggmc_beam.noise.model import Noise


@dataclass(frozen=True)
class PerStep(Noise):
    """Step t is observed through models[t mod len(models)], t counted from 0.

    >>> from aggmc_beam import Binomial
    >>> PerStep([Binomial(0.5), Binomial(0.9)]).at(3)
    Binomial(alpha=0.9)
    """

    models: Sequence[Noise]

    name: ClassVar[str] = "per-step"

    def __post_init__(self) -> None:
        models = tuple(self.models)
        if not models:
            raise InputError("per-step noise needs at least one model")
        for t, model in enumerate(models):
            if not isinstance(model, Noise) or model.varies or isinstance(model, Layer):
                raise InputError(
                    f"per-step models[{t}] must be a noise model of one step, and no layer, got {model!r}"
                )
        object.__setattr__(self, "models", models)

    @property
    def is_known(self) -> bool:
        return all(model.is_known for model in self.models)

    @property
    def varies(self) -> bool:
        """True when the models differ, be it in their variance only."""
        return any(model != self.models[0] for model in self.models)

    @property
    def diagonal(self) -> bool | None:
        answers = {model.diagonal for model in self.models}
        return False if False in answers else None if None in answers else True

    @property
    def additive(self) -> bool:
        return all(model.additive for model in self.models)

    def at(self, t: int) -> Noise:
        return self.models[t % len(self.models)]

    def matrix(self, S: int) -> FloatArray:
        return self._only().matrix(S)

    def offset(self, S: int) -> FloatArray:
        return self._only().offset(S)

    def covariance(self, mean: ArrayLike) -> FloatArray | None:
        return self._only().covariance(mean)

    def sample(self, n: ArrayLike, rng: np.random.Generator) -> FloatArray:
        return sample_steps(self, whole(n), rng)

    def _only(self) -> Noise:
        if self.varies:
            raise InputError("this noise differs by time step: ask at(t) for the model of one step")
        return self.models[0]


def sample_steps(noise: Noise, counts: NDArray[np.int64], rng: np.random.Generator) -> FloatArray:
    """Draw y of shape [..., T, S], each step from its own model."""
    if counts.ndim < 2:
        raise InputError("noise that differs by time step needs true counts of shape [..., T, S]")
    steps = [noise.at(t).sample(counts[..., t, :], rng) for t in range(counts.shape[-2])]
    return np.stack(steps, axis=-2) if steps else np.zeros(counts.shape)
