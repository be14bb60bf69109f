"""CombineFns: shells around `+`. Accumulators hold data; what they mean is told elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from typing import Any

import apache_beam as beam
import numpy as np

from aggmc_beam.beam.coders import CoverageCoder, ReachCoder, SumsCoder
from aggmc_beam.beam.coverage import Coverage, Verdict
from aggmc_beam.beam.values import Reach, empty_sums
from aggmc_beam.chain import Chain
from aggmc_beam.saved import Sums, join_sums
from aggmc_beam.tracks import Tracks


class TrackFn(beam.CombineFn):  # type: ignore[misc]
    """Joins the sums of parts that share no record, with the pairs between them.

    Input, accumulator and output are `Sums`: the open records of each realization and the moments of
    all others, so that little is left to be shuffled.
    """

    def __init__(self, states: int, chain: Chain) -> None:
        self.states, self.chain = states, chain

    def create_accumulator(self) -> Sums:
        return empty_sums(self.states)

    def add_input(self, accumulator: Sums, element: Sums) -> Sums:
        if _is_empty(element):
            return accumulator
        if _is_empty(accumulator):
            return element
        return self.joined(accumulator, element)

    def joined(self, a: Sums, b: Sums) -> Sums:
        return join_sums(a, b, self.chain)

    def merge_accumulators(self, accumulators: Iterable[Sums]) -> Sums:
        return reduce(self.add_input, accumulators, self.create_accumulator())

    def extract_output(self, accumulator: Sums) -> Sums:
        return accumulator

    def get_accumulator_coder(self) -> Any:
        return SumsCoder()


class GroupFn(TrackFn):
    """Joins the sums of different realizations, of which nothing but the span is kept."""

    def joined(self, a: Sums, b: Sums) -> Sums:
        start, stop = (np.concatenate([getattr(s.tracks, n) for s in (a, b)]) for n in ("start", "stop"))
        if len(start):
            start, stop = start.min(keepdims=True), stop.max(keepdims=True)
        tracks = replace(Tracks.empty(self.states), key=0 * start, start=start, stop=stop)
        population = None
        if a.population is not None and b.population is not None:
            population = np.concatenate([a.population, b.population])
        names = a.realizations or b.realizations
        return Sums(a.group, a.digest + b.digest, a.rule, names, tracks, population)


def _is_empty(sums: Sums) -> bool:
    return not sums.realizations and not sums.digest.parts


class CoverageFn(beam.CombineFn):  # type: ignore[misc]
    """What the pieces of the input cover, to a `Verdict` over which realizations must meet."""

    def create_accumulator(self) -> Coverage:
        return Coverage()

    def add_input(self, accumulator: Coverage, element: Coverage) -> Coverage:
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[Coverage]) -> Coverage:
        return reduce(self.add_input, accumulators, Coverage())

    def extract_output(self, accumulator: Coverage) -> Verdict:
        return Verdict.of(accumulator)

    def get_accumulator_coder(self) -> Any:
        return CoverageCoder()


class ReachFn(beam.CombineFn):  # type: ignore[misc]
    """How far a group's data reach."""

    def create_accumulator(self) -> Reach:
        return Reach()

    def add_input(self, accumulator: Reach, element: Reach) -> Reach:
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[Reach]) -> Reach:
        return reduce(lambda a, b: a + b, accumulators, Reach())

    def extract_output(self, accumulator: Reach) -> Reach:
        return accumulator

    def get_accumulator_coder(self) -> Any:
        return ReachCoder()
