"""Pair: each record of a stream meets the neighbours that came before it, once however often it comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from aggmc_beam.beam import codec
from aggmc_beam.beam.dead_letters import rejection
from aggmc_beam.beam.exact import REJECTED
from aggmc_beam.beam.guard import EARLIEST
from aggmc_beam.beam.joining import Arrivals, Joining, group_key
from aggmc_beam.beam.metrics import counter, distribution
from aggmc_beam.beam.stream_coders import KnownCoder
from aggmc_beam.beam.stream_sums import StreamRule
from aggmc_beam.beam.stream_values import Known
from aggmc_beam.beam.timing import Timing
from aggmc_beam.errors import InputError
from aggmc_beam.local.explain import CONFLICT
from aggmc_beam.local.plan import Plan
from aggmc_beam.noise import Exact
from aggmc_beam.records import Record, as_row, realization_number
from aggmc_beam.sums.spec import COLUMN, ONE
from aggmc_beam.sums.track import Track

FORGOTTEN = "it came too late: its realization had been silent for stream.state_ttl and was forgotten"


@dataclass(slots=True)
class Held:
    """What is known of a realization during a bundle, its number, and whether the state holds an older
    version of what is known."""

    known: Known
    number: int
    stored: bool


class Pair(beam.DoFn):  # type: ignore[misc]
    """((group, realization), Record) to ((group, shard), Delta), with the ledger of these to `LEDGER`.

    A realization that is silent for the time to live is forgotten, but for the step up to which it was
    known: what comes for earlier steps could be a repetition, and is set aside as late.
    """

    # A bag of at most one, which unlike a single value is not cleared before it is first written: Beam
    # takes longer for each reading, clearing and adding than is needed here for many records.
    KNOWN = BagStateSpec("known", KnownCoder())
    EXPIRY = TimerSpec("pair_expiry", TimeDomain.WATERMARK)

    def __init__(self, plan: Plan, timing: Timing) -> None:
        self.plan, self.timing, self.rule = plan, timing, StreamRule.of(plan)
        self.populations = self.rule.spec.populations
        exact, N = isinstance(plan.config.noise, Exact), plan.config.population
        self.bundle, self.lateness = distribution("records_per_bundle"), distribution("lateness_seconds")
        #: What the counts of a record cannot exceed, where that is known.
        closed = exact and not plan.config.open_population
        self.most = float(N) if closed and isinstance(N, int | float) else None

    def start_bundle(self) -> None:
        self.held: dict[str, Held] = {}
        self.joining = Joining(self.rule)
        self.latest = self.timing.latest()
        self.clock = self.latest - self.timing.ahead

    def finish_bundle(self) -> Iterator[Any]:
        self.held = {}
        return self._handed_on()

    def _handed_on(self) -> Iterator[Any]:
        if self.joining.number:
            self.bundle.update(self.joining.number)
            if self.joining.earliest > EARLIEST:  # it has an event time
                self.lateness.update(max(0, self.clock - self.joining.earliest) // 10**6)
        return self.joining.handed_on()

    def process(
        self,
        element: tuple[str, Record],
        at: Any = beam.DoFn.TimestampParam,
        state: Any = beam.DoFn.StateParam(KNOWN),
        expiry: Any = beam.DoFn.TimerParam(EXPIRY),
    ) -> Iterable[Any] | None:
        key, record = element
        # No event time beyond what is believed sets the clock of a realization.
        now = min(at.micros, self.latest)
        held = self.held.get(key)
        if held is None:
            held = self.held[key] = _recalled(state, record, now)
        known = held.known
        if known.track is None:
            # One timer at a time: when it fires, it is set anew if the realization was heard of since.
            expiry.set(Timestamp(micros=now + self.timing.ttl))
        if known.newest < now:
            known.newest = now
        why = self._taken(known, record, key, held.number)
        _keep(state, held)
        full = self.joining.came(now)
        return self._outputs(record, why, full) if full or why is not None else None

    def _outputs(self, record: Record, why: str | None, full: bool) -> Iterator[Any]:
        if why is not None:
            yield beam.pvalue.TaggedOutput(REJECTED, rejection(as_row(record, self.plan.schema), why))
        if full:
            yield from self._handed_on()

    def _taken(self, known: Known, record: Record, key: str, number: int) -> str | None:
        """Adds the record to the arrivals of its group; why it goes to the dead-letter output if it does."""
        arrivals = self.joining.arrivals(group_key(record.group))
        time = record.time
        if known.floor is not None and time < known.floor:
            counter("late").inc()
            arrivals.counts["late"] += 1
            return FORGOTTEN
        try:
            N = self._population(record, known.population)
        except InputError as error:
            counter("rejected").inc()
            arrivals.counts["rejected"] += 1
            return str(error)
        if known.population is None and N is not None:
            known.population = N
            arrivals.inhabit(N)
        track = known.track
        if track is None:
            track = known.track = Track()
        is_first, row = not track.starts, self.rule.spec.summed(record.counts[None])[0]
        if row.dtype.kind == "f":  # else it was read from bytes, and is narrow
            row = codec.narrow(row)[1]
        near = track.take(time, row)
        if near is not None:
            arrivals.add(record.realization, number, N, is_first, time, row, near)
            return None
        return self._repeated(arrivals, track.open.get(time), row)

    def _repeated(self, arrivals: Arrivals, before: np.ndarray | None, row: np.ndarray) -> str | None:
        arrivals.counts["duplicates"] += 1
        counter("duplicates").inc()
        if before is None or np.array_equal(before, row):
            return None
        counter("conflicting").inc()
        return CONFLICT

    @on_timer(EXPIRY)  # type: ignore[untyped-decorator]
    def expire(
        self,
        key: Any = beam.DoFn.KeyParam,
        at: Any = beam.DoFn.TimestampParam,
        state: Any = beam.DoFn.StateParam(KNOWN),
        expiry: Any = beam.DoFn.TimerParam(EXPIRY),
    ) -> None:
        known = _stored(state)
        if known is None or known.track is None:
            return
        if known.newest + self.timing.ttl > at.micros:
            expiry.set(Timestamp(micros=known.newest + self.timing.ttl))
            return
        counter("expired").inc()
        floor = known.floor
        if known.track.stops:
            floor = max(known.track.stops[-1] + 1, -(2**62) if floor is None else floor)
        self.held.pop(key, None)
        state.clear()
        state.add(Known(known.newest, None, floor, known.population))

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


def _stored(state: Any) -> Known | None:
    """What the state holds."""
    return next(iter(state.read()), None)


def _recalled(state: Any, record: Record, now: int) -> Held:
    """What the state holds of a realization, or that it is new."""
    stored, number = _stored(state), realization_number(record.realization)
    if stored is None:
        return Held(Known(now), number, stored=False)
    # A copy, since a runner may keep the value for its next bundle, also when this one fails.
    return Held(stored.copy(), number, stored=True)


def _keep(state: Any, held: Held) -> None:
    """Sees to it that the state will hold what is known. Most runners write at the end of a bundle what they
    were given in it: until then nothing is to be done, however often it changes."""
    if held.known.pending:
        return
    held.known.pending = True
    if held.stored:
        state.clear()
    held.stored = True
    state.add(held.known)


def _check_total(record: Record, population: float) -> None:
    total = float(record.counts.sum())
    if total != total:  # some are missing; to look for these takes longer
        total = float(np.nansum(record.counts))
    if total > population * (1 + 1e-9):
        raise InputError(f"it counts {total:g} individuals, more than the population {population:g}")
