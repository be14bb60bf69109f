"""Jackknife groups, here called replicates: by which rule records fall into them, and how many there are.

Every engine uses the same rule. It follows the data: a replicate has matrices of its own, S^2 numbers for each
cell of the chain, and more of them than the data can fill would cost memory and time and tell nothing. A run that
goes on from saved sums keeps the rule of the first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aggmc_beam.chain import Chain, EachStep, Parametric, Window
from aggmc_beam.errors import InputError

#: Replicates where data are plenty. More would hardly change an error: it has 49 degrees of freedom.
REPLICATES = 50
#: Replicates where data are few: an error from fewer is hardly one.
FEWEST = 10
#: With fewer realizations than this, stretches of time are left out instead.
FEW_REALIZATIONS = 20
#: Numbers in the matrices of a group, beyond which there are fewer replicates.
MATRICES = 1 << 25


@dataclass(frozen=True)
class Extent:
    """How much a group holds: realizations (or `FEW_REALIZATIONS`, if there are more), records, and the first
    and last step of any."""

    realizations: int
    records: int
    first: int
    last: int

    @property
    def steps(self) -> int:
        return self.last - self.first + 1


def replicates_for(S: int, records: int, cells: int, given: int | None = None) -> int:
    """How many replicates a group has, unless the number is `given`.

    As many as leave each replicate of each cell 2 S records, at most 50 and at least 10: then its four matrices
    are twice as large as its records.

    >>> replicates_for(10, 10**6, 1), replicates_for(10, 333, 1), replicates_for(50, 10**6, 1000)
    (50, 16, 10)
    """
    if given is not None:
        return given
    most = min(REPLICATES, MATRICES // (4 * S * S))
    return max(FEWEST, min(most, records // (2 * S * max(1, cells))))


@dataclass(frozen=True)
class Replicates:
    """The rule of one group: realizations, numbered, are dealt out in turn over `groups`.

    With `per_key` above 1 each realization is cut into that many blocks of time over `span` steps from
    `start`; neighbouring blocks depend on each other only through their borders.

    >>> Replicates.plan(K=1, T=6, groups=3).labels(np.zeros(6, int), np.arange(6)).tolist()
    [0, 0, 1, 1, 2, 2]
    """

    groups: int
    per_key: int = 1
    span: int = 1
    start: int = 0

    @classmethod
    def plan(
        cls, K: int, T: int, groups: int = REPLICATES, start: int = 0, blocks: bool = True
    ) -> Replicates:
        """For K realizations of about T steps: by realization, or with few of them by block of time."""
        if groups < 1:
            raise InputError(f"replicates must be at least 1; got {groups}")
        if not blocks or K >= min(FEW_REALIZATIONS, groups):
            return cls(groups)
        # A block of a single step would be all border.
        per_key = max(1, min(-(-groups // K), T // 2))
        return cls(K * per_key, per_key, T, start)

    @classmethod
    def for_group(
        cls, chain: Chain, S: int, extent: Extent, given: int | None = None, block: int | None = None
    ) -> Replicates:
        """The rule of a group of this extent; with `block` steps, one that depends on no extent."""
        # At a single step only the realizations can be told apart.
        by_time = not isinstance(chain, EachStep)
        if block is not None and by_time:
            groups = REPLICATES if given is None else given
            return cls(groups, groups, block * groups, 0)
        groups = replicates_for(S, extent.records, cells_of(chain, extent.steps), given)
        return cls.plan(max(1, extent.realizations), extent.steps, groups, extent.first, by_time)

    def labels(self, key: np.ndarray, time: np.ndarray) -> np.ndarray:
        """The replicate of each record, given its realization's number and its step."""
        if self.per_key == 1:
            return np.asarray(key % self.groups)
        block = (time - self.start) * self.per_key // self.span
        return np.asarray((key * self.per_key + block) % self.groups)


def cells_of(chain: Chain, steps: int) -> int:
    """How many cells a chain has over so many steps."""
    if isinstance(chain, EachStep):
        return steps
    if isinstance(chain, Window):
        return -(-steps // chain.pane)
    period = getattr(chain, "period", None)
    if period is None:
        return steps if isinstance(chain, Parametric) else 1
    return min(steps, int(period))
