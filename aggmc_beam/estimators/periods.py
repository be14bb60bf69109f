"""Do the mean shares come back after a day, a week, a year? Peaks of the spectrum of the step means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aggmc_beam.estimators.latent import Trajectory

#: Periods that are looked for in any data: hours of a day, months of a year, days of a week.
USUAL = (24, 12, 7)
#: Neighbouring frequencies on each side that a peak is compared with, and how near they may come: the
#: taper spreads a line over two frequencies on each side.
NEIGHBOURS, GAP = 8, 3
#: Chance of a false alarm, once for the usual periods and once for the highest peak.
LEVEL = 0.003
#: Turns that must have been seen.
TURNS = NEIGHBOURS + GAP + 1


@dataclass(frozen=True)
class Period:
    """The means repeat every `steps` steps; `excess` is the peak's height over what chance allows."""

    steps: int
    excess: float


def find_period(path: Trajectory, width: int = 1) -> Period | None:
    """The longest usual period whose peak stands out, or else that of the highest peak, or None.

    Each peak is compared with its neighbours, so that the memory of a chain, whose spectrum is smooth,
    does not count. `width` is the number of steps between entries of the path.
    """
    at = np.round((path.time - path.time[0]) / width).astype(int)
    B = int(at[-1]) + 1 if len(at) else 0
    if B < 3 * TURNS or len(at) < 0.5 * B:
        return None
    x = np.zeros((B, path.shares.shape[1]))
    x[at] = path.shares - path.shares.mean(0)
    deviation = x.std(0)
    x = x[:, deviation > 1e-12] / deviation[deviation > 1e-12]
    if not x.shape[1]:
        return None
    values, vectors = np.linalg.eigh(x.T @ x)
    x = x @ vectors[:, values > 1e-9 * values[-1]]  # constant totals leave one direction less
    tapered = x * np.hanning(B + 2)[1:-1, None]
    directions = x.shape[1]
    usual = [p for p in USUAL if p >= 2 * width and B * width >= TURNS * p]
    if usual:
        limit = _limit(LEVEL / (len(usual) * directions))
        heights = [_height(tapered, width / p) / limit for p in usual]
        for p, height in zip(usual, heights, strict=True):  # the longest first
            if height > 1:
                return Period(p, height)
    power = np.abs(np.fft.rfft(tapered, axis=0)) ** 2
    first, last = TURNS, len(power) - TURNS
    if last <= first:
        return None
    around = np.zeros_like(power[first:last])
    for k in range(GAP, GAP + NEIGHBOURS):
        around += power[first - k : last - k] + power[first + k : last + k]
    ratio = (power[first:last] / np.maximum(around / (2 * NEIGHBOURS), 1e-300)).max(1)
    peak = int(ratio.argmax())
    height = float(ratio[peak]) / _limit(LEVEL / ratio.size / directions)
    steps = round(B * width / (first + peak))
    return Period(steps, height) if height > 1 and steps > 1 else None


def _limit(level: float) -> float:
    """What a peak over the mean of its neighbours exceeds with this probability."""
    from scipy import special

    # The taper makes neighbours alike, so that they count half.
    return float(special.fdtri(2, 2 * NEIGHBOURS, 1 - level))


def _height(x: np.ndarray, frequency: float) -> float:
    """The largest ratio over directions of the power at a frequency to that of its neighbours."""
    B = len(x)
    offsets = np.r_[0, np.arange(GAP, GAP + NEIGHBOURS), -np.arange(GAP, GAP + NEIGHBOURS)]
    waves = np.exp(-2j * np.pi * np.outer(frequency + offsets / B, np.arange(B)))
    power = np.abs(waves @ x) ** 2
    return float((power[0] / np.maximum(power[1:].mean(0), 1e-300)).max())
