"""What publishers do to counts before they show them: cells suppressed, rounded, or cut at zero.

A layer lies over any noise model, or over another layer. What it does to a count is known, but not what the
count was: `fit/published.py` takes its effect out of the moments.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from aggmc_beam.errors import InputError
from aggmc_beam.noise.additive import Exact
from aggmc_beam.noise.checks import FloatArray, number, positive
from aggmc_beam.noise.model import Noise

#: What may become of values: arrays of probabilities, each with an array of values.
Outcomes = list[tuple[FloatArray, FloatArray]]


class Layer(Noise):
    """What the layers share: they keep the model below, whose mean they do not change much."""

    noise: Noise

    @abstractmethod
    def outcomes(self, values: FloatArray) -> Outcomes:
        """What becomes of values of the noise below, as sums hold it: an entry that is not shown is 0 there."""

    @property
    @abstractmethod
    def size(self) -> float:
        """Counts that vary by far more than this are hardly touched, or alike."""

    @property
    def leaves_gaps(self) -> bool:
        """Whether a missing entry is one that was hidden by this layer, or one below it."""
        return isinstance(self.noise, Layer) and self.noise.leaves_gaps

    @property
    def innermost(self) -> Noise:
        """The noise model that all layers lie over."""
        return self.noise.innermost if isinstance(self.noise, Layer) else self.noise

    def hides(self, values: FloatArray) -> np.ndarray:
        """Which values this layer suppresses or cuts."""
        return np.zeros(values.shape, bool)

    def seen_through(self, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What is shown of noisy counts through all layers: its mean and variance, and the probability that
        a count is suppressed or cut."""
        ways: Outcomes = [(np.ones_like(values), values)]
        kept = np.ones_like(values)
        for layer in self.layers:
            kept = kept * np.sum([p * ~layer.hides(v) for p, v in ways], axis=0)
            ways = [(p * q, w) for p, v in ways for q, w in layer.outcomes(v)]
        mean = np.sum([p * v for p, v in ways], axis=0)
        return mean, np.sum([p * (v - mean) ** 2 for p, v in ways], axis=0), 1 - kept

    @property
    def layers(self) -> list[Layer]:
        """From the first to the last that is applied."""
        return [*(self.noise.layers if isinstance(self.noise, Layer) else []), self]

    def over(self, noise: Noise) -> Layer:
        """The same layers over another noise model."""
        return self._with_noise(self.noise.over(noise) if isinstance(self.noise, Layer) else noise)

    def _with_noise(self, noise: Noise) -> Layer:
        return replace(self, noise=noise)  # type: ignore[type-var]

    @property
    def is_known(self) -> bool:
        return self.noise.is_known

    @property
    def diagonal(self) -> bool | None:
        return self.noise.diagonal

    def matrix(self, S: int) -> FloatArray:
        return self.noise.matrix(S)

    def offset(self, S: int) -> FloatArray:
        return self.noise.offset(S)

    def covariance(self, mean: ArrayLike) -> FloatArray | None:
        """That of the noise below: what layers add is taken out of the moments."""
        return self.noise.covariance(mean)

    def _check_noise(self) -> None:
        if not isinstance(self.noise, Noise):
            raise InputError(f"{self.name} noise lies over a noise model such as Exact(), got {self.noise!r}")
        if self.noise.varies:
            raise InputError(f"{self.name} noise cannot lie over noise that differs by time step")

    def with_value(self, value: float) -> Noise:
        return self._with_noise(self.noise.with_value(value))


@dataclass(frozen=True)
class Suppressed(Layer):
    """Counts below `below` are not shown, but as `shown`: "zero", "missing", or a number in their place.

    For "zero" and "missing" it makes no difference whether true zeros are suppressed or shown. A number stands
    for zeros too, unless `zeros` says that these are shown as they are.

    >>> Suppressed(5).sample([0, 3, 5, 60], np.random.default_rng(0))
    array([ 0.,  0.,  5., 60.])
    >>> Suppressed(5, "missing").sample([0, 3, 5, 60], np.random.default_rng(0))
    array([nan, nan,  5., 60.])
    """

    below: float
    shown: str | float = "zero"
    noise: Noise = field(default_factory=Exact)
    zeros: bool = False

    name: ClassVar[str] = "suppressed"

    def __post_init__(self) -> None:
        self._check_noise()
        object.__setattr__(self, "below", positive("suppressed below", self.below))
        if isinstance(self.shown, str):
            if self.shown not in ("zero", "missing"):
                raise InputError(f"suppressed shown must be zero, missing or a number, got {self.shown!r}")
        else:
            object.__setattr__(self, "shown", number("suppressed shown", self.shown))
            if float(self.shown) >= self.below:
                raise InputError(
                    f"suppressed shown must be less than below ({self.below:g}), or it is taken for a count; "
                    f"got {self.shown:g}"
                )
        if not isinstance(self.zeros, bool):
            raise InputError(f"suppressed zeros must be true or false, got {self.zeros!r}")

    @property
    def leaves_gaps(self) -> bool:
        return self.shown == "missing" or super().leaves_gaps

    @property
    def size(self) -> float:
        return self.below

    def outcomes(self, values: FloatArray) -> Outcomes:
        return [(np.ones_like(values), self._replaced(values, 0.0))]

    def sample(self, n: ArrayLike, rng: np.random.Generator) -> FloatArray:
        return self._replaced(self.noise.sample(n, rng), np.nan)

    def _replaced(self, values: FloatArray, missing: float) -> FloatArray:
        stands = {"zero": 0.0, "missing": missing}.get(self.shown, self.shown)  # type: ignore[arg-type]
        return np.where(self.hides(values), float(stands), values)

    def hides(self, values: FloatArray) -> np.ndarray:
        hidden = values < self.below
        return np.asarray(hidden & (values != 0) if self.zeros else hidden)


@dataclass(frozen=True)
class Rounded(Layer):
    """Counts are rounded to multiples of `base`: to the nearest, halves up, or at random.

    `random` rounding goes up or down so that the mean stays what it is, as censuses do it.

    >>> Rounded(5).sample([0, 2, 3, 60], np.random.default_rng(0))
    array([ 0.,  0.,  5., 60.])
    """

    base: float
    random: bool = False
    noise: Noise = field(default_factory=Exact)

    name: ClassVar[str] = "rounded"

    def __post_init__(self) -> None:
        self._check_noise()
        object.__setattr__(self, "base", positive("rounded base", self.base))
        if not isinstance(self.random, bool):
            raise InputError(f"rounded random must be true or false, got {self.random!r}")

    @property
    def size(self) -> float:
        return self.base

    def outcomes(self, values: FloatArray) -> Outcomes:
        if not self.random:
            return [(np.ones_like(values), self.base * np.floor(values / self.base + 0.5))]
        low = self.base * np.floor(values / self.base)
        up = (values - low) / self.base
        return [(1 - up, low), (up, low + self.base)]

    def sample(self, n: ArrayLike, rng: np.random.Generator) -> FloatArray:
        values = self.noise.sample(n, rng)
        chance = rng.random(values.shape) if self.random else 0.5
        return np.asarray(self.base * np.floor(values / self.base + chance))


@dataclass(frozen=True, init=False, repr=False)
class Clipped(Layer):
    """Counts that noise has brought below `at` are shown as `at`.

    >>> from aggmc_beam import Gaussian
    >>> Clipped(at=0, noise=Gaussian(3.0)).sample([0, 0, 60], np.random.default_rng(0)).min()
    np.float64(0.0)
    """

    lowest: float  # `at` is a method of all noise
    noise: Noise

    name: ClassVar[str] = "clipped"

    def __init__(self, at: float = 0.0, noise: Noise | None = None) -> None:
        object.__setattr__(self, "lowest", number("clipped at", at))
        object.__setattr__(self, "noise", Exact() if noise is None else noise)
        self._check_noise()

    def __repr__(self) -> str:
        return f"Clipped(at={self.lowest!r}, noise={self.noise!r})"

    @property
    def size(self) -> float:
        return 1.0

    def outcomes(self, values: FloatArray) -> Outcomes:
        return [(np.ones_like(values), np.maximum(values, self.lowest))]

    def hides(self, values: FloatArray) -> np.ndarray:
        return np.asarray(values < self.lowest)

    def sample(self, n: ArrayLike, rng: np.random.Generator) -> FloatArray:
        return np.asarray(np.maximum(self.noise.sample(n, rng), self.lowest))

    def to_dict(self) -> dict[str, Any]:
        return {"model": self.name, "at": self.lowest, "noise": self.noise.to_dict()}

    def _with_noise(self, noise: Noise) -> Layer:
        return Clipped(self.lowest, noise)
