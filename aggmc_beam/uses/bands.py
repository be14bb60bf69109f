"""Bands of numbers of people from their mean and variance."""

from __future__ import annotations

import numpy as np


def count_bands(mean: np.ndarray, variance: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) whole numbers that hold a count of this mean and variance with probability `level`.

    A gamma variable of the same mean and variance, a normal one where counts are large, rounded to whole
    numbers. What cannot be missed below, since the band starts at 0, is left out above. The mean itself is
    inside.

    >>> lower, upper = count_bands(np.array([0.3, 100.0]), np.array([0.3, 100.0]), 0.95)
    >>> lower.tolist(), upper.tolist()
    ([0.0, 80.0], [1.0, 120.0])
    """
    from scipy import special

    m, v = np.maximum(mean, 0.0), np.maximum(variance, 0.0)
    tail = (1 - level) / 2
    z = special.ndtri(1 - tail)
    half = z * np.sqrt(v)
    lower, upper = np.round(m - half), np.round(m + half)
    small = (m > 0) & (v > 0) & (m - 2 * half < 0)
    scale = v[small] / m[small]
    shape = m[small] / scale
    lower[small] = np.round(special.gammaincinv(shape, tail) * scale)
    above = np.where(lower[small] == 0, level, 1 - tail)
    upper[small] = np.round(special.gammaincinv(shape, above) * scale)
    return np.maximum(np.minimum(lower, m), 0.0), np.maximum(upper, m)
