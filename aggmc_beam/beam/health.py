"""How a stream is doing: its ledger, its last refresh, how far event time has come; and max_rejected."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import astuple
from typing import Any

import apache_beam as beam
from apache_beam import coders
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from aggmc_beam.beam.files import is_local
from aggmc_beam.beam.timing import HEALTH_ENDS, SUM_ENDS, Timing
from aggmc_beam.durable import write_atomically
from aggmc_beam.ledger import Ledger, check_rejected
from aggmc_beam.result import Estimate
from aggmc_beam.times import iso

HEALTH = "health.json"
#: Event times outside of these are marks of Beam's own, such as the end of all times.
SANE = (-(2**61), SUM_ENDS.micros - 1)
_NUMBERS = coders.TupleCoder([coders.VarIntCoder()] * 8)
#: An event time, or a moment, that has not been.
NEVER = -(2**62)
#: The output of stages that count: parts of the ledger, as `Numbers`.
LEDGER = "ledger"
#: The five of the ledger, the number of refreshes, the newest event time, and when the last refresh was.
Numbers = tuple[str, tuple[int, int, int, int, int, int, int, int]]


def from_ledger(ledger: Ledger, newest: int = NEVER) -> Numbers:
    read, used, duplicate, rejected, late = astuple(ledger)
    return "", (read, used, duplicate, rejected, late, 0, newest, NEVER)


def from_estimate(_: Estimate) -> Numbers:
    return "", (0, 0, 0, 0, 0, 1, NEVER, int(time.time() * 1e6))


class Health(beam.DoFn):  # type: ignore[misc]
    """Parts of the ledger and notices of estimates, all under one key, to the health of the stream at
    each refresh. Fails when more records than `limit` are rejected."""

    NUMBERS = ReadModifyWriteStateSpec("numbers", _NUMBERS)
    WATERMARK = ReadModifyWriteStateSpec("watermark", coders.VarIntCoder())
    DUE = ReadModifyWriteStateSpec("due", coders.BooleanCoder())
    MARKED = ReadModifyWriteStateSpec("marked", coders.BooleanCoder())
    ENDED = ReadModifyWriteStateSpec("ended", coders.BooleanCoder())
    REFRESH = TimerSpec("health_refresh", TimeDomain.REAL_TIME)
    MARK = TimerSpec("health_mark", TimeDomain.WATERMARK)
    END = TimerSpec("health_end", TimeDomain.WATERMARK)

    def __init__(self, timing: Timing, limit: int | float | None) -> None:
        self.timing, self.limit = timing, limit

    def process(
        self,
        element: tuple[str, tuple[int, ...]],
        numbers: Any = beam.DoFn.StateParam(NUMBERS),
        due: Any = beam.DoFn.StateParam(DUE),
        marked: Any = beam.DoFn.StateParam(MARKED),
        refresh: Any = beam.DoFn.TimerParam(REFRESH),
        mark: Any = beam.DoFn.TimerParam(MARK),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        *added, newest, refreshed = element[1]
        *known, last, before = numbers.read() or (0,) * 6 + (NEVER, NEVER)
        total = [a + b for a, b in zip(known, added, strict=True)]
        newest, refreshed = max(newest, last), max(refreshed, before)
        numbers.write((*total, newest, refreshed))
        check_rejected(total[3], total[0], self.limit, complete=False)
        # A mark that is set stays: moved on with each record, it would always be ahead of the watermark.
        if SANE[0] < newest < SANE[1] and not marked.read():
            marked.write(True)
            mark.set(Timestamp(micros=newest))
        end.set(HEALTH_ENDS)
        if not due.read():
            due.write(True)
            refresh.set(self.timing.soon(self.timing.refresh))

    @on_timer(REFRESH)  # type: ignore[untyped-decorator]
    def tell(
        self,
        numbers: Any = beam.DoFn.StateParam(NUMBERS),
        watermark: Any = beam.DoFn.StateParam(WATERMARK),
        due: Any = beam.DoFn.StateParam(DUE),
        ended: Any = beam.DoFn.StateParam(ENDED),
    ) -> Iterator[dict[str, Any]]:
        due.clear()
        if ended.read():
            return  # the last has been said
        yield health(numbers.read(), watermark.read(), False)

    @on_timer(MARK)  # type: ignore[untyped-decorator]
    def passed(
        self,
        at: Any = beam.DoFn.TimestampParam,
        numbers: Any = beam.DoFn.StateParam(NUMBERS),
        watermark: Any = beam.DoFn.StateParam(WATERMARK),
        marked: Any = beam.DoFn.StateParam(MARKED),
        mark: Any = beam.DoFn.TimerParam(MARK),
    ) -> None:
        watermark.write(at.micros)
        *_, newest, _ = numbers.read()
        if at.micros < newest < SANE[1]:
            mark.set(Timestamp(micros=newest))
        else:
            marked.clear()

    @on_timer(END)  # type: ignore[untyped-decorator]
    def end(
        self,
        numbers: Any = beam.DoFn.StateParam(NUMBERS),
        watermark: Any = beam.DoFn.StateParam(WATERMARK),
        ended: Any = beam.DoFn.StateParam(ENDED),
    ) -> Iterator[dict[str, Any]]:
        ended.write(True)
        total = numbers.read()
        check_rejected(total[3], total[0], self.limit)
        yield health(total, watermark.read(), True)


def health(numbers: tuple[int, ...], watermark: int | None, ended: bool) -> dict[str, Any]:
    """What the health file holds. `watermark` is an event time that is known to have passed."""
    *ledger, refreshes, newest, refreshed = numbers
    now = int(time.time() * 1e6)
    sane = [m for m in (watermark, newest) if m is not None and SANE[0] < m < SANE[1]]
    return {
        "time": iso(now),
        "ended": ended,
        "ledger": Ledger(*ledger).check().to_dict(),
        "refreshes": refreshes,
        "last_refresh": None if refreshed == NEVER else iso(refreshed),
        "newest": iso(newest) if SANE[0] < newest < SANE[1] else None,
        "watermark": None if watermark is None else iso(watermark),
        "lag_seconds": None if not sane else round((now - sane[0]) / 1e6, 3),
    }


class WriteHealth(beam.DoFn):  # type: ignore[misc]
    """The newest health to a file that is never seen half written."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def process(self, found: dict[str, Any]) -> None:
        data = (json.dumps(found, indent=1) + "\n").encode()
        path = str(FileSystems.join(self.directory, HEALTH))
        if is_local(self.directory):
            os.makedirs(self.directory, exist_ok=True)
            write_atomically(path, data)
            return
        with FileSystems.create(path) as far:
            far.write(data)
