"""The estimators by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from aggmc_beam.errors import InputError, nearest
from aggmc_beam.estimators.auto import View, stationary_choice
from aggmc_beam.estimators.constraints import Rules
from aggmc_beam.estimators.fast import fast
from aggmc_beam.estimators.latent import Latent
from aggmc_beam.estimators.limle import limle
from aggmc_beam.estimators.moment_methods import cls, corrected_cls, mom, naive
from aggmc_beam.estimators.simplex import project_rows


def simplex(x: Latent, rules: Rules | None = None) -> np.ndarray:
    """mom, its rows projected onto the simplex: never farther from the truth than mom."""
    return project_rows(mom(x), None if rules is None else rules.fixed)


def gmm(x: Latent, rules: Rules | None = None) -> np.ndarray:
    """gmm on as many lags as the data and the noise allow."""
    return stationary_choice(View(x), rules).P


#: Functions of the latent moments alone.
FREE: Mapping[str, Callable[[Latent], np.ndarray]] = {
    "mom": mom,
    "cls": cls,
    "corrected-cls": corrected_cls,
    "limle": limle,
    "naive": naive,
}
#: Estimators that respect constraints, given as a second argument.
CONSTRAINED: Mapping[str, Callable[[Latent, Rules | None], np.ndarray]] = {
    "simplex": simplex,
    "fast": fast,
    "gmm": gmm,
}
NAMES = (*FREE, *CONSTRAINED, "auto")
#: What may share what it knows: the cells of a chain; the groups of a run too; nothing.
CELLS, GROUPS = "cells", "groups"
POOLINGS = (CELLS, GROUPS, "none")
#: Smooth functions of the moments, whose jackknife is their own. The jackknife of a constrained
#: estimator covers too little, so these report the interval of mom.
SMOOTH = frozenset({"mom", "cls", "corrected-cls"})


def apply(name: str, x: Latent, rules: Rules | None = None) -> np.ndarray:
    """P by a named estimator; `auto` is more than a function of `Latent`, see `choice`."""
    if name in CONSTRAINED:
        return CONSTRAINED[name](x, rules)
    return FREE[name](x)


def check_estimator(name: str, rules: Rules | None) -> None:
    """`InputError` unless `name` is an estimator and can keep the rules."""
    if name not in NAMES:
        raise InputError(f"estimator {name!r} is not known; {nearest(name, NAMES)}")
    if rules is not None and name in FREE:
        raise InputError(f"{name} cannot keep constraints; use auto, gmm, fast or simplex")
    if rules is not None and name == "simplex" and not rules.rows_only:
        raise InputError(
            "simplex treats each row by itself, so it can keep fixed cells and forbidden moves only; "
            "use auto, gmm or fast for a prior, a stationary distribution or reversibility"
        )
