"""Transition matrices of Markov chains from noisy aggregate counts.

Everything a user may touch is named here. A name is imported when it is first used, so that
`import aggmc_beam` and `aggmc --help` start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggmc_beam.chain import Cycle, Parametric, Window
    from aggmc_beam.diagnose import diagnose
    from aggmc_beam.errors import InputError
    from aggmc_beam.estimation import estimate
    from aggmc_beam.estimators.constraints import Constraints
    from aggmc_beam.hypotheses import equality, stationarity, zero_order
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
        Panel,
        PerStep,
        Poisson,
    )
    from aggmc_beam.result import Estimate, Estimates
    from aggmc_beam.simulation import simulate
    from aggmc_beam.sums.sums import Sums

__version__ = "0.1.0"

__all__ = [
    "Binomial",
    "Constraints",
    "Cycle",
    "Detection",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Estimate",
    "Estimates",
    "Exact",
    "Gaussian",
    "InputError",
    "Laplace",
    "Linear",
    "Noise",
    "Panel",
    "Parametric",
    "PerStep",
    "Poisson",
    "Sums",
    "Window",
    "diagnose",
    "equality",
    "estimate",
    "simulate",
    "stationarity",
    "zero_order",
]

#: Where the names live that are not those of noise models.
_HOMES = {
    "Constraints": "estimators.constraints",
    "Cycle": "chain",
    "Estimate": "result",
    "Estimates": "result",
    "diagnose": "diagnose",
    "InputError": "errors",
    "Parametric": "chain",
    "Window": "chain",
    "equality": "hypotheses",
    "estimate": "estimation",
    "Sums": "sums.sums",
    "simulate": "simulation",
    "stationarity": "hypotheses",
    "zero_order": "hypotheses",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"aggmc_beam.{_HOMES.get(name, 'noise')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
