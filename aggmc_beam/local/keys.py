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
        columns = frame.select(names)
        if not columns.height:
            return np.zeros(0, np.int64)
        # Rows of a realization mostly follow each other, so only the first of each stretch is looked up.
        changed = pl.any_horizontal(pl.col(n).ne_missing(pl.col(n).shift()) for n in names)
        heads = columns.select(changed.alias("changed"))["changed"].arg_true()
        stretches = columns if len(heads) > columns.height // 2 else columns[heads]
        key = self._look_up(stretches)
        if stretches is columns:
            return key
        at = heads.to_numpy()
        return np.repeat(key, np.diff(at, append=columns.height))

    def _look_up(self, columns: pl.DataFrame) -> np.ndarray:
        names = columns.columns
        if len(names) == 1 and columns[KEY].dtype.is_integer():
            whole, first, place = np.unique(columns[KEY].to_numpy(), return_index=True, return_inverse=True)
            key = np.empty(len(whole), np.int64)
            # Numbered as they are met.
            met = np.argsort(first, kind="stable")
            key[met] = self._add_numbers(whole[met])
            return np.asarray(key[place])
        distinct = columns.unique(maintain_order=True)
        keys = [self.add(tuple(row[:-1]), str(row[-1])) for row in distinct.iter_rows()]
        if len(keys) == 1:
            return np.full(columns.height, keys[0])
        found = distinct.with_columns(pl.Series("__k", keys, pl.Int64))
        return columns.join(found, on=names, how="left", maintain_order="left")["__k"].to_numpy()

    def _add_numbers(self, numbers: np.ndarray) -> list[int]:
        """The keys of realizations that are whole numbers, all different, without groups."""
        at = self.add_group(())
        texts = list(map(str, numbers.tolist()))
        known = self._key_at
        if known and any((at, text) in known for text in texts):
            return [self.add((), text) for text in texts]
        start = len(self.realizations)
        keys = list(range(start, start + len(texts)))
        known.update(zip(((at, text) for text in texts), keys, strict=True))
        self.realizations += texts
        self._group += [at] * len(texts)
        few = np.abs(numbers) < 10**15
        self._numbers += numbers.tolist() if few.all() else [realization_number(text) for text in texts]
        return keys
