"""Blocks of records from files and frames: rows are read, made tidy, and put together in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from aggmc_beam.local.batches import Batch, in_order
from aggmc_beam.local.longtable import join_rows
from aggmc_beam.local.sources import Source, reading
from aggmc_beam.local.tidy import Read, Tidier, Tidy, join
from aggmc_beam.logs import LOGGER
from aggmc_beam.records import Schema, realization_number
from aggmc_beam.sums.records import Group, Records

#: Rows are looked at once for each run of equal names where runs are so long on average.
RUN = 4
#: A table of codes may have so many places for each value that is looked up in it.
SPARSE = 4
#: Whole numbers as names beyond these are kept as text, which decides on their jackknife groups.
MAX_NUMBER = 10**15


@dataclass(frozen=True)
class Place:
    """Where records come from: the number of their file and of their row in it, each [n]."""

    file: np.ndarray
    row: np.ndarray

    def at(self, where: np.ndarray) -> Place:
        return Place(self.file[where], self.row[where])

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Block:
    """Records and where they come from; of a long table, where the first row of each does."""

    records: Records
    place: Place


@dataclass
class RowCounts:
    """What became of rows that are no records. `places` are those of rejected ones, `reasons` tells of those
    whose row alone does not tell; `conflicts` are places of repeated records that differ from those kept."""

    read: int = 0
    rejected: int = 0
    duplicate: int = 0
    filled: int = 0
    incomplete: int = 0
    conflicting: int = 0
    places: list[Place] = field(default_factory=list)
    reasons: dict[tuple[int, int], str] = field(default_factory=dict)
    conflicts: list[Place] = field(default_factory=list)

    def reject(self, place: Place, reason: str = "", rows: int | None = None) -> None:
        """Reject the rows at these places, or the `rows` of the records that begin there."""
        if len(place):
            self.places.append(place)
            self.rejected += len(place) if rows is None else rows
            if reason:
                at = zip(place.file.tolist(), place.row.tolist(), strict=True)
                self.reasons |= dict.fromkeys(at, reason)


class BlockReader:
    """Reads the rows of sources as blocks of records, and counts what is none."""

    def __init__(self, sources: Sequence[Source], schema: Schema, absent: str = "zero") -> None:
        self.sources, self.schema, self.absent = sources, schema, absent
        self.counts = RowCounts()
        self.repeated: dict[Group, int] = {}
        """How often rows of a group came again within a record of a long table."""
        self.on_read: Callable[[int], None] | None = None
        """Is told how many rows have been read."""
        self._tidier = Tidier(schema)

    def blocks(self, size: int | None = None, part: tuple[int, int] = (0, 1)) -> Iterator[Block]:
        """All records, about `size` rows at once, or in one block if that is None.

        `part` (i, m) leaves out all realizations but about every m-th: m calls give each record once. Rows of a
        long table that lie in one block become records; a record in several blocks comes apart.
        """
        held: list[tuple[int, Tidy]] = []
        for number, tidy in self.tidy(part):
            if len(tidy):
                held.append((number, tidy))
            if size is not None and sum(len(one) for _, one in held) >= size:
                held, rest = self._cut(held)
                if held:
                    yield self._block(held)
                held = rest
        if held or size is None:
            yield self._block(held)

    def sample(self, rows: int) -> Block:
        """The records in the first rows, read in the same way."""
        held: list[tuple[int, Tidy]] = []
        for number, source in enumerate(self.sources):
            for make in _naming(source, source.batches(self.schema, self._tidier.columns)):
                if self.counts.read >= rows:
                    break
                read = self._read((number, lambda make=make: make().head(rows - self.counts.read)))[1]  # type: ignore[misc]
                self._count(number, read)
                held.append((number, read.tidy))
        return self._block(held)

    def tidy(self, part: tuple[int, int] = (0, 1)) -> Iterator[tuple[int, Tidy]]:
        """The valid rows of each batch, with the number of the source."""
        index, parts = part
        columns = self._tidier.columns

        def tasks() -> Iterator[tuple[int, Callable[[], Batch]]]:
            for number, source in enumerate(self.sources):
                with_name = source.batches(self.schema, columns)
                yield from ((number, make) for make in _naming(source, with_name))

        singly = 0
        for number, read in in_order(self._read, tasks()):
            if index == 0:
                singly += self._count(number, read)
                if self.on_read is not None:
                    self.on_read(self.counts.read)
            tidy = read.tidy
            if parts > 1:
                tidy = tidy.part(np.flatnonzero(_spread(tidy.names[-1], parts) == index))
            yield number, tidy
        if singly:
            LOGGER.info(f"{singly:,} rows could only be read one at a time, which is slow")

    def _read(self, task: tuple[int, Callable[[], Batch]]) -> tuple[int, Read]:
        number, make = task
        source = self.sources[number]
        with reading(source):
            return number, self._tidier.read(make(), source.name)

    def _count(self, number: int, read: Read) -> int:
        self.counts.read += read.height
        if len(read.refused):
            self.counts.reject(Place(np.full(len(read.refused), number), read.refused))
        return read.singly

    def _cut(self, held: list[tuple[int, Tidy]]) -> tuple[list[tuple[int, Tidy]], list[tuple[int, Tidy]]]:
        """What can be a block now, and what must wait for the rows of its record to come."""
        number, last = held[-1]
        if self.schema.state is None:
            return held, []
        start = len(last) - last_run([*last.names, last.time])
        if not start:
            return [], held
        wait = last.part(np.arange(start, len(last)))
        return [*held[:-1], (number, last.part(np.arange(start)))], [(number, wait)]

    def _block(self, held: list[tuple[int, Tidy]]) -> Block:
        tidy = join([one for _, one in held] or [self._tidier.nothing()], self._tidier.name_kind)
        file = np.repeat(np.array([n for n, _ in held], np.int32), [len(one) for _, one in held])
        realization, names, group_of, groups = index_names(tidy.names)
        place = Place(file, tidy.rows)
        if tidy.state is None:
            found = Records(realization, tidy.time, tidy.counts, names, group_of, groups, tidy.population)
            return Block(found, place)
        joined = join_rows(
            realization,
            tidy.time,
            tidy.state,
            tidy.counts,
            tidy.population,
            len(self.schema.states),
            self.absent,
        )
        counts = self.counts
        for rows, reason in joined.rejected:
            counts.reject(place.at(rows), reason)
        counts.duplicate += joined.duplicate
        counts.filled += joined.filled
        counts.incomplete += joined.incomplete
        counts.conflicting += joined.conflicting
        for group, again in zip(*np.unique(group_of[joined.again], return_counts=True), strict=True):
            self.repeated[groups[group]] = self.repeated.get(groups[group], 0) + int(again)
        at = joined.first
        population = None if tidy.population is None else tidy.population[at]
        found = Records(
            realization[at], tidy.time[at], joined.counts, names, group_of, groups, population, joined.rows
        )
        return Block(found, place.at(at))


def _naming(source: Source, items: Iterator[Callable[[], Batch]]) -> Iterator[Callable[[], Batch]]:
    while True:
        with reading(source):
            found = next(items, None)
        if found is None:
            return
        yield found


def _spread(names: pl.Series, parts: int) -> np.ndarray:
    """[n]: a number below `parts` for each row, the same for each name, whether it is held as a number or text."""
    codes = _codes(names)
    if names.dtype == pl.Int64 and np.abs(codes).max(initial=0) < MAX_NUMBER:
        return np.asarray(codes % parts)
    number, first = number_values([codes])
    distinct = names.gather(first).cast(pl.String).to_list()
    parted = np.array([realization_number(name) % parts for name in distinct], np.int64)
    return np.asarray(parted[number])


def last_run(columns: Sequence[pl.Series | np.ndarray]) -> int:
    """How many rows at the end are equal in all columns."""
    starts = run_starts([_codes(c) for c in columns])
    return len(columns[0]) - int(starts[-1]) if len(starts) else 0


def run_starts(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Where runs of rows begin that are equal in all columns.

    >>> run_starts([np.array([1, 1, 2, 2]), np.array([5, 5, 5, 6])]).tolist()
    [0, 2, 3]
    """
    n = len(columns[0])
    begins = np.zeros(n, bool)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(begins)


def _codes(column: pl.Series | np.ndarray) -> np.ndarray:
    if isinstance(column, np.ndarray):
        return column
    return (column if column.dtype == pl.Int64 else column.to_physical().cast(pl.Int64)).rechunk().to_numpy()


def index_names(columns: Sequence[pl.Series]) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[Group, ...]]:
    """The realization of each row by number, in order of appearance; names and groups of these; the groups.

    The columns are those of groups and, last, of realizations.
    """
    codes = [_codes(column) for column in columns]
    n = len(codes[0])
    starts = run_starts(codes)
    by_run = RUN * len(starts) <= n
    if by_run:
        codes = [c[starts] for c in codes]
    m = len(codes[0])
    if len(columns) > 1:
        group, first_of_group = number_values(codes[:-1])
        codes = [group, codes[-1]]
    else:
        group, first_of_group = np.zeros(m, np.int64), np.zeros(min(m, 1), np.int64)
    key, first = number_values(codes, ranked=columns[-1].dtype == pl.Int64)
    at = starts[first] if by_run else first
    name = columns[-1].gather(at)
    head = starts[first_of_group] if by_run else first_of_group
    labels = [column.gather(head).cast(pl.String).to_list() for column in columns[:-1]]
    groups: tuple[Group, ...] = tuple(zip(*labels, strict=True)) or ((),)
    if by_run:
        key = np.repeat(key, np.diff(starts, append=n))
    return key, _as_array(name), group[first], groups


def number_values(columns: Sequence[np.ndarray], ranked: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are equal in all columns get the same number; and the first row of each. Numbers are in order of
    appearance, or if `ranked` in that of the values.

    >>> number_values([np.array([7, 7, 3]), np.array([0, 1, 0])])
    (array([0, 1, 2]), array([0, 1, 2]))
    """
    code, number = _small(columns[0])
    for column in columns[1:]:
        own, more = _small(column)
        code, number = _small(code * more + own)
    first = np.full(number, -1)
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1)
    if ranked or (first[1:] > first[:-1]).all():
        return code, first
    order = np.argsort(first)
    rank = np.empty(number, np.int64)
    rank[order] = np.arange(number)
    return rank[code], first[order]


def _small(values: np.ndarray) -> tuple[np.ndarray, int]:
    """The rank of each of the distinct values, and how many those are."""
    if not len(values):
        return values.astype(np.int64), 0
    low, high = int(values.min()), int(values.max())
    if high - low + 1 <= SPARSE * len(values) + 1024:
        there = np.zeros(high - low + 1, bool)
        there[values - low] = True
        number = int(there.sum())
        if number == len(there):
            return values.astype(np.int64) - low, number
        return (np.cumsum(there) - 1)[values - low], number
    distinct, at = np.unique(values, return_inverse=True)
    return at, len(distinct)


def _as_array(names: pl.Series) -> np.ndarray:
    """Names as integers if all are whole and of at most 15 digits, else as text."""
    if names.dtype != pl.Int64:
        text = names.cast(pl.String)
        if not text.str.contains(r"^(0|-?[1-9][0-9]{0,14})$").all():
            return text.to_numpy().astype(object)
        names = text.cast(pl.Int64)
    found = names.to_numpy()
    if np.abs(found).max(initial=0) < MAX_NUMBER:
        return found
    return np.array(list(map(str, found.tolist())), object)
