"""Observation models: how the observed counts y arise from the true counts n.

Every model satisfies E[y | n] = A n + b with noise that is independent between time steps, which
is all that the lagged moments need (Bernstein & Sheldon 2016, Prop. 3). The lag-0 covariance of
the noise matters only to estimators that use lag 0.

What publishers do to counts before they show them is a layer over such a model: `Suppressed`, `Rounded`,
`Clipped`. Negative and fractional counts are normal under additive noise: do not clip them.
"""

from aggmc_beam.noise.additive import DiscreteGaussian, DiscreteLaplace, Exact, Gaussian, Laplace, Panel
from aggmc_beam.noise.description import noise_from_dict
from aggmc_beam.noise.layers import Clipped, Layer, Rounded, Suppressed
from aggmc_beam.noise.linear import Linear
from aggmc_beam.noise.model import Noise
from aggmc_beam.noise.sightings import Binomial, Detection, Poisson
from aggmc_beam.noise.steps import PerStep

__all__ = [
    "Binomial",
    "Clipped",
    "Detection",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exact",
    "Gaussian",
    "Laplace",
    "Layer",
    "Linear",
    "Noise",
    "Panel",
    "PerStep",
    "Poisson",
    "Rounded",
    "Suppressed",
    "noise_from_dict",
]
