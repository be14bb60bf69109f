"""Standard errors by the delete-one-group jackknife.

Assumption: groups are (nearly) independent. Realizations are independent by the model; blocks of
time depend on each other only across their borders, so blocks should be longer than the memory
of the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.sums.moments import (
    PARTS,
    CoMoment,
    Counts,
    Moments,
    add_moments,
    outer,
    stacked,
    weighted_mean,
)

Statistic = Callable[[Moments], np.ndarray]


def leave_one_out(parts: Sequence[Moments]) -> list[Moments]:
    """For each part, the sum of all the others. Products are summed when they are asked for, those of one lag
    for all parts at once."""
    kinds = [_without_each([getattr(m, name) for m in parts]) for name in PARTS]
    counts = leave_each_out(np.array([list(vars(m.counts).values()) for m in parts]))
    inverse_weight = leave_each_out(np.array([m.inverse_weight for m in parts]))
    others = zip(*kinds, counts.tolist(), inverse_weight.tolist(), strict=True)
    return [
        Moments(lag0, lag1, lag2, ends, Counts(*more), inverse)
        for lag0, lag1, lag2, ends, more, inverse in others
    ]


class _Rest(CoMoment):
    """What is left without one part; its product is found when it is first asked for."""

    def __init__(
        self,
        pairs: int,
        weight: float,
        left: np.ndarray,
        right: np.ndarray,
        product: Callable[[], np.ndarray],
    ) -> None:
        vars(self).update(pairs=pairs, weight=weight, left=left, right=right, find=product)

    @cached_property
    def product(self) -> np.ndarray:
        return np.asarray(vars(self)["find"]())


def _without_each(items: list[CoMoment]) -> list[CoMoment]:
    w, left, right = stacked(items)
    # About one point, sums can be added as they are.
    a0, b0 = weighted_mean(w, left), weighted_mean(w, right)
    a, b = left - a0, right - b0
    pairs, weight = leave_each_out(np.array([item.pairs for item in items])), leave_each_out(w)
    share = np.divide(1.0, weight, out=np.zeros_like(weight), where=pairs > 0)[:, None]
    rest_a, rest_b = leave_each_out(w[:, None] * a) * share, leave_each_out(w[:, None] * b) * share

    @cache
    def products() -> np.ndarray:
        found = np.empty((len(items), a.shape[1], b.shape[1]))
        term = np.empty(found.shape[1:])
        # From both ends, as in `leave_each_out`, and one at a time, which stays in the processor's cache.
        after = np.zeros_like(term)
        for g in reversed(range(len(items))):
            found[g] = after
            after += np.add(items[g].product, outer(w[g] * a[g], b[g], term), out=term)
        before = np.zeros_like(term)
        for g, item in enumerate(items):
            found[g] += np.subtract(before, outer(weight[g] * rest_a[g], rest_b[g], term), out=term)
            before += np.add(item.product, outer(w[g] * a[g], b[g], term), out=term)
        return found

    def rest(g: int) -> CoMoment:
        if not pairs[g]:
            return CoMoment.zero(len(a0))
        return _Rest(int(pairs[g]), float(weight[g]), a0 + rest_a[g], b0 + rest_b[g], lambda: products()[g])

    return [rest(g) for g in range(len(items))]


def leave_each_out(values: np.ndarray) -> np.ndarray:
    """[G, ...]: for each, the sum of the others, by running sums from both ends: a difference of sums would
    lose the digits of what is small beside the one that is left out.

    >>> leave_each_out(np.array([1e20, 1.0, 2.0])).tolist()
    [3.0, 1e+20, 1e+20]
    """
    found = np.zeros_like(values)
    np.cumsum(values[:-1], 0, out=found[1:])
    found[:-1] += np.cumsum(values[:0:-1], 0)[::-1]
    return found


def jackknife(full: np.ndarray, reduced: Iterable[np.ndarray], share: np.ndarray) -> np.ndarray:
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
    rest, h = [x for x, used in zip(reduced, held, strict=True) if used], 1.0 / share[held]
    G = len(rest)
    if G < 2:
        return np.full_like(np.asarray(full, float), np.nan)
    full = np.asarray(full, float)
    used, term, other = np.zeros_like(full), np.empty_like(full), np.empty_like(full)
    for g in range(G):  # one at a time and in place, which stays in the processor's cache
        used += np.multiply(1.0 - 1.0 / h[g], rest[g], out=term)
    centre = G * full - used
    variance = np.zeros_like(full)
    for g in range(G):
        pseudo = np.multiply(h[g], full, out=other)
        pseudo -= np.multiply(h[g] - 1.0, rest[g], out=term)
        pseudo -= centre
        variance += np.divide(np.square(pseudo, out=term), h[g] - 1.0, out=term)
    return np.asarray(np.sqrt(variance / G))


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
