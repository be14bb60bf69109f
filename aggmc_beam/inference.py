"""Standard errors by the delete-one-group jackknife.

Assumption: groups are (nearly) independent. Realizations are independent by the model; blocks of
time depend on each other only across their borders, so blocks should be longer than the memory
of the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.moments import PARTS, CoMoment, Counts, Moments, add_moments, stacked

Statistic = Callable[[Moments], np.ndarray]


def leave_one_out(parts: Sequence[Moments]) -> list[Moments]:
    """For each part, the sum of all the others."""
    kinds = [_without_each([getattr(m, name) for m in parts]) for name in PARTS]
    counts = _others(np.array([astuple(m.counts) for m in parts]))
    inverse_weight = _others(np.array([m.inverse_weight for m in parts]))
    others = zip(*kinds, counts.tolist(), inverse_weight.tolist(), strict=True)
    return [
        Moments(lag0, lag1, lag2, ends, Counts(*more), inverse)
        for lag0, lag1, lag2, ends, more, inverse in others
    ]


def _without_each(items: list[CoMoment]) -> list[CoMoment]:
    w, left, right = stacked(items)
    whole = CoMoment.joined(left.shape[1], items)
    # All products about one point can be added as they are.
    a, b = left - whole.left, right - whole.right
    products = np.array([item.product for item in items])
    products += (w[:, None] * a)[:, :, None] * b[:, None, :]
    products = _others(products)
    pairs, weight = _others(np.array([item.pairs for item in items])), _others(w)
    share = np.divide(1.0, weight, out=np.zeros_like(weight), where=pairs > 0)[:, None]
    a, b = _others(w[:, None] * a) * share, _others(w[:, None] * b) * share
    products -= (weight[:, None] * a)[:, :, None] * b[:, None, :]
    left, right = whole.left + a, whole.right + b
    return [
        CoMoment(int(n), float(weight[g]), left[g], right[g], products[g]) if n else CoMoment.zero(len(a[g]))
        for g, n in enumerate(pairs)
    ]


def _others(values: np.ndarray) -> np.ndarray:
    """[G, ...]: for each, the sum of the others, by running sums from both ends: a difference of sums would
    lose the digits of what is small beside the one that is left out.

    >>> _others(np.array([1e20, 1.0, 2.0])).tolist()
    [3.0, 1e+20, 1e+20]
    """
    found = np.zeros_like(values)
    np.cumsum(values[:-1], 0, out=found[1:])
    found[:-1] += np.cumsum(values[:0:-1], 0)[::-1]
    return found


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
