"""What happens to the records of one key: put together, checked, repeated ones dropped, summed.

A key holds every record of its realizations (over a stretch of time), so that whatever order and
however often they came, the same ones are kept: those that stand first in the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from aggmc_beam.beam.former.accumulate import ONE, Accumulator
from aggmc_beam.beam.former.assemble import Long, Records, Rows
from aggmc_beam.beam.former.engine import Plan, accumulator
from aggmc_beam.beam.former.stretches import heads_of, limits_of
from aggmc_beam.beam.former.survey import Extent
from aggmc_beam.beam.values import Batch, Group
from aggmc_beam.blas import one_blas_thread
from aggmc_beam.chain import Chain
from aggmc_beam.digest import Digest
from aggmc_beam.moments import Counts, Moments
from aggmc_beam.records import realization_number
from aggmc_beam.saved import Sums
from aggmc_beam.tracks import Line, Tracks

#: Steps of a realization that stay together; longer ones are spread over several keys.
STRETCH = 1 << 16
#: Values of open records that are held before sums are handed on.
OPEN = 4_000_000
#: With more than this many places for each record, finding equal ones by sorting is better.
SPARSE = 32


@dataclass
class Noticed:
    """What was noticed of the records of a key: places of refused rows, with reasons where they are known
    only here, and places of duplicates that contradict the record that was kept."""

    refused: np.ndarray
    reasons: dict[tuple[int, int], str]
    conflicts: np.ndarray
    counts: dict[str, int]

    @classmethod
    def of(cls, total: Accumulator, refused: int = 0, conflicts: int = 0) -> Noticed:
        """What an accumulator noticed, with places from these on."""
        none = np.zeros((0, 2), np.int64)
        return cls(
            np.concatenate([none, *total.refused.places[refused:]]),
            total.refused.reasons,
            np.concatenate([none, *total.conflicts[conflicts:]]),
            counts_of(total),
        )


def counts_of(total: Accumulator) -> dict[str, int]:
    """What became of the rows so far."""
    refused = total.refused
    return {
        "conflicting": refused.conflicting,
        "filled_with_zero": refused.filled,
        "incomplete": refused.incomplete,
        "rejected": refused.number,
        "kept": total.kept,
        "used": total.used,
        "duplicate": total.duplicate + refused.duplicate,
    }


def split(plan: Plan, batch: Batch, shards: int) -> Iterator[tuple[tuple[int, int], Batch]]:
    """(shard, stretch of time) and the rows that belong there. A realization has one shard."""
    if not len(batch):
        return
    numbers = np.array([realization_number(n) for n in batch.names], np.int64) % shards
    # Where a population is that of a realization's first record, all its records stay together.
    first, last = (t // STRETCH for t in limits_of(batch.time)) if plan.populations == ONE else (0, 0)
    heads = heads_of(batch.key) if first == last else None
    if heads is not None:
        # Rows of a realization mostly follow each other, and then go together.
        shard, ends = numbers[batch.key[heads]], np.append(heads[1:], len(batch))
        for here in np.unique(shard).tolist():
            mine = shard == here
            yield (here, first), take(batch, _ranges(heads[mine], ends[mine]))
        return
    stretch = batch.time // STRETCH if first < last else np.full(len(batch), first)
    label = (stretch - first) * shards + numbers[batch.key]
    if label.max(initial=0) < 1 << 16:
        label = label.astype(np.uint16)  # numpy sorts these by counting
    order = np.argsort(label, kind="stable")
    cuts = np.flatnonzero(np.diff(label[order])) + 1
    for rows in np.split(order, cuts):
        if len(rows):
            away, here = divmod(int(label[rows[0]]), shards)
            yield (here, first + away), take(batch, rows)


def _ranges(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """The numbers of several ranges, one after the other.

    >>> _ranges(np.array([0, 7]), np.array([2, 10])).tolist()
    [0, 1, 7, 8, 9]
    """
    length = stops - starts
    away = np.cumsum(length) - length
    return np.repeat(starts - away, length) + np.arange(length.sum())


def digests_of(total: Accumulator) -> Iterator[tuple[Group, Sums]]:
    """The digests of an accumulator by group, without any realization; see `counted`."""
    tracks, population = Tracks.empty(total.tracks.states), None if total.populations == ONE else np.zeros(0)
    # Groups that were met last may have sent all their records elsewhere.
    for group, digest, rule in zip(total.keys.groups, total.digests, total.rules, strict=False):
        if digest.parts:
            yield group, Sums(_named(total, group), _uncounted(digest), rule, [], tracks, population)


def tracks_of(total: Accumulator, shards: int) -> Iterator[tuple[Group, int, Sums]]:
    """What the realizations of an accumulator must remember, by group and shard, without any digest."""
    keys, tracks, names = total.keys, total.tracks, total.keys.realizations
    label = keys.group * shards + keys.numbers % shards
    for one in np.unique(label[tracks.key]).tolist():
        number, shard = divmod(one, shards)
        members = np.flatnonzero(label == one)
        new = np.full(len(label), -1)
        new[members] = np.arange(len(members))
        group = keys.groups[number]
        part = Sums(
            _named(total, group),
            Digest.zero(tracks.states),
            total.rules[number],
            [names[k] for k in members],
            tracks.renumbered(new),
            None if total.populations == ONE else total.known[members],
        )
        yield group, shard, part


def whole_of(total: Accumulator) -> Iterator[tuple[Group, Sums]]:
    """The sums of groups all of whose records an accumulator holds."""
    digests = {group: sums.digest for group, sums in digests_of(total)}
    for group, _, sums in tracks_of(total, 1):
        yield group, counted(replace(sums, digest=digests.get(group, sums.digest)), total.chain)


def _named(total: Accumulator, group: Group) -> dict[str, str] | None:
    return dict(zip(total.schema.group_by, group, strict=True)) or None


def _uncounted(digest: Digest) -> Digest:
    """Without the number of realizations."""
    parts = {at: replace(m, counts=replace(m.counts, realizations=0)) for at, m in digest.parts.items()}
    return replace(digest, parts={at: m for at, m in parts.items() if not _is_empty(m)})


def counted(sums: Sums, chain: Chain) -> Sums:
    """With its realizations counted anew, each where its first step belongs.

    Parts count the realizations that they meet, and what they count cannot be put in its place before
    all of them have joined.
    """
    digest = _uncounted(sums.digest)
    parts = dict(digest.parts)
    tracks = sums.tracks
    key, at = np.unique(tracks.key, return_index=True)
    first = np.minimum.reduceat(tracks.start, at) if len(at) else tracks.start
    numbers = np.array([realization_number(n) for n in sums.realizations], np.int64)
    labels = sums.rule.labels(numbers[key], first)
    for place, number in Counter(zip(chain.cells(first).tolist(), labels.tolist(), strict=True)).items():
        known = parts.get(place, Moments.zero(tracks.states))
        parts[place] = replace(known, counts=known.counts + Counts(realizations=number))
    return replace(sums, digest=replace(digest, parts=parts))


def _is_empty(moments: Moments) -> bool:
    pairs = moments.records + moments.lag1.pairs + moments.lag2.pairs
    return pairs == 0 and moments.counts == Counts()


def narrowed(values: np.ndarray) -> np.ndarray:
    """Whole numbers in as few bytes as hold them, which are quicker to pick from and to send."""
    if values.dtype.kind not in "iu" or not values.size:
        return values
    low, high = int(values.min()), int(values.max())
    fits = (t for t in (np.int8, np.int16, np.int32) if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    return values.astype(next(fits, np.int64), copy=False)


def take(batch: Batch, rows: np.ndarray) -> Batch:
    """Some rows of a batch, with no more names than they need."""
    key = batch.key[rows]
    used = np.zeros(len(batch.names), bool)
    used[key] = True
    new = np.cumsum(used) - 1

    def part(array: np.ndarray | None) -> np.ndarray | None:
        return None if array is None else np.take(array, rows, axis=0)

    by_column = batch.values.flags.f_contiguous
    values = np.take(batch.values.T, rows, axis=1).T if by_column else np.take(batch.values, rows, axis=0)
    return Batch(
        batch.group,
        tuple(batch.names[k] for k in np.flatnonzero(used)),
        new[key],
        batch.time[rows],
        values,
        part(batch.place),
        part(batch.population),
        part(batch.state),
    )


def one_batch(batches: list[Batch]) -> Batch:
    """Batches of one group as one."""
    if len(batches) == 1:
        return batches[0]
    at: dict[str, int] = {}
    key = [np.array([at.setdefault(n, len(at)) for n in b.names], np.int64)[b.key] for b in batches]
    time, values = (np.concatenate([getattr(b, name) for b in batches]) for name in ("time", "values"))
    place, population, state = (
        _joined([getattr(b, name) for b in batches]) for name in ("place", "population", "state")
    )
    return Batch(batches[0].group, tuple(at), np.concatenate(key), time, values, place, population, state)


class Meeting:
    """Sums of the records of one group, key by key; each key has all records of its realizations over a
    stretch of time. They are the same for any order and split of a key's batches."""

    def __init__(self, plan: Plan, group: Group, extent: Extent) -> None:
        self.plan, self.group = plan, group
        self.total = accumulator(plan)
        self.rows = 0
        uncertainty = plan.config.uncertainty
        self.total.add_groups({group: extent}, uncertainty.replicates, uncertainty.block)

    def add(self, found: list[Batch], files: bool) -> Noticed:
        """Add all batches of a key. Places in the answer are those of the files, or the number of the batch
        and of its row."""
        total, refused = self.total, self.total.refused
        before, places, conflicts = counts_of(total), len(refused.places), len(total.conflicts)
        self.rows += sum(map(len, found))
        rows = _together(total, self.group, found)
        with one_blas_thread():
            total.take(self._ordered(rows, _places(rows, found, files)))
        noticed = Noticed.of(total, places, conflicts)
        return replace(noticed, counts={name: n - before[name] for name, n in noticed.counts.items()})

    def _ordered(self, rows: _Joined, place: np.ndarray | Numbered) -> Records:
        """Records by realization and time, and of repeated ones the first first."""
        plan, total = self.plan, self.total
        spot = Line.over((rows.key, rows.time)).places(rows.key, rows.time)
        order = None
        if plan.populations != ONE or plan.schema.state is not None or not _are_distinct(spot):
            first = (checksums(rows.values),) if rows.place is None else (rows.place[:, 1], rows.place[:, 0])
            order = np.lexsort((*first, spot))
        if rows.state is None:
            records = Records(rows.key, rows.time, rows.values, rows.population, place)
            return records if order is None else records.part(order)
        places = np.asarray(place)
        long = Rows(rows.key, rows.time, rows.state, rows.values[:, 0], rows.population, places)
        reader = Long(plan.schema, total.keys, total.refused, plan.config.input.absent or "zero")
        return reader.assemble(long if order is None else long.part(order))

    @property
    def is_full(self) -> bool:
        """Whether what comes next is better summed apart: open records take memory."""
        return self.total.open_values > OPEN

    def settle(self) -> Accumulator:
        """All sums; nothing may be added any more."""
        self.total.count_repeated()
        return self.total


class _Joined(NamedTuple):
    """The rows of many batches; keys are those of the accumulator, places those in files."""

    key: np.ndarray
    time: np.ndarray
    values: np.ndarray
    place: np.ndarray | None
    population: np.ndarray | None
    state: np.ndarray | None


def _together(total: Accumulator, group: Group, found: list[Batch]) -> _Joined:
    """All rows."""
    key = _one([np.array([total.keys.add(group, n) for n in b.names], int)[b.key] for b in found])
    time, values = (_one([getattr(b, name) for b in found]) for name in ("time", "values"))
    rest = (_joined([getattr(b, name) for b in found]) for name in ("place", "population", "state"))
    return _Joined(key, time, values, *rest)


def _places(rows: _Joined, found: list[Batch], files: bool) -> np.ndarray | Numbered:
    """Where rows are to be found again: in their files, or in the batches that they came in."""
    return rows.place if files and rows.place is not None else Numbered([len(batch) for batch in found])


class Numbered:
    """The number of the batch of each row, and of the row in it, [n, 2]. Few are ever asked for."""

    def __init__(self, sizes: list[int]) -> None:
        self.starts = np.cumsum([0, *sizes])

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        batch = np.searchsorted(self.starts, rows, "right") - 1
        return np.column_stack([batch, rows - self.starts[batch]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[np.arange(self.starts[-1])], dtype)


def _are_distinct(spot: np.ndarray) -> bool:
    """Whether no two are equal."""
    if not np.any(np.diff(spot) <= 0):
        return True
    low, high = int(spot.min()), int(spot.max())
    if high - low < SPARSE * len(spot):
        taken = np.zeros(high - low + 1, bool)
        taken[spot - low] = True
        return int(np.count_nonzero(taken)) == len(spot)
    return not np.any(np.diff(np.sort(spot)) == 0)


def _one(arrays: list[np.ndarray]) -> np.ndarray:
    """One after the other; a copy only if there are several."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _joined(arrays: list[np.ndarray | None]) -> np.ndarray | None:
    kept = [a for a in arrays if a is not None]
    return _one(kept) if len(kept) == len(arrays) else None


def checksums(values: np.ndarray) -> np.ndarray:
    """A number [n] for each row of values [n, S], which depends on nothing else."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)
    odd = (np.arange(1, values.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    mixed = bits ^ (bits >> np.uint64(29))
    return np.asarray((mixed * odd).sum(1, dtype=np.uint64))
