"""Does an estimate predict the next step better than "nobody moves" and "all are like the mean"?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aggmc_beam.estimators.conditional import PairSums, Step
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.estimators.spread import scattered

#: Parts that are predicted from the others in turn.
FOLDS = 10
#: A baseline predicts as well by the scores alone if it is the better one with a chance of 40%, in standard errors.
HARDLY = -0.25
#: Standard errors by which scores alone say that a baseline is better, and by which they must say so together with P.
SURELY, RATHER = 2.0, 0.5
#: A baseline is as good by what P says of itself if that puts it ahead by more than this many standard errors, and
#: scores do not put it behind by as many.
ITSELF = 1.0
#: Differences of errors below this share of them mean nothing: an estimate next to the identity is not worse than it.
ROUNDING = 1e-6
#: In the place of an error of 0: its square can still be divided by.
TINY = 1e-100


def held_out(step: Step, P: np.ndarray, freedom: float = 1.0) -> dict[str, Any]:
    """Mean squared prediction errors per individual of P, identity and naive on data left out.

    Without a fold P is, to first order, what the fold's contributions to the step towards least squares
    leave of it, times `freedom`.
    """
    sums = step.sums
    inside = project_rows(P)
    clipped = np.abs(inside - P).max() < 1e-9  # an estimate that keeps to probabilities

    def without(fold: np.ndarray) -> np.ndarray:
        moved = (step.parts[fold] - sums.share[fold, None, None] * step.whole).sum(0)
        rest = P - freedom * moved / (1 - sums.share[fold].sum())
        return project_rows(rest) if clipped else rest

    return scores_of(sums, without, FOLDS)


def scores_of(sums: PairSums, without: Callable[[np.ndarray], np.ndarray], number: int) -> dict[str, Any]:
    """Errors on each fold of the groups, marked in a mask [G], by the estimate without it; the same of identity
    and naive. `error`: of how much better the best of these is; `worse`: that in standard errors, if it is."""
    S, pairs = sums.states, sums.pairs.sum()
    folds = np.arange(sums.groups) % min(number, sums.groups)
    losses = np.zeros((sums.groups, 3))
    for number in np.unique(folds):
        fold = folds == number
        mean = sums.share[~fold] @ sums.left[~fold]
        naive = np.tile(mean / mean.sum(), (S, 1))
        for place, P in enumerate((without(fold), np.eye(S), naive)):
            gram = sums.gram[fold] - sums.noise[fold]
            losses[fold, place] = prediction_loss(gram, sums.cross[fold], P) / pairs
    # What is common to all predictions: the variance of what is predicted, the noise taken out.
    total = losses.sum(0) + sums.arrivals / pairs
    found: dict[str, Any] = dict(zip(("estimate", "identity", "naive"), map(float, total), strict=True))
    gap = losses[:, 0] - losses[:, 1 + int(total[1:].argmin())]
    error = float(np.sqrt((scattered(gap, sums.share) ** 2).sum()))
    found["error"] = error
    if gap.sum() > ROUNDING * np.abs(total).max():
        found["worse"] = float(gap.sum()) / max(error, 1e-300)
    return found


def predicts_as_well(scores: Mapping[str, Any]) -> bool:
    """Whether identity or naive does, by the scores alone."""
    if "error" not in scores:
        return False
    gap = float(scores["estimate"]) - min(float(scores["identity"]), float(scores["naive"]))
    return gap > HARDLY * float(scores["error"])


def doubt(
    scores: Mapping[str, Any],
    P: np.ndarray,
    error: np.ndarray,
    baselines: Mapping[str, np.ndarray],
    mu: np.ndarray,
) -> str | None:
    """The name of a baseline that predicts as well as P or better, or None.

    Scores of few data with much noise are rough. What they say of the gap is weighed with what P and its
    standard `error` [S, S] say: with shares mu the baseline misses by d^2 - v and P by v, where d is how far they
    are apart and v the variance of P.
    """
    if "error" not in scores:
        return None
    name = min(("identity", "naive"), key=lambda n: float(scores[n]))
    gap, spread = float(scores["estimate"]) - float(scores[name]), max(float(scores["error"]), TINY)
    weight, apart, v = mu[:, None], np.nan_to_num(P - baselines[name]), np.nan_to_num(error) ** 2
    gain = float((weight * (apart**2 - 2 * v)).sum())
    noise = max(float((weight**2 * (4 * apart**2 * v + 2 * v**2)).sum()), TINY**2)
    precision = 1 / spread**2 + 1 / noise
    both = (gap / spread**2 - gain / noise) / np.sqrt(precision)
    better = gap > SURELY * spread or (gap > 0 and both > RATHER)
    within_noise = gain < -ITSELF * np.sqrt(noise) and gap > -ITSELF * spread
    return name if better or within_noise else None


def prediction_loss(gram: np.ndarray, cross: np.ndarray, P: np.ndarray) -> np.ndarray:
    """The part of |n_t+1 - P'n_t|^2 that depends on P, summed over pairs, per group [G]."""
    return np.asarray(np.einsum("ij,gij->g", P, gram @ P) - 2 * np.einsum("ij,gij->g", P, cross))
