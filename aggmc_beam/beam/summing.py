"""What happens to the records of one key: put together, checked, repeated ones dropped, summed.

A key holds every record of its realizations (over a stretch of time), so that whatever order and
however often they came, the same ones are kept: those that stand first in the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from aggmc_beam.beam.values import Batch, Group
from aggmc_beam.local.accumulate import ONE
from aggmc_beam.local.assemble import Long, Records, Rows
from aggmc_beam.local.engine import Plan, accumulator
from aggmc_beam.local.survey import Extent
from aggmc_beam.records import realization_number
from aggmc_beam.saved import Sums

#: Steps of a realization that stay together; longer ones are spread over several keys.
STRETCH = 1 << 16


@dataclass
class Summed:
    """The sums of a key and what was noticed: places of refused rows, with reasons where they are
    known only here, and places of duplicates that contradict the record that was kept."""

    sums: Sums
    refused: np.ndarray
    reasons: dict[tuple[int, int], str]
    conflicts: np.ndarray
    noticed: dict[str, int] = field(default_factory=dict)


def split(plan: Plan, batch: Batch, shards: int) -> Iterator[tuple[tuple[int, int], Batch]]:
    """(shard, stretch of time) and the rows that belong there. A realization has one shard."""
    numbers = np.array([realization_number(n) for n in batch.names], np.int64) % shards
    shard = numbers[batch.key]
    # Where a population is that of a realization's first record, all its records stay together.
    stretch = batch.time // STRETCH if plan.populations == ONE else np.zeros(len(batch), np.int64)
    order = np.lexsort((stretch, shard))
    a, b = shard[order], stretch[order]
    cuts = np.flatnonzero((np.diff(a) != 0) | (np.diff(b) != 0)) + 1
    for rows in np.split(order, cuts):
        if len(rows):
            yield (int(shard[rows[0]]), int(stretch[rows[0]])), take(batch, np.sort(rows))


def take(batch: Batch, rows: np.ndarray) -> Batch:
    """Some rows of a batch, with no more names than they need."""
    found, key = np.unique(batch.key[rows], return_inverse=True)
    return Batch(
        batch.group,
        tuple(batch.names[k] for k in found),
        key,
        batch.time[rows],
        batch.values[rows],
        batch.place[rows],
        None if batch.population is None else batch.population[rows],
        None if batch.state is None else batch.state[rows],
    )


def sum_batches(plan: Plan, group: Group, batches: Iterable[Batch], extent: Extent) -> Summed:
    """The sums of all records of a key, the same for any order and split of the batches."""
    total = accumulator(plan)
    uncertainty = plan.config.uncertainty
    total.add_groups({group: extent}, uncertainty.replicates, uncertainty.block)
    found = list(batches)
    key = np.concatenate([np.array([total.keys.add(group, n) for n in b.names], int)[b.key] for b in found])
    time, values, place = (
        np.concatenate([getattr(b, name) for b in found]) for name in ("time", "values", "place")
    )
    population = None
    if all(b.population is not None for b in found):
        population = np.concatenate([b.population for b in found if b.population is not None])
    order = np.lexsort((place[:, 1], place[:, 0], time))
    if plan.schema.state is None:
        records = Records(key, time, values, population, place).part(order)
    else:
        state = np.concatenate([b.state for b in found if b.state is not None])
        rows = Rows(key, time, state, values[:, 0], population, place).part(order)
        reader = Long(plan.schema, total.keys, total.refused, plan.config.input.absent or "zero")
        records = reader.assemble(rows)
    total.take(records)
    for keys in total.refused.repeated:
        total.count_duplicates(total.keys.group[keys])
    refused, none = total.refused, np.zeros((0, 2), np.int64)
    noticed = {
        "conflicting": refused.conflicting,
        "filled_with_zero": refused.filled,
        "incomplete": refused.incomplete,
        "rejected": refused.number,
        "kept": total.kept,
        "used": total.used,
        "duplicate": total.duplicate + refused.duplicate,
    }
    return Summed(
        total.saved().groups[0],
        np.concatenate([none, *refused.places]),
        refused.reasons,
        np.concatenate([none, *total.conflicts]),
        noticed,
    )
