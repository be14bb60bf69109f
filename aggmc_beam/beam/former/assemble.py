"""From tidy rows to arrays of records; long rows are put together, bad ones set aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.beam.former.keys import Keys
from aggmc_beam.beam.former.matrix import in_one, of_lists, side_by_side
from aggmc_beam.beam.former.sources import BROKEN, ROW
from aggmc_beam.beam.former.threads import Map
from aggmc_beam.beam.former.tidy import (
    COUNT,
    FILE,
    KEY,
    POPULATION,
    STATE,
    TIME,
    VALUES,
    name_of,
    value_columns,
)
from aggmc_beam.records import MAX_COUNT, Schema, good_rows

#: In how many parts rows are looked at by threads.
PARTS = 16

SPOILED = "another row of its record cannot be used, so the record is not"
INCOMPLETE = "its record has no row for some state, and input.absent is missing"


class Places:
    """The file's number and the row of each row of a frame, or of `every` so manieth, [n, 2]. Few are ever
    asked for."""

    def __init__(self, frame: pl.DataFrame, every: int = 1) -> None:
        self.frame, self.every = frame[[FILE, ROW]], every

    @classmethod
    def joined(cls, parts: Sequence[np.ndarray | Places]) -> np.ndarray | Places:
        """Those of several frames, one after the other."""
        frames = [part.frame for part in parts if isinstance(part, Places) and part.every == 1]
        return cls(pl.concat(frames)) if len(frames) == len(parts) else np.concatenate(parts)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        if self.every > 1:
            rows = np.arange(0, self.frame.height, self.every)[rows]
        file, row = (self.frame[c].to_numpy()[rows] for c in (FILE, ROW))
        return np.stack([file, row], axis=1).astype(np.int64)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[np.arange(-(-self.frame.height // self.every))], dtype)


@dataclass(frozen=True)
class Records:
    """Arrays over n records; `place` [n, 2] is the file's number and the row, or what gives those of some
    records; `rows` [n] how many rows of a long table each is made of (None where a row is a record)."""

    key: np.ndarray
    time: np.ndarray
    counts: np.ndarray
    population: np.ndarray | None
    place: Any
    rows: np.ndarray | None = None
    heads: np.ndarray | None = None
    """Where stretches of records of one realization begin, if that is known."""

    def part(self, at: np.ndarray) -> Records:
        population = None if self.population is None else self.population[at]
        rows = None if self.rows is None else self.rows[at]
        # Much faster than counts[at] where a record is one stretch of memory.
        counts = np.take(self.counts, at, axis=0) if self.counts.flags.c_contiguous else self.counts[at]
        return Records(self.key[at], self.time[at], counts, population, self.place[at], rows)

    @property
    def all_rows(self) -> int:
        """How many rows the records are made of."""
        return len(self.key) if self.rows is None else int(self.rows.sum())

    def rows_of(self, at: np.ndarray) -> int:
        """How many rows some of the records are made of."""
        return len(at) if self.rows is None else int(self.rows[at].sum())


@dataclass
class Refused:
    """Places of rows that are not records, with reasons where the row alone does not tell; and counts of
    what else was noticed. `number` counts refused rows, `duplicate` repeated rows within records."""

    places: list[np.ndarray] = field(default_factory=list)
    reasons: dict[tuple[int, int], str] = field(default_factory=dict)
    number: int = 0
    duplicate: int = 0
    filled: int = 0
    incomplete: int = 0
    conflicting: int = 0
    repeated: list[np.ndarray] = field(default_factory=list)
    """Keys of records whose rows came more than once, one entry for each repetition."""

    def add(self, place: np.ndarray, reason: str = "", rows: int | None = None) -> None:
        """Refuse the rows at these places, or the `rows` of the records that begin there."""
        if len(place):
            self.places.append(place)
            self.number += len(place) if rows is None else rows
            if reason:
                self.reasons |= dict.fromkeys(map(tuple, place.tolist()), reason)


def key_frame(batch: pl.DataFrame, groups: list[str], refused: Refused) -> pl.DataFrame:
    """The rows whose realization, groups, time and population can be read; others are refused."""
    needed = [*groups, KEY, TIME, *([POPULATION] if POPULATION in batch.columns else [])]
    if (
        POPULATION not in needed
        and not batch[BROKEN].any()
        and not any(batch[c].null_count() for c in needed)
    ):
        return batch
    good = pl.all_horizontal(pl.col(c).is_not_null() for c in needed) & ~pl.col(BROKEN)
    if POPULATION in batch.columns:
        good &= pl.col(POPULATION).is_between(0, MAX_COUNT, "none")
    mask = batch.select(good.alias("good"))["good"]
    if mask.all():
        return batch
    refused.add(np.asarray(Places(batch.filter(~mask))))
    return batch.filter(mask)


def _populations(frame: pl.DataFrame) -> np.ndarray | None:
    return frame[POPULATION].to_numpy() if POPULATION in frame.columns else None


def _all_good(counts: np.ndarray, over: Map) -> bool:
    """Quickly, what `good_rows` tells of all rows."""

    def are_good(some: np.ndarray) -> bool:
        return bool(some.max(initial=0) < MAX_COUNT and some.min(initial=0) > -MAX_COUNT)

    if counts.dtype.kind in "iu":
        return True
    # Parts that are each in one piece of memory.
    parts = counts.T if counts.flags.f_contiguous else np.array_split(counts, PARTS)
    return all(over(are_good, parts))


class Wide:
    """One row is one record."""

    def __init__(self, schema: Schema, keys: Keys, refused: Refused, over: Map = map) -> None:
        self.schema, self.keys, self.refused, self.over = schema, keys, refused, over

    def feed(self, batch: pl.DataFrame) -> Records:
        frame = key_frame(batch, self.keys.columns, self.refused)
        S = len(self.schema.states)
        if isinstance(self.schema.counts, str):
            whole = of_lists(frame[VALUES], S, self.over)
            frame, counts = self._lists(frame) if whole is None else (frame, whole)
        else:
            counts = side_by_side(frame, value_columns(self.schema), self.over)
        if counts.dtype.kind not in "iu":
            counts = counts.astype(np.float64, copy=False)
        if not _all_good(counts, self.over):
            good = good_rows(counts)
            self.refused.add(Places(frame)[~good])
            frame, counts = frame.filter(pl.Series(good)), counts[good]
        (key, heads), time = self.keys.stretches(frame, self.over), in_one(frame[TIME], self.over)
        return Records(key, time, counts, _populations(frame), Places(frame), heads=heads)

    def _lists(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray]:
        """The rows whose lists are as long as they must be, and their counts; others are refused."""
        S = len(self.schema.states)
        fits = (frame[VALUES].list.len() == S).fill_null(False)
        if not fits.all():
            self.refused.add(np.asarray(Places(frame.filter(~fits))))
            frame = frame.filter(fits)
        # Nulls within a list become NaN, which is refused later.
        return frame, frame[VALUES].explode().to_numpy().reshape(-1, S)

    def read(self, frame: pl.DataFrame) -> Records:
        """The records of rows that are all at hand."""
        return self.feed(frame)

    def finish(self) -> Records | None:
        return None


class Long:
    """One row per record and state; the rows of a realization must come in order of time.

    A realization's latest step may go on in the next batch, so its rows wait for it.
    """

    def __init__(self, schema: Schema, keys: Keys, refused: Refused, absent: str, over: Map = map) -> None:
        self.schema, self.keys, self.refused, self.absent, self.over = schema, keys, refused, absent, over
        self.waiting: Rows | None = None

    def feed(self, batch: pl.DataFrame) -> Records:
        frame = key_frame(batch, self.keys.columns, self.refused)
        found = self.rows(frame)
        rows = found if self.waiting is None else self.waiting.followed_by(found)
        latest = np.full(len(self.keys), np.iinfo(np.int64).min)
        np.maximum.at(latest, rows.key, rows.time)
        waits = rows.time == latest[rows.key]
        self.waiting = rows.part(np.flatnonzero(waits))
        return self.assemble(rows.part(np.flatnonzero(~waits)))

    def read(self, frame: pl.DataFrame) -> Records:
        """The records of rows that are all at hand, in any order; or that were put together before."""
        return self.assemble(self.rows(key_frame(frame, self.keys.columns, self.refused)))

    def finish(self) -> Records | None:
        rows, self.waiting = self.waiting, None
        return None if rows is None else self.assemble(rows)

    def rows(self, frame: pl.DataFrame) -> Rows:
        return Rows(
            self.keys.of(frame),
            frame[TIME].to_numpy(),
            self._codes(frame[STATE]),
            frame[COUNT].cast(pl.Float64).fill_null(np.nan).to_numpy(),
            _populations(frame),
            np.asarray(Places(frame)),
        )

    def _codes(self, written: pl.Series) -> np.ndarray:
        """The number of each state as it is written, -1 if it is none."""
        states = pl.DataFrame({"name": self.schema.states, "code": np.arange(len(self.schema.states))})
        distinct = pl.DataFrame({STATE: written.unique()})
        distinct = distinct.with_columns(name_of(STATE, pl.String).alias("name"))
        codes = distinct.join(states, on="name", how="left").select(STATE, "code")
        found = written.to_frame(STATE).join(codes, on=STATE, how="left", maintain_order="left")["code"]
        return found.fill_null(-1).to_numpy()

    def assemble(self, rows: Rows) -> Records:
        S = len(self.schema.states)
        rows = rows.part(np.lexsort((np.arange(len(rows.key)), rows.time, rows.key)))
        new = np.ones(len(rows.key), bool)
        new[1:] = (np.diff(rows.key) != 0) | (np.diff(rows.time) != 0)
        heads, record = np.flatnonzero(new), np.cumsum(new) - 1
        bad = (rows.state < 0) | ~good_rows(rows.count[:, None])
        self.refused.add(rows.place[bad])
        cell = (record * S + rows.state)[~bad]
        times = np.bincount(cell, minlength=len(heads) * S).reshape(-1, S)
        counts = np.zeros(len(heads) * S)
        # Written backwards, so that of repeated rows the first stays.
        counts[cell[::-1]] = rows.count[~bad][::-1]
        again = np.maximum(times.max(1, initial=1) - 1, 0)
        self.refused.repeated.append(np.repeat(rows.key[heads], again))
        differs = counts[cell] != rows.count[~bad]
        self.refused.conflicting += len(np.unique(cell[differs] // S))
        keep = ~np.isin(np.arange(len(heads)), record[bad])
        self.refused.add(rows.place[~bad & ~keep[record]], SPOILED)
        short = (times == 0).any(1) & keep
        if self.absent == "missing":
            keep &= ~short
            self.refused.incomplete += int(short.sum())
            self.refused.add(rows.place[short[record]], INCOMPLETE)
        else:
            self.refused.filled += int((times[short] == 0).sum())
        at = heads[keep]
        population = None if rows.population is None else rows.population[at]
        distinct = (times[keep] > 0).sum(1)
        self.refused.duplicate += int(times[keep].sum() - distinct.sum())
        return Records(
            rows.key[at], rows.time[at], counts.reshape(-1, S)[keep], population, rows.place[at], distinct
        )


@dataclass(frozen=True)
class Rows:
    """Arrays over the rows of a long table."""

    key: np.ndarray
    time: np.ndarray
    state: np.ndarray
    count: np.ndarray
    population: np.ndarray | None
    place: np.ndarray

    def part(self, at: np.ndarray) -> Rows:
        population = None if self.population is None else self.population[at]
        return Rows(self.key[at], self.time[at], self.state[at], self.count[at], population, self.place[at])

    def followed_by(self, other: Rows) -> Rows:
        population = None
        if self.population is not None and other.population is not None:
            population = np.concatenate([self.population, other.population])
        both = ((getattr(self, n), getattr(other, n)) for n in ("key", "time", "state", "count", "place"))
        key, time, state, count, place = (np.concatenate(pair) for pair in both)
        return Rows(key, time, state, count, population, place)
