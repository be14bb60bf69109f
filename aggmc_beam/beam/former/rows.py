"""The rows of a run: read once where they are few, in order, and cut between realizations."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.beam.former.assemble import Places, Records
from aggmc_beam.beam.former.narrow import compact
from aggmc_beam.beam.former.sources import Source
from aggmc_beam.beam.former.survey import Table, batches
from aggmc_beam.beam.former.tidy import KEY

#: Input of at most this many values, or bytes of text, is read once and kept.
FEW_VALUES, FEW_BYTES = 1 << 26, 1 << 28
#: Places for each record of a table by realization and time, beyond which sorting is better.
SPARSE = 4


def gathered(
    sources: list[Source],
    columns: int,
    frame: Callable[[], pl.LazyFrame],
) -> Table:
    """The rows of sources themselves where they are few, so that their files are read only once.
    Else the frame that reads them."""
    text = sum(os.path.getsize(s.name) for s in sources if s.format in ("csv", "jsonl"))
    rows = sum(s.height for s in sources if s.format in ("parquet", "frame"))
    if rows * columns > FEW_VALUES or text > FEW_BYTES:
        return frame()
    return frame().collect()


def portions(sources: Sequence[Source], frames: Sequence[pl.LazyFrame], size: int) -> Iterator[pl.DataFrame]:
    """The rows of sources, whose tidy rows the frames are, about `size` at a time. While one portion is
    worked on, no more than the next one is read."""
    with ThreadPoolExecutor(1) as pool:
        parts = filled(_read(sources, frames, size), size)
        coming = pool.submit(next, parts, None)
        while (found := coming.result()) is not None:
            coming = pool.submit(next, parts, None)
            yield found


def _read(sources: Sequence[Source], frames: Sequence[pl.LazyFrame], size: int) -> Iterator[pl.DataFrame]:
    for source, frame in zip(sources, frames, strict=True):
        if source.format == "parquet":
            # Polars by itself would read several row groups ahead, however large they are.
            for start in range(0, source.height, size):
                yield frame.slice(start, size).collect()
        else:
            yield from batches(frame, size)


def filled(parts: Iterable[pl.DataFrame], size: int) -> Iterator[pl.DataFrame]:
    """The same rows with at least `size` in each part but the last."""
    held: list[pl.DataFrame] = []
    for part in parts:
        held.append(part)
        if sum(one.height for one in held) >= size:
            yield pl.concat(held)
            held = []
    if held:
        yield pl.concat(held)


def whole_realizations(parts: Iterable[pl.DataFrame], most: int) -> Iterator[pl.DataFrame]:
    """The same rows, cut between realizations rather than within, if those have fewer than `most` rows. Parts
    have at least so many, but the last.

    A realization that goes on in the next part comes by itself: columns in one piece are read faster.
    """
    rest: pl.DataFrame | None = None
    for part in parts:
        is_last = part.height < most
        if rest is not None:
            stop = _first_other(part[KEY], rest[KEY][-1])
            rest, part = pl.concat([rest, part[:stop]]), part[stop:]
            if not part.height and rest.height < most:
                continue
            yield rest
            rest = None
        if not part.height:
            continue
        cut = part.height if is_last else _last_start(part[KEY])
        if part.height - cut >= most:
            cut = part.height
        if cut:
            yield part[:cut]
        if cut < part.height:
            # A copy, so that the part can be forgotten.
            rest = part[np.arange(cut, part.height)]
    if rest is not None:
        yield rest


def _first_other(key: pl.Series, value: Any) -> int:
    """How many keys at the start are this value."""
    for length in _lengths(key):
        others = key.head(length).ne_missing(value).arg_true()
        if len(others):
            return int(others[0])
    return len(key)


def _last_start(key: pl.Series) -> int:
    """The row at which the last stretch of equal keys starts."""
    for length in _lengths(key):
        others = key.tail(length).ne_missing(key[-1]).arg_true()
        if len(others):
            return max(len(key) - length, 0) + int(others[-1]) + 1
    return 0


def _lengths(key: pl.Series) -> Iterator[int]:
    """How much to look at: most stretches are short."""
    length = 1024
    yield length
    while length < len(key):
        length *= 8
        yield length


def joined(parts: list[Records]) -> Records:
    """Records of one run, in the order of the parts."""
    if len(parts) == 1:
        return parts[0]
    key, time, counts = (np.concatenate([getattr(p, n) for p in parts]) for n in ("key", "time", "counts"))
    populations = [p.population for p in parts if p.population is not None]
    population = np.concatenate(populations) if populations else None
    return Records(key, time, counts, population, Places.joined([p.place for p in parts]))


def sliced(records: Records, size: int) -> Iterator[Records]:
    """The same records in their order, `size` at once."""
    for start in range(0, len(records.key), size):
        yield records.part(np.arange(start, min(start + size, len(records.key))))


def arranged(records: Records, size: int) -> Iterator[Records]:
    """The same records in order of key and time, about `size` at once and no realization cut in two."""
    order = _order(records.key, records.time)
    records = replace(records, counts=compact(records.counts))
    key = records.key[order]
    ends = np.flatnonzero(np.diff(key, append=-1)) + 1
    start = 0
    while start < len(order):
        stop = int(ends[np.searchsorted(ends, min(start + size, len(order)))])
        yield records.part(order[start:stop])
        start = stop


def _order(key: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Which record comes first, second, ... by key and time; equal ones stay as they are."""
    first = int(time.min(initial=0))
    width = int(time.max(initial=0)) - first + 1
    keys = int(key.max(initial=0)) + 1
    if keys * width <= SPARSE * len(key):
        # Every record to its own place of a table.
        place = key * width + (time - first)
        table = np.full(keys * width, -1)
        table[place] = np.arange(len(place))
        order = table[table >= 0]
        if len(order) == len(place):
            return np.asarray(order)
    return np.lexsort((time, key))
