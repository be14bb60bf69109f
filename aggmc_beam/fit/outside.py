"""An explicit outside: individuals who are in none of the counted states are in one more.

With a known population N the count outside is N less all that was counted, so entry and exit become
ordinary moves and the population is closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aggmc_beam.errors import InputError
from aggmc_beam.noise import Noise


def add_outside(counts: np.ndarray, noise: Noise, N: np.ndarray) -> tuple[np.ndarray, Noise]:
    """Counts [K, T, S] with the noise undone, and one more state of N [K] less their sum.

    >>> import aggmc_beam as am
    >>> y, _ = add_outside(np.array([[[3.0, 4.0], [2.0, 4.0]]]), am.Binomial(0.5), np.array([20.0]))
    >>> y[0].tolist()
    [[6.0, 8.0, 6.0], [4.0, 8.0, 8.0]]
    """
    if noise.varies or not noise.is_known:
        raise InputError("an outside state needs a noise model that is known and the same at all steps")
    S = counts.shape[2]
    inside = np.linalg.solve(noise.matrix(S), (counts - noise.offset(S)).reshape(-1, S).T).T
    inside = inside.reshape(counts.shape)
    outside = N[:, None] - inside.sum(2)
    return np.concatenate([inside, outside[..., None]], 2), WithOutside(noise)


@dataclass(frozen=True)
class WithOutside(Noise):
    """The noise of counts after `add_outside`: that of the inside, with its total mirrored outside."""

    original: Noise

    name: ClassVar[str] = "with-outside"

    @property
    def diagonal(self) -> bool | None:
        return False

    def covariance(self, mean: ArrayLike) -> NDArray[np.float64] | None:
        inside = np.asarray(mean, float)[:-1]
        covariance = self.original.covariance(inside)
        if covariance is None:
            return None
        inverse = np.linalg.inv(self.original.matrix(len(inside)))
        spread = np.vstack([inverse, -inverse.sum(0)])
        return np.asarray(spread @ covariance @ spread.T)

    def sample(self, n: ArrayLike, rng: np.random.Generator) -> NDArray[np.float64]:
        raise InputError("counts with an outside state are not sampled; use the original model")

    def to_dict(self) -> dict[str, Any]:
        return self.original.to_dict()
