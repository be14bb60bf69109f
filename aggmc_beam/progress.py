"""A line of progress on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

#: What is called with a stage, how much of it is done, and of how much, if that is known.
ProgressHook = Callable[[str, int, "int | None"], None]


def no_progress(stage: str, done: int, total: int | None) -> None:
    """Say nothing."""


#: Seconds after which a speed is told; before, it would be that of a clock.
SETTLED = 0.5


class Progress:
    """What is being done, how far it is, and time left, at most ten times a second.

    Rows, or whatever the unit is, also have a speed: that since the stage began. Stages in `COUNTED` are told as
    m of n.
    """

    COUNTED = ("estimating", "writing", "flows", "forecasts", "alarms")

    def __init__(self, stream: TextIO | None = None, unit: str = "rows") -> None:
        self.unit = unit
        self.stream = sys.stderr if stream is None else stream
        self.shown = self.stream.isatty()
        self.stage, self.began, self.first, self.last, self.width = "", 0.0, 0, 0.0, 0

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if stage != self.stage:
            self.stage, self.began, self.first, self.last = stage, now, done, 0.0
        if not self.shown or now - self.last < 0.1:
            return
        self.last = now
        line = self._line(done, total, now - self.began)
        self.stream.write(f"\r{line:<{self.width}}")
        self.stream.flush()
        self.width = len(line)

    def _line(self, done: int, total: int | None, seconds: float) -> str:
        if not done and total is None:
            return f"{self.stage} ..."
        moved = done - self.first
        speed = moved / seconds if seconds >= SETTLED and moved > 0 else None
        if self.stage in self.COUNTED:
            line = f"{self.stage}: {done:,}" + ("" if total is None else f" of {total:,}")
        else:
            line = f"{self.stage}: {done:,} {self.unit}"
            if speed is not None:
                line += f", {speed:,.{0 if speed >= 10 else 1}f} {self.unit}/s"
        if not total:
            return line
        done = min(done, total)
        left = "" if speed is None else f", {_clock((total - done) / speed)} left"
        return f"[{'#' * (20 * done // total):<20}] {line}, {100 * done // total} %{left}"

    def clear(self) -> None:
        if self.shown and self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()
            self.width = 0


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
