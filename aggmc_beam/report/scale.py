"""Round numbers for axes; the page's script has the same two rules for entries chosen later."""

from __future__ import annotations

import math

import numpy as np

#: Number of steps between the horizontal lines of a series.
STEPS = 4


def round_range(low: float, high: float) -> tuple[float, float]:
    """Where an axis starts and the step by which `STEPS` steps reach over `high`.

    >>> round_range(0.0, 1.0), round_range(0.41, 0.55), round_range(0.57, 1.0)
    ((0.0, 0.25), (0.4, 0.05), (0.2, 0.2))
    """
    spread = max(high - low, 1e-3)
    power = 10.0 ** math.floor(math.log10(spread / STEPS))
    for _ in range(3):
        for factor in (1.0, 2.0, 2.5, 5.0):
            step = power * factor
            start = math.floor(low / step + 1e-9) * step
            if start + STEPS * step >= high - 1e-9 * step:
                if low >= 0 and high <= 1:  # a probability: no axis beyond 1
                    start = min(start, 1 - STEPS * step)
                return round(start, 10), round(step, 10)
        power *= 10.0
    return low, spread / STEPS


def spread_out(count: int, at_most: int = 5) -> list[int]:
    """Evenly spaced positions among `count`, first and last included.

    >>> spread_out(3), spread_out(168)
    ([0, 1, 2], [0, 42, 84, 125, 167])
    """
    return sorted({int(k + 0.5) for k in np.linspace(0, count - 1, min(count, at_most))})
