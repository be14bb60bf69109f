"""Does an estimate predict the next step better than "nobody moves" and "all are like the mean"?"""

from __future__ import annotations

from typing import Any

import numpy as np

from aggmc_beam.estimators.conditional import Step
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.spread import scattered

#: Parts that are predicted from the others in turn.
FOLDS = 10


def held_out(step: Step, P: np.ndarray, freedom: float = 1.0) -> dict[str, Any]:
    """Mean squared prediction errors per individual of P, identity and naive on data left out.

    Without a fold P is, to first order, what the fold's contributions to the step towards least squares
    leave of it, times `freedom`.
    """
    sums, S = step.sums, len(P)
    folds = np.arange(sums.groups) % min(FOLDS, sums.groups)
    inside = project_rows(P)
    clipped = np.abs(inside - P).max() < 1e-9  # an estimate that keeps to probabilities
    losses = np.zeros((sums.groups, 3))
    pairs = sums.pairs.sum()
    for fold in np.unique(folds):
        out = folds == fold
        rest = sums.share[~out] @ sums.left[~out] / sums.share[~out].sum()
        naive = np.tile(rest / rest.sum(), (S, 1))
        moved = (step.parts[out] - sums.share[out, None, None] * step.whole).sum(0)
        without = P - freedom * moved / (1 - sums.share[out].sum())
        without = project_rows(without) if clipped else without
        for place, Q in enumerate((without, np.eye(S), naive)):
            losses[out, place] = prediction_loss(sums.gram[out] - sums.noise[out], sums.cross[out], Q) / pairs
    # What is common to all predictions: the variance of what is predicted, the noise taken out.
    common = sums.arrivals / pairs
    total = losses.sum(0) + common
    found: dict[str, Any] = dict(zip(("estimate", "identity", "naive"), map(float, total), strict=True))
    better = 1 + int(total[1:].argmin())
    gap = losses[:, 0] - losses[:, better]
    error = float(np.sqrt((scattered(gap, sums.share) ** 2).sum()))
    if gap.sum() > 0 and error > 0:
        found["worse"] = float(gap.sum()) / error
    return found


def prediction_loss(gram: np.ndarray, cross: np.ndarray, P: np.ndarray) -> np.ndarray:
    """The part of |n_t+1 - P'n_t|^2 that depends on P, summed over pairs, per group [G]."""
    return np.asarray(np.einsum("ij,gik,kj->g", P, gram, P) - 2 * np.einsum("ij,gij->g", P, cross))
