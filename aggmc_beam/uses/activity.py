"""How much moved in a step: more or less than P says, found from the changes of counts.

Rain, rush hours and holidays make all moves of a step a_t times as frequent, and one truck moves many, so
    n_t+1 - n_t  ~  N(a_t (P - I)'n_t,  phi V_t(a_t) + noise)
with V_t(a) the covariance of independent movers under I + a (P - I). Activities have a gamma distribution
with mean 1 and a memory (a Gaussian copula AR(1)). Which pairs of states moves join is estimated with
error; rows are drawn towards the product form (moves from i to j as out_i x in_j) by a weight. Shape,
memory, dispersion and weight are those of greatest likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp, ndtri

from aggmc_beam.errors import InputError
from aggmc_beam.noise import Exact
from aggmc_beam.uses.latent_counts import unmixed
from aggmc_beam.uses.transitions import Transitions, chance, noise_at, powered

ACTIVITIES = np.exp(np.linspace(-4.0, 2.0, 25))
COARSE = ACTIVITIES[::2]
SHAPES = (0.2, 0.3, 0.5, 0.8, 1.3, 2.0, 3.5, 6.0, 12.0, 30.0, 1e4)
DISPERSIONS = 1.4 ** np.arange(-1, 13)
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
MEMORIES = (0.0, 0.3, 0.5, 0.7, 0.85, 0.95)
#: Pairs from which shape, dispersion and weight are chosen; the rest is for their own activity.
CHOOSE_FROM = 1000
#: Pairs from which their memory is learned, and pairs whose likelihoods are found at once.
LEARN_FROM, BLOCK = 5000, 4096
#: Likelihoods are compared with P as it is; a change must gain this much to be believed.
GAIN = 2.0


@dataclass(frozen=True, eq=False)
class Habits:
    """What activities and moves have in common at all times: `matrices` [C, S, S] with moves drawn by `weight`
    to P (1) or to the product form (0); `dispersion` phi, `shape` and `memory` of the activities, and their
    `average`, which P stands for."""

    matrices: np.ndarray
    weight: float
    dispersion: float
    shape: float
    memory: float
    average: float

    @property
    def spread(self) -> float:
        """How many times as much moves vary as those of independent movers, in an average step; changes tell
        the product of activity and dispersion best."""
        return self.dispersion * self.average


@dataclass(frozen=True, eq=False)
class Activity:
    """`mean` and `variance` [K, T - 1] of a_t."""

    mean: np.ndarray
    variance: np.ndarray


def learn(y: np.ndarray, chain: Transitions, cell: np.ndarray) -> Habits:
    """From counts y [K, T, S] and the cell [K, T - 1] of each pair."""
    y, cell = _sample(y, cell)
    x = unmixed(y, chain.noise)
    pairs = _observed(x)
    if not len(pairs):
        raise InputError("no two steps in a row were observed, so nothing tells how much moved")
    product = _product_form(chain.matrices, x, cell)
    few = pairs[np.linspace(0, len(pairs) - 1, min(len(pairs), CHOOSE_FROM)).astype(int)]
    data = _Pairs.of(x, few, chain, cell)
    best = (-np.inf, 1.0, 1.0, SHAPES[-1])
    for weight in sorted(WEIGHTS, reverse=True):
        P = weight * chain.matrices + (1 - weight) * product
        table = data.table(P[data.cell], COARSE, DISPERSIONS)
        for shape in reversed(SHAPES):
            fits = logsumexp(table + _prior(COARSE, shape)[None, :, None], axis=1).sum(0)
            f = int(fits.argmax())
            if fits[f] > best[0] + (GAIN if np.isfinite(best[0]) else 0):
                best = (float(fits[f]), weight, float(DISPERSIONS[f]), shape)
    _, weight, phi, shape = best
    habits = Habits(weight * chain.matrices + (1 - weight) * product, weight, phi, shape, 0.0, 1.0)
    tables, prior = _tables(x, chain, cell, habits), _prior(ACTIVITIES, shape)
    _, posterior, memory = max((_remembered(tables, prior, rho) for rho in MEMORIES), key=lambda r: r[0])
    return replace(habits, memory=memory, average=float((posterior @ ACTIVITIES)[tuple(pairs.T)].mean()))


def activity(y: np.ndarray, chain: Transitions, cell: np.ndarray, habits: Habits) -> Activity:
    """Of each pair of y [K, T, S], observed or not."""
    tables = _tables(unmixed(y, chain.noise), chain, cell, habits)
    posterior = _remembered(tables, _prior(ACTIVITIES, habits.shape), habits.memory)[1]
    mean = posterior @ ACTIVITIES
    variance = posterior @ ACTIVITIES**2 - mean**2
    # P is that of an average step.
    return Activity(mean / habits.average, variance / habits.average**2)


def _observed(x: np.ndarray) -> np.ndarray:
    """[n, 2]: realization and left end of each pair."""
    return np.argwhere(~np.isnan(x[:, :-1]).any(2) & ~np.isnan(x[:, 1:]).any(2))


def _sample(y: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Realizations at even distances, and of each the last steps: as many as it takes."""
    K, T, _ = y.shape
    kept = max(1, min(K, LEARN_FROM // max(T, 1)))
    chosen = np.linspace(0, K - 1, kept).astype(int)
    return y[chosen, -LEARN_FROM:], cell[chosen][:, -(LEARN_FROM - 1) :]


def _tables(x: np.ndarray, chain: Transitions, cell: np.ndarray, habits: Habits) -> np.ndarray:
    """Log likelihood [K, T - 1, activities] of the change of each pair; 0 where it was not observed."""
    K, T, _ = x.shape
    pairs, phi = _observed(x), np.array([habits.dispersion])
    tables = np.zeros((K, T - 1, len(ACTIVITIES)))
    for start in range(0, len(pairs), BLOCK):
        block = pairs[start : start + BLOCK]
        data = _Pairs.of(x, block, chain, cell)
        tables[tuple(block.T)] = data.table(habits.matrices[data.cell], ACTIVITIES, phi)[:, :, 0]
    return tables


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Counts before [n, S], their changes [n, S], the noise of both ends [2, n, S, S], and the cell [n]."""

    before: np.ndarray
    change: np.ndarray
    noise: np.ndarray
    cell: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, pairs: np.ndarray, chain: Transitions, cell: np.ndarray) -> _Pairs:
        k, t = pairs.T
        S = x.shape[2]
        noise, before = chain.noise, np.maximum(x[k, t], 0.0)
        spread = np.zeros((2, len(pairs), S, S))
        level = np.nanmean(x, 1)[k]
        if not isinstance(noise, Exact):
            for ahead in (0, 1):
                for step in np.unique(t) if noise.varies else [0]:
                    at = t == step if noise.varies else slice(None)
                    A, _, R = noise_at(noise, int(step) + ahead, level[at])
                    inverse = np.linalg.inv(A)
                    spread[ahead, at] = inverse @ R @ inverse.T
        # Counts are whole numbers: a change by one individual is never far from what is expected.
        moved = np.trace(chance(before, chain.matrices[cell[k, t]]), axis1=1, axis2=2).mean() / S
        spread[1] += max(min(1.0, moved), 1e-12) * np.eye(S)
        return cls(before, x[k, t + 1] - x[k, t], spread, cell[k, t])

    def table(self, P: np.ndarray, activities: np.ndarray, dispersions: np.ndarray) -> np.ndarray:
        """Log likelihood [n, activities, dispersions] of the changes; P [n, S, S]."""
        n, width = len(self.change), self.change.shape[1] - 1
        found = np.empty((n, len(activities), len(dispersions)))
        for g, a in enumerate(activities):
            Pa = powered(P, np.array(a))
            off = (self.change - np.einsum("ni,nij->nj", self.before, Pa) + self.before)[:, :width]
            V = chance(self.before, Pa)
            # Of y_t+1 - P'y_t; the total tells nothing, so one state is left out.
            around = self.noise[1] + Pa.swapaxes(1, 2) @ self.noise[0] @ Pa
            for f, phi in enumerate(dispersions):
                size, square = _square((phi * V + around)[:, :width, :width], off)
                found[:, g, f] = -0.5 * (size + square)
        return found


def _square(V: np.ndarray, off: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log det V and off'V^-1 off."""
    L = np.linalg.cholesky(V)
    z = np.linalg.solve(L, off[:, :, None])[:, :, 0]
    size = 2 * np.log(np.diagonal(L, axis1=1, axis2=2)).sum(1)
    return np.asarray(size), np.asarray((z**2).sum(1))


def _prior(activities: np.ndarray, shape: float) -> np.ndarray:
    """Log chances of a gamma variable with mean 1 on an even grid of logarithms."""
    log = shape * (np.log(activities) - activities)
    return np.asarray(log - logsumexp(log))


def _remembered(tables: np.ndarray, prior: np.ndarray, memory: float) -> tuple[float, np.ndarray, float]:
    """(log likelihood, posterior [K, T, A], memory) by the forward-backward algorithm."""
    p = np.exp(prior)
    z = ndtri(np.clip(np.cumsum(p) - p / 2, 1e-12, 1 - 1e-12))
    move = np.exp(0.5 * z**2 - 0.5 * (z - memory * z[:, None]) ** 2 / (1 - memory**2)) * p
    move /= move.sum(1, keepdims=True)
    top = tables.max(2)
    likelihood = np.exp(tables - top[:, :, None])
    K, T, _ = tables.shape
    forward, state, total = np.empty_like(tables), np.repeat(p[None], K, 0), float(top.sum())
    for t in range(T):
        joint = state * likelihood[:, t]
        size = joint.sum(1, keepdims=True)
        total += float(np.log(size).sum())
        forward[:, t] = joint / size
        state = forward[:, t] @ move
    backward = np.ones((K, len(p)))
    posterior = forward
    for t in range(T - 2, -1, -1):
        backward = (backward * likelihood[:, t + 1]) @ move.T
        backward /= backward.sum(1, keepdims=True)
        posterior[:, t] = forward[:, t] * backward
    posterior /= posterior.sum(2, keepdims=True)
    return total, posterior, memory


def _product_form(P: np.ndarray, x: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """P [C, S, S] with the same numbers leaving and entering each state, and no other pattern."""
    C, S = P.shape[:2]
    off = 1.0 - np.eye(S)
    overall = np.maximum(np.nanmean(x, (0, 1)), 1e-9)
    found = np.empty_like(P)
    for c in range(C):
        mine = x[:, :-1][cell == c]
        here = np.isfinite(mine).any()
        mean = np.maximum(np.nanmean(mine, 0), 1e-9) if here else overall
        flow = mean[:, None] * P[c] * off
        out, into = flow.sum(1), flow.sum(0)
        table = np.outer(out, into) * off
        for _ in range(100 if S > 2 else 0):
            table *= np.divide(out, table.sum(1), out=np.zeros(S), where=table.sum(1) > 0)[:, None]
            table *= np.divide(into, table.sum(0), out=np.zeros(S), where=table.sum(0) > 0)
        moves = (table if S > 2 else flow) / mean[:, None]
        found[c] = moves + np.diag(1 - moves.sum(1))
    return np.asarray(np.clip(found, 0.0, 1.0))
