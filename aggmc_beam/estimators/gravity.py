"""Many states at once: who moves where by distance, as a prior whose weight the sums tell.

    P0 = I + diag(lambda) (K - I),     mu_i lambda_i K_ij = a_i f(d_ij) b_j

lambda_i is the rate of leaving state i, f a decay with distance d, and a, b are such that as many enter a state as
leave it: that is its attraction. Rates are told by the state's own counts (`leaving`). f is told by the
residuals of the conditional mean, r = C1 - (C0 - V) P0, as is the prior's weight: cells of P deviate
from P0 with variance tau v, v as for shares among the moves from a state. For most pairs of many states
the sums tell next to nothing; then P0 remains. Where they tell much, they win.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggmc_beam.estimators.latent import Latent
from aggmc_beam.estimators.leaving import Rates, cell_variance, weights_of
from aggmc_beam.estimators.sharing import prior_variance

#: Prior variances: 1 / tau is as many moves as the prior counts for.
VARIANCES = tuple(np.geomspace(1e-4, 0.3, 13).tolist())
#: Times that residuals may vary more than individuals who move alone would let them, or less, since that is rough.
DOUBTS = (0.25, 0.35, 0.5, 0.7, 1.0, 2.0, 4.0, 8.0, 16.0)
#: Exponents of a decay by powers.
POWERS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
SCALES = 9
#: The logarithm of the odds from which one decay is better than another.
TOLD = 3.0
BALANCING = 300


@dataclass(frozen=True)
class Decay:
    """How moves fall off with distance: `form` is exponential, gaussian, power or none."""

    form: str
    scale: float

    def of(self, d: np.ndarray, near: float) -> np.ndarray:
        if self.form == "exponential":
            return np.asarray(np.exp(-d / self.scale))
        if self.form == "gaussian":
            return np.asarray(np.exp(-((d / self.scale) ** 2) / 2))
        if self.form == "power":
            return np.asarray((1 + d / near) ** -self.scale)
        return np.ones_like(d)


FORMS = ("exponential", "power", "gaussian")


def decays(distance: np.ndarray | None, near: float, forms: Sequence[str]) -> Iterator[Decay]:
    """Those that are weighed: "none", and each form with its scales."""
    yield Decay("none", np.inf)
    if distance is None:
        return
    far = float(np.nanmax(distance))
    for form in forms:
        scales = POWERS if form == "power" else np.geomspace(near / 2, max(far, near), SCALES).tolist()
        yield from (Decay(form, scale) for scale in scales)


def nearest(distance: np.ndarray | None) -> float:
    """The median distance of a state to the nearest other one."""
    if distance is None or len(distance) < 2:
        return 1.0
    others = np.where(np.eye(len(distance), dtype=bool) | np.isnan(distance), np.inf, distance)
    found = others.min(1)
    found = found[np.isfinite(found) & (found > 0)]
    return float(np.median(found)) if len(found) else 1.0


def balanced(f: np.ndarray, leaving: np.ndarray) -> np.ndarray:
    """K [S, S] with rows of sum 1: a_i f_ij b_j with as many entering as `leaving` [S], as far as f allows.

    >>> K = balanced(np.ones((3, 3)) - np.eye(3), np.array([2.0, 1.5, 1.5]))
    >>> (np.array([2.0, 1.5, 1.5]) @ K).round(3).tolist()
    [2.0, 1.5, 1.5]
    """
    b = leaving / max(float(leaving.sum()), 1e-300)
    for _ in range(BALANCING):
        rows = f @ b
        a = np.divide(leaving, rows, out=np.zeros_like(rows), where=rows > 0)
        columns = a @ f
        new = np.divide(leaving, columns, out=np.zeros_like(rows), where=columns > 0)
        done = np.abs(new - b).max() <= 1e-7 * max(float(new.max()), 1e-300)
        b = new
        if done or not np.isfinite(b).all():
            break
    K = f * b
    sums = K.sum(1, keepdims=True)
    lone = f / np.maximum(f.sum(1, keepdims=True), 1e-300)
    return np.asarray(np.where(sums > 0, K / np.where(sums > 0, sums, 1.0), lone))


@dataclass(frozen=True, eq=False)
class Learned:
    """The prior of P: its `centre` [S, S] with standard errors, and `variance`. `seen` [S]: the part of what is said
    of moves from a state that its own counts say; `told` [S, S]: the variance of what they say of each cell."""

    centre: np.ndarray
    centre_error: np.ndarray
    variance: np.ndarray
    told: np.ndarray
    seen: np.ndarray
    wide: float
    note: dict[str, Any]

    @property
    def error(self) -> np.ndarray:
        """Standard errors [S, S] of what becomes of the prior with the data."""
        variance = self.variance * self.wide  # what is not known of the prior's weight included
        np.fill_diagonal(variance, np.diag(self.variance))
        share = variance / np.maximum(variance + self.told, 1e-300)
        left = share * self.told
        return np.asarray(np.sqrt(left + ((1 - share) * self.centre_error) ** 2))


def learn(
    x: Latent,
    allowed: np.ndarray,
    distance: np.ndarray | None,
    forms: Sequence[str],
    rates: Rates,
) -> Learned:
    """From the moments x of units that move alone, and their rates of leaving."""
    assert x.V is not None
    S, mu = x.states, np.maximum(x.mu, 0.5 / x.individuals)
    off = allowed & ~np.eye(S, dtype=bool)
    movable = off.any(1)
    leaving = np.where(movable, rates.value, 0.0)
    signal = x.c0 - x.V
    scale = np.maximum(np.diag(signal), mu * (1 - mu))[:, None]
    near = nearest(distance)

    def centre(decay: Decay) -> np.ndarray:
        K = balanced(kernel(decay, distance, off, near), mu * leaving)
        return np.asarray(np.diag(1 - leaving) + leaving[:, None] * K)

    # Individuals who are known to move alone are not doubted.
    doubts = [k for k in DOUBTS if k <= 1] if rates.by == "lags" else [k for k in DOUBTS if k >= 1]
    everywhere = Decay("none", np.inf)
    told = cell_variance(x, centre(everywhere), mu)

    def cells_of(decay: Decay) -> tuple[np.ndarray, np.ndarray]:
        """Squares of the deviations that the counts ask for, and the prior's variances, of cells off the diagonal."""
        C = centre(decay)
        return (((x.c1 - signal @ C) / scale)[off]) ** 2, prior_variance(C, mu)[off]

    def evidence(squares: np.ndarray, shape: np.ndarray, tau: float, doubt: float) -> float:
        total = doubt * told[off] + tau * shape
        return -float((squares / total + np.log(total)).sum()) / 2

    choices = list(decays(distance, near, forms))

    def weighed(decay: Decay) -> dict[tuple[float, float], float]:
        """The evidence of all prior variances and doubts."""
        at = cells_of(decay)
        return {(t, k): evidence(*at, t, k) for t in VARIANCES for k in doubts}

    pairs = weighed(everywhere)
    tau, doubt = max(pairs, key=lambda pair: pairs[pair])
    by_decay = {decay: evidence(*cells_of(decay), tau, doubt) for decay in choices}
    best = max(by_decay, key=lambda decay: by_decay[decay])
    pairs = weighed(best)
    tau, doubt = max(pairs, key=lambda pair: pairs[pair])
    weights = weights_of([pairs[t, doubt] for t in VARIANCES])
    tau, wide = float(np.exp(weights @ np.log(VARIANCES))), float(weights @ np.array(VARIANCES))
    C, second = np.zeros((S, S)), np.zeros((S, S))
    shares = weights_of([by_decay[decay] for decay in choices])
    for w, decay in zip(shares, choices, strict=True):
        if w > 1e-3:
            Q = centre(decay)
            C, second = C + w * Q, second + w * Q**2
    C, second = C / C.sum(1, keepdims=True), second / shares[shares > 1e-3].sum()
    direction = np.divide(C - np.eye(S), leaving[:, None], out=np.zeros((S, S)), where=leaving[:, None] > 0)
    spread = np.maximum(second - C**2, 0.0) + (direction * rates.error[:, None]) ** 2
    shape = np.where(off, prior_variance(C, mu), 0.0)
    shape[np.diag_indices(S)] = rates.error**2 / tau
    variance = tau * shape
    part = variance / np.maximum(variance + doubt * told, 1e-300)
    cells = np.where(off, variance, 0.0)
    beforehand = (rates.spread * rates.centre) ** 2
    own_share = np.clip(1 - rates.error**2 / max(beforehand, 1e-300), 0.0, 1.0)
    seen = ((part * cells).sum(1) + own_share * beforehand) / (cells.sum(1) + beforehand)
    gain = float(max(by_decay.values()) - by_decay[everywhere])
    note: dict[str, Any] = {
        "decay": {"form": best.form, "scale": best.scale if np.isfinite(best.scale) else None, "gain": gain},
        "follows_distance": bool(gain > TOLD),
        "tau": tau,
        "gravity": float(max(pairs.values()) - max(pairs[t, k] for t, k in pairs if t == VARIANCES[0])),
        "doubt": doubt,
        "rates": {"by": rates.by, "centre": rates.centre, "spread": rates.spread},
    }
    return Learned(C, np.sqrt(spread), variance, doubt * told, seen, wide / tau, note)


def kernel(decay: Decay, distance: np.ndarray | None, off: np.ndarray, near: float) -> np.ndarray:
    """f [S, S], zero where moves are not allowed; of pairs whose distance is not known, the mean of the others."""
    if distance is None:
        return off.astype(float)
    f, known = decay.of(np.nan_to_num(distance), near), ~np.isnan(distance) & off
    return np.asarray(np.where(off, np.where(known, f, f[known].mean() if known.any() else 1.0), 0.0))
