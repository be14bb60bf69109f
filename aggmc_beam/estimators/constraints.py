"""What a user may know of the transition matrix beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from aggmc_beam.errors import InputError

Move = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Constraints:
    """Knowledge that a constrained estimate respects exactly, with states by name or number.

    forbidden: moves (from, to) that cannot happen. fixed: {(from, to): probability}. absorbing:
    states that are never left. reversible: mu_i P_ij = mu_j P_ji. stationary [S]: the known
    stationary distribution, so that stationary P = stationary. prior [S, S]: a matrix that the
    estimate is drawn to as if `prior_weight` individual moves from each state had been seen; it
    takes the place of the built-in ridge, and is not exact but weighed against the data.

    >>> rules = Constraints(forbidden=[("a", "b")], absorbing=["c"]).cells(("a", "b", "c"))
    >>> rules.fixed.tolist()
    [[nan, 0.0, nan], [nan, nan, nan], [0.0, 0.0, 1.0]]
    """

    forbidden: Sequence[Move] = ()
    fixed: Mapping[Move, float] = field(default_factory=dict)
    absorbing: Sequence[Any] = ()
    reversible: bool = False
    stationary: np.ndarray | None = None
    prior: np.ndarray | None = None
    prior_weight: float = 100.0

    def cells(self, states: Sequence[str]) -> Rules:
        """The constraints as arrays for these states; `InputError` if they contradict each other."""
        S, names = len(states), {name: i for i, name in enumerate(states)}

        def index(state: Any) -> int:
            if isinstance(state, str) and state in names:
                return names[state]
            if isinstance(state, int | np.integer) and 0 <= state < S:
                return int(state)
            raise InputError(f"constraints name a state {state!r}; the states are {list(states)}")

        fixed = np.full((S, S), np.nan)

        def fix(i: int, j: int, value: float) -> None:
            if not 0 <= value <= 1:
                raise InputError(f"the fixed probability {value!r} does not lie in [0, 1]")
            if not np.isnan(fixed[i, j]) and fixed[i, j] != value:
                raise InputError(
                    f"the move from {states[i]!r} to {states[j]!r} is given two probabilities, "
                    f"{fixed[i, j]:g} and {value:g}"
                )
            fixed[i, j] = value

        for a, b in self.forbidden:
            fix(index(a), index(b), 0.0)
        for (a, b), value in self.fixed.items():
            fix(index(a), index(b), float(value))
        for state in self.absorbing:
            for j in range(S):
                fix(index(state), j, float(j == index(state)))
        _check_rows(fixed, states)
        return Rules(
            fixed,
            self.reversible,
            _distribution(self.stationary, S),
            *_prior(self.prior, self.prior_weight, fixed),
        )


def refuse_tied_rows(constraints: Constraints) -> None:
    """`InputError` for what groups that share cannot keep."""
    if constraints.reversible or constraints.stationary is not None:
        raise InputError(
            "pooling 'groups' treats each row by itself, so it cannot keep `reversible` and `stationary`; leave "
            "these out, or let cells share only"
        )


@dataclass(frozen=True, eq=False)
class Rules:
    """Constraints as arrays: `fixed` [S, S] with NaN where free, `precision` [S, S] of `prior`."""

    fixed: np.ndarray
    reversible: bool = False
    stationary: np.ndarray | None = None
    prior: np.ndarray | None = None
    precision: np.ndarray | None = None

    @classmethod
    def none(cls, S: int) -> Rules:
        return cls(np.full((S, S), np.nan))

    @property
    def free(self) -> np.ndarray:
        return np.asarray(np.isnan(self.fixed))

    @property
    def rows_only(self) -> bool:
        """Whether each row stands for itself and no prior is weighed in."""
        return not self.reversible and self.stationary is None and self.prior is None

    def restricted(self, keep: np.ndarray) -> Rules:
        """For the states in `keep` [S]; mass fixed on moves to other states is not counted."""
        square = np.ix_(keep, keep)
        stationary = self.stationary
        if stationary is not None:
            stationary = stationary[keep] / stationary[keep].sum()
        return replace(
            self,
            fixed=self.fixed[square],
            stationary=stationary,
            prior=None if self.prior is None else self.prior[square],
            precision=None if self.precision is None else self.precision[square],
        )


def _check_rows(fixed: np.ndarray, states: Sequence[str]) -> None:
    mass, free = np.nansum(fixed, 1), np.isnan(fixed).any(1)
    wrong = np.flatnonzero((mass > 1 + 1e-9) | (~free & (mass < 1 - 1e-9)))
    if len(wrong):
        i = int(wrong[0])
        raise InputError(
            f"the probabilities fixed for moves from {states[i]!r} sum to {mass[i]:g}, but a row sums "
            "to 1; fix fewer cells or other values"
        )


def _distribution(value: Any, S: int) -> np.ndarray | None:
    if value is None:
        return None
    mu = np.asarray(value, np.float64)
    if mu.shape != (S,) or not (mu > 0).all() or abs(mu.sum() - 1) > 1e-6:
        raise InputError(f"the stationary distribution must be {S} positive shares that sum to 1")
    return np.asarray(mu / mu.sum())


def _prior(value: Any, weight: float, fixed: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The prior, and the precisions of shares among `weight` individual moves."""
    if value is None:
        return None, None
    P, S = np.asarray(value, np.float64), len(fixed)
    if P.shape != (S, S) or (P < 0).any() or np.abs(P.sum(1) - 1).max() > 1e-6:
        raise InputError(f"the prior must be a matrix [{S}, {S}] of probabilities with rows that sum to 1")
    if not 0 < weight < np.inf:
        raise InputError(f"prior_weight must be positive, as a number of moves seen; got {weight!r}")
    smooth = (weight * P + 1 / S) / (weight + 1)
    return np.where(np.isnan(fixed), P, fixed), weight / (smooth * (1 - smooth))
