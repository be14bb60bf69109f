"""Records: the one form in which counts reach the sums, a block of arrays in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from aggmc_beam.records import realization_number
from aggmc_beam.sums.jackknife import FEW_REALIZATIONS, Extent

Group = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Records:
    """n valid records of any groups and realizations, in any order; some may be repeated.

    `names[realization[i]]` is the realization of record i, and `groups[group_of[realization[i]]]` its group.
    Names are canonical, see `aggmc_beam.records.identity`, and those of a group distinct: an array of text, or
    of integers where all are whole numbers. `counts` [n, S] are whole numbers, or floats of which NaN is missing,
    `population` [n] is
    given where each realization has its own, and `rows` [n] tells how many rows of a long table a record has
    (None: one).
    """

    realization: np.ndarray
    time: np.ndarray
    counts: np.ndarray
    names: np.ndarray
    group_of: np.ndarray
    groups: Sequence[Group] = ((),)
    population: np.ndarray | None = None
    rows: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.time)

    @classmethod
    def of_array(cls, counts: np.ndarray, population: np.ndarray | None = None) -> Records:
        """The records of an array [K, T, S], NaN rows being missing steps; `population` [K]."""
        key, time = np.nonzero(~np.isnan(counts).all(2))
        names, of = np.arange(len(counts)), np.zeros(len(counts), np.int64)
        return cls(
            key, time, counts[key, time], names, of, ((),), None if population is None else population[key]
        )

    def take(self, at: np.ndarray) -> Records:
        """Some of the records."""
        return replace(
            self,
            realization=self.realization[at],
            time=self.time[at],
            counts=np.take(self.counts, at, axis=0),
            population=None if self.population is None else self.population[at],
            rows=None if self.rows is None else self.rows[at],
        )

    def number_of_rows(self, at: np.ndarray | slice = slice(None)) -> int:
        """How many rows some of the records are made of."""
        if self.rows is not None:
            return int(self.rows[at].sum())
        return len(self.time[at])

    @property
    def group(self) -> np.ndarray:
        """[n]: the group of each record, by number."""
        return np.asarray(self.group_of[self.realization])

    def without_unused_names(self) -> Records:
        """Without realizations and groups that have no record."""
        names = np.bincount(self.realization, minlength=len(self.names)) > 0
        groups = np.bincount(self.group_of[names], minlength=len(self.groups)) > 0
        if names.all() and groups.all():
            return self
        return replace(
            self,
            realization=(np.cumsum(names) - 1)[self.realization],
            names=self.names[names],
            group_of=(np.cumsum(groups) - 1)[self.group_of[names]],
            groups=tuple(group for group, used in zip(self.groups, groups.tolist(), strict=True) if used),
        )

    def extents(self) -> dict[Group, Extent]:
        """How much each group holds, if no record is repeated."""
        found = extents_of(self.realization, self.time, self.group)
        return {self.groups[g]: extent for g, extent in found.items()}


def extents_of(key: np.ndarray, time: np.ndarray, group: np.ndarray) -> dict[int, Extent]:
    """How much each group holds of records (key, time), by number."""
    if not len(key):
        return {}
    size = int(group.max()) + 1
    records = np.bincount(group, minlength=size)
    met = np.zeros(int(key.max()) + 1, np.int64) - 1
    met[key] = group
    realizations = np.minimum(np.bincount(met[met >= 0], minlength=size), FEW_REALIZATIONS)
    if size == 1:
        first, last = np.array([time.min()]), np.array([time.max()])
    else:
        first = np.full(size, np.iinfo(np.int64).max)
        last = np.full(size, np.iinfo(np.int64).min)
        np.minimum.at(first, group, time)
        np.maximum.at(last, group, time)
    numbers = zip(realizations.tolist(), records.tolist(), first.tolist(), last.tolist(), strict=True)
    return {g: Extent(*row) for g, row in enumerate(numbers) if row[1]}


def joined_records(parts: Sequence[Records]) -> Records:
    """The records of several blocks in their order, with one dictionary of names."""
    if len(parts) == 1:
        return parts[0]
    groups: dict[Group, int] = {}
    at: dict[tuple[int, str | int], int] = {}
    names: list[str | int] = []
    group_of: list[int] = []
    realization = []
    text = any(part.names.dtype.kind != "i" for part in parts)
    for part in parts:
        number = [groups.setdefault(group, len(groups)) for group in part.groups]
        listed = list(map(str, part.names.tolist())) if text else part.names.tolist()
        keys = np.empty(len(listed), np.int64)
        for k, (name, g) in enumerate(zip(listed, part.group_of.tolist(), strict=True)):
            place = number[g], name
            keys[k] = found = at.setdefault(place, len(names))
            if found == len(names):
                names.append(name)
                group_of.append(number[g])
        realization.append(keys[part.realization])
    populations = [part.population for part in parts if part.population is not None]
    rows = [part.rows for part in parts if part.rows is not None]
    return Records(
        np.concatenate(realization),
        np.concatenate([part.time for part in parts]),
        np.concatenate([part.counts for part in parts]),
        np.array(names, object if text else np.int64),
        np.array(group_of, np.int64),
        tuple(groups),
        np.concatenate(populations) if populations else None,
        np.concatenate(rows) if rows else None,
    )


def realization_numbers(names: np.ndarray) -> np.ndarray:
    """The number by which each realization is dealt into jackknife groups; the same on every engine."""
    if names.dtype.kind == "i":
        return np.asarray(names, np.int64)
    return np.array([realization_number(str(name)) for name in names], np.int64)
