"""A line of progress on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """Rows, or other units, done and per second, and time left, at most ten times a second."""

    def __init__(self, stream: TextIO | None = None, unit: str = "rows") -> None:
        self.unit = unit
        self.stream = sys.stderr if stream is None else stream
        self.shown = self.stream.isatty()
        self.stage, self.began, self.last, self.width = "", 0.0, 0.0, 0

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if stage != self.stage:
            self.stage, self.began, self.last = stage, now, 0.0
        if not self.shown or now - self.last < 0.1:
            return
        self.last = now
        speed = done / max(now - self.began, 1e-6)
        line = f"{stage}: {done:,} {self.unit}, {speed:,.{0 if speed >= 10 else 1}f} {self.unit}/s"
        if total:
            left = max(total - done, 0) / speed if speed else 0.0
            bar = "#" * int(20 * done / total)
            line = f"[{bar:<20}] {line}, {100 * done / total:.0f} %, {_clock(left)} left"
        self.stream.write(f"\r{line:<{self.width}}")
        self.stream.flush()
        self.width = len(line)

    def clear(self) -> None:
        if self.shown and self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()
            self.width = 0


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
