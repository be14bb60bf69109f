"""Realizations as series of steps, out of records in any order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from aggmc_beam.sums.records import Group, Records

#: Missing steps in a row that are filled in; where more are missing, a series ends and another begins.
FILLED = 24


@dataclass(frozen=True, eq=False)
class Series:
    """What a realization counted from step `start` on: `counts` [T, S], NaN rows being missing steps."""

    group: Group
    name: str
    start: int
    counts: np.ndarray

    @property
    def times(self) -> np.ndarray:
        return self.start + np.arange(len(self.counts))

    def since(self, step: int) -> Series:
        """What it counted from this step on."""
        cut = min(max(step - self.start, 0), len(self.counts))
        return Series(self.group, self.name, self.start + cut, self.counts[cut:])


def series_of(records: Records) -> Iterator[Series]:
    """By group and realization in the order of their names; of repeated records the first counts.

    >>> found = series_of(Records.of_array(np.array([[[1.0, 2.0], [np.nan] * 2, [2.0, 1.0]]])))
    >>> next(found).counts.tolist()
    [[1.0, 2.0], [nan, nan], [2.0, 1.0]]
    """
    listed = zip(records.group_of.tolist(), map(str, records.names.tolist()), strict=True)
    names = [(records.groups[g], name) for g, name in listed]
    rank = np.empty(len(names), np.int64)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    key = rank[records.realization]
    order = np.lexsort((records.time, key))
    key, time = key[order], records.time[order]
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(key) != 0) | (np.diff(time) != 0)
    order, key, time = order[new], key[new], time[new]
    begins = np.ones(len(order), bool)
    begins[1:] = (np.diff(key) != 0) | (np.diff(time) > FILLED + 1)
    edges = [*np.flatnonzero(begins).tolist(), len(order)]
    for a, b in itertools.pairwise(edges):
        counts = np.full((time[b - 1] - time[a] + 1, records.counts.shape[1]), np.nan)
        counts[time[a:b] - time[a]] = records.counts[order[a:b]]
        group, name = names[records.realization[order[a]]]
        yield Series(group, name, int(time[a]), counts)


def batches(series: Sequence[Series], values: int) -> Iterator[list[Series]]:
    """Series of similar length together, up to so many values a batch when padded to the longest."""
    batch: list[Series] = []
    for one in sorted(series, key=lambda s: len(s.counts)):
        if batch and (len(batch) + 1) * one.counts.size > values:
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


def padded(series: Sequence[Series]) -> np.ndarray:
    """[K, T, S] with NaN rows behind the end of shorter ones."""
    T = max(len(s.counts) for s in series)
    found = np.full((len(series), T, series[0].counts.shape[1]), np.nan)
    for k, s in enumerate(series):
        found[k, : len(s.counts)] = s.counts
    return found
