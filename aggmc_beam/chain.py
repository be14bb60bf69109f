"""How the transition matrix may change with time, and the cells in which sums are kept for it.

A pair belongs to the cell of its left end, so none is lost at a boundary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from aggmc_beam.errors import InputError, nearest

#: Steps times harmonics of a parametric chain; a year of hours with ten of them has 87,600.
MAX_COVARIATES = 1_000_000


class Chain(Protocol):
    """`cells(time)` gives the cell of each left end; `centred` says whether the two ends of a
    cell's pairs have their own means (True) or share one (False)."""

    @property
    def name(self) -> str: ...
    @property
    def centred(self) -> bool: ...
    def cells(self, time: np.ndarray) -> np.ndarray: ...
    def groups(self, cells: list[int]) -> list[tuple[int, list[int]]]:
        """What is estimated: (cell number, the cells whose sums it pools)."""
        ...


@dataclass(frozen=True)
class Stationary:
    """One matrix for all times, and counts that have settled: a single cell.

    >>> Stationary().cells(np.arange(3)).tolist()
    [0, 0, 0]
    """

    name = "stationary"
    centred = False

    def cells(self, time: np.ndarray) -> np.ndarray:
        return np.zeros(len(time), np.int64)

    def groups(self, cells: list[int]) -> list[tuple[int, list[int]]]:
        return [(0, cells)]


@dataclass(frozen=True)
class EachStep:
    """A matrix for each step, from the realizations' spread at that step (at least two needed)."""

    name = "per-step"
    centred = True

    def cells(self, time: np.ndarray) -> np.ndarray:
        return np.asarray(time, np.int64)

    def groups(self, cells: list[int]) -> list[tuple[int, list[int]]]:
        return [(c, [c]) for c in cells]


@dataclass(frozen=True)
class Window:
    """A matrix for each window of `size` steps; a window starts every `every` steps.

    Windows are made of panes as wide as the greatest common divisor of the two, so a pair is
    summed once however many windows share it. As with Beam's sliding windows, every window that
    holds data is estimated, also those at the two ends that hold less of it.

    >>> Window(size=4, every=2).groups([0, 1, 2])
    [(-2, [0]), (0, [0, 1]), (2, [1, 2]), (4, [2])]
    """

    size: int
    every: int | None = None

    name = "window"
    centred = False

    def __post_init__(self) -> None:
        _positive("window size", self.size)
        if self.every is None:
            object.__setattr__(self, "every", self.size)
        _positive("window every", self.every)

    @property
    def pane(self) -> int:
        return math.gcd(self.size, self.every or self.size)

    def cells(self, time: np.ndarray) -> np.ndarray:
        return np.asarray(time, np.int64) // self.pane

    def groups(self, cells: list[int]) -> list[tuple[int, list[int]]]:
        """(first step, panes) of each window."""
        every, panes, present = self.every or self.size, self.size // self.pane, set(cells)
        starts = {
            (c * self.pane - back) // every * every for c in cells for back in range(0, self.size, every)
        }
        windows = []
        for start in sorted(starts):
            first = start // self.pane
            windows.append((start, [c for c in range(first, first + panes) if c in present]))
        return [(start, found) for start, found in windows if found]


#: Days of a week, from the one of step 0 if steps count from 1970: a Thursday.
WEEK = ("thursday", "friday", "saturday", "sunday", "monday", "tuesday", "wednesday")


@dataclass(frozen=True)
class Cycle:
    """A matrix for each phase t mod `period`: hour of the day, day of the week.

    Rounds may be of several `kinds`, such as working days and weekends, each with matrices of its own: `kinds` are
    those of the rounds from step 0 on, numbers from 0, and come again. Cell t mod period + kind * period.

    >>> Cycle(24).cells(np.array([23, 24, 25])).tolist()
    [23, 0, 1]
    >>> Cycle(24, kinds=(0, 0, 0, 0, 0, 1, 1)).cells(np.array([24 * 4 + 8, 24 * 5 + 8])).tolist()
    [8, 32]
    """

    period: int
    kinds: tuple[int, ...] = (0,)

    name = "cycle"
    centred = True

    def __post_init__(self) -> None:
        _positive("cycle period", self.period)
        object.__setattr__(self, "kinds", tuple(self.kinds))
        known = all(isinstance(k, int | np.integer) and not isinstance(k, bool) for k in self.kinds)
        if not known or sorted(set(self.kinds)) != list(range(len(set(self.kinds)))) or not self.kinds:
            raise InputError(f"cycle kinds must be numbers from 0 on, such as (0, 0, 1); got {self.kinds}")

    @classmethod
    def day_types(
        cls, period: int = 24, rest: Sequence[str] = ("saturday", "sunday"), first: str = WEEK[0]
    ) -> Cycle:
        """Working days and days of `rest`, each of `period` steps. `first` is the day of the week of step 0: a
        Thursday where time stamps are counted from 1970, as they are unless an origin is given.

        >>> Cycle.day_types(24, first="monday").kinds
        (0, 0, 0, 0, 0, 1, 1)
        """
        for day in (first, *rest):
            if day not in WEEK:
                raise InputError(f"{day!r} is no day of the week; {nearest(day, WEEK)}")
        at = WEEK.index(first)
        days = WEEK[at:] + WEEK[:at]
        found = tuple(int(day in rest) for day in days)
        if len(set(found)) < 2:
            raise InputError(
                "day types need days of rest and others; with one kind of days use Cycle(period)"
            )
        return cls(period, found)

    def cells(self, time: np.ndarray) -> np.ndarray:
        turn, phase = np.divmod(np.asarray(time, np.int64), self.period)
        return np.asarray(np.array(self.kinds)[turn % len(self.kinds)] * self.period + phase)

    def next_cell(self, cell: int) -> int | None:
        """The cell of the steps that follow a cell's; None if they are not all in one."""
        if cell % self.period < self.period - 1:
            return cell + 1
        return 0 if len(self.kinds) == 1 else None

    def groups(self, cells: list[int]) -> list[tuple[int, list[int]]]:
        return [(c, [c]) for c in cells]

    def note(self) -> dict[str, Any]:
        """As estimates tell it."""
        return {"period": self.period, **({"kinds": list(self.kinds)} if len(self.kinds) > 1 else {})}

    @classmethod
    def of_note(cls, note: Mapping[str, Any]) -> Cycle:
        return cls(int(note["period"]), tuple(note.get("kinds", (0,))))


@dataclass(frozen=True, eq=False)
class Parametric:
    """P_t with logits linear in covariates: P_t(i, j) proportional to exp(theta_ij . z_t).

    `covariates` [T, q] are z_t for steps 0 .. T - 1; a column of ones is put in front. With
    `period`, row t mod period applies, and the steps of a phase share a cell.
    `weighting` "plain" is the paper's sum of squares; "shares" weighs row i of step t by
    mu_t(i)^2, near the inverse variance of that row.

    >>> Parametric(np.linspace(0, 1, 10)[:, None]).design[-1].tolist()   # a trend over ten steps
    [1.0, 1.0]
    """

    covariates: np.ndarray
    period: int | None = None
    weighting: str = "shares"
    design: np.ndarray = field(init=False)

    name = "parametric"
    centred = True

    def __post_init__(self) -> None:
        z = np.asarray(self.covariates, np.float64)
        if z.ndim != 2 or not np.isfinite(z).all():
            raise InputError(f"covariates must be a finite array [T, q]; got shape {z.shape}")
        if self.period is not None and len(z) != self.period:
            raise InputError(
                f"with period {self.period} there must be as many rows of covariates, not {len(z)}"
            )
        if self.weighting not in ("plain", "shares"):
            raise InputError(f"weighting must be 'plain' or 'shares', not {self.weighting!r}")
        object.__setattr__(self, "design", np.column_stack([np.ones(len(z)), z]))

    @classmethod
    def harmonics(cls, period: int, order: int = 1, weighting: str = "shares") -> Parametric:
        """Covariates cos and sin of 2 pi h t / period for h = 1 .. order, e.g. time of day.

        >>> Parametric.harmonics(24, order=2).design.shape
        (24, 5)
        """
        _positive("period", period)
        _positive("order", order)
        if 2 * order >= period:
            raise InputError(f"period {period} can carry harmonics of order below {period / 2:g} only")
        if period * order > MAX_COVARIATES:
            raise InputError(f"period {period} with harmonics of order {order} has too many covariates")
        angle = 2 * np.pi * np.arange(period)[:, None] * np.arange(1, order + 1) / period
        return cls(np.column_stack([np.cos(angle), np.sin(angle)]), period, weighting)

    def cells(self, time: np.ndarray) -> np.ndarray:
        time = np.asarray(time, np.int64)
        return time if self.period is None else time % self.period

    def groups(self, cells: list[int]) -> list[tuple[int, list[int]]]:
        return [(c, [c]) for c in cells]


@dataclass(frozen=True)
class LocalChain:
    """A chain whose cells go by other steps, such as those that local clocks show."""

    chain: Chain
    local: Callable[[np.ndarray], np.ndarray]

    @property
    def name(self) -> str:
        return self.chain.name

    @property
    def centred(self) -> bool:
        return self.chain.centred

    def cells(self, time: np.ndarray) -> np.ndarray:
        return self.chain.cells(self.local(time))

    def groups(self, cells: list[int]) -> list[tuple[int, list[int]]]:
        return self.chain.groups(cells)


def as_chain(chain: Chain | str) -> Chain:
    """A chain from its name or itself.

    >>> as_chain("per-step").name
    'per-step'
    """
    if chain == "stationary":
        return Stationary()
    if chain == "per-step":
        return EachStep()
    if isinstance(chain, str) or not hasattr(chain, "cells"):
        raise InputError(
            f"chain {chain!r} is not known; use 'stationary', 'per-step', Window(size, every), "
            "Cycle(period) or Parametric(covariates)"
        )
    return chain


def _positive(what: str, value: object) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise InputError(f"{what} must be a whole number of steps, at least 1; got {value!r}")
