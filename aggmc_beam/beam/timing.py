"""When things happen in a stream: refreshes, the closing of windows, and forgetting."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp

from aggmc_beam.chain import Window
from aggmc_beam.clock import Clock
from aggmc_beam.errors import InputError
from aggmc_beam.local.plan import Plan
from aggmc_beam.times import microseconds

#: The far end of a pair is at most this many steps after its near end.
REACH = 2
#: The end of a stream, and the moments before it at which the stages hand on their last results.
LAST = GlobalWindow().max_timestamp()
SUM_ENDS, POOL_ENDS, HEALTH_ENDS = (Timestamp(micros=LAST.micros - 1000 * n) for n in (3, 2, 1))


@dataclass(frozen=True)
class Timing:
    """What a config says of its stream. Microseconds."""

    refresh: int = 60 * 10**6
    lateness: int = 600 * 10**6
    ttl: int = 7 * 86400 * 10**6
    ahead: int = 86400 * 10**6
    #: Whether the clock is that of a `TestStream`, which begins at 0.
    simulated: bool = False

    @classmethod
    def of(cls, plan: Plan) -> Timing:
        stream = plan.config.stream
        if stream is None:
            return cls()
        given = stream.refresh, stream.allowed_lateness, stream.state_ttl, stream.max_ahead
        refresh, lateness, ttl, ahead = map(microseconds, given)
        return cls(refresh, lateness, ttl, ahead)

    def soon(self, delay: int) -> Timestamp:
        """The moment `delay` microseconds from now, by the clock of the runner. Nobody tells a step what a simulated
        one shows: there it is the moment when the clock shows `delay`, or now if it has."""
        return Timestamp(micros=delay) if self.simulated else Timestamp.of(time.time()) + delay / 10**6

    def latest(self) -> int:
        """The latest event time that is believed now."""
        return int(time.time() * 1e6) + self.ahead


def has_simulated_clock(elements: Any) -> bool:
    """Whether elements come from a `TestStream`."""
    step = elements.producer
    return isinstance(step.transform, TestStream) or any(
        one.producer is not None and has_simulated_clock(one) for one in step.inputs
    )


@dataclass(frozen=True)
class Panes:
    """The event times at which the windows of a chain end and close.

    The last pair of a window is complete up to two steps after its last record, so a window ends two
    steps after its own last step, and closes when the allowed lateness has passed as well.
    """

    chain: Window
    clock: Clock
    lateness: int

    @property
    def every(self) -> int:
        return self.chain.every or self.chain.size

    def ends(self, start: int) -> int:
        """When the window that starts at this step has ended, in microseconds."""
        return self.clock.origin + (start + self.chain.size + REACH) * self.clock.unit

    def closes(self, start: int) -> int:
        return self.ends(start) + self.lateness

    def floor(self, moment: int | None) -> int:
        """The first step that belongs to a window which is open at this moment; all before are late."""
        if moment is None:
            return -(2**62)
        steps = (moment - self.lateness - self.clock.origin) // self.clock.unit
        last_closed = (steps - REACH - self.chain.size) // self.every * self.every
        return last_closed + self.every

    def windows(self, cells: Iterable[int], moment: int | None) -> list[int]:
        """The windows, by their first steps, that hold one of these panes and are open at this moment."""
        floor = self.floor(moment)
        return [start for start, _ in self.chain.groups(sorted(cells)) if start >= floor]


def panes(plan: Plan, timing: Timing) -> Panes | None:
    """For a chain of windows; None for all others, in which nothing closes."""
    chain = plan.config.chain
    if not isinstance(chain, Window):
        return None
    if not plan.schema.clock.stamps:
        raise InputError(
            "windows of a stream close by event time, so its records need time stamps; set input.step to a "
            "duration such as 1h"
        )
    if plan.schema.clock.is_calendar or not plan.schema.clock.zone.is_utc:
        raise InputError(
            "windows of a stream close by steps of one length in UTC; set input.step to a duration such as 1h, and "
            "drop input.timezone"
        )
    return Panes(chain, plan.schema.clock, timing.lateness)
