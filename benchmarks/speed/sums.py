"""What contestants are compared by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Sums:
    """Sums over the pairs of neighbouring records with each label (group and cell of the chain), in the order
    of labels: their number [L], and the sums of y_t y_t' and of y_t y_t+1' [L, S, S]."""

    pairs: np.ndarray
    gram: np.ndarray
    cross: np.ndarray


def wrong(found: Sums, right: Sums) -> str | None:
    """What is wrong with a contestant's sums, if anything."""
    if not np.array_equal(found.pairs, right.pairs):
        one, other = (f"{s.pairs.sum():,} pairs of {len(s.pairs):,} labels" for s in (found, right))
        return f"{one} instead of {other}"
    for name in ("gram", "cross"):
        a, b = getattr(found, name), getattr(right, name)
        if a.shape != b.shape or not np.allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max()):
            return f"{name} differs from the definition"
    return None
