"""P from counts whose mean shares move: populations that age, settle, drift or are sticky.

Three blocks of moments, each zero in expectation at the true P:

- within: lag-1 covariances about the steps' means, h - G P, with lag 0 as control variate;
- level: the accounting identity a'P = b for the time means a, b of left and right ends;
- means: the dynamics of the step means around their time mean.

They are weighed by their noise, as the model and the replicates show it, and put together with a
ridge towards (1 - s) I + s 1 mu', where s, the rate of leaving, is estimated. If within and means
contradict each other, as they do when P itself changes, means are given less weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from aggmc_beam.estimators.constraints import Rules
from aggmc_beam.estimators.gmm import Space, impossible
from aggmc_beam.estimators.quadratic import ColumnQuadratic, nonnegative_qp
from aggmc_beam.estimators.spectrum import positive_part
from aggmc_beam.estimators.stepwise import StepSums

ITERATIONS = 3
#: Shares of the noise at lag 0 that the control variate may be damped by; 0 is corrected cls.
ATTENUATIONS = (0.0, 0.1, 0.3, 1.0)
#: Fewer replicates than this say nothing about variances.
FEW_GROUPS = 5


@dataclass(frozen=True)
class DriftFit:
    """The estimate, its standard `error` [S, S] by the curvature, the rate of leaving, and how well within
    and means agree (z, and the weight that means were given)."""

    P: np.ndarray
    error: np.ndarray
    leaving: float
    conflict: float
    means_weight: float

    def note(self) -> dict[str, Any]:
        return {
            "leaving_rate": float(self.leaving),
            "conflict_z": float(self.conflict),
            "means_weight": float(self.means_weight),
        }


def drift_fit(sums: StepSums, rules: Rules | None = None, conditional: bool = False) -> DriftFit:
    """P by the three blocks; see the module's text. `conditional`: nothing is taken from the model's covariance of
    individuals, which these counts do not have."""
    rules = Rules.none(sums.states) if rules is None else rules
    return _Search(Blocks(sums), rules, conditional).run()


class Blocks:
    """The three blocks of moments; arrays [G, S, S] are per replicate."""

    def __init__(self, sums: StepSums) -> None:
        S, B = sums.states, sums.steps
        self.S, self.B, self.G = S, B, sums.groups
        self.n = sums.step_weight.mean()  # individuals per step
        self.K = sums.pairs / B  # realizations per step
        self.f = (sums.weight.sum(1) / sums.weight.sum())[:, None, None]
        noise = self._noise(sums)
        project, shift = _totals_projection(noise)
        self.project = project
        left = sums.left @ project.T + shift
        right = sums.right @ project.T + shift
        L, R = sums.mean_left @ project.T + shift, sums.mean_right @ project.T + shift
        self.C0 = project @ sums.ends @ project.T
        self.h = project @ sums.lag1 @ project.T
        # Noise of the step means, and of the covariances about them, summed over steps.
        mul, add = (project @ V @ project.T * B for V in (self.share_noise, self.fixed_noise))
        per_mean = self.K / self.n
        self.V_means = mul + add * per_mean
        self.V_within = (self.K - 1) * mul + add * (self.K * sums.inverse - per_mean)
        spread = np.diag(L.sum(0)) - L.T @ L + self.V_means / self.n
        self.sigma = (self.K - 1) * positive_part(spread * self.n / (self.n - 1))
        self._centre_in_time(sums.weight, left, right, L)
        self.a, self.b = L.mean(0), R.mean(0)
        mass = np.maximum(L.sum(0), 0.5 / (self.n * B))
        self.mu = mass / mass.sum()
        self.nu = 0.5 * self.mu + 0.5 / S
        self._attenuated: dict[float, tuple[np.ndarray, np.ndarray]] = {}
        self.attenuate(0.0 if self.known else np.inf)

    def _noise(self, sums: StepSums) -> np.ndarray:
        """The noise covariance of shares, per individual; where unknown, the excess at lag 0."""
        self.known = sums.fixed_noise is not None
        if sums.fixed_noise is not None and sums.share_noise is not None:
            self.fixed_noise, self.share_noise = sums.fixed_noise, sums.share_noise
            return self.share_noise + self.fixed_noise * sums.inverse
        mu = sums.mean_left.mean(0)
        freedom = max(sums.pairs - sums.steps, 1)
        excess = sums.ends.sum(0) / freedom - (np.diag(mu) - np.outer(mu, mu))
        self.fixed_noise, self.share_noise = np.zeros_like(excess), positive_part(excess)
        return self.share_noise

    def _centre_in_time(self, weight: np.ndarray, left: np.ndarray, right: np.ndarray, L: np.ndarray) -> None:
        """The means' block: directions whose movement stands out of the noise, `Z` [S, m]."""
        centred, shrink = L - L.mean(0), 1 - 1 / self.B
        weighted = (weight[:, :, None] * centred).swapaxes(1, 2)
        self.R_means, self.h_means = weighted @ left, weighted @ right
        self.h_means += self.f * self.V_means / self.B * shrink
        total = self.R_means.sum(0)
        self.G_means = total - self.V_means * shrink
        # Steps of unequal weight leave it not quite symmetric, which a covariance has to be.
        self.spread_means = (total + total.T) / 2
        values, vectors = np.linalg.eigh(self.spread_means)
        there = values > 1e-8 * max(values.max(), 1e-300)
        root = vectors[:, there] / np.sqrt(values[there])
        noise, turned = np.linalg.eigh(root.T @ self.V_means @ root * shrink)
        edge = (1 + np.sqrt(self.S / self.B)) ** -2
        self.Z = root @ turned[:, noise < edge]

    def spread(self, r: np.ndarray) -> np.ndarray:
        """Deviations of replicates [G, ...], whose squares sum to the variance of the sum over g."""
        f = self.f.reshape(-1, *[1] * (r.ndim - 1))
        return np.asarray((r - f * r.sum(0)) / np.sqrt(1 - (f**2).sum()))

    def attenuate(self, damping: float) -> None:
        """G = sigma + (C0 - sigma - V) B, with B = (sigma + damping V)^-1 sigma."""
        found = self._attenuated.get(damping)
        if found is None:
            control: np.ndarray = np.zeros((self.S, self.S))
            if not np.isinf(damping):
                control = pseudo_inverse(self.sigma + damping * self.V_within) @ self.sigma
            lag0 = self.C0 - self.f * (self.sigma + self.V_within)
            found = self._attenuated[damping] = control, self.f * self.sigma + lag0 @ control
        self.control, self.G_within = found

    @cached_property
    def _scale(self) -> np.ndarray:
        return np.asarray(np.sqrt(self.mu)[:, None] * pseudo_inverse(self.sigma, 1e-6))

    def choose_attenuation(self, P: np.ndarray) -> None:
        """The damping with the least replicate variance of the within estimate."""
        if not self.known or self.G < FEW_GROUPS or not self.V_within.any():
            return

        def loss(damping: float) -> float:
            self.attenuate(damping)
            return float(((self._scale @ self.spread(self.h - self.G_within @ P)) ** 2).sum())

        self.attenuate(min(ATTENUATIONS, key=loss))

    def information(self, P: np.ndarray) -> list[Normal]:
        """The normal equations of within, means and level, weighed as at P."""
        s_within, s_means, s_level = self._column_variances(P)
        R_within, s_within = self._calibrated(
            self.sigma + self.V_within, s_within, self.h - self.G_within @ P
        )
        R_means, s_means = self._calibrated(self.spread_means, s_means, self.h_means - self.R_means @ P)
        G = self.G_within.sum(0)
        X = G.T @ pseudo_inverse(R_within)
        Y = np.zeros((self.S, self.S))
        if self.Z.shape[1]:
            Z = self.Z
            Y = self.G_means.T @ Z @ np.linalg.pinv(Z.T @ R_means @ Z, rcond=1e-8) @ Z.T
        seen = self.n * self.B
        return [
            Normal(X @ G, s_within, X @ self.h.sum(0) / s_within),
            Normal(Y @ self.G_means, s_means, Y @ self.h_means.sum(0) / s_means),
            Normal(seen * np.outer(self.a, self.a), s_level, seen * np.outer(self.a, self.b / s_level)),
        ]

    def _column_variances(self, P: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What the model says of the noise of column j in each block, per individual."""
        B, others = self.B, max(self.K - 1, 1e-9) * self.B
        V, V_w, sigma = self.V_means / B, self.V_within / others, self.sigma / others
        moving = self.mu @ (P * (1 - P))
        both = np.diag(V) + _quadratic(P, V)
        stay, control = np.eye(self.S) - P, self.control @ P
        level = moving + (both + (B - 1) * _quadratic(stay, V)) / B
        within = moving + np.diag(V_w) + _quadratic(P, sigma)
        within += _quadratic(control, sigma + V_w) - 2 * np.einsum("ij,ij->j", control, sigma @ P)
        means = moving + both - 2 * (1 - 1 / B) * np.diag(V @ P)
        return _floored(within), _floored(means), _floored(level)

    def _calibrated(self, R: np.ndarray, s: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Noise covariance s_j R of column j: the model's, counted as S replicates, with the data's."""
        if self.G < 2 or not R.any():
            return R, s
        S, G = self.S, self.G
        r, inverse = self.spread(r), pseudo_inverse(R)
        rank = max(1, round(float(np.trace(inverse @ R))))
        found = (r * (inverse @ r)).sum((0, 1)) / rank
        s = _floored((S * s + (G - 1) * found) / (S + G - 1))
        r = r / np.sqrt(s)
        return (S * R + (G - 1) * (r @ r.swapaxes(1, 2)).sum(0) / S) / (S + G - 1), s


@dataclass(frozen=True, eq=False)
class Normal:
    """Normal equations: matrix p_j / noise_j = score_j for the columns p_j of a block's own estimate."""

    matrix: np.ndarray
    noise: np.ndarray
    score: np.ndarray

    def apply(self, P: np.ndarray) -> np.ndarray:
        return np.asarray(self.matrix @ P / self.noise)


class _Search:
    """Iterates weights, rate of leaving and agreement of the blocks."""

    def __init__(self, blocks: Blocks, rules: Rules, conditional: bool) -> None:
        self.blocks, self.rules, self.conditional = blocks, rules, conditional
        S = blocks.S
        self.eye = np.eye(S)
        self.toward = blocks.mu - self.eye  # from "nobody moves" to naive
        self.P = 0.9 * self.eye + 0.1 * blocks.nu
        self.space = Space.of(blocks.mu, rules) if rules.reversible else None
        self.free = rules.free if self.space is None else np.ones(self.space.basis.shape[1], bool)
        self.leaving, self.width, self.unsure = 0.1, 0.1, 0.0

    def run(self) -> DriftFit:
        blocks = self.blocks
        weight, conflict = 0.0, 0.0
        threshold = _shrink_threshold(blocks.G)
        for iteration in range(ITERATIONS):
            if not self.conditional:
                blocks.choose_attenuation(self.P)
            self.normal = blocks.information(self.P)
            info = [max(float((n.apply(self.toward) * self.toward).sum()), 1e-12) for n in self.normal]
            if iteration and not blocks.Z.shape[1]:  # means that do not move say nothing
                weight = 1.0
            elif iteration:  # do within and means agree on how much people move?
                alone = self._solve(0.0)
                gap = self._step(0, alone, info) - self._step(1, alone, info)
                conflict = gap / np.sqrt(1 / info[0] + 1 / info[1])
                weight = min(1.0, (2 / max(abs(conflict), 1e-9)) ** 4)
            total = info[0] + weight * info[1]
            rate = info[0] * self._step(0, self.eye, info)
            rate = (rate + weight * info[1] * self._step(1, self.eye, info)) / total
            shrunk = rate * max(0.0, 1 - threshold / (total * rate**2)) if rate > 0 else rate
            self.leaving = min(max(shrunk, 1 / (blocks.n * blocks.B)), 1.0)  # someone may have moved
            self.unsure = float(np.hypot(max(rate - self.leaving, 0.0), min(1 / np.sqrt(total), 1.0)))
            self.width = float(np.sqrt(self.leaving**2 + min(1 / total, 1.0)))
            self.P = self._solve(weight)
        return DriftFit(self.P, self._error(weight), self.leaving, float(conflict), weight)

    def _error(self, means_weight: float) -> np.ndarray:
        """The curvature as weighed in the last step; neither signs nor sums of rows are allowed for."""
        precision = self._prior()[1]
        share = (1.0, means_weight, 1.0)
        columns = sum(w * n.matrix / n.noise[:, None, None] for w, n in zip(share, self.normal, strict=True))
        inverse = np.linalg.inv(columns + np.einsum("ij,ik->jik", precision, self.eye))
        # The rate of leaving errs for all rows at once, and one that is hardly told is drawn to none.
        bias = np.einsum("jik,kj->ij", inverse, precision * self.unsure * self.toward)
        return np.asarray(np.sqrt(np.maximum(np.einsum("jii->ij", inverse), 0.0) + bias**2))

    def _step(self, block: int, P: np.ndarray, info: list[float]) -> float:
        """How far a block would go from P towards naive."""
        score = self.normal[block].score - self.normal[block].apply(P)
        return float((score * self.toward).sum()) / info[block]

    def _solve(self, means_weight: float) -> np.ndarray:
        centre, precision = self._prior()
        share = (1.0, means_weight, 1.0)
        weighted = list(zip(share, self.normal, strict=True))
        quadratic = ColumnQuadratic(
            np.stack([n.matrix for n in self.normal]),
            np.stack([w / n.noise for w, n in weighted]),
            precision,
            np.asarray(sum(w * n.score for w, n in weighted)) + centre * precision,
        )
        P = self._by_columns(quadratic) if self.space is None else self._joined(quadratic, self.space)
        return np.asarray(P / P.sum(1, keepdims=True))

    def _by_columns(self, quadratic: ColumnQuadratic) -> np.ndarray:
        rules, known = self.rules, np.nan_to_num(self.rules.fixed)
        mu = rules.stationary
        rest = replace(quadratic, F=quadratic.F - quadratic.apply(known))
        columns = None if mu is None else mu - mu @ known
        if columns is not None and columns.min() < -1e-9:
            raise impossible()
        P, self.free = rest.minimum(1 - known.sum(1), rules.free, self.free, mu, columns)
        return np.asarray(P + known)

    def _joined(self, quadratic: ColumnQuadratic, space: Space) -> np.ndarray:
        """For a reversible chain, which ties each cell to its mirror image."""
        S = self.blocks.S
        if not len(self.free):
            return space.origin.reshape(S, S)
        H = quadratic.dense()
        linear = space.basis.T @ (quadratic.F.ravel() - H @ space.origin)
        x, self.free = nonnegative_qp(space.reduce(H), linear, space.E, space.e, self.free)
        return np.asarray((space.origin + space.basis @ x).reshape(S, S))

    def _prior(self) -> tuple[np.ndarray, np.ndarray]:
        """The user's, or a ridge that is wide where moves are likely, by the last iterate."""
        if self.rules.prior is not None and self.rules.precision is not None:
            return self.rules.prior, self.rules.precision
        variance = self.width * (0.5 * self.width * self.blocks.nu + 0.5 * self.P) * (1 - self.eye)
        variance = variance + np.diag(variance.sum(1))
        return self.eye + self.leaving * self.toward, 1 / variance


def _shrink_threshold(G: int) -> float:
    """Squared t quantile: a rate of leaving that is not significant is taken as none."""
    from scipy import special

    return float(special.stdtrit(G - 1, 0.975)) ** 2 if G > 2 else 4.0


def pseudo_inverse(M: np.ndarray, tolerance: float = 1e-8) -> np.ndarray:
    """The inverse of a symmetric matrix on the directions with eigenvalues above the tolerance."""
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    used = values > tolerance * max(values.max(), 1e-300)
    return np.asarray((vectors[:, used] / values[used]) @ vectors[:, used].T)


def _totals_projection(noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares p are mapped to p - w (1'p - 1), w = V1 / 1'V1: a total off 1 is noise."""
    S = len(noise)
    total = noise.sum()
    if total <= 1e-12:
        return np.eye(S), np.zeros(S)
    w = noise.sum(1) / total
    return np.eye(S) - np.outer(w, np.ones(S)), w


def _quadratic(X: np.ndarray, M: np.ndarray) -> np.ndarray:
    """x_j' M x_j for the columns x_j."""
    return np.asarray((X * (M @ X)).sum(0))


def _floored(v: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(v, 1e-3 * v.mean() + 1e-12))
