"""Sums about another centre, and the centre that several sums have together."""

from __future__ import annotations

import numpy as np

#: Sums about a centre, in the order of `ends`: which are the left and right rows of each product.
ROWS = ((0, 0), (1, 2), (3, 4), (1, 1))
#: The lag of each product, for its number and weight.
LAGS = (0, 1, 2, 1)
#: The lag of each kind of `ends`.
_END_LAGS = np.array([0, 1, 1, 2, 2])


def common_centre(
    centre: np.ndarray,
    weight: np.ndarray,
    ends: np.ndarray,
    starts: np.ndarray,
    run: np.ndarray,
) -> np.ndarray:
    """[runs, S]: the mean over the records of each run, whole where all centres are, so that whole numbers stay
    exact. Without records, the first centre."""
    first = centre[starts]
    w = np.add.reduceat(weight[:, 0], starts)
    about = np.add.reduceat(weight[:, :1] * (centre - first[run]) + ends[:, 0], starts)
    shift = np.divide(about, w[:, None], out=np.zeros_like(about), where=w[:, None] > 0)
    are_whole = np.logical_and.reduceat((centre == np.rint(centre)).all(1), starts)
    return np.asarray(np.where(are_whole[:, None], first + np.rint(shift), first + shift))


def recentre(
    ends: np.ndarray, product: np.ndarray, weight: np.ndarray, away: np.ndarray, at: np.ndarray
) -> None:
    """Sums about centres that lie `away` from those before, in place: x - c' = (x - c) + away."""
    d = away[at]
    for k, ((left, right), lag) in enumerate(zip(ROWS, LAGS, strict=True)):
        w = weight[at, lag, None]
        x, y = ends[at, left], ends[at, right]
        product[at, k] += d[:, :, None] * (y + w * d)[:, None, :] + x[:, :, None] * d[:, None, :]
    ends[at] += weight[at][:, _END_LAGS, None] * d[:, None, :]
