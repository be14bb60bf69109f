"""Estimate: the step from sums to estimates, for every transform that has sums."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import IntervalWindow

from aggmc_beam.beam.coders import StateCoder
from aggmc_beam.beam.metrics import counter, distribution
from aggmc_beam.errors import InputError
from aggmc_beam.estimators.registry import CELLS, GROUPS
from aggmc_beam.estimators.structure import Structure
from aggmc_beam.fit.fit import Settings
from aggmc_beam.fit.groups import estimate_groups, labelled
from aggmc_beam.noise import Noise
from aggmc_beam.result import Estimate as Found
from aggmc_beam.result import Estimates
from aggmc_beam.sums.records import Group
from aggmc_beam.sums.state import AggregationState

beam.coders.registry.register_coder(AggregationState, StateCoder)


class Estimate(beam.PTransform):  # type: ignore[misc]
    """(key, state) to (key, estimate), or a state to an estimate: one for each group of the state, and each cell of
    its chain. An estimate tells the window of Beam that it belongs to.

    States come from `SumsCombineFn`, `SumRecords` or a run. `noise`, `population` and `chain` are those that the
    sums were made for, unless they are given. A state with too little data to be estimated from has no estimate;
    the counter `skipped_groups` counts those.

    `with_exception_handling()` sends them to a dead-letter output instead: (key, the error) pairs.
    """

    def __init__(
        self,
        noise: Noise | None = None,
        population: float | str | None = None,
        estimator: str = "auto",
        chain: Any = None,
        level: float = 0.95,
        lags: int = 2,
        pooling: str = CELLS,
        structure: Structure | None = None,
    ) -> None:
        super().__init__()
        if pooling == GROUPS:
            raise InputError(
                "pooling 'groups' needs all groups at once, and this transform sees one state after the other; "
                "EstimateTransitions(pooling='groups') has them all"
            )
        if chain is not None:
            chain = Settings(chain=chain).chain
        rest = {
            "estimator": estimator,
            "level": level,
            "lags": lags,
            "pooling": pooling,
            "structure": structure,
        }
        self.fn = EstimateStates(None, noise, population, chain, **rest)
        self.handling: dict[str, Any] | None = None

    @classmethod
    def with_settings(cls, settings: Settings) -> Estimate:
        """With settings made before."""
        made = cls()
        made.fn = EstimateStates(settings)
        return made

    def with_exception_handling(self, **options: Any) -> Estimate:
        """Options are those of `beam.ParDo.with_exception_handling`; the output is then a pair of PCollections."""
        self.handling, self.fn.skip = options, False
        return self

    def expand(self, sums: Any) -> Any:
        step = beam.ParDo(self.fn)
        if self.handling is not None:
            return sums | "Estimate" >> step.with_exception_handling(**self.handling)
        bare = sums.element_type is AggregationState
        return sums | "Estimate" >> step.with_output_types(Found if bare else tuple[Any, Found])


class EstimateStates(beam.DoFn):  # type: ignore[misc]
    """The estimates of states, with the key of each that has one."""

    def __init__(
        self,
        settings: Settings | None = None,
        noise: Noise | None = None,
        population: float | str | None = None,
        chain: Any = None,
        **rest: Any,
    ) -> None:
        self.settings, self.given, self.rest = settings, (noise, population, chain), rest
        self.skip = True
        Settings(**self.rest)
        self.seconds = distribution("milliseconds_per_estimate")
        self.skipped = counter("skipped_groups")

    def process(
        self, element: tuple[Any, AggregationState] | AggregationState, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[tuple[Any, Found] | Found]:
        bare = isinstance(element, AggregationState)
        key, state = (None, element) if isinstance(element, AggregationState) else element
        for _, found in self.estimates(state):
            if isinstance(found, InputError):
                if not self.skip:
                    raise found
                self.skipped.inc()
                continue
            for one in found:
                told = in_window(one, window)
                yield told if bare else (key, told)

    def estimates(self, state: AggregationState) -> Iterator[tuple[Group, list[Found] | InputError]]:
        """The estimates of each group, labelled with its names and times, or why there are none."""
        if not state.groups:
            yield (), InputError("there are no records to estimate from")
        begun = time.perf_counter()
        for group, found in estimate_groups(state, self.settings or self._settings(state)):
            self.seconds.update(int(1000 * (time.perf_counter() - begun)))
            begun = time.perf_counter()
            yield group, found if isinstance(found, InputError) else listed(found, group, state)

    def _settings(self, state: AggregationState) -> Settings:
        noise, population, chain = self.given
        spec = state.spec
        if population is None:
            population = "estimate" if spec.population is None else spec.population
        return Settings(
            noise=spec.noise if noise is None else noise,
            population=population,
            chain=spec.chain if chain is None else chain,
            states=spec.states,
            **self.rest,
        )


def listed(found: Found | Estimates, group: Group, state: AggregationState) -> list[Found]:
    """The estimates of a group, cell by cell."""
    names = dict(zip(state.spec.group_by, group, strict=True)) or None
    shown = labelled(found, names, state.spec.clock)
    return [shown] if isinstance(shown, Found) else list(shown)


def in_window(estimate: Found, window: Any) -> Found:
    """An estimate of the records of a window of Beam, which it tells unless its cell has one of its own."""
    if estimate.window is not None or not isinstance(window, IntervalWindow):
        return estimate
    start, end = (t.to_rfc3339() for t in (window.start, window.end))
    return replace(estimate, window={"start": start, "end": end})
