"""The weakest ground: E[n_t+1 | past] = P'n_t, whatever moves many individuals at once.

Sums over pairs give residual moments r = X'Y - (X'X - V) P, with V the noise in X'X. Their expectation
is zero at the true P for individuals who move together, for realizations of different composition, and
for shocks that do not depend on n_t; neither N nor a multinomial covariance is needed. From any matrix P,
`Step` is the way to the least-squares solution, as contributions of the replicates: their sum says how
far P is from what the conditional mean says, their scatter how well that is known, and their sum with
signs how much halves of the data differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from aggmc_beam.estimators.latent import Latent
from aggmc_beam.estimators.spread import scattered
from aggmc_beam.estimators.stepwise import StepSums

#: Replicates from which their scatter is used at all.
FEW_GROUPS = 5
#: Directions of X'X below this part of the largest vary by rounding only.
RANK_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class PairSums:
    """Second moments over lag-1 pairs per replicate, not centred, on the scale of one individual.

    gram, cross, noise [G, S, S]: sums of N p p', N p p_next', and of the noise in the first. individuals,
    pairs [G]: how many are behind them. left [G, S]: mean shares of left ends, V [S, S]: noise of one
    record. arrivals: the sum of n_t+1'n_t+1 / N over pairs, without noise.
    """

    gram: np.ndarray
    cross: np.ndarray
    noise: np.ndarray
    individuals: np.ndarray
    pairs: np.ndarray
    left: np.ndarray
    V: np.ndarray
    arrivals: float = 0.0

    @classmethod
    def of(cls, parts: Sequence[Latent], whole: Latent, keep: np.ndarray) -> PairSums | None:
        """From the moments of replicates, over the states in `keep`; None if their noise is unknown."""
        used = [x for x in parts if x.pairs > 0]
        if whole.left_V is None or not used:
            return None
        square = np.ix_(keep, keep)
        pairs = np.array([x.pairs for x in used], float)
        V = [x.left_V for x in used]
        gram, cross, noise = (
            np.stack([m[square] for m in found if m is not None]) * pairs[:, None, None]
            for found in ([x.gram for x in used], [x.cross for x in used], V)
        )
        left = np.stack([x.left_mean[keep] for x in used])
        individuals = np.array([x.pair_individuals for x in used])
        left = left / np.maximum(left.sum(1, keepdims=True), 1e-300)
        assert whole.V is not None
        arrivals = (whole.arrivals - float(np.trace(whole.V))) * float(pairs.sum())
        return cls(gram, cross, noise, individuals, pairs, left, whole.left_V[square], arrivals)

    @property
    def states(self) -> int:
        return int(self.gram.shape[1])

    @property
    def groups(self) -> int:
        return len(self.pairs)

    @property
    def share(self) -> np.ndarray:
        return np.asarray(self.individuals / self.individuals.sum())

    @property
    def mu(self) -> np.ndarray:
        """[S]: shares of the left ends, not below those of half an individual."""
        mean = np.maximum(self.share @ self.left, 0.5 / self.individuals.sum())
        return np.asarray(mean / mean.sum())

    def within(self, sums: StepSums) -> PairSums:
        """Only the movement about the means of the steps, given as `sums` of the same groups."""
        pairs, used = self.pairs.sum(), sums.weight.sum(1) > 0
        return replace(
            self, gram=sums.ends[used], cross=sums.lag1[used], noise=self.noise * (1 - sums.steps / pairs)
        )

    def without(self, other: PairSums) -> PairSums:
        """What is left if another movement of the same pairs is taken out."""
        gram, cross, noise = self.gram - other.gram, self.cross - other.cross, self.noise - other.noise
        return replace(self, gram=gram, cross=cross, noise=noise)

    def moves_beside(self, whole: PairSums) -> bool:
        """Whether this part of the movement is more than the rounding of the whole."""
        own, all_of_it = (float(np.trace(s.gram.sum(0))) for s in (self, whole))
        return own > RANK_TOLERANCE * all_of_it

    def residual(self, P: np.ndarray) -> np.ndarray:
        """r [G, S, S] at P."""
        return np.asarray(self.cross - (self.gram - self.noise) @ P)


class Step:
    """From P [S, S] towards the conditional mean's least squares, weighed against `dispersion` times the
    variance of independent moves and a ridge towards P.

    `parts` [G, S, S]: what each replicate adds to the step. `scores` [G, r, S]: the same as residual
    moments with variances near 1.
    """

    def __init__(
        self,
        sums: PairSums,
        P: np.ndarray,
        dispersion: float = 1.0,
        held: np.ndarray | None = None,
        inflation: float = 1.0,
    ) -> None:
        """`held` [S, S] marks cells that stay as they are. `inflation`: of all variances of residuals."""
        self.sums, self.P, self.inflation = sums, P, inflation
        S, G = sums.states, sums.groups
        mu, V = sums.mu, sums.V
        total = sums.gram.sum(0)
        size = np.sqrt(np.maximum(np.diag(total), 1e-300))
        values, vectors = np.linalg.eigh(total / np.outer(size, size))
        kept = values > RANK_TOLERANCE * values.max()
        #: Columns turn moments into uncorrelated ones: root' gram root = I.
        root = vectors[:, kept] / np.sqrt(values[kept]) / size[:, None]
        signal = root.T @ (total - sums.noise.sum(0))  # [r, S]
        # The part of each direction that is signal, against its sampling error.
        reliable, turned = np.linalg.eigh(signal @ root)
        told = reliable > 3 / np.sqrt(max(sums.pairs.sum(), 1.0))
        self.rank = int(told.sum())
        #: [S]: how much of each state's own direction those make up that carry signal, 0 to 1.
        own = (root.T @ total).T @ turned
        whole = np.maximum((own**2).sum(1), 1e-300)
        varies = (vectors[:, kept] ** 2).sum(1)
        self.identified = np.asarray(varies * (own[:, told] ** 2).sum(1) / whole)
        residual = root.T @ sums.residual(P)  # [G, r, S]
        moving = dispersion * (mu @ (P * (1 - P)))
        s = np.maximum(moving + np.diag(V) + (P * (V @ P)).sum(0), 1e-12)
        deviations = scattered(residual, sums.share)
        if G >= FEW_GROUPS:  # the model counts as much as S replicates
            found = (deviations**2).sum((0, 1)) / residual.shape[1]
            s = (S * s + (G - 1) * found) / (S + G - 1)
        s = s * inflation
        self.scores = residual / np.sqrt(s)
        information = (signal.T @ signal)[None] / s[:, None, None]  # [S, S, S], one per column
        right = (signal.T @ (residual / s)).swapaxes(1, 2)
        precision = self._ridge(information, right.sum(0).T, mu, P)
        if held is not None:
            precision = np.where(held, 1e9 * max(float(precision.max()), float(information.max())), precision)
        columns = information + np.einsum("ij,ik->jik", precision, np.eye(S))
        inverse = np.linalg.inv(columns)
        free = (inverse @ right.transpose(1, 2, 0)).transpose(2, 0, 1)
        self._among = np.linalg.pinv(inverse.sum(0))
        multiplier = free.sum(1) @ self._among  # rows of P sum to 1
        self.parts = np.swapaxes(free - (inverse @ multiplier.T).transpose(2, 0, 1), 1, 2)
        #: Prior variance that the data leave: H^-1 ridge H^-1, and the model's H^-1 as a whole.
        self.left_open = (inverse**2 @ precision.T[:, :, None])[:, :, 0].T
        held = ((inverse @ self._among) * inverse).sum(2).T
        self.model_variance = np.maximum(np.einsum("jii->ij", inverse) - held, 0.0)

    def _ridge(self, information: np.ndarray, score: np.ndarray, mu: np.ndarray, P: np.ndarray) -> np.ndarray:
        """Precision [S, S]: how far from P the truth may be, as told by how much individuals move at all.

        The rates of leaving are those of P, or more if the data ask for it, up to two standard errors.
        """
        S = len(mu)
        toward = mu - np.eye(S)  # from "nobody moves" to naive
        told = max(float(np.einsum("ij,jik,kj->", toward, information, toward)), 1.0)
        more = max(float((toward * score).sum()) / told, 0.0) + 2 / np.sqrt(told)
        stay = np.clip(np.diag(P), 0.0, 1.0)
        width = np.minimum(np.maximum(1 - stay, 1 - float(mu @ stay)) + more, 1.0)[:, None]
        variance = width * (0.5 * width * (0.5 * mu + 0.5 / S) + 0.5 * np.maximum(P, 0.0)) * (1 - np.eye(S))
        variance = variance + np.diag(variance.sum(1))
        return np.asarray(1 / np.maximum(variance, 1e-12))

    @property
    def whole(self) -> np.ndarray:
        """[S, S]: the step of all replicates."""
        return np.asarray(self.parts.sum(0))

    @property
    def error(self) -> np.ndarray:
        """[S, S]: standard error of where the step leads.

        Half by the scatter of replicates, which is robust, half by the curvature, which is less noisy.
        """
        if self.sums.groups < FEW_GROUPS:
            return np.asarray(np.sqrt(self.model_variance))
        scatter = self.inflation * (scattered(self.parts, self.sums.share) ** 2).sum(0) + self.left_open
        return np.asarray(np.sqrt((scatter + self.model_variance) / 2))
