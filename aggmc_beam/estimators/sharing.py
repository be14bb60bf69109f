"""Cells that share: each cell's matrix is drawn to the pooled one and to its neighbours, as far as the data ask.

    P_c = I + s_c (P - I) + D_c

P is the pooled matrix, s_c how much moves in cell c against the mean (`rates`), and D_c what else is of the cell
itself. Beforehand D_c(i, j) has mean 0 and variance tau v_c(i, j), with v as for shares among the moves from i,
and correlates by rho with the next cell. The conditional mean E[n_t+1 | n_t] = P'n_t of the cell's pairs says
the rest. tau and rho are weighed by their evidence (empirical Bayes): where cells do not differ, tau is next to
zero and all that remains is the pooled matrix; where they differ wholly, each cell speaks for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from aggmc_beam.estimators.conditional import FEW_GROUPS, RANK_TOLERANCE, PairSums
from aggmc_beam.estimators.neighbours import Prior, Row, eliminate, posterior
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.estimators.spread import scattered

#: Prior variances that are weighed, from "as the centre" to "anything".
VARIANCES = tuple(np.geomspace(1e-4, 10, 11).tolist())
#: Correlations of neighbours that are weighed.
CORRELATIONS = (0.0, 0.5, 0.8, 0.95)
#: Priors with less weight than this are left out.
LEAST_WEIGHT = 0.01


@dataclass(frozen=True, eq=False)
class Shared:
    """Matrices `P` [C, S, S] with standard errors `error`; `seen` [C, S]: the part of what is said of moves from
    a state in a cell that the cell's own pairs say, the rest being borrowed. `numbers` tell how much cells differ."""

    P: np.ndarray
    error: np.ndarray
    seen: np.ndarray
    numbers: dict[str, float]


def share(
    cells: Sequence[PairSums | None],
    centre: np.ndarray,
    error: np.ndarray,
    row: Row,
    units: float = 1.0,
    held: np.ndarray | None = None,
) -> Shared:
    """`centre` [C, S, S]: what each cell's matrix is without D, with its standard error. A cell without pairs is
    None. `units`: individuals who count as one mover. `held` [S, S] marks what stays as in the centre."""
    C, S = centre.shape[:2]
    weight = np.array([0.0 if c is None else c.individuals.sum() for c in cells])
    mean = sum(c.mu * w for c, w in zip(cells, weight, strict=True) if c is not None) / weight.sum()
    A, b, v = np.zeros((C, S, S, S)), np.zeros((C, S, S)), np.empty((C, S, S))
    for c, sums in enumerate(cells):
        v[c] = prior_variance(centre[c], mean if sums is None else sums.mu)
        if held is not None:
            v[c][held] = 0.0
        if sums is not None:
            A[c], b[c] = information(sums, centre[c], units)
    root = np.sqrt(v).swapaxes(1, 2)  # [C, column j, row i]
    A *= root[..., None] * root[..., None, :]
    b *= root
    found = weighed(A, b, row)
    evidence = np.array(list(found.values()))
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    at, second, seen = np.zeros_like(b), np.zeros_like(b), np.zeros_like(b)
    for w, prior in zip(weights, found, strict=True):
        if w > LEAST_WEIGHT:
            z, covariance = posterior(eliminate(A, b, row, prior), C)
            at += w * z
            second += w * (np.diagonal(covariance, axis1=-2, axis2=-1) + z**2)
            seen += w * np.einsum("cjik,cjki->cji", covariance, A)
    spread = np.maximum(second - at**2, 0.0)
    moved, variance = (at * root).swapaxes(1, 2), (spread * v.swapaxes(1, 2)).swapaxes(1, 2)
    total = variance.sum(2, keepdims=True)
    part = np.divide(variance, total, out=np.zeros_like(variance), where=total > 0)
    moved = moved - part * moved.sum(2, keepdims=True)  # rows of P sum to 1
    variance = variance * (1 - part)
    P = np.stack([project_rows(M) for M in centre + moved])
    seen_rows = (seen.swapaxes(1, 2) * v).sum(2) / np.maximum(v.sum(2), 1e-300)
    best = max(found, key=lambda prior: found[prior])
    numbers = vars(best) | {"tried": len(found)}
    return Shared(P, np.sqrt(variance + error**2), np.clip(seen_rows, 0.0, 1.0), numbers)


def weighed(A: np.ndarray, b: np.ndarray, row: Row) -> dict[Prior, float]:
    """Priors with the logarithm of their evidence: along one of their numbers after the other, twice, about the
    best so far."""
    found: dict[Prior, float] = {}
    best = Prior(own=float(VARIANCES[2]), common=float(VARIANCES[5]))
    choices: dict[str, Sequence[float]] = {"own": VARIANCES, "common": VARIANCES}
    if row.cells > 1:
        choices["correlation"] = CORRELATIONS
    for name, values in list(choices.items()) * 2:
        for value in values:
            prior = replace(best, **{name: float(value)})
            if prior not in found:
                found[prior] = eliminate(A, b, row, prior).evidence
        best = max(found, key=lambda prior: found[prior])
    return found


def prior_variance(P: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """[S, S]: how far from P a cell may be, as for shares among those who leave: half as many moves as P has,
    half anywhere."""
    S = len(mu)
    leaving = 1 - np.clip(np.diag(P), 0.0, 1.0)
    leaving = np.maximum(leaving, 0.1 * float(mu @ leaving))[:, None]
    anywhere = leaving * (0.5 * mu + 0.5 / S)
    variance = leaving * (0.5 * np.maximum(P, 0.0) + 0.5 * anywhere) * (1 - np.eye(S))
    return np.asarray(variance + np.diag(variance.sum(1)))


def information(sums: PairSums, P: np.ndarray, units: float) -> tuple[np.ndarray, np.ndarray]:
    """What pairs say of P + D: A [S, S, S] and b [S, S] for each column of D.

    As `conditional.Step`: directions in which the counts vary are instruments, so that noise in the left ends
    does no harm.
    """
    S, G = sums.states, sums.groups
    total = sums.gram.sum(0)
    size = np.sqrt(np.maximum(np.diag(total), 1e-300))
    values, vectors = np.linalg.eigh(total / np.outer(size, size))
    kept = values > RANK_TOLERANCE * values.max()
    root = vectors[:, kept] / np.sqrt(values[kept]) / size[:, None]
    signal = root.T @ (total - sums.noise.sum(0))  # [r, S]
    residual = root.T @ sums.residual(P)  # [G, r, S]
    V = sums.V
    moving = units * (sums.mu @ (P * (1 - P)))
    s = np.maximum(moving + np.diag(V) + (P * (V @ P)).sum(0), 1e-12)
    if G >= FEW_GROUPS:  # the model counts as much as S replicates
        found = (scattered(residual, sums.share) ** 2).sum((0, 1)) / residual.shape[1]
        s = (S * s + (G - 1) * found) / (S + G - 1)
    A = (signal.T @ signal)[None] / s[:, None, None]
    b = (signal.T @ (residual.sum(0) / s)).T
    return A, np.asarray(b)
