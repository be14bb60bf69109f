"""Numbers for realizations: each (group, realization) gets the next one when it is first met."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from aggmc_beam.beam.former.matrix import in_one
from aggmc_beam.beam.former.stretches import heads_of, limits_of
from aggmc_beam.beam.former.threads import Map
from aggmc_beam.beam.former.tidy import KEY
from aggmc_beam.records import realization_number

Group = tuple[str, ...]


#: A table of whole numbers may have this many places for each row that is looked up in it.
SPARSE = 8


@dataclass
class Keys:
    """`realizations[k]` is the name of key k, `group[k]` the number of its group in `groups`."""

    columns: list[str]
    groups: list[Group] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _group: list[int] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)
    _group_at: dict[Group, int] = field(default_factory=dict)
    _key_at: dict[tuple[int, str], int] = field(default_factory=dict)
    _whole: Whole | None = None
    """Realizations that are whole numbers, as long as there are no others."""

    def __len__(self) -> int:
        return len(self._names) if self._whole is None else len(self._whole.numbers)

    @property
    def realizations(self) -> list[str]:
        return self._names if self._whole is None else list(map(str, self._whole.numbers.tolist()))

    @property
    def group(self) -> np.ndarray:
        return np.array(self._group, np.int64) if self._whole is None else np.zeros(len(self), np.int64)

    @property
    def numbers(self) -> np.ndarray:
        """The number by which each realization is dealt into jackknife groups."""
        return np.array(self._numbers, np.int64) if self._whole is None else self._whole.numbers

    def add_group(self, group: Group) -> int:
        at = self._group_at.get(group)
        if at is None:
            at = self._group_at[group] = len(self.groups)
            self.groups.append(group)
        return at

    def add(self, group: Group, realization: str) -> int:
        self._spell_out()
        at = self.add_group(group)
        key = self._key_at.get((at, realization))
        if key is None:
            key = self._key_at[at, realization] = len(self._names)
            self._names.append(realization)
            self._group.append(at)
            self._numbers.append(realization_number(realization))
        return key

    def of(self, frame: pl.DataFrame) -> np.ndarray:
        """The key of each row."""
        return self.stretches(frame)[0]

    def stretches(self, frame: pl.DataFrame, over: Map = map) -> tuple[np.ndarray, np.ndarray | None]:
        """The key of each row, and where stretches of equal keys begin, as `heads_of` tells. `over` is a map
        that may run its calls at once."""
        names = [*self.columns, KEY]
        columns = frame[names]
        if not columns.height:
            return np.zeros(0, np.int64), None
        if not self.columns and columns[KEY].dtype.is_integer() and not columns[KEY].null_count():
            whole = self._of_whole(in_one(columns[KEY], over))
            if whole is not None:
                return whole
        # Rows of a realization mostly follow each other, so only the first of each stretch is looked up.
        changed = pl.any_horizontal(pl.col(n).ne_missing(pl.col(n).shift()) for n in names)
        heads = columns.select(changed.alias("changed"))["changed"].arg_true()
        stretches = columns if len(heads) > columns.height // 2 else columns[heads]
        key = self._look_up(stretches)
        if stretches is columns:
            return key, None
        at = heads.to_numpy().astype(np.int64)
        return np.repeat(key, np.diff(at, append=columns.height)), at

    def _of_whole(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray | None] | None:
        """As `stretches`, for whole numbers; None if not all realizations are such, or they lie too far
        apart."""
        heads = heads_of(numbers)
        if heads is None:
            key = self._look_up_whole(numbers)
            return None if key is None else (key, None)
        key = self._look_up_whole(numbers[heads])
        if key is None:
            return None
        if np.array_equal(key, numbers[heads]):
            return numbers.astype(np.int64, copy=False), heads
        return np.repeat(key, np.diff(heads, append=len(numbers))), heads

    def _look_up(self, columns: pl.DataFrame) -> np.ndarray:
        names = columns.columns
        distinct = columns.unique(maintain_order=True)
        keys = [self.add(tuple(row[:-1]), str(row[-1])) for row in distinct.iter_rows()]
        if len(keys) == 1:
            return np.full(columns.height, keys[0])
        found = distinct.with_columns(pl.Series("__k", keys, pl.Int64))
        return columns.join(found, on=names, how="left", maintain_order="left")["__k"].to_numpy()

    def _look_up_whole(self, numbers: np.ndarray) -> np.ndarray | None:
        """The keys of whole numbers, if all realizations are such and they lie close enough."""
        if self._names:
            return None
        whole = self._whole or Whole.none()
        low, high = limits_of(numbers)
        if len(whole.numbers):
            low, high = min(low, whole.low), max(high, whole.high)
        if high - low >= SPARSE * (len(numbers) + len(whole.numbers)) + (1 << 16):
            return None
        self.add_group(())
        self._whole, key = whole.with_numbers(numbers.astype(np.int64, copy=False), low, high)
        return key

    def _spell_out(self) -> None:
        """Go on with names instead of whole numbers."""
        if self._whole is None:
            return
        names, self._whole = self.realizations, None
        for name in names:
            self.add((), name)


@dataclass(frozen=True)
class Whole:
    """Whole numbers, those met together in their order, and the place of each in a table from `low` to
    `high`."""

    numbers: np.ndarray
    low: int
    high: int
    table: np.ndarray

    @classmethod
    def none(cls) -> Whole:
        return cls(np.zeros(0, np.int64), 0, -1, np.zeros(0, np.int64))

    def with_numbers(self, numbers: np.ndarray, low: int, high: int) -> tuple[Whole, np.ndarray]:
        """With these numbers, all from low to high, and the place of each."""
        table = self.table
        if not len(self.numbers) or (low, high) != (self.low, self.high):
            table = np.full(high - low + 1, -1)
            table[self.numbers - low] = np.arange(len(self.numbers))
        at = numbers - low if low else numbers
        met = np.zeros(len(table), bool)
        met[at] = True
        fresh = np.flatnonzero(met & (table < 0))
        table[fresh] = np.arange(len(self.numbers), len(self.numbers) + len(fresh))
        # The first numbers, with none left out, are their own places.
        place = at if len(fresh) == len(table) else table[at]
        return Whole(np.concatenate([self.numbers, fresh + low]), low, high, table), place
