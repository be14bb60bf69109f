"""Tables fitted to both their margins."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

#: Tables are fitted until no row is off by more than this part of its table's total.
TOLERANCE = 1e-10
#: Rounds of fitting; a table that needs more has margins that its zeros do not allow.
ROUNDS = 2000
#: Tables fitted at once: what stays in the processor's cache.
BLOCK = 2048


def fit_margins(
    tables: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """The tables nearest to `tables` [U, R, C] (Kullback-Leibler) with row sums `before` [U, R] and column
    sums `after` [U, C]: iterative proportional fitting, also known as Sinkhorn's algorithm.

    Margins are not negative and have equal totals, and tables are positive wherever both margins are.

    >>> table = fit_margins(np.ones((1, 2, 2)), np.array([[30.0, 10.0]]), np.array([[20.0, 20.0]]))
    >>> table[0].tolist()
    [[15.0, 15.0], [5.0, 5.0]]
    """
    found = np.empty_like(tables)
    for start in range(0, len(tables), BLOCK):
        block = slice(start, start + BLOCK)
        found[block] = _fit(tables[block], before[block], after[block])
        if progress is not None:
            progress(min(start + BLOCK, len(tables)))
    return found


def _fit(tables: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    found, left = tables.copy(), np.arange(len(tables))
    size = np.maximum(before.sum(1), np.finfo(float).tiny)
    for _ in range(ROUNDS):
        x = found[left]
        x *= _ratio(before[left], x.sum(2))[:, :, None]
        x *= _ratio(after[left], x.sum(1))[:, None, :]
        found[left] = x
        left = left[np.abs(x.sum(2) - before[left]).max(1) > TOLERANCE * size[left]]
        if not len(left):
            break
    return found


def _ratio(wanted: np.ndarray, have: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(wanted, have, out=np.zeros_like(have), where=have > 0))
