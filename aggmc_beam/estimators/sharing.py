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
#: Times that the residuals of what varies within cells may vary more than their scatter says, where movers are not
#: independent.
DOUBTS = (1.0, 2.0, 4.0, 8.0, 16.0)
#: Up to this many times the scatter of independent movers, individuals are taken to move alone: nothing is doubted.
ALONE = 1.25
#: How much more the data must tell with the scatter of residuals about what they say than with that about the centre,
#: for that to be taken: where cells differ wholly.
LESS_SCATTER = 1.5
#: What varies within a cell is taken from so many pairs for each state on: in fewer, the directions in which
#: counts hardly vary do so by chance, and noise taken off leaves nothing or less of them (the inverse is then
#: 3/2 times too large).
ENOUGH = 3
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
    alone: bool = True
    """Whether individuals are taken to move by themselves."""


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
    v = np.stack([prior_variance(P, mean if c is None else c.mu) for P, c in zip(centre, cells, strict=True)])
    if held is not None:
        v[:, held] = 0.0
    root = np.sqrt(v).swapaxes(1, 2)  # [C, column j, row i]
    nothing = Information(np.zeros((S, S, S)), np.zeros((S, S)))

    def data_at(at: np.ndarray) -> CellData:
        """What the data say, the scatter of residuals being that about matrices `at`."""
        told = [
            (nothing, nothing) if sums is None else information(sums, P, Q, units)
            for sums, P, Q in zip(cells, centre, at, strict=True)
        ]
        return CellData.stacked(told, root)

    data = data_at(centre)
    found = weighed(data, row, DOUBTS)
    best = max(found, key=lambda prior: found[prior])
    z = posterior(eliminate(*data.trusted(best.doubt), row, best.cells), C)[0]
    again = data_at(centre + (z * root).swapaxes(1, 2))
    alone = again.excess < ALONE
    if alone or again.size > LESS_SCATTER * data.size:  # far from the centre residuals scatter for being far
        data = again
        found = weighed(data, row, DOUBTS[:1] if alone else DOUBTS)
    evidence = np.array(list(found.values()))
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    at, second, seen = np.zeros((C, S, S)), np.zeros((C, S, S)), np.zeros((C, S, S))
    for w, prior in zip(weights, found, strict=True):
        if w > LEAST_WEIGHT:
            A, b = data.trusted(prior.doubt)
            z, covariance = posterior(eliminate(A, b, row, prior.cells), C)
            at += w * z
            second += w * (np.diagonal(covariance, axis1=-2, axis2=-1) + z**2)
            seen += w * np.einsum("cjik,cjki->cji", covariance, A)
    spread = np.maximum(second - at**2, 0.0)
    moved, variance, seen = (
        (at * root).swapaxes(1, 2),
        spread.swapaxes(1, 2) * v,
        np.clip(seen, 0.0, 1.0).swapaxes(1, 2),
    )
    total = variance.sum(2, keepdims=True)
    part = np.divide(variance, total, out=np.zeros_like(variance), where=total > 0)
    moved = moved - part * moved.sum(2, keepdims=True)  # rows of P sum to 1
    variance = variance * (1 - part)
    kept = np.full_like(centre, np.nan) if held is None else np.where(held, centre, np.nan)
    P = np.stack([project_rows(M, fixed) for M, fixed in zip(centre + moved, kept, strict=True)])
    seen_rows = (seen * v).sum(2) / np.maximum(v.sum(2), 1e-300)
    best = max(found, key=lambda prior: found[prior])
    numbers = {**vars(best.cells), "doubt": best.doubt}
    return Shared(P, np.sqrt(variance + ((1 - seen) * error) ** 2), seen_rows, numbers, alone)


@dataclass(frozen=True)
class Weighed:
    """A prior of the cells, and how much more the residuals of what varies within cells vary than their scatter."""

    cells: Prior
    doubt: float = 1.0

    def with_value(self, name: str, value: float) -> Weighed:
        if name == "doubt":
            return replace(self, doubt=value)
        return replace(self, cells=replace(self.cells, **{name: value}))


def weighed(data: CellData, row: Row, doubts: Sequence[float]) -> dict[Weighed, float]:
    """Priors with the logarithm of their evidence: along one of their numbers after the other, twice, about the
    best so far."""
    found: dict[Weighed, float] = {}
    best = Weighed(Prior(own=VARIANCES[5], common=VARIANCES[5]))
    choices = {"own": VARIANCES, "common": VARIANCES, "doubt": doubts}
    if row.cells > 1:
        choices["correlation"] = CORRELATIONS
    for name, values in list(choices.items()) * 2:
        for value in values:
            prior = best.with_value(name, value)
            if prior not in found:
                A, b = data.trusted(prior.doubt)
                found[prior] = eliminate(A, b, row, prior.cells).evidence + data.misfit(prior.doubt)
        best = max(found, key=lambda prior: found[prior])
    return found


@dataclass(frozen=True, eq=False)
class Information:
    """What pairs say of D: A [J, S, S] and b [J, S] for each column j of it, and the squares of the residuals,
    `misfit`, of so many `moments`. `excess`: their scatter against that of independent movers."""

    A: np.ndarray
    b: np.ndarray
    misfit: float = 0.0
    moments: int = 0
    excess: float = np.nan


def prior_variance(P: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """[S, S]: how far from P a cell may be, as for shares among those who leave: half as many moves as P has,
    half anywhere."""
    S = len(mu)
    leaving = 1 - np.clip(np.diag(P), 0.0, 1.0)
    leaving = np.maximum(leaving, 0.1 * float(mu @ leaving))[:, None]
    anywhere = leaving * (0.5 * mu + 0.5 / S)
    variance = leaving * (0.5 * np.maximum(P, 0.0) + 0.5 * anywhere) * (1 - np.eye(S))
    return np.asarray(variance + np.diag(variance.sum(1)))


@dataclass(frozen=True, eq=False)
class CellData:
    """What the pairs of all cells say: `means` of how the means of cells move, `within` of what varies about them.

    How the counts about their means move may tell of other things than moves: trucks that answer to full stations,
    kinds of days. So what is within may be doubted: its residuals then vary more than their scatter says.
    """

    means: Information
    within: Information

    def trusted(self, doubt: float) -> tuple[np.ndarray, np.ndarray]:
        """A [C, J, S, S] and b [C, J, S]."""
        return self.means.A + self.within.A / doubt, self.means.b + self.within.b / doubt

    @property
    def excess(self) -> float:
        """The scatter of residuals against that of independent movers."""
        return self.within.excess

    @property
    def size(self) -> float:
        """How much the data tell in all."""
        return float(np.trace(self.means.A.sum((0, 1))) + np.trace(self.within.A.sum((0, 1))))

    def misfit(self, doubt: float) -> float:
        """What doubt adds to the logarithm of the evidence."""
        return -(self.within.misfit / doubt + self.within.moments * float(np.log(doubt))) / 2

    @classmethod
    def stacked(cls, cells: Sequence[tuple[Information, Information]], root: np.ndarray) -> CellData:
        """Of D in units of its prior deviations, `root` [C, J, S]."""
        kinds = []
        for kind in zip(*cells, strict=True):
            A = np.stack([one.A for one in kind]) * root[..., None] * root[..., None, :]
            b = np.stack([one.b for one in kind]) * root
            moments = np.array([one.moments for one in kind])
            known = np.array([np.isfinite(one.excess) for one in kind]) & (moments > 0)
            excess = (
                np.array([one.excess for one in kind])[known] @ moments[known] / max(moments[known].sum(), 1)
            )
            misfit = sum(one.misfit for one in kind)
            kinds.append(
                Information(A, b, misfit, int(moments.sum()), float(excess) if known.any() else np.inf)
            )
        return cls(*kinds)


def information(
    sums: PairSums, P: np.ndarray, at: np.ndarray, units: float
) -> tuple[Information, Information]:
    """Of the mean and of what varies about it, for a D from P; residuals scatter as they do about `at`.

    As in `conditional.Step`, directions in which the counts vary are instruments, so that noise in the left ends
    does no harm. The first is the total, which does not vary: it stands for the means.
    """
    S, G = sums.states, sums.groups
    total = sums.gram.sum(0)
    root = directions(total)
    signal = root.T @ (total - sums.noise.sum(0))  # [r, S]
    V, Q = sums.V, project_rows(at)
    moving = units * (sums.mu @ (Q * (1 - Q)))
    s, excess = np.maximum(moving + np.diag(V) + (Q * (V @ Q)).sum(0), 1e-12), np.nan
    if G >= FEW_GROUPS:  # the model counts as much as S replicates
        scatter = (scattered(root.T @ sums.residual(at), sums.share) ** 2).sum((0, 1)) / root.shape[1]
        excess = float(scatter.sum() / (s - moving * (1 - 1 / units)).sum())
        s = (S * s + (G - 1) * scatter) / (S + G - 1)
    whole, kinds = root.T @ sums.residual(P).sum(0), list[Information]()
    for rows in (slice(0, 1), slice(1, None if sums.pairs.sum() >= ENOUGH * S else 1)):
        x, r = signal[rows], whole[rows]
        A = (x.T @ x)[None] / s[:, None, None]
        kinds.append(Information(A, (x.T @ (r / s)).T, float((r**2 / s).sum()), r.size, excess))
    return kinds[0], kinds[1]


def directions(gram: np.ndarray) -> np.ndarray:
    """Columns [S, r] that turn counts into uncorrelated ones, root' gram root = I, the first being the total."""
    size = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    values, vectors = np.linalg.eigh(gram / np.outer(size, size))
    kept = values > RANK_TOLERANCE * values.max()
    root = vectors[:, kept] / np.sqrt(values[kept]) / size[:, None]
    first = root.T @ gram.sum(1)
    turned, _ = np.linalg.qr(np.column_stack([first, np.eye(len(first))]))
    return np.asarray(root @ turned)
