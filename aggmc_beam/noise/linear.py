"""Linear observations with a matrix of their own, such as reports that confuse states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from aggmc_beam.errors import InputError
from aggmc_beam.noise.checks import FloatArray, vector, whole
from aggmc_beam.noise.model import Noise
from aggmc_beam.noise.steps import sample_steps


@dataclass(frozen=True, init=False, eq=False)
class Linear(Noise):
    """Any observation with E[y | n] = A n + b, such as reports that confuse states.

    Shapes: `A` [S, S] (column j: where one individual of state j is counted), `b` [S] (default 0),
    `covariance` [S, S] of the noise at lag 0, if known. With a leading axis T each is per step,
    and step t uses entry t mod T. Without a covariance, lag 0 is of no use to an estimator.

    `sample` adds Gaussian noise with that covariance, and returns exactly A n + b without one.

    >>> Linear([[0.9, 0.2], [0.1, 0.8]]).sample([60, 40], np.random.default_rng(0))
    array([62., 38.])
    """

    A: FloatArray
    b: FloatArray
    noise_covariance: FloatArray | None

    name: ClassVar[str] = "linear"

    def __init__(self, A: ArrayLike, b: ArrayLike | None = None, covariance: ArrayLike | None = None) -> None:
        matrix = _finite_array("linear A", A)
        if matrix.ndim not in (2, 3) or matrix.shape[-1] != matrix.shape[-2] or matrix.size == 0:
            raise InputError(f"linear A must have shape [S, S] or [T, S, S], got {list(matrix.shape)}")
        condition = float(np.max(np.linalg.cond(matrix)))
        if not condition < 1e12:
            raise InputError(
                f"linear A is singular (condition number {condition:.3g}): the true counts cannot "
                "be recovered from A n; merge the states that A confuses"
            )
        S = matrix.shape[-1]
        offset = np.zeros(S) if b is None else _finite_array("linear b", b)
        if offset.ndim not in (1, 2) or offset.shape[-1] != S:
            raise InputError(f"linear b must have shape [{S}] or [T, {S}], got {list(offset.shape)}")
        spread = None if covariance is None else _covariance_array(covariance, S)
        object.__setattr__(self, "A", matrix)
        object.__setattr__(self, "b", offset)
        object.__setattr__(self, "noise_covariance", spread)
        if len(lengths := {len(array) for array in self._per_step()}) > 1:
            raise InputError(
                f"linear A, b and covariance are given for different numbers of steps: {sorted(lengths)}"
            )
        for array in (matrix, offset) if spread is None else (matrix, offset, spread):
            array.setflags(write=False)

    @property
    def varies(self) -> bool:
        return bool(self._per_step())

    @property
    def diagonal(self) -> bool | None:
        if self.noise_covariance is None:
            return None
        off = self.noise_covariance * (1 - np.eye(self.A.shape[-1]))
        return not off.any()

    @property
    def additive(self) -> bool:
        unit = not (self.A - np.eye(self.A.shape[-1])).any() and not self.b.any()
        return unit and self.noise_covariance is not None

    def at(self, t: int) -> Linear:
        if not self.varies:
            return self
        t %= len(self._per_step()[0])
        A = self.A[t] if self.A.ndim == 3 else self.A
        b = self.b[t] if self.b.ndim == 2 else self.b
        spread = self.noise_covariance
        return Linear(A, b, spread[t] if spread is not None and spread.ndim == 3 else spread)

    def matrix(self, S: int) -> FloatArray:
        self._check(S)
        return self.A.copy()

    def offset(self, S: int) -> FloatArray:
        self._check(S)
        return self.b.copy()

    def covariance(self, mean: ArrayLike) -> FloatArray | None:
        self._check(len(vector(mean)))
        return None if self.noise_covariance is None else self.noise_covariance.copy()

    def sample(self, n: ArrayLike, rng: np.random.Generator) -> FloatArray:
        counts = whole(n)
        if self.varies:
            return sample_steps(self, counts, rng)
        self._check(counts.shape[-1])
        y: FloatArray = counts @ self.A.T + self.b
        if self.noise_covariance is None:
            return y
        # A symmetric root, because Cholesky would refuse a covariance with zero directions.
        values, vectors = np.linalg.eigh(self.noise_covariance)
        root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        return np.asarray(y + rng.standard_normal(counts.shape) @ root)

    def to_dict(self) -> dict[str, Any]:
        described = {"model": self.name, "A": self.A.tolist()}
        if self.b.any() or self.b.ndim == 2:
            described["b"] = self.b.tolist()
        if self.noise_covariance is not None:
            described["covariance"] = self.noise_covariance.tolist()
        return described

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Linear) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.A.tobytes(), self.b.tobytes()))

    def _per_step(self) -> list[FloatArray]:
        """Those of A, b and the covariance that have a leading time axis."""
        found = [array for array, ndim in ((self.A, 2), (self.b, 1)) if array.ndim > ndim]
        spread = self.noise_covariance
        return [*found, spread] if spread is not None and spread.ndim > 2 else found

    def _check(self, S: int) -> None:
        if self.varies:
            raise InputError("this linear noise differs by time step: ask at(t) for one step")
        if self.A.shape[-1] != S:
            raise InputError(f"linear A is {self.A.shape[-1]} x {self.A.shape[-1]} but there are {S} states")


def _finite_array(what: str, value: ArrayLike) -> FloatArray:
    try:
        array = np.array(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be an array of numbers ({error})") from None
    if not np.isfinite(array).all():
        raise InputError(f"{what} must be finite")
    return array


def _covariance_array(value: ArrayLike, S: int) -> FloatArray:
    array = _finite_array("linear covariance", value)
    if array.ndim not in (2, 3) or array.shape[-2:] != (S, S):
        raise InputError(
            f"linear covariance must have shape [{S}, {S}] or [T, {S}, {S}], got {list(array.shape)}"
        )
    size = np.abs(array).max()
    if np.abs(array - array.swapaxes(-1, -2)).max() > 1e-9 * size:
        raise InputError("linear covariance must be symmetric")
    lowest = np.linalg.eigvalsh(array).min()
    if lowest < -1e-9 * size:
        raise InputError(f"linear covariance has a negative eigenvalue ({lowest:.3g})")
    return array
