"""Transition matrices of Markov chains from noisy aggregate counts.

Everything a user may touch is named here. A name is imported when it is first used, so that
`import aggmc_beam` and `aggmc --help` start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggmc_beam.chain import Cycle, Parametric, Window
    from aggmc_beam.errors import InputError
    from aggmc_beam.estimation import estimate
    from aggmc_beam.estimators.constraints import Constraints
    from aggmc_beam.estimators.structure import Structure
    from aggmc_beam.fit.diagnosis import diagnose
    from aggmc_beam.fit.hypotheses import equality, stationarity, zero_order
    from aggmc_beam.noise import (
        Binomial,
        Clipped,
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
        Rounded,
        Suppressed,
    )
    from aggmc_beam.result import Estimate, Estimates, Groups, read_estimates
    from aggmc_beam.simulation import simulate
    from aggmc_beam.sums.sums import Sums
    from aggmc_beam.uses.alarms import Alarms, alarms
    from aggmc_beam.uses.change import Change, change
    from aggmc_beam.uses.compare import Comparison, Comparisons, compare
    from aggmc_beam.uses.cross_table import CrossTable, cross_table
    from aggmc_beam.uses.evaluate import Evaluation, evaluate
    from aggmc_beam.uses.flows import Flows, flows
    from aggmc_beam.uses.follows import Follows, follows
    from aggmc_beam.uses.forecast import Forecast

__version__ = "0.1.0"

__all__ = [
    "Alarms",
    "Binomial",
    "Change",
    "Clipped",
    "Comparison",
    "Comparisons",
    "Constraints",
    "CrossTable",
    "Cycle",
    "Detection",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Estimate",
    "Estimates",
    "Evaluation",
    "Exact",
    "Flows",
    "Follows",
    "Forecast",
    "Gaussian",
    "Groups",
    "InputError",
    "Laplace",
    "Linear",
    "Noise",
    "Panel",
    "Parametric",
    "PerStep",
    "Poisson",
    "Rounded",
    "Structure",
    "Sums",
    "Suppressed",
    "Window",
    "alarms",
    "change",
    "compare",
    "cross_table",
    "diagnose",
    "equality",
    "estimate",
    "evaluate",
    "flows",
    "follows",
    "read_estimates",
    "simulate",
    "stationarity",
    "zero_order",
]

#: Where the names live that are not those of noise models.
_HOMES = {
    "Alarms": "uses.alarms",
    "Change": "uses.change",
    "Comparison": "uses.compare",
    "Comparisons": "uses.compare",
    "Constraints": "estimators.constraints",
    "CrossTable": "uses.cross_table",
    "Cycle": "chain",
    "Estimate": "result",
    "Estimates": "result",
    "diagnose": "fit.diagnosis",
    "Evaluation": "uses.evaluate",
    "Flows": "uses.flows",
    "Follows": "uses.follows",
    "Forecast": "uses.forecast",
    "Groups": "result",
    "InputError": "errors",
    "Parametric": "chain",
    "Window": "chain",
    "alarms": "uses.alarms",
    "change": "uses.change",
    "compare": "uses.compare",
    "cross_table": "uses.cross_table",
    "equality": "fit.hypotheses",
    "estimate": "estimation",
    "Structure": "estimators.structure",
    "Sums": "sums.sums",
    "evaluate": "uses.evaluate",
    "flows": "uses.flows",
    "follows": "uses.follows",
    "read_estimates": "result",
    "simulate": "simulation",
    "stationarity": "fit.hypotheses",
    "zero_order": "fit.hypotheses",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"aggmc_beam.{_HOMES.get(name, 'noise')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
