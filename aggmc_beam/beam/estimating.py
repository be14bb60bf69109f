"""From the sums of a group to its estimates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import apache_beam as beam

from aggmc_beam.beam.bounded import SKIPPED, counter
from aggmc_beam.local.engine import Plan, accumulator, labelled
from aggmc_beam.beam.values import Reach
from aggmc_beam.errors import InputError
from aggmc_beam.ledger import check_rejected
from aggmc_beam.moments import Counts
from aggmc_beam.result import Estimate
from aggmc_beam.saved import Saved, Sums, estimate_sums


class EstimateGroup(beam.DoFn):  # type: ignore[misc]
    """The sums of a group to its estimates; a group with too little data goes to `SKIPPED`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def process(
        self, element: tuple[str, Sums], noticed: dict[str, int], reach: Iterable[tuple[str, Reach]]
    ) -> Iterator[tuple[str, list[Estimate]] | Any]:
        key, sums = element
        check_limit(self.plan, noticed)
        if all(group == key for group, _ in reach):
            sums = with_noticed(sums, noticed)
        try:
            yield key, estimates(self.plan, sums)
        except InputError as error:
            counter("skipped_groups").inc()
            yield beam.pvalue.TaggedOutput(SKIPPED, (key, str(error)))


def with_noticed(sums: Sums, noticed: dict[str, int]) -> Sums:
    """What belongs to no record, counted with the only group there is."""
    if not sums.digest.parts:
        return sums
    return replace(sums, digest=sums.digest.counted(Counts(rejected=noticed.get("rejected", 0))))


def estimates(plan: Plan, sums: Sums) -> list[Estimate]:
    """The estimates of one group, cell by cell, labelled with its group and times."""
    found = labelled(estimate_sums(header(plan), sums, plan.settings), sums.group, plan.schema.clock)
    return [found] if isinstance(found, Estimate) else list(found)


def header(plan: Plan) -> Saved:
    """How the sums of a plan are made, without sums."""
    return accumulator(plan).saved()


def check_limit(plan: Plan, noticed: dict[str, int]) -> None:
    rejected = noticed.get("rejected", 0)
    read = rejected + noticed.get("used", 0) + noticed.get("duplicate", 0)
    check_rejected(rejected, read, plan.config.max_rejected)
