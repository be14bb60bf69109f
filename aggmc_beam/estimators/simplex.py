"""Projection of matrix rows onto the probability simplex."""

from __future__ import annotations

import numpy as np


def project_rows(P: np.ndarray, fixed: np.ndarray | None = None) -> np.ndarray:
    """The nearest stochastic matrix, row by row in Euclidean distance; NaN rows stay NaN.

    The sorting algorithm of Held, Wolfe & Crowder (1974). Since the true rows lie in the simplex,
    the projection is never farther from them than P is. `fixed` holds values of cells that are
    known, NaN elsewhere; the other cells of a row share what is left.

    >>> project_rows(np.array([[0.7, 0.5, -0.2]])).round(3).tolist()
    [[0.6, 0.4, 0.0]]
    """
    P = np.asarray(P, np.float64)
    if fixed is None or np.isnan(fixed).all():
        return _project(P, np.ones(len(P)))
    projected = fixed.copy()
    for i, row in enumerate(P):
        free = np.isnan(fixed[i])
        if free.any():
            left = max(1.0 - np.nansum(fixed[i]), 0.0)
            projected[i, free] = _project(row[None, free], np.array([left]))[0]
    return projected


def _project(rows: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Each row onto {p >= 0, sum p = its mass}."""
    n = rows.shape[1]
    # A row may be moved along (1, .., 1); from its maximum the mass is not lost beside numbers of 1e17.
    rows = rows - rows.max(1, keepdims=True)
    descending = -np.sort(-rows, axis=1)
    thresholds = (np.cumsum(descending, 1) - mass[:, None]) / np.arange(1, n + 1)
    support = np.maximum((descending > thresholds).sum(1, keepdims=True), 1)
    projected = np.maximum(rows - np.take_along_axis(thresholds, support - 1, 1), 0.0)
    # Rounding leaves sums a few ulp off.
    sums = projected.sum(1, keepdims=True)
    scale = np.divide(mass[:, None], sums, out=np.ones_like(sums), where=sums != 0)
    return np.asarray(projected * scale)
