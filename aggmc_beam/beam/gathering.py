"""Records one by one to batches. Many are read at once, column by column; odd ones one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import Any

import apache_beam as beam
import numpy as np

from aggmc_beam.beam import packed
from aggmc_beam.beam.bounded import NOTICED, REACH, REJECTED, at_the_end, counter, group_key, spread
from aggmc_beam.beam.former.engine import Plan
from aggmc_beam.beam.parsing import rejection, rows
from aggmc_beam.beam.summing import narrowed, one_batch, take
from aggmc_beam.beam.values import Batch, Group, reach_of
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
TOGETHER = 40_000
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

    def start_bundle(self) -> None:
        self.enough = max(16, TOGETHER // len(self.plan.schema.states))
        self.waiting: list[Any] = []
        self.held: dict[tuple[Group, bool], list[Batch]] = {}
        self.size = 0

    def process(self, element: Any) -> Iterable[Any]:
        waiting = self.waiting
        waiting.append(element)
        return self._read() if len(waiting) >= self.enough or type(element) is Batch else ()

    def finish_bundle(self) -> Iterator[Any]:
        yield from at_the_end(self._read())
        yield from at_the_end(self._flush())

    def _read(self) -> Iterator[Any]:
        """Turn what waits into batches, and hand these on once they hold enough."""
        waiting, self.waiting = self.waiting, []
        batches = [waiting.pop()] if waiting and type(waiting[-1]) is Batch else []
        rejected: list[dict[str, Any]] = []
        self._hold([*batches, *gathered(waiting, self.plan.schema, rejected)])
        if self.size >= VALUES:
            yield from self._flush()
        for one in rejected:
            yield beam.pvalue.TaggedOutput(REJECTED, one)
        if rejected:
            counter("rejected").inc(len(rejected))
            yield beam.pvalue.TaggedOutput(NOTICED, {"rejected": len(rejected)})

    def _hold(self, batches: list[Batch]) -> None:
        for batch in batches:
            if len(batch):
                kind = batch.group, batch.place is None
                self.held.setdefault(kind, []).append(replace(batch, values=narrowed(batch.values)))
                self.size += batch.values.size

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
        flat = _flat(found, schema)
        names, key, time, values = _integers(flat, schema) or _column_by_column(flat, schema)
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


def _flat(found: Sequence[Mapping[str, Any]], schema: Schema) -> list[Any]:
    """Realization, time and counts of every row, one row after the other."""
    if not isinstance(schema.counts, str):
        fields = itemgetter(schema.realization, schema.time, *schema.counts)
        return list(chain.from_iterable(map(fields, found)))
    lists = [r[schema.counts] for r in found]
    if set(map(type, lists)) not in _LISTS or set(map(len, lists)) != {len(schema.states)}:
        raise Odd
    ends = map(itemgetter(schema.realization, schema.time), found)
    return list(chain.from_iterable(chain.from_iterable(zip(ends, lists, strict=True))))


Read = tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray]


def _integers(flat: list[Any], schema: Schema) -> Read | None:
    """Names, keys, times and values of rows that hold plain integers and nothing else; None of others."""
    numbers = None if schema.clock.stamps else packed.whole(flat)
    if numbers is None:
        return None
    table = numbers.reshape(-1, 2 + len(schema.states))
    time = table[:, 1].astype(np.int64)
    if schema.clock.unit > 1 and np.any(time % schema.clock.unit):
        return None
    names, key = distinct(table[:, 0])
    return names, key, time // schema.clock.unit, table[:, 2:]


def _column_by_column(flat: list[Any], schema: Schema) -> Read:
    """The same of rows of any numbers, where names may be text and times stamps."""
    width = 2 + len(schema.states)
    names, key = _names(flat[::width], schema.realization)
    values = np.stack([_numbers(flat[i::width]) for i in range(2, width)], 1)
    return names, key, _times(flat[1::width], schema), values


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


def distinct(numbers: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """The names of numbers, and which of them each one has. Mostly a number follows its equal.

    >>> distinct(np.array([7, 7, 3, 7]))
    (('3', '7'), array([1, 1, 0, 1]))
    """
    starts = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]])[: len(numbers)])
    known, at = np.unique(numbers[starts], return_inverse=True)
    return tuple(map(str, known.tolist())), np.repeat(at, np.diff(starts, append=len(numbers)))
