"""The values that noise models hold and take: their types, and refusing what cannot be one."""

from __future__ import annotations

import math
from numbers import Real
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aggmc_beam.errors import InputError

FloatArray = NDArray[np.float64]
Parameter = float | Literal["estimate"]


def number(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InputError(f"{what} must be a finite number, got {value!r}")
    return float(value)


def positive(what: str, value: object) -> float:
    checked = number(what, value)
    if checked <= 0:
        raise InputError(f"{what} must be above 0, got {checked:g}")
    return checked


def probability(what: str, value: object) -> float:
    checked = number(what, value)
    if not 0 < checked <= 1:
        raise InputError(f"{what} must be above 0 and at most 1, got {checked:g}")
    return checked


def spread(what: str, value: object) -> float:
    checked = number(what, value)
    if checked < 0:
        raise InputError(f"{what} must be 0 or more, got {checked:g}")
    return checked


def known(what: str, value: Parameter) -> float:
    if value == "estimate":
        raise InputError(
            f"{what} is 'estimate': it must be estimated first, "
            "then with_value(number) gives the complete model"
        )
    return float(value)


def vector(mean: ArrayLike) -> FloatArray:
    array = np.asarray(mean, dtype=float)
    if array.ndim != 1:
        raise InputError(f"mean counts must have shape [S], got {list(array.shape)}")
    return array


def whole(n: ArrayLike) -> NDArray[np.int64]:
    """True counts: whole, not negative, at least one axis."""
    array = np.asarray(n)
    if array.ndim == 0 or array.dtype.kind not in "iuf":
        raise InputError("true counts must be an array of whole numbers with the states last")
    if array.dtype.kind == "f" and not (array == np.floor(array)).all():
        raise InputError("true counts must be whole numbers")
    if (array < 0).any():
        raise InputError("true counts must not be negative")
    return array.astype(np.int64, copy=False)
