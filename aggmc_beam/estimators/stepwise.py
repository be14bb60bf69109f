"""StepSums: moments of the true counts centred step by step, for each replicate.

Where the mean shares move, the mean of each step over realizations is taken out, and its movement
kept as data of its own. Both come from moments and profiles alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aggmc_beam.estimators.moment_methods import divide_rows
from aggmc_beam.noise import Noise
from aggmc_beam.sums.moments import Moments
from aggmc_beam.sums.profile import LEFT1, LEFT2, RIGHT1, RIGHT2, Profile, add_profiles


@dataclass(frozen=True, eq=False)
class StepSums:
    """Shares of the true counts by step, and co-moments about the steps' means, per replicate.

    weight [G, B]: individuals behind the lag-1 pairs of replicate g that start at step b. left,
    right [G, B, S]: their mean shares at both ends. ends, lag1, lag2 [G, S, S]: sums over pairs of
    N (p - m)(q - m')', with the steps' means m, m' over all replicates; `ends` is lag 0 at the left
    ends. `pairs` and `pairs2` are the numbers of pairs, `inverse` the mean of 1/N over records.
    Noise on the scale of true counts, None where unknown: `fixed_noise` [S, S] is the covariance
    that does not depend on the counts, `share_noise` [S, S] the part that grows with them, per
    individual and at the mean shares.
    """

    bins: np.ndarray
    weight: np.ndarray
    left: np.ndarray
    right: np.ndarray
    ends: np.ndarray
    lag1: np.ndarray
    lag2: np.ndarray
    pairs: int
    pairs2: int
    inverse: float
    fixed_noise: np.ndarray | None
    share_noise: np.ndarray | None

    @property
    def groups(self) -> int:
        return int(self.weight.shape[0])

    @property
    def states(self) -> int:
        return int(self.left.shape[2])

    @property
    def steps(self) -> int:
        return int(self.left.shape[1])

    @property
    def step_weight(self) -> np.ndarray:
        return np.asarray(self.weight.sum(0))

    @property
    def mean_left(self) -> np.ndarray:
        """[B, S] over all replicates."""
        return self._mean(self.left)

    @property
    def mean_right(self) -> np.ndarray:
        return self._mean(self.right)

    def _mean(self, shares: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("gb,gbs->bs", self.weight, shares) / self.step_weight[:, None])

    def restricted(self, keep: np.ndarray) -> StepSums:
        """Only the states marked in `keep`; for noise that acts on each state by itself."""
        square = np.ix_(keep, keep)
        return replace(
            self,
            left=self.left[..., keep],
            right=self.right[..., keep],
            ends=np.stack([c[square] for c in self.ends]),
            lag1=np.stack([c[square] for c in self.lag1]),
            lag2=np.stack([c[square] for c in self.lag2]),
            fixed_noise=None if self.fixed_noise is None else self.fixed_noise[square],
            share_noise=None if self.share_noise is None else self.share_noise[square],
        )


def step_sums(
    parts: Mapping[int, Moments],
    profiles: Mapping[int, Profile],
    noise: Noise,
    scale: float,
    whole: Profile | None = None,
) -> StepSums | None:
    """From the moments and profiles of replicates; None where steps share bins or nothing pairs.

    `scale` is N for sums of counts, 1 for sums of shares. `whole` is the sum of the profiles, if it is
    at hand.
    """
    S = next(iter(parts.values())).states
    whole = add_profiles([profiles[r] for r in parts], S) if whole is None else whole
    used = whole.number[:, 1] > 0
    if whole.width > 1 or not used.any():
        return None
    inverse, b = np.linalg.inv(noise.matrix(S)), noise.offset(S)
    steps = {kind: whole.kind(kind) for kind in (LEFT1, RIGHT1, LEFT2, RIGHT2)}
    shape = len(parts), len(whole.bins)
    weight, left, right = np.zeros(shape), np.zeros((*shape, S)), np.zeros((*shape, S))
    products = np.zeros((3, len(parts), S, S))
    for g, (replicate, moments) in enumerate(parts.items()):
        profile = profiles[replicate]
        at = np.searchsorted(whole.bins, profile.bins)
        own = {kind: profile.kind(kind) for kind in steps}
        weight[g, at], left[g, at], right[g, at] = profile.weight[:, 1], own[LEFT1], own[RIGHT1]
        for product, co, lag, a, z in (
            (products[0, g], moments.ends, 1, LEFT1, LEFT1),
            (products[1, g], moments.lag1, 1, LEFT1, RIGHT1),
            (products[2, g], moments.lag2, 2, LEFT2, RIGHT2),
        ):
            # From the replicate's mean to the mean of all replicates at each step.
            w = profile.weight[:, lag, None]
            product += co.product - (w * (own[a] - co.left)).T @ (own[z] - co.right)
            product += (w * (own[a] - steps[a][at])).T @ (own[z] - steps[z][at])

    def shares(means: np.ndarray) -> np.ndarray:
        return np.asarray((means - b) @ inverse.T / scale)

    records = sum(m.records for m in parts.values())
    per_record = sum(m.inverse_weight for m in parts.values()) / (records * scale)
    mean = np.maximum(shares(whole.mean(LEFT1)), 0.0)
    there = (weight > 0)[:, used, None]
    ends, lag1, lag2 = inverse @ products @ inverse.T / scale
    return StepSums(
        whole.bins[used],
        weight[:, used] * scale,
        np.where(there, shares(left[:, used]), 0.0),
        np.where(there, shares(right[:, used]), 0.0),
        ends,
        lag1,
        lag2,
        sum(m.pairs for m in parts.values()),
        sum(m.lag2.pairs for m in parts.values()),
        per_record,
        *_noise_parts(noise, mean / mean.sum(), inverse),
    )


def one_step(parts: Sequence[Moments], noise: Noise, scale: float) -> StepSums | None:
    """As if all pairs began at the same step: everything about the two means of the ends of all pairs."""
    used = [m for m in parts if m.pairs > 0]
    if not used:
        return None
    S = used[0].states
    inverse, b = np.linalg.inv(noise.matrix(S)), noise.offset(S)
    weight = np.array([m.lag1.weight for m in used])
    left, right = (np.stack([getattr(m.lag1, end) for m in used]) for end in ("left", "right"))
    a, c = (weight @ ends / weight.sum() for ends in (left, right))
    products = [
        [inverse @ co.product_about(x, y) @ inverse.T / scale for co, x, y in rows]
        for rows in (((m.ends, a, a), (m.lag1, a, c), (m.lag2, a, c)) for m in used)
    ]
    ends, lag1, lag2 = (np.stack([p[i] for p in products]) for i in range(3))
    records = sum(m.records for m in parts)
    mean = np.maximum((a - b) @ inverse.T, 0.0)
    return StepSums(
        np.zeros(1, np.int64),
        weight[:, None] * scale,
        ((left - b) @ inverse.T / scale)[:, None],
        ((right - b) @ inverse.T / scale)[:, None],
        ends,
        lag1,
        lag2,
        sum(m.pairs for m in used),
        sum(m.lag2.pairs for m in used),
        sum(m.inverse_weight for m in parts) / (records * scale),
        *_noise_parts(noise, mean / max(mean.sum(), 1e-300), inverse),
    )


def _noise_parts(
    noise: Noise, mean: np.ndarray, inverse: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The noise covariance without counts, and what a mean share of one individual adds to it."""
    fixed, whole = noise.covariance(np.zeros_like(mean)), noise.covariance(mean)
    if fixed is None or whole is None:
        return None, None
    return inverse @ fixed @ inverse.T, inverse @ (whole - fixed) @ inverse.T


def step_mom(sums: StepSums) -> np.ndarray:
    """The method of moments step by step, pooled: expected moves over expected visits.

    P_i = sum_t M_t(i, .) / sum_t mu_t(i), M_t = Cov_t / N + mu_t mu_t+1'.
    """
    lag1 = sums.lag1.sum(0)
    return _pooled(sums.step_weight, sums.mean_left, sums.mean_right, lag1, sums.pairs / sums.steps)


def step_mom_without_each(sums: StepSums) -> np.ndarray:
    """[G, S, S]: `step_mom` without each replicate, from the same sums."""
    total, L, R, lag1 = sums.step_weight, sums.mean_left, sums.mean_right, sums.lag1.sum(0)
    found = []
    for g in range(sums.groups):
        w = total - sums.weight[g]
        used = w > 1e-9 * total.max()
        if not used.any():  # it is all there is
            found.append(np.full_like(lag1, np.nan))
            continue
        part = np.divide(sums.weight[g], w, out=np.zeros_like(w), where=used)[:, None]
        # The step means move away from the replicate that is left out.
        left, right = L - part * (sums.left[g] - L), R - part * (sums.right[g] - R)
        moved = ((w[:, None] * (left - L))[used]).T @ (right - R)[used]
        rest = lag1 - sums.lag1[g] - moved
        share = sums.weight[g].sum() / total.sum()
        realizations = sums.pairs * (1 - share) / used.sum()
        found.append(_pooled(w[used], left[used], right[used], rest, realizations))
    return np.stack(found)


def _pooled(
    weight: np.ndarray, left: np.ndarray, right: np.ndarray, lag1: np.ndarray, realizations: float
) -> np.ndarray:
    """Moves over visits, steps weighed by the individuals behind them."""
    size = weight / weight.mean()
    moves = (size[:, None] * left).T @ right
    if realizations > 1:  # one of them at each step went into its mean
        moves = moves + lag1 / (realizations - 1)
    return divide_rows(np.asarray(moves), np.asarray(size @ left))
