"""The estimators by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.estimators.limle import limle
from aggmc_beam.estimators.paper import cls, corrected_cls, mom, naive
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.latent import Latent

Estimator = Callable[[Latent], np.ndarray]


def simplex(x: Latent) -> np.ndarray:
    """mom, its rows projected onto the simplex: never farther from the truth than mom."""
    return project_rows(mom(x))


ESTIMATORS: Mapping[str, Estimator] = {
    "mom": mom,
    "cls": cls,
    "corrected-cls": corrected_cls,
    "limle": limle,
    "naive": naive,
    "simplex": simplex,
    "auto": simplex,
}
#: Smooth functions of the moments, whose jackknife is their own. The jackknife of a constrained
#: estimator covers too little, so these report the interval of mom.
SMOOTH = frozenset({"mom", "cls", "corrected-cls"})


def check_estimator(name: str) -> None:
    """`InputError` with the nearest valid name unless `name` is an estimator."""
    if name not in ESTIMATORS:
        close = get_close_matches(str(name), ESTIMATORS, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise InputError(f"estimator {name!r} is not known; {hint}Valid: {', '.join(ESTIMATORS)}")
