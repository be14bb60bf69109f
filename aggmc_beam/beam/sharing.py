"""ShareGroups: estimates of groups, drawn to what all groups have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from aggmc_beam.beam.exact import of_groups
from aggmc_beam.beam.joining import group_key
from aggmc_beam.estimators.registry import GROUPS
from aggmc_beam.fit.drawing import InCommon, add_told, drawn, told
from aggmc_beam.fit.fit import Fit, Settings
from aggmc_beam.fit.groups import group_sums
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.sums.records import Group
from aggmc_beam.sums.state import AggregationState


class ShareGroups(beam.PTransform):  # type: ignore[misc]
    """((bucket, state) pairs, (group, estimates) pairs) to (group, estimates) pairs.

    What groups tell is small and added up as one side input; the sums of a group stay where they are.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings

    def expand(self, inputs: tuple[Any, Any]) -> Any:
        states, estimates = inputs
        settings = self.settings
        sums = states | "By group" >> beam.FlatMapTuple(_by_group).with_output_types(
            tuple[str, AggregationState]
        )
        own = estimates | "Key" >> beam.MapTuple(_keyed).with_output_types(
            tuple[str, tuple[Group, list[Estimate]]]
        )
        groups = {"sums": sums, "own": own} | "Meet" >> beam.CoGroupByKey()
        common = (
            groups
            | "Tell" >> beam.FlatMap(_told, settings)
            | "Common" >> beam.CombineGlobally(add_told).without_defaults()
        )
        return groups | "Draw" >> beam.FlatMap(
            _drawn, settings, beam.pvalue.AsSingleton(common)
        ).with_output_types(tuple[Group, list[Estimate]])


def with_pooling(settings: Settings, states: Any, estimates: Any) -> Any:
    """Estimates by group, which share if the settings ask for it."""
    if settings.pooling != GROUPS:
        return estimates
    return (states, estimates) | "Share" >> ShareGroups(settings)


def _by_group(_: int, state: AggregationState) -> Iterator[tuple[str, AggregationState]]:
    for number, group in enumerate(state.groups):
        yield group_key(group), of_groups(state, np.array([number]))


def _keyed(group: Group, found: list[Estimate]) -> tuple[str, tuple[Group, list[Estimate]]]:
    return group_key(group), (group, found)


def _told(met: tuple[str, dict[str, Any]], settings: Settings) -> Iterator[InCommon]:
    for state in met[1]["sums"]:
        for _group, found in met[1]["own"]:
            yield told(Fit(*group_sums(state, 0, settings)), _joined(found))


def _drawn(
    met: tuple[str, dict[str, Any]], settings: Settings, common: InCommon
) -> Iterator[tuple[Group, list[Estimate]]]:
    for state in met[1]["sums"]:
        for group, found in met[1]["own"]:
            shown = drawn(Fit(*group_sums(state, 0, settings)), _joined(found), common)
            yield group, [shown] if isinstance(shown, Estimate) else list(shown)


def _joined(found: list[Estimate]) -> Estimate | Estimates:
    return found[0] if found[0].cell is None else Estimates(tuple(found))
