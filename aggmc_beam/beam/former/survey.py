"""A first pass: how many realizations and steps there are, and whether they are in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from aggmc_beam.beam.former.keys import Group, Keys
from aggmc_beam.beam.former.stretches import Steps, limits_of
from aggmc_beam.beam.former.tidy import KEY, TIME, group_columns, placed, readable
from aggmc_beam.records import Schema

#: Rows that are read at once; also a bound on memory.
BATCH = 100_000


#: Rows that were read, or that will be.
Table = pl.DataFrame | pl.LazyFrame


@dataclass(frozen=True)
class Extent:
    """How much a group holds: K realizations, and the first and last step of any."""

    realizations: int
    first: int
    last: int


@dataclass(frozen=True)
class Survey:
    """`rows` read in all; `backwards`: how many rows come before one of the same realization that
    was read earlier; `stretches`: how many there are of rows of one realization after each other."""

    rows: int
    backwards: int
    stretches: int
    extents: dict[Group, Extent]

    @property
    def is_grouped(self) -> bool:
        """Whether each realization's rows follow each other, in order of time."""
        realizations = sum(extent.realizations for extent in self.extents.values())
        return self.backwards == 0 and self.stretches == realizations


def survey(
    frame: pl.LazyFrame, schema: Schema, progress: Callable[[int], None], exact: bool = True
) -> Survey:
    """The survey of tidy rows; of those that will be rejected only the number matters.

    Without `exact` the counts are not read, and rows that have a realization and a time but no counts are
    taken for good ones.
    """
    keys = Keys(group_columns(schema))
    none = np.zeros(0, np.int64)
    first, last = none, none
    rows = backwards = stretches = 0
    latest = -1
    good_rows = readable(schema) if exact else placed(schema)
    wanted = frame.select(*keys.columns, KEY, TIME, good_rows.alias("good"))
    for batch in batches(wanted, BATCH * 4):
        rows += batch.height
        good = batch if batch["good"].all() else batch.filter("good")
        (key, heads), time = keys.stretches(good), good[TIME].to_numpy()
        more = len(keys) - len(first)
        first = np.concatenate([first, np.full(more, np.iinfo(np.int64).max)])
        last = np.concatenate([last, np.full(more, np.iinfo(np.int64).min)])
        backwards += _scan(key, time, heads, first, last)
        changes = key if heads is None else key[heads]
        stretches += int(np.count_nonzero(np.diff(changes, prepend=latest)))
        latest = int(key[-1]) if len(key) else latest
        progress(rows)
    return Survey(rows, backwards, stretches, _extents(keys, first, last))


def _scan(
    key: np.ndarray, time: np.ndarray, heads: np.ndarray | None, first: np.ndarray, last: np.ndarray
) -> int:
    """Widen each key's first and last step; how many steps lie before an earlier row's."""
    if not len(key):
        return 0
    if np.any(np.diff(key if heads is None else key[heads]) < 0):
        # Small numbers are sorted by their digits, which is faster.
        order = np.argsort(key.astype(np.uint16) if len(last) <= 1 << 16 else key, kind="stable")
        key, time, heads = key[order], time[order], None
    if heads is None:
        heads = np.flatnonzero(np.concatenate([[True], np.diff(key) != 0]))
    k, steps = key[heads], Steps.of(time, heads)
    found = steps.back + int((time[heads] < last[k]).sum())
    first[k] = np.minimum(first[k], steps.first)
    last[k] = np.maximum(last[k], steps.last)
    return found


def _extents(keys: Keys, first: np.ndarray, last: np.ndarray) -> dict[Group, Extent]:
    group = keys.group
    found = {}
    for number, name in enumerate(keys.groups):
        at = group == number
        found[name] = Extent(int(at.sum()), int(first[at].min()), int(last[at].max()))
    return found


def extents_of(
    keys: Keys, key: np.ndarray, time: np.ndarray, heads: np.ndarray | None
) -> dict[Group, Extent]:
    """How much each group holds of these records; `heads` tells where stretches of equal keys begin."""
    if not len(key):
        return {}
    there = np.zeros(len(keys), bool)
    there[key if heads is None else key[heads]] = True
    if len(keys.groups) == 1:
        return {keys.groups[0]: Extent(int(there.sum()), *limits_of(time))}
    group = keys.group
    label = group[key]
    order = np.argsort(label, kind="stable")
    heads = np.flatnonzero(np.diff(label[order], prepend=-1))
    first, last = np.minimum.reduceat(time[order], heads), np.maximum.reduceat(time[order], heads)
    number = np.bincount(group[there])
    return {
        keys.groups[g]: Extent(int(number[g]), a, b)
        for g, a, b in zip(label[order[heads]].tolist(), first.tolist(), last.tolist(), strict=True)
    }


def steps_back(key: np.ndarray, time: np.ndarray) -> int:
    """How many records come before one of the same realization that was met earlier."""
    size = int(key.max(initial=-1)) + 1
    limits = np.iinfo(np.int64)
    return _scan(key, time, None, np.full(size, limits.max), np.full(size, limits.min))


def batches(frame: Table, rows: int) -> Iterator[pl.DataFrame]:
    """The rows of a frame in order, a bounded number at a time."""
    if isinstance(frame, pl.DataFrame):
        yield from frame.iter_slices(rows)
        return
    for batch in frame.collect_batches(chunk_size=rows, maintain_order=True):
        if batch.height:
            yield batch
