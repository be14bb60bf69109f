"""Flows of many realizations, one after the other: what they have in common is learned once."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from aggmc_beam.clock import Clock
from aggmc_beam.noise import Exact
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.uses.activity import LEARN_FROM, Habits, learn
from aggmc_beam.uses.flows import Flows, expected, not_closed
from aggmc_beam.uses.series import Series, batches, padded
from aggmc_beam.uses.transitions import Transitions

#: Series from which habits are learned.
SAMPLE = 64
#: Entries of tables that are made at once, of which some ten arrays are held.
ENTRIES = 1 << 21


def sample(series: Iterable[Series]) -> list[Series]:
    """Some of the series with a pair; the same ones whatever their order, and on every engine."""
    with_pairs = (s for s in series if _has_pair(s))
    return heapq.nsmallest(SAMPLE, with_pairs, key=lambda s: (zlib.crc32(s.name.encode()), s.name, s.start))


def _has_pair(series: Series) -> bool:
    seen = ~np.isnan(series.counts).any(1)
    return bool((seen[1:] & seen[:-1]).any())


@dataclass(frozen=True, eq=False)
class FlowModel:
    """An estimate, and the habits of those who move."""

    chain: Transitions
    habits: Habits
    level: float

    @classmethod
    def learned(
        cls, estimate: Estimate | Estimates, some: Sequence[Series], clock: Clock | None = None
    ) -> FlowModel:
        """From some of the series; see `sample`. clock: by which their steps are counted."""
        chain = Transitions.of(estimate, clock)
        level = estimate.level if isinstance(estimate, Estimate) else estimate[0].level
        if chain.noise.varies:
            some = [s for s in some if s.start == some[0].start]
        some = [s.since(s.start + len(s.counts) - LEARN_FROM) for s in some]
        habits = learn(padded(some), chain.from_step(some[0].start), _cells(chain, some))
        return cls(chain, habits, level)

    def why_not(self, series: Series) -> str | None:
        """Why a series has no flows, if it has none."""
        if len(series.counts) < 2:
            return "no two of its steps follow each other"
        return not_closed(series.counts) if isinstance(self.chain.noise, Exact) else None

    def flows(self, series: Sequence[Series]) -> Iterator[tuple[list[Series], Flows]]:
        """Of series for which nothing stands in the way, batch by batch; behind the end of a series, which may be
        shorter than others of its batch, flows mean nothing."""
        starts = {s.start for s in series} if self.chain.noise.varies else {None}
        for start in sorted(starts, key=lambda t: t or 0):
            same = [s for s in series if start is None or s.start == start]
            for batch in batches(same, ENTRIES // len(self.chain.states)):
                chain = self.chain if start is None else self.chain.from_step(start)
                yield batch, expected(padded(batch), chain, _cells(chain, batch), self.habits, self.level)


def _cells(chain: Transitions, series: Sequence[Series]) -> np.ndarray:
    """[K, T - 1]: the cell of each pair of padded series."""
    steps = max(len(s.counts) for s in series) - 1
    return chain.at(np.array([s.start for s in series])[:, None] + np.arange(steps))
