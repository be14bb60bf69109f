"""Transition matrices of Markov chains from noisy aggregate counts.

Everything a user may touch is named here.
"""

from aggmc_beam.chain import Cycle, Parametric, Window
from aggmc_beam.digest import Digest
from aggmc_beam.errors import InputError
from aggmc_beam.estimate import estimate
from aggmc_beam.estimators.constraints import Constraints
from aggmc_beam.hypotheses import equality, stationarity, zero_order
from aggmc_beam.moments import Moments
from aggmc_beam.noise import (
    Binomial,
    Detection,
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    Gaussian,
    Laplace,
    Linear,
    Noise,
    PerStep,
    Poisson,
)
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.simulate import simulate
from aggmc_beam.track import Track

__version__ = "0.1.0"

__all__ = [
    "Binomial",
    "Constraints",
    "Cycle",
    "Detection",
    "Digest",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Estimate",
    "Estimates",
    "Exact",
    "Gaussian",
    "InputError",
    "Laplace",
    "Linear",
    "Moments",
    "Noise",
    "Parametric",
    "PerStep",
    "Poisson",
    "Track",
    "Window",
    "equality",
    "estimate",
    "simulate",
    "stationarity",
    "zero_order",
]
