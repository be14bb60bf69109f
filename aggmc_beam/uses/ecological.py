"""Ecological regression: how rows move to columns, from the margins of many units.

In unit u a part s_ui of n_u individuals is in row i before, and y_uc in column c after. The model is
    y_u = sum_i s_ui (P_i + sum_k z_uik B_ik) + e_u,    Cov(e_u) = (m / n_u + t) Sigma,
P being the matrix of all units together. Three things that real units do are part of it:
- units differ by more than chance: t, by moments, so that large units do not decide alone;
- how a row moves depends on who else lives in the unit (aggregation bias): z_ui are the unit's deviations
  from the composition that members of row i meet on average, on the main axes of composition in units of
  their standard deviation, and B is random, N(0, lambda Sigma). Only part of B can be seen in margins; the
  rest is uncertainty of P, as large as the part that is seen makes plausible;
- rows of P are probabilities: the posterior is a normal distribution cut to the simplex, and its mean, not
  its mode, is the estimate.
Everything but the weights is a function of one matrix of cross products.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.uses.simplex_sampler import MatrixNormal, draw

CHAINS = 64
SWEEPS, BURN = 90, 30
#: Axes of composition with less than this part of the largest one's variance are rounding.
AXES_TOLERANCE = 1e-8
#: Values of lambda over which its posterior is summed, in units of the noise.
GRID = np.exp(np.linspace(np.log(1e-4), np.log(1e2), 60))


@dataclass(frozen=True, eq=False)
class Posterior:
    """`draws` [D, R, C] of the matrix of all units. `spread` is the part of the variance of shares in a unit
    of mean size that is not chance, `context` the posterior mean of lambda in units of the noise."""

    draws: np.ndarray
    spread: float
    context: float


@dataclass(frozen=True, eq=False)
class _Products:
    """Cross products of shares (x), contexts (f) and outcomes (y), each unit divided by its noise."""

    xx: np.ndarray
    xf: np.ndarray
    ff: np.ndarray
    xy: np.ndarray
    fy: np.ndarray
    yy: np.ndarray
    units: int


def posterior(before: np.ndarray, after: np.ndarray, seed: int = 0) -> Posterior:
    """Of the matrix [R, C], from counts [U, R] and [U, C] with equal totals, no row of which is empty."""
    n = before.sum(1)
    x, y = before / n[:, None], after / n[:, None]
    start, chance, excess = _weights(x, y, n)
    noise = chance / n + excess
    sums = _products(x, _context(x, before), y, noise)
    target, context = _target(sums, y.mean(0), float(1 / np.mean(1 / noise)), seed)
    kept = draw(target, start, SWEEPS, BURN, seed + 1)
    return Posterior(kept.reshape(-1, *start.shape), excess / (chance / float(n.mean()) + excess), context)


def _weights(x: np.ndarray, y: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, float, float]:
    """(a first matrix, m, t) of Var(y_u) = m / n_u + t, summed over columns, by moments.

    m is what independent members of the rows would have; a negative t is none.
    """
    U, R = x.shape
    P, *_ = np.linalg.lstsq(x, y, rcond=None)
    squares = ((y - x @ P) ** 2).sum(1) * U / max(U - R, 1)
    P = 0.95 * project_rows(P) + 0.05 * y.mean(0)
    chance = float((x @ (1 - (P**2).sum(1))).mean())
    excess = 0.0
    for _ in range(10):
        weight = (chance / n + excess) ** -2.0
        excess = max(float((weight * (squares - chance / n)).sum() / weight.sum()), 0.0)
    return P / P.sum(1, keepdims=True), chance, excess


def _context(x: np.ndarray, before: np.ndarray) -> np.ndarray:
    """[U, R * axes]: s_ui z_uik."""
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(x.T)))
    kept = values > AXES_TOLERANCE * max(values[-1], np.finfo(float).tiny)
    axes = vectors[:, kept] / np.sqrt(values[kept])
    met = (before.T @ x) / before.sum(0)[:, None]
    z = (x @ axes)[:, None, :] - (met @ axes)[None]
    return np.asarray((x[:, :, None] * z).reshape(len(x), -1))


def _products(x: np.ndarray, f: np.ndarray, y: np.ndarray, noise: np.ndarray) -> _Products:
    root = noise[:, None] ** -0.5
    x, f, y = x * root, f * root, y * root
    return _Products(x.T @ x, x.T @ f, f.T @ f, x.T @ y, f.T @ y, y.T @ y, len(x))


def _target(sums: _Products, pooled: np.ndarray, noise: float, seed: int) -> tuple[MatrixNormal, float]:
    """What each chain draws from: its own lambda and Sigma out of their posterior."""
    rng = np.random.default_rng(seed)
    C, degrees = len(sums.yy), sums.units - len(sums.xx)
    inverse = np.linalg.pinv(sums.xx, rcond=1e-12, hermitian=True)
    ff = sums.ff - sums.xf.T @ inverse @ sums.xf
    fy = sums.fy - sums.xf.T @ inverse @ sums.xy
    yy = sums.yy - sums.xy.T @ inverse @ sums.xy
    # As if C more units had been seen that vary as multinomial ones do: this keeps Sigma regular.
    chance = np.diag(pooled) - np.outer(pooled, pooled)
    yy = yy + C * chance * np.trace(yy) / (max(degrees, 1) * max(np.trace(chance), 1e-300))
    degrees += C
    values, vectors = np.linalg.eigh(yy)
    kept = values > AXES_TOLERANCE * values[-1]
    basis = vectors[:, kept] * np.sqrt(degrees / values[kept])

    size, directions = np.linalg.eigh(ff) if len(ff) else (np.zeros(0), ff)
    seen = size > AXES_TOLERANCE * max(size.max(initial=0.0), 1e-300)
    signal = (directions[:, seen].T @ fy @ basis) ** 2 / size[seen][:, None]
    ratios = GRID * noise
    chances = _ratio_posterior(ratios / noise, ratios[:, None] * size[seen], signal, float(degrees))
    chosen = np.searchsorted(np.cumsum(chances), (np.arange(CHAINS) + 0.5) / CHAINS).clip(max=len(GRID) - 1)

    raw, turned = np.linalg.eigh(sums.ff) if len(ff) else (np.zeros(0), sums.ff)
    xt, ty = sums.xf @ turned, turned.T @ sums.fy
    shrink = 1 / (1 / ratios[chosen][:, None] + np.maximum(raw, 0.0))
    gram = sums.xx - np.einsum("ik,mk,jk->mij", xt, shrink, xt, optimize=True)
    cross = sums.xy - np.einsum("ik,mk,kc->mic", xt, shrink, ty, optimize=True)
    width = basis.shape[1]
    normal = rng.standard_normal((CHAINS, degrees if degrees < 200 else 0, width))
    wishart = np.einsum("mdi,mdj->mij", normal, normal) / degrees if degrees < 200 else np.eye(width)[None]
    precision = basis @ wishart @ basis.T
    precision = np.repeat(precision, CHAINS // len(precision), 0)
    return MatrixNormal(gram, precision, cross @ precision), float(chances @ GRID)


def _ratio_posterior(ratio: np.ndarray, boost: np.ndarray, signal: np.ndarray, degrees: float) -> np.ndarray:
    """Posterior of lambda on the grid: restricted likelihood times a half-Cauchy prior of its root.

    boost [L, D]: lambda times the information of each direction of context; signal [D, c]: what each
    direction explains of each column of outcomes, whose total is `degrees`.
    """
    growth = 1 + boost
    explained = (signal[None] * (boost / growth)[:, :, None]).sum(1)
    left = np.maximum(1 - explained / degrees, 1e-12)
    columns = signal.shape[1]
    likelihood = -0.5 * (columns * np.log(growth).sum(1) + degrees * np.log(left).sum(1))
    # Of log(root of lambda), on which the grid is even.
    prior = np.log(np.sqrt(ratio) / (1 + ratio))
    weight = np.exp(likelihood + prior - (likelihood + prior).max())
    return np.asarray(weight / weight.sum())
