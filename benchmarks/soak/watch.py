"""Memory and open files of this process, sampled as work goes on."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field


def resident() -> float:
    """MB of memory that this process holds now."""
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


@dataclass
class Watch:
    """Samples of (share of the work done, MB, open files, anything else that must stay bounded)."""

    samples: list[tuple[float, float, int, float]] = field(default_factory=list)
    last: float = 0.0

    def __call__(self, share: float, state: float = 0.0) -> None:
        """Take a sample, at most five times a second."""
        if time.monotonic() - self.last > 0.2:
            self.samples.append((share, resident(), handles(), state))
            self.last = time.monotonic()

    def table(self, state: str | None = None) -> list[str]:
        """The greatest values within each tenth of the work."""
        lines = [f"{'done':>6} {'MB':>8} {'files':>6}" + (f" {state}" if state else "")]
        for tenth in range(10):
            part = [s for s in self.samples if tenth <= s[0] * 10 < tenth + 1 or (tenth == 9 and s[0] >= 1)]
            if part:
                _, memory, files, held = (max(column) for column in zip(*part, strict=True))
                extra = f" {held:,.0f}" if state else ""
                lines.append(f"{10 * (tenth + 1):>5}% {memory:>8,.0f} {files:>6}{extra}")
        return lines

    def growth(self) -> float:
        """The greatest memory in the second half of the work over that in the fifth before it."""
        warm = [m for share, m, _, _ in self.samples if 0.3 <= share < 0.5]
        rest = [m for share, m, _, _ in self.samples if share >= 0.5]
        return max(rest) / max(warm) if warm and rest else float("nan")
