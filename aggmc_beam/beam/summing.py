"""What happens to the records of one key: put together, checked, repeated ones dropped, summed.

A key holds every record of its realizations (over a stretch of time), so that whatever order and
however often they came, the same ones are kept: those that stand first in the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from aggmc_beam.beam.values import Batch, Group
from aggmc_beam.chain import Chain
from aggmc_beam.digest import Digest
from aggmc_beam.local.accumulate import ONE, Accumulator
from aggmc_beam.local.assemble import Long, Records, Rows
from aggmc_beam.local.engine import Plan, accumulator
from aggmc_beam.local.survey import Extent
from aggmc_beam.local.threads import one_blas_thread
from aggmc_beam.moments import Counts, Moments
from aggmc_beam.records import realization_number
from aggmc_beam.saved import Sums
from aggmc_beam.tracks import Line

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
    first = int(stretch.min(initial=0))
    label = (stretch - first) * shards + shard
    if label.max(initial=0) < 1 << 16:
        label = label.astype(np.uint16)  # numpy sorts these by counting
    order = np.argsort(label, kind="stable")
    cuts = np.flatnonzero(np.diff(label[order])) + 1
    for rows in np.split(order, cuts):
        if len(rows):
            away, here = divmod(int(label[rows[0]]), shards)
            yield (here, first + away), take(batch, rows)


def shared_out(total: Accumulator, shards: int) -> Iterator[tuple[Group, int, Sums]]:
    """The sums of an accumulator by group and shard. The first shard of a group has the whole digest;
    the others have only what their realizations must remember."""
    keys, tracks, names = total.keys, total.tracks, total.keys.realizations
    label = keys.group * shards + keys.numbers % shards
    whole: dict[int, Digest] = {}
    for one in np.unique(label[tracks.key]).tolist():
        group, shard = divmod(one, shards)
        members = np.flatnonzero(label == one)
        new = np.full(len(label), -1)
        new[members] = np.arange(len(members))
        digest = whole.setdefault(group, total.digests[group])
        whole[group] = Digest.zero(tracks.states)
        yield (
            keys.groups[group],
            shard,
            Sums(
                dict(zip(total.schema.group_by, keys.groups[group], strict=True)) or None,
                digest,
                total.rules[group],
                [names[k] for k in members],
                tracks.renumbered(new),
            ),
        )


def counted(sums: Sums, chain: Chain) -> Sums:
    """With its realizations counted anew, each where its first step belongs.

    Parts count the realizations that they meet, and what they count cannot be put in its place before
    all of them have joined.
    """
    parts = {at: replace(m, counts=replace(m.counts, realizations=0)) for at, m in sums.digest.parts.items()}
    parts = {at: m for at, m in parts.items() if not _is_empty(m)}
    tracks = sums.tracks
    key, at = np.unique(tracks.key, return_index=True)
    first = np.minimum.reduceat(tracks.start, at) if len(at) else tracks.start
    numbers = np.array([realization_number(n) for n in sums.realizations], np.int64)
    labels = sums.rule.labels(numbers[key], first)
    for place, number in Counter(zip(chain.cells(first).tolist(), labels.tolist(), strict=True)).items():
        known = parts.get(place, Moments.zero(tracks.states))
        parts[place] = replace(known, counts=known.counts + Counts(realizations=number))
    return replace(sums, digest=replace(sums.digest, parts=parts))


def _is_empty(moments: Moments) -> bool:
    pairs = moments.records + moments.lag1.pairs + moments.lag2.pairs
    return pairs == 0 and moments.counts == Counts()


def take(batch: Batch, rows: np.ndarray) -> Batch:
    """Some rows of a batch, with no more names than they need."""
    key = batch.key[rows]
    used = np.zeros(len(batch.names), bool)
    used[key] = True
    new = np.cumsum(used) - 1

    def part(array: np.ndarray | None) -> np.ndarray | None:
        return None if array is None else array[rows]

    return Batch(
        batch.group,
        tuple(batch.names[k] for k in np.flatnonzero(used)),
        new[key],
        batch.time[rows],
        batch.values[rows],
        part(batch.place),
        part(batch.population),
        part(batch.state),
    )


def sum_batches(plan: Plan, group: Group, found: list[Batch], extent: Extent, files: bool) -> Summed:
    """The sums of all records of a key, the same for any order and split of the batches.

    Places in the answer are those of the files, or the number of the batch and of its row.
    """
    total = accumulator(plan)
    uncertainty = plan.config.uncertainty
    total.add_groups({group: extent}, uncertainty.replicates, uncertainty.block)
    first, last = min(int(b.time.min()) for b in found), max(int(b.time.max()) for b in found)
    total.expect_panel({group: replace(extent, first=first, last=last)}, map)
    rows, order = _together(plan, total, group, found, files)
    if plan.schema.state is None:
        records = Records(rows.key, rows.time, rows.values, rows.population, rows.place).part(order)
    else:
        assert rows.state is not None
        long = Rows(rows.key, rows.time, rows.state, rows.values[:, 0], rows.population, rows.place)
        reader = Long(plan.schema, total.keys, total.refused, plan.config.input.absent or "zero")
        records = reader.assemble(long.part(order))
    with one_blas_thread():
        total.take(records)
        total.settle()
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


class _Joined(NamedTuple):
    """The rows of many batches; keys are those of the accumulator."""

    key: np.ndarray
    time: np.ndarray
    values: np.ndarray
    place: np.ndarray
    population: np.ndarray | None
    state: np.ndarray | None


def _together(
    plan: Plan, total: Accumulator, group: Group, found: list[Batch], files: bool
) -> tuple[_Joined, np.ndarray]:
    """All rows, and their order: by realization and time, and of repeated ones the first first."""
    key = np.concatenate([np.array([total.keys.add(group, n) for n in b.names], int)[b.key] for b in found])
    time, values = (np.concatenate([getattr(b, name) for b in found]) for name in ("time", "values"))
    population, state, place = (
        _joined([getattr(b, name) for b in found]) for name in ("population", "state", "place")
    )
    spot = Line.over((key, time)).places(key, time)
    order = _order(spot)
    if order is None or plan.schema.state is not None:
        first = (checksums(values),) if place is None else (place[:, 1], place[:, 0])
        order = np.lexsort((*first, spot))
    if place is None or not files:
        sizes = [len(b) for b in found]
        row = np.concatenate([np.arange(n) for n in sizes])
        place = np.column_stack([np.repeat(np.arange(len(found)), sizes), row])
    return _Joined(key, time, values, place, population, state), order


def _order(spot: np.ndarray) -> np.ndarray | None:
    """What sorts places that all differ; None if they do not."""
    if not len(spot):
        return spot
    low, high = int(spot.min()), int(spot.max())
    if high - low < 4 * len(spot):
        rows = np.full(high - low + 1, -1)
        rows[spot - low] = np.arange(len(spot))
        order = rows[rows >= 0]
        return order if len(order) == len(spot) else None
    order = np.argsort(spot, kind="stable")
    return None if np.any(np.diff(spot[order]) == 0) else order


def _joined(arrays: list[np.ndarray | None]) -> np.ndarray | None:
    kept = [a for a in arrays if a is not None]
    return np.concatenate(kept) if len(kept) == len(arrays) else None


def checksums(values: np.ndarray) -> np.ndarray:
    """A number [n] for each row of values [n, S], which depends on nothing else."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)
    odd = (np.arange(1, values.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    mixed = bits ^ (bits >> np.uint64(29))
    return np.asarray((mixed * odd).sum(1, dtype=np.uint64))
