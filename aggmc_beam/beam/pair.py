"""Pair: each record of a stream meets the neighbours that came before it, once however often it comes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from aggmc_beam.beam.bounded import REJECTED, counter, group_key
from aggmc_beam.beam.coders import KnownCoder
from aggmc_beam.beam.parsing import rejection
from aggmc_beam.beam.timing import Timing
from aggmc_beam.beam.values import Delta, Known
from aggmc_beam.chain import Window
from aggmc_beam.errors import InputError
from aggmc_beam.local.accumulate import COLUMN, ONE
from aggmc_beam.local.engine import Plan, accumulator
from aggmc_beam.local.explain import CONFLICT
from aggmc_beam.moments import Counts
from aggmc_beam.noise import Exact
from aggmc_beam.records import Record, as_row, realization_number
from aggmc_beam.track import Track

NOTHING = Counts()
FORGOTTEN = "it came too late: its realization had been silent for stream.state_ttl and was forgotten"


def by_realization(record: Record) -> tuple[str, Record]:
    """A record under the key that it shares with the other records of its realization."""
    return json.dumps([record.group, record.realization], ensure_ascii=False), record


class Pair(beam.DoFn):  # type: ignore[misc]
    """((group, realization), Record) to (group, Delta).

    A realization that is silent for the time to live is forgotten, but for the step up to which it was
    known: what comes for earlier steps could be a repetition, and is set aside as late.
    """

    KNOWN = ReadModifyWriteStateSpec("known", KnownCoder())
    EXPIRY = TimerSpec("pair_expiry", TimeDomain.WATERMARK)

    def __init__(self, plan: Plan, timing: Timing) -> None:
        self.plan, self.ttl = plan, timing.ttl
        self.preparation = accumulator(plan).preparation
        self.populations = plan.populations
        self.closing = isinstance(plan.config.chain, Window)
        exact, N = isinstance(plan.config.noise, Exact), plan.config.population
        #: What the counts of a record cannot exceed, where that is known.
        self.most = N if exact and isinstance(N, float) and not plan.config.open_population else None

    def process(
        self,
        element: tuple[str, Record],
        at: Any = beam.DoFn.TimestampParam,
        state: Any = beam.DoFn.StateParam(KNOWN),
        expiry: Any = beam.DoFn.TimerParam(EXPIRY),
    ) -> Iterator[Any]:
        _, record = element
        known, now = state.read(), at.micros
        if known is None or known.track is None:
            # One timer at a time: when it fires, it is set anew if the realization was heard of since.
            expiry.set(Timestamp(micros=now + self.ttl))
        if known is None:
            known = Known(now)
        elif known.newest < now:
            known.newest = now
        delta, why = self._taken(known, record)
        yield group_key(record.group), delta
        if why is not None:
            yield beam.pvalue.TaggedOutput(REJECTED, rejection(as_row(record, self.plan.schema), why))
        state.write(known)

    def _taken(self, known: Known, record: Record) -> tuple[Delta, str | None]:
        """What the record adds, and why it goes to the dead-letter output if it does."""
        S = len(self.plan.schema.states)
        if known.floor is not None and record.time < known.floor:
            counter("late").inc()
            return Delta.counted(S, Counts(late=1)), FORGOTTEN
        try:
            N = self._population(record, known.population)
        except InputError as error:
            counter("rejected").inc()
            return Delta.counted(S, Counts(rejected=1)), str(error)
        met = known.population is None and N is not None
        known.population = N
        if known.track is None:
            known.track = Track(S)
        values, weight = self._values(record, N)
        delta = self._delta(known.track, record, values, weight)
        if met and N is not None:
            delta = replace(delta, populations=(1.0, N, N, N))
        if delta.counts.duplicates:
            counter("duplicates").inc()
            before = known.track.open.get(record.time)
            if before is not None and not np.array_equal(before.values, values[0]):
                counter("conflicting").inc()
                return delta, CONFLICT
        return delta, None

    @on_timer(EXPIRY)  # type: ignore[untyped-decorator]
    def expire(
        self,
        at: Any = beam.DoFn.TimestampParam,
        state: Any = beam.DoFn.StateParam(KNOWN),
        expiry: Any = beam.DoFn.TimerParam(EXPIRY),
    ) -> None:
        known = state.read()
        if known is None or known.track is None:
            return
        if known.newest + self.ttl > at.micros:
            expiry.set(Timestamp(micros=known.newest + self.ttl))
            return
        counter("expired").inc()
        if known.track.covered.stops:
            known.floor = max(known.track.covered.stops[-1] + 1, known.floor or -(2**62))
        known.track = None
        state.write(known)

    def _population(self, record: Record, known: float | None) -> float | None:
        """The population of the record's realization; `InputError` if the record contradicts it."""
        if self.populations == ONE:
            if self.most is not None:
                _check_total(record, self.most)
            return None
        found = record.population if self.populations == COLUMN else float(record.counts.sum())
        assert found is not None
        expected = found if known is None else known
        if not np.isclose(found, expected, rtol=1e-9, atol=0) or found <= 0:
            raise InputError(
                f"population {found:g} differs from {expected:g}, given before for its realization"
            )
        if self.populations == COLUMN and isinstance(self.plan.config.noise, Exact):
            _check_total(record, expected)
        return expected

    def _values(self, record: Record, N: float | None) -> tuple[np.ndarray, float | None]:
        if not self.preparation.undo and not self.preparation.weighted:
            return record.counts[None], None
        population = None if N is None else np.array([N])
        values = self.preparation.values(record.counts[None], np.array([record.time]), population)
        return values, N if self.preparation.weighted else None

    def _delta(self, track: Track, record: Record, values: np.ndarray, weight: float | None) -> Delta:
        block, counts = track.take_one(record.time, values, weight)
        n = len(block.time)
        settled = np.zeros(n, np.int64) if block.settled is None else block.settled
        about = np.array([realization_number(record.realization), n, counts.realizations], np.int64)
        return Delta(
            about[:1],
            about[1:2],
            about[2:],
            block.time,
            block.values,
            settled,
            block.weight,
            # A realization is counted with the record that is its first.
            counts if counts.duplicates else NOTHING,
            payloads=(json.dumps(as_row(record, self.plan.schema)),) if self.closing else (),
        )


def _check_total(record: Record, population: float) -> None:
    total = float(record.counts.sum())
    if total > population * (1 + 1e-9):
        raise InputError(f"it counts {total:g} individuals, more than the population {population:g}")
