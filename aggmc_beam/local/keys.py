"""Numbers for realizations: each (group, realization) gets the next one when it is first met."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from aggmc_beam.local.tidy import KEY
from aggmc_beam.records import realization_number

Group = tuple[str, ...]


@dataclass
class Keys:
    """`realizations[k]` is the name of key k, `group[k]` the number of its group in `groups`."""

    columns: list[str]
    groups: list[Group] = field(default_factory=list)
    realizations: list[str] = field(default_factory=list)
    _group: list[int] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)
    _group_at: dict[Group, int] = field(default_factory=dict)
    _key_at: dict[tuple[int, str], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.realizations)

    @property
    def group(self) -> np.ndarray:
        return np.array(self._group, np.int64)

    @property
    def numbers(self) -> np.ndarray:
        """The number by which each realization is dealt into jackknife groups."""
        return np.array(self._numbers, np.int64)

    def add_group(self, group: Group) -> int:
        at = self._group_at.get(group)
        if at is None:
            at = self._group_at[group] = len(self.groups)
            self.groups.append(group)
        return at

    def add(self, group: Group, realization: str) -> int:
        at = self.add_group(group)
        key = self._key_at.get((at, realization))
        if key is None:
            key = self._key_at[at, realization] = len(self.realizations)
            self.realizations.append(realization)
            self._group.append(at)
            self._numbers.append(realization_number(realization))
        return key

    def of(self, frame: pl.DataFrame) -> np.ndarray:
        """The key of each row."""
        names = [*self.columns, KEY]
        distinct = frame.select(names).unique(maintain_order=True)
        keys = [self.add(tuple(row[:-1]), row[-1]) for row in distinct.iter_rows()]
        if len(keys) == 1:
            return np.full(frame.height, keys[0])
        found = distinct.with_columns(pl.Series("__k", keys, pl.Int64))
        return frame.select(names).join(found, on=names, how="left", maintain_order="left")["__k"].to_numpy()
