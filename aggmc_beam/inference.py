"""Standard errors by the delete-one-group jackknife.

Assumption: groups are (nearly) independent. Realizations are independent by the model; blocks of
time depend on each other only across their borders, so blocks should be longer than the memory
of the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.moments import Moments, add_moments

Statistic = Callable[[Moments], np.ndarray]


def leave_one_out(parts: Sequence[Moments]) -> list[Moments]:
    """For each part, the sum of all the others: by running sums from both ends, never subtracting."""
    before, after = [Moments.zero(parts[0].states)], [Moments.zero(parts[0].states)]
    for part in parts[:-1]:
        before.append(before[-1] + part)
    for part in reversed(parts[1:]):
        after.append(after[-1] + part)
    return [a + b for a, b in zip(before, reversed(after), strict=True)]


def jackknife(full: np.ndarray, reduced: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Standard errors of `full` [...] from the estimates without each group, `reduced` [G, ...].

    `share` [G] is each group's part of the data; groups may differ in size (Busing, Meijer & van
    der Leeden 1999). For equal groups it is sqrt((G - 1) / G sum (reduced - mean)^2).

    >>> x = np.array([1.0, 2.0, 4.0, 5.0])
    >>> reduced = (x.sum() - x) / 3                            # the means without one value
    >>> round(float(jackknife(x.mean(), reduced, np.full(4, 1 / 4))), 4)
    0.9129
    >>> round(float(x.std(ddof=1) / 2), 4)                     # the textbook formula
    0.9129
    """
    held = share > 0  # a group without data tells nothing
    reduced, share = reduced[held], share[held]
    G = len(reduced)
    if G < 2:
        return np.full_like(np.asarray(full, float), np.nan)
    h = (1.0 / share).reshape(-1, *[1] * np.ndim(full))
    pseudo = h * full - (h - 1.0) * reduced
    centre = G * full - ((1.0 - 1.0 / h) * reduced).sum(0)
    return np.asarray(np.sqrt(((pseudo - centre) ** 2 / (h - 1.0)).mean(0)))


def student_quantile(level: float, degrees: int) -> float:
    """The half-width of a two-sided interval of this level, in standard errors.

    >>> round(student_quantile(0.95, 49), 3)
    2.01
    """
    from scipy import special

    return float(special.stdtrit(degrees, 0.5 + level / 2)) if degrees > 0 else np.nan


def jackknife_cells(
    parts: Sequence[Sequence[Moments]], statistic: Callable[[Sequence[Moments]], np.ndarray]
) -> np.ndarray:
    """Standard errors of a statistic of the cells' moments, given as [cell][replicate]."""
    S = parts[0][0].states
    full = statistic([add_moments(S, cell) for cell in parts])
    weight = np.array([sum(cell[g].lag0.weight for cell in parts) for g in range(len(parts[0]))])
    if len(weight) < 2 or np.count_nonzero(weight) < 2:
        return np.full(full.shape, np.nan)
    without = [leave_one_out(cell) for cell in parts]
    try:
        reduced = np.stack([statistic([cell[g] for cell in without]) for g in np.flatnonzero(weight)])
    except InputError:  # without one of the groups, too little is left
        return np.full(full.shape, np.nan)
    share = weight[weight > 0] / weight.sum()
    return jackknife(full, reduced, share)
