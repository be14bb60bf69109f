"""Entries that are missing at random: each pair of states is told by the records that have both.

Sums are of the counts x, 0 where one is missing, beside marks r that are 1 there. With m the mean of the counts that
are there, in a part q of all records, u = m + (x - m)(1 - r) / q has the mean of x. A product of two has the mean
E[(x - m)(x' - m')] q_xx' / (q q'), where q_xx' is the part of pairs that have both, which the marks tell. What u
varies more than x is noise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.fit.restored import Mapping, Restored
from aggmc_beam.sums.moments import CoMoment
from aggmc_beam.sums.sums import Sums


def fill_gaps(sums: Sums, made: Restored) -> tuple[Sums, Restored]:
    """Sums of u from those of counts and marks, with its noise."""
    S, lag0 = sums.states // 2, sums.total.lag0
    there = 1 - lag0.left[S:]
    if (there <= 0).any():
        raise InputError(
            f"the count of state number {int(np.argmin(there)) + 1} is missing in all records; leave that state out"
        )
    m = lag0.left[:S] / there
    v = _deviations(sums, m)
    more = np.zeros((3, S, S))
    extra = np.zeros(S)
    for lag, (pairs, both) in enumerate(zip(_lags(v), _lags(sums), strict=True)):
        if not pairs.pairs:
            continue
        share = both.product_about(np.ones(2 * S), np.ones(2 * S))[S:, S:] / both.weight
        if (share <= 0).any():
            i, j = np.argwhere(share <= 0)[0]
            raise InputError(
                f"the counts of states number {i + 1} and {j + 1} are never both there in records {lag} steps apart; "
                "leave one of the states out"
            )
        u = pairs.product_about(np.zeros(S), np.zeros(S)) / pairs.weight / np.outer(there, there)
        more[lag] = (np.outer(there, there) / share - 1) * u
        if lag == 0:
            extra = np.maximum(-np.diagonal(more[0]), 0.0)
            np.fill_diagonal(more[0], 0.0)
    return Mapping(m, 1 / there, more).applied(v), replace(made, extra=extra, missing=1 - there)


def _lags(sums: Sums) -> tuple[CoMoment, CoMoment, CoMoment]:
    total = sums.total
    return total.lag0, total.lag1, total.lag2


def _deviations(sums: Sums, m: np.ndarray) -> Sums:
    """The sums of (x - m)(1 - r), which is x + m r - m."""
    S = len(m)
    x, r = slice(0, S), slice(S, 2 * S)
    p = sums.product
    product = p[..., x, x] + p[..., x, r] * m + m[:, None] * p[..., r, x] + p[..., r, r] * np.outer(m, m)
    steps = sums.steps
    total = steps.total[:, x] + steps.total[:, r] * m - steps.weight[:, None] * m
    return replace(
        sums,
        centre=sums.centre[:, x] + sums.centre[:, r] * m - m,
        ends=sums.ends[..., x] + sums.ends[..., r] * m,
        product=product,
        steps=replace(steps, states=S, total=total),
    )
