"""Records one by one to batches. Many are read at once, column by column; odd ones one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import Any

import apache_beam as beam
import numpy as np

from aggmc_beam.beam import packed
from aggmc_beam.beam.bounded import NOTICED, REACH, REJECTED, at_the_end, counter, group_key, spread
from aggmc_beam.beam.parsing import rejection, rows
from aggmc_beam.beam.summing import narrowed, one_batch, take
from aggmc_beam.beam.values import Batch, Group, reach_of
from aggmc_beam.local.engine import Plan
from aggmc_beam.records import (
    MAX_BYTES,
    MAX_COUNT,
    MAX_DEPTH,
    MAX_TIME,
    Record,
    Rejected,
    Schema,
    identity,
    openings,
    read_record,
)

#: Counts that are read together. Rows that wait must not push each other out of a core's cache.
TOGETHER = 100_000
#: Counts that are held before they are handed on.
VALUES = 4_000_000
#: With fewer than this, records that cannot be read together are read one by one.
FEW = 32

_WHOLE: set[type] = {int, np.int64, np.int32}
_NUMBER: set[type] = {*_WHOLE, float, np.float64, np.float32}
_TEXT: set[type] = {str}
_LISTS: tuple[set[type], ...] = ({list}, {tuple}, {np.ndarray})


class Odd(Exception):
    """Rows that cannot be read together; one by one they may well be records."""


class Gather(beam.DoFn):  # type: ignore[misc]
    """Elements to batches, spread over keys; also how far each group reaches, and what was rejected."""

    def __init__(self, plan: Plan, shards: int) -> None:
        self.plan, self.shards = plan, shards
        self.enough = max(100, TOGETHER // len(plan.schema.states))

    def start_bundle(self) -> None:
        self.waiting: list[Any] = []
        self.held: dict[tuple[Group, bool], list[Batch]] = {}
        self.size = 0

    def process(self, element: Any) -> Iterator[Any] | None:
        waiting = self.waiting
        waiting.append(element)
        return self._read() if len(waiting) >= self.enough or type(element) is Batch else None

    def finish_bundle(self) -> Iterator[Any]:
        yield from at_the_end(self._read())
        yield from at_the_end(self._flush())

    def _read(self) -> Iterator[Any]:
        """Turn what waits into batches, and hand these on once they hold enough."""
        waiting, self.waiting = self.waiting, []
        batches = [waiting.pop()] if waiting and type(waiting[-1]) is Batch else []
        rejected: list[dict[str, Any]] = []
        for batch in [*batches, *gathered(waiting, self.plan.schema, rejected)]:
            if len(batch):
                kind = batch.group, batch.place is None
                self.held.setdefault(kind, []).append(replace(batch, values=narrowed(batch.values)))
                self.size += batch.values.size
        if self.size >= VALUES:
            yield from self._flush()
        for one in rejected:
            yield beam.pvalue.TaggedOutput(REJECTED, one)
        if rejected:
            counter("rejected").inc(len(rejected))
            yield beam.pvalue.TaggedOutput(NOTICED, {"rejected": len(rejected)})

    def _flush(self) -> Iterator[Any]:
        held, self.held, self.size = self.held, {}, 0
        for (group, _), batches in held.items():
            batch = one_batch(batches)
            yield from spread(self.plan, batch, self.shards)
            yield beam.pvalue.TaggedOutput(REACH, (group_key(group), reach_of(batch)))


def gathered(elements: Sequence[Any], schema: Schema, rejected: list[dict[str, Any]]) -> Iterator[Batch]:
    """The records in elements as batches; what is none is added to `rejected`."""
    if not elements:
        return
    try:
        yield from columns_of(plain_rows(elements), schema)
    except Odd:
        half = len(elements) // 2
        if len(elements) >= FEW:
            yield from gathered(elements[:half], schema, rejected)
            yield from gathered(elements[half:], schema, rejected)
        else:
            yield from _one_by_one(elements, schema, rejected)


def _one_by_one(elements: Sequence[Any], schema: Schema, rejected: list[dict[str, Any]]) -> Iterator[Batch]:
    found: dict[Group, list[Record]] = {}
    for element in elements:
        for row in rows(element):
            try:
                if isinstance(row, Rejected):
                    raise row
                record = read_record(row, schema)
                found.setdefault(record.group, []).append(record)
            except Rejected as error:
                kept = element if isinstance(row, Rejected) else row
                rejected.append(rejection(kept, str(error)))
    yield from (batch_of(records) for records in found.values())


def batch_of(records: Sequence[Record]) -> Batch:
    """Records of one group as a batch."""
    names: dict[str, int] = {}
    key = np.array([names.setdefault(r.realization, len(names)) for r in records], np.int64)
    population = None
    if records[0].population is not None:
        population = np.array([r.population for r in records], np.float64)
    time = np.array([r.time for r in records], np.int64)
    counts = np.stack([r.counts for r in records])
    return Batch(records[0].group, tuple(names), key, time, counts, None, population)


def plain_rows(elements: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
    """Elements as dictionaries, if all of them are of one kind that makes this easy; `Odd` if not."""
    kinds = set(map(type, elements))
    if kinds == {dict}:
        return elements
    if kinds == {beam.Row}:
        return [vars(row) for row in elements]
    if kinds == {bytes}:
        try:
            elements, kinds = [e.decode() for e in elements], {str}
        except UnicodeDecodeError:
            raise Odd from None
    if kinds == {str}:
        return _json_rows(elements)
    raise Odd


def _json_rows(lines: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """Lines of JSON, read as one. As each begins and ends as an object does, no two of them can make one
    object, and so their number tells that each was one."""
    if not all(line[:1] == "{" and line[-1:] == "}" for line in lines):
        raise Odd
    if any(len(line) > MAX_BYTES or openings(line) > MAX_DEPTH for line in lines):
        raise Odd
    try:
        found = json.loads(f"[{','.join(lines)}]", object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise Odd from None
    if len(found) != len(lines):
        raise Odd
    return found  # type: ignore[no-any-return]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no key is given twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Odd
    return found


def columns_of(found: Sequence[Mapping[str, Any]], schema: Schema) -> list[Batch]:
    """Rows without anything unusual as batches, one for each group; `Odd` if there is anything.

    Whatever this accepts, `read_record` reads the same.
    """
    try:
        names, key, time, values = _at_once(found, schema) or _one_by_one_column(found, schema)
        population = None
        if schema.population is not None:
            population = _numbers([r[schema.population] for r in found])
            if not (population > 0).all():
                raise Odd
        groups = [_names([r[c] for r in found], c) for c in schema.group_by]
    except (KeyError, TypeError, ValueError, OverflowError):
        raise Odd from None
    whole = Batch((), names, key, time, values, None, population)
    return _by_group(whole, groups)


Read = tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray]


def _at_once(found: Sequence[Mapping[str, Any]], schema: Schema) -> Read | None:
    """Names, keys, times and values of rows in which they are all plain numbers; None if they are not."""
    if schema.clock.stamps:
        return None
    rows: list[tuple[Any, ...]]
    if isinstance(schema.counts, str):
        lists = [r[schema.counts] for r in found]
        if set(map(type, lists)) not in _LISTS:
            return None
        ends = zip(map(itemgetter(schema.realization, schema.time), found), lists, strict=True)
        rows = [(*end, *counts) for end, counts in ends]
    else:
        rows = list(map(itemgetter(schema.realization, schema.time, *schema.counts), found))
    columns = packed.columns(rows)
    if columns is None or len(columns) != 2 + len(schema.states):
        return None
    number, time, *counts = columns
    if number.dtype.kind != "i" or time.dtype.kind != "i" or np.any(time % schema.clock.unit):
        return None
    values = np.stack(counts).T
    if values.dtype.kind == "f" and not _are_counts(values):
        return None
    known, key = np.unique(number, return_inverse=True)
    return tuple(map(str, known.tolist())), key, time.astype(np.int64) // schema.clock.unit, values


def _one_by_one_column(found: Sequence[Mapping[str, Any]], schema: Schema) -> Read:
    names, key = _names([r[schema.realization] for r in found], schema.realization)
    time = _times([r[schema.time] for r in found], schema)
    return names, key, time, _values(found, schema)


def _names(column: list[Any], what: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Distinct names and which of them each row has."""
    kinds = set(map(type, column))
    if not (kinds <= _WHOLE or kinds <= _TEXT):
        raise Odd
    codes = {value: i for i, value in enumerate(dict.fromkeys(column))}
    try:
        found = [identity(value, what) for value in codes]
    except Rejected:
        raise Odd from None
    key = np.fromiter(map(codes.__getitem__, column), np.int64, len(column))
    if len(set(found)) < len(found):  # " a" and "a" are the same
        raise Odd
    return tuple(found), key


def _times(column: list[Any], schema: Schema) -> np.ndarray:
    clock, kinds = schema.clock, set(map(type, column))
    if not clock.stamps and kinds <= _WHOLE:
        time = np.array(column)
        near = time.dtype == np.int64 and time.min() > -MAX_TIME and time.max() < MAX_TIME
        if not near or np.any(time % clock.unit):
            raise Odd
        return time // clock.unit
    if clock.stamps and kinds in (_TEXT, {datetime}):
        try:
            steps = {value: clock.read(value, schema.time) for value in set(column)}
        except Rejected:
            raise Odd from None
        return np.fromiter(map(steps.__getitem__, column), np.int64, len(column))
    raise Odd


def _values(found: Sequence[Mapping[str, Any]], schema: Schema) -> np.ndarray:
    S = len(schema.states)
    if not isinstance(schema.counts, str):
        values = np.empty((len(found), S))
        for i, name in enumerate(schema.counts):
            values[:, i] = _numbers([r[name] for r in found])
        return values
    lists = [r[schema.counts] for r in found]
    if set(map(type, lists)) not in _LISTS or set(map(len, lists)) != {S}:
        raise Odd
    return _numbers(list(chain.from_iterable(lists))).reshape(-1, S)


def _numbers(column: list[Any]) -> np.ndarray:
    if not set(map(type, column)) <= _NUMBER:
        raise Odd
    values = np.array(column, np.float64)
    if not _are_counts(values):
        raise Odd
    return values


def _are_counts(values: np.ndarray) -> bool:
    return bool((np.abs(values) < MAX_COUNT).all())  # False for NaN


def _by_group(whole: Batch, groups: list[tuple[tuple[str, ...], np.ndarray]]) -> list[Batch]:
    if not groups:
        return [whole]
    code = np.zeros(len(whole), np.int64)
    for names, key in groups:
        code = code * len(names) + key
    parts = []
    for one in np.unique(code):
        at = np.flatnonzero(code == one)
        group = tuple(names[key[at[0]]] for names, key in groups)
        parts.append(replace(take(whole, at), group=group))
    return parts
