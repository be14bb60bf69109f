"""Projection of matrix rows onto the probability simplex."""

from __future__ import annotations

import numpy as np


def project_rows(P: np.ndarray) -> np.ndarray:
    """The nearest stochastic matrix, row by row in Euclidean distance; NaN rows stay NaN.

    The sorting algorithm of Held, Wolfe & Crowder (1974). Since the true rows lie in the simplex,
    the projection is never farther from them than P is.

    >>> project_rows(np.array([[0.7, 0.5, -0.2]])).round(3).tolist()
    [[0.6, 0.4, 0.0]]
    """
    P = np.asarray(P, np.float64)
    S = P.shape[-1]
    descending = -np.sort(-P, axis=-1)
    thresholds = (np.cumsum(descending, -1) - 1.0) / np.arange(1, S + 1)
    support = np.maximum((descending > thresholds).sum(-1, keepdims=True), 1)
    threshold = np.take_along_axis(thresholds, support - 1, -1)
    projected = np.maximum(P - threshold, 0.0)
    # Rounding leaves sums a few ulp from 1.
    return np.asarray(projected / projected.sum(-1, keepdims=True))
