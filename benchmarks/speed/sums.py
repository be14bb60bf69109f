"""What contestants are compared by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Sums:
    """What every contestant must find: the number of lag-1 pairs, the mean [S] of all records and the
    cross-products [S, S], the sum of y_t y_t+1' over the pairs."""

    pairs: int
    mean: np.ndarray
    cross: np.ndarray
