"""The mean of the noise undone on each record: x_t = A_t^-1 (y_t - b_t).

Noise whose mean changes from step to step, or has an offset that shares of populations would distort, cannot be
undone on sums.
"""

from __future__ import annotations

import numpy as np

from aggmc_beam.noise.model import Noise


def undo_noise(counts: np.ndarray, time: np.ndarray, noise: Noise) -> np.ndarray:
    """x_t = A_t^-1 (y_t - b_t) for records [n, S] at steps [n]."""
    S = counts.shape[1]
    steps, place = np.unique(time, return_inverse=True)
    models = [noise.at(int(t)) for t in steps]
    # Steps that share a model are solved together.
    first: dict[int, int] = {}
    which = np.array([first.setdefault(id(m), i) for i, m in enumerate(models)], np.int64)
    order = np.argsort(which[place], kind="stable")
    found, starts = np.unique(which[place][order], return_index=True)
    mapped = np.empty_like(counts)
    for i, a, b in zip(found, starts, [*starts[1:], len(order)], strict=True):
        at, rows = models[i], order[a:b]
        mapped[rows] = np.linalg.solve(at.matrix(S), (counts[rows] - at.offset(S)).T).T
    return mapped
