"""The cells of a chain that share: see `estimators.sharing`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.chain import Chain, Cycle, EachStep, Stationary
from aggmc_beam.errors import InputError
from aggmc_beam.estimators.conditional import PairSums, Step
from aggmc_beam.estimators.dispersion import dispersion
from aggmc_beam.estimators.ground import INDEPENDENT, conditional
from aggmc_beam.estimators.neighbours import Row
from aggmc_beam.estimators.rates import Changes, rates
from aggmc_beam.estimators.sharing import Shared, share
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.estimators.spread import scattered
from aggmc_beam.fit.cell import STEP_STATES, CellFit, Point
from aggmc_beam.fit.intervals import Parts, Uncertainty
from aggmc_beam.fit.scores import FOLDS, prediction_loss, predicts_as_well
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.sums.moments import Moments
from aggmc_beam.sums.profile import RIGHT1

if TYPE_CHECKING:
    from aggmc_beam.fit.fit import Fit

Exceptions = dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]
#: Prior variance of what is a cell's own from which cells by themselves are tried.
WHOLLY = 0.02
#: Standard errors by which a cell predicts better without the others: from DOUBTED on its interval holds what it says
#: alone, and from APART on, if individuals move alone, it is not drawn to them (else what predicts well may be what
#: moves many at once). In simulations in which hours differ a little it is 0.5 at most, where they differ wholly 2,
#: and 3 to 15 where one hour among quiet ones moves half.
DOUBTED, APART = 2.0, 5.0
#: Standard errors by which they must predict better.
SURELY = 3.0


def borrows(fit: Fit) -> bool:
    """Whether cells are to borrow; rules beyond single cells would not be kept."""
    rows_only = fit.rules is None or fit.rules.rows_only
    return fit.settings.pooling != "none" and fit.settings.estimator == "auto" and rows_only


def can_share(fit: Fit) -> bool:
    """Whether cells can be estimated together: the conditional mean needs the covariance of the noise and a closed
    population. Within a window means may move in other ways than by its matrix: windows are estimated by themselves
    first, see `drawing.draw_windows`."""
    known = fit.resolved.noise.covariance(np.ones(fit.S)) is not None
    closed = known and not fit.settings.open_population
    together = isinstance(fit.chain, Cycle | EachStep)
    return borrows(fit) and closed and fit.S <= STEP_STATES and together


class SharedCells:
    """The cells of a fit, given as (name, members), and the one matrix that they are drawn to."""

    def __init__(self, fit: Fit, groups: Sequence[tuple[int, list[int]]]) -> None:
        self.fit, self.chain = fit, fit.chain
        self.whole = replace_chain(fit)
        self.pooled = self.whole.cell(fit.sums.cells, None)
        self.names, self.cells = list[int](), list[CellFit]()
        self.members = dict(groups)
        self.skipped: dict[int, str] = {}
        for name, members in groups:
            try:
                self.cells.append(CellFit(fit, fit.sums.by_replicate(members), {}))
                self.names.append(name)
            except InputError as error:
                self.skipped[name] = str(error)

    def estimates(self) -> Estimates | None:
        """None if each cell by itself predicts better what was left out, or none has enough data."""
        if not self.cells:
            return None
        keep = np.logical_or.reduce([cell.seen.anywhere for cell in self.cells])
        square = np.ix_(keep, keep)
        sums = [PairSums.of(cell.latents, cell.x, keep) for cell in self.cells]
        centre, error, row, scale = self._centre(keep, sums)
        units = self._units(keep)
        held = None if self.fit.rules is None else ~self.fit.rules.free[square]
        found = share(sums, centre, error, row, units, held)
        alone, gain = self._alone(found, sums, units)
        # As far as all cells together tell: a single one has few pairs.
        independent = self.pooled.diagnostics.get("ground", {}).get("name") == INDEPENDENT
        lost = independent and gain.max() > APART and self._pooled_tells_little()
        if lost or self._differ_wholly(found, sums, units, keep):
            return None
        apart = independent & (gain > APART)
        away = np.where(gain[:, None, None] > DOUBTED, np.abs(alone - found.P), 0.0)
        items = [
            self.fit.cell(self.members[self.names[place]], self.names[place])
            if apart[place]
            else self._item(place, cell, found, sums[place], scale[place], keep, units, away[place])
            for place, cell in enumerate(self.cells)
        ]
        average = self.fit.average(self.names) if self.chain.centred else None
        return Estimates(tuple(items), self.pooled, average, skipped=self.skipped)

    def _alone(
        self, found: Shared, sums: Sequence[PairSums | None], units: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """What least squares of each cell alone say [C, S, S], and by how many standard errors that predicts
        better what was left out [C]: a prior that fits the others is wrong for the one hour in which many move."""
        alone, gain = found.P.copy(), np.zeros(len(self.cells))
        if self.fit.state_map is not None:  # then least squares alone know too little of many states
            return alone, gain
        for place, (P, told) in enumerate(zip(found.P, sums, strict=True)):
            if told is None or told.groups < 2:
                continue
            step = Step(told, P, units)
            alone[place] = project_rows(P + step.whole)
            better = loss_by_group(step, P, float(found.seen[place].mean()))
            better -= loss_by_group(Step(told, alone[place], units), alone[place], 1.0)
            error = float(np.sqrt((scattered(better, told.share) ** 2).sum()))
            gain[place] = float(better.sum()) / max(error, 1e-300)
        return alone, gain

    def _pooled_tells_little(self) -> bool:
        """Whether the one matrix that cells are drawn to is no better than none."""
        notes = self.pooled.diagnostics
        return any(row["flag"] == "not-determined" for row in notes["rows"]) or predicts_as_well(
            notes.get("scores", {})
        )

    def _differ_wholly(
        self, found: Shared, sums: Sequence[PairSums | None], units: float, keep: np.ndarray
    ) -> bool:
        """Whether cells by themselves predict what is left out better; asked only where they differ much, and where
        individuals move alone: else what predicts well may be what moves many at once."""
        known = self.fit.rules is not None or self.fit.state_map is not None
        if found.numbers["own"] < WHOLLY or not found.alone or known:
            return False
        square, gain, error = np.ix_(keep, keep), 0.0, 0.0
        for place, (cell, told) in enumerate(zip(self.cells, sums, strict=True)):
            if told is None or told.groups < 2:
                continue
            own = np.nan_to_num(cell.point().P[square])
            freedom = float(found.seen[place].mean())
            shared, alone = (
                loss_by_group(Step(told, P, units), P, f) for P, f in ((found.P[place], freedom), (own, 1.0))
            )
            gain += float((shared - alone).sum())
            error += float((scattered(shared - alone, told.share) ** 2).sum())
        return gain > SURELY * float(np.sqrt(error))

    def _units(self, keep: np.ndarray) -> float:
        """Individuals who count as one mover."""
        cell = max(self.cells, key=lambda cell: cell.total.pairs)
        found = dispersion(cell.x.restricted(keep), cell.latents, keep)
        return 1.0 if found is None or not found.significant else max(found.usable, 1.0)

    def _centre(
        self, keep: np.ndarray, sums: Sequence[PairSums | None]
    ) -> tuple[np.ndarray, np.ndarray, Row, np.ndarray]:
        """What each cell's matrix is without its own: its rate times the pooled moves; with standard errors."""
        fit, row = self.fit, Row(len(self.cells), isinstance(self.chain, Cycle))
        square = np.ix_(keep, keep)
        P = np.nan_to_num(self.pooled.transition_matrix[square])
        lost = ~(P.sum(1) > 0)
        P[lost] = np.eye(len(P))[lost]
        P_error = np.nan_to_num(self.pooled.standard_error[square])
        changes = [
            None if told is None else self._changes(name, cell, told, P, keep)
            for name, cell, told in zip(self.names, self.cells, sums, strict=True)
        ]
        scale, scale_error = rates(changes, row)
        moves = P - np.eye(len(P))
        centre = np.eye(len(P)) + scale[:, None, None] * moves
        fixed = None if fit.rules is None else fit.rules.fixed[square]
        centre = np.stack([project_rows(M, fixed) for M in centre])
        error = np.hypot(scale[:, None, None] * P_error, scale_error[:, None, None] * moves)
        return centre, error, row, scale

    def _changes(
        self, name: int, cell: CellFit, sums: PairSums, P: np.ndarray, keep: np.ndarray
    ) -> Changes | None:
        """Of the counts from the cell to the one that follows."""
        following = next_cell(self.chain, name)
        if following is None:
            return None
        later = self.fit.sums.by_replicate([following])
        return changes(cell, sums, later, self._exceptions([following]), P, keep)

    def _exceptions(self, members: list[int]) -> Exceptions | None:
        """Records of these cells that are no right ends of pairs, and right ends that are no records of the same
        replicate: their weights [m], negative where they are to be left out, those of one, and means [m, S]."""
        steps = self.fit.sums.steps
        if any(width > 1 for width in steps.width.values()):
            return None  # only where steps are so many that few records have no partner
        at = (steps.key[:, 3] == RIGHT1) & (steps.number != 0)
        at &= np.isin(self.chain.cells(steps.key[:, 2]), members)
        weight, found = steps.weight[at], {}
        each, mean = weight / np.abs(steps.number[at]), steps.total[at] / weight[:, None]
        for r in np.unique(steps.key[at, 1]):
            of = steps.key[at, 1] == r
            found[int(r)] = weight[of], each[of], mean[of]
        return found

    def _item(
        self,
        place: int,
        cell: CellFit,
        found: Shared,
        sums: PairSums | None,
        scale: float,
        keep: np.ndarray,
        units: float,
        away: np.ndarray,
    ) -> Estimate:
        fit, name = self.fit, self.names[place]
        left = cell.seen.left | self._left
        P, error, away = (embedded(M, keep, left, fit.S) for M in (found.P[place], found.error[place], away))
        seen = np.zeros(fit.S)
        seen[keep] = found.seen[place]
        step = None if sums is None else Step(sums, found.P[place], units)
        uncertainty = Uncertainty(replace(Parts.of_sampling(error), disagreement=away), {}, step)
        point = Point(P, "cells that share", ground=conditional(units))
        freedom = float(np.average(found.seen[place], weights=np.maximum(cell.x.left[keep], 1e-9)))
        diagnostics: dict[str, Any] = {
            "borrowed": {
                "share": 1 - freedom,
                "from": "the other cells",
                "rows": (1 - seen).tolist(),
                "rate": float(scale),
                **found.numbers,
            },
        }
        diagnostics["scores"] = cell.scores(P, uncertainty, freedom)
        return fit.assemble(cell, P, uncertainty, cell.share_error(), point, name, diagnostics)

    @property
    def _left(self) -> np.ndarray:
        """States that are left in some cell: the others' rows are known of them."""
        return np.asarray(np.logical_or.reduce([cell.seen.left for cell in self.cells]))


def loss_by_group(step: Step, P: np.ndarray, freedom: float) -> np.ndarray:
    """[G]: prediction errors of each fold of the replicates by P without it, to first order; see `scores`."""
    sums = step.sums
    folds = np.arange(sums.groups) % min(FOLDS, sums.groups)
    losses = np.zeros(sums.groups)
    for number in np.unique(folds):
        fold = folds == number
        moved = (step.parts[fold] - sums.share[fold, None, None] * step.whole).sum(0)
        without = project_rows(P - freedom * moved / (1 - sums.share[fold].sum()))
        losses[fold] = prediction_loss(sums.gram[fold] - sums.noise[fold], sums.cross[fold], without)
    return losses


def replace_chain(fit: Fit) -> Fit:
    """The same sums and settings with one matrix for all times."""
    return type(fit)(fit.sums, replace(fit.settings, chain=Stationary()))


def next_cell(chain: Chain, cell: int) -> int | None:
    """The cell that holds the right ends of a cell's pairs; None if there are several."""
    return chain.next_cell(cell) if isinstance(chain, Cycle) else cell + 1


def changes(
    cell: CellFit,
    sums: PairSums,
    later: Mapping[int, Moments],
    exceptions: Exceptions | None,
    P: np.ndarray,
    keep: np.ndarray,
) -> Changes | None:
    """The squared misses of a cell's counts, given its pairs as `sums`. `later`: the moments of the records
    that are right ends, by replicate, with `exceptions`."""
    x, undo, square = cell.x, cell.fit.undo, np.ix_(keep, keep)
    used = [(r, m, later[r]) for r, m in cell.parts.items() if m.pairs and r in later and later[r].records]
    if len(used) < 2 or x.left_V is None or x.right_V is None:
        return None
    a, b = cell.total.lag1.left, cell.total.lag1.right

    def latent(product: np.ndarray) -> np.ndarray:
        return np.asarray(undo.covariance(product)[square])

    parts = []
    for r, m, after in used:
        weight, right = after.lag0.weight, after.lag0.product_about(b, b)
        if exceptions is None:  # then about its own mean, since that of the right ends is known
            right = after.lag0.product + weight * np.outer(m.lag1.right - b, m.lag1.right - b)
        for more, each, mean in zip(*(exceptions or {}).get(r, ((), (), ())), strict=True):
            # Of several only what their mean is away from b can be taken out: one of them.
            weight, right = weight + each, right + more * np.outer(mean - b, mean - b)
        right = right * (m.lag1.weight / weight if weight > 0 else np.nan)
        parts.append([latent(p) for p in (m.ends.product_about(a, a), m.lag1.product_about(a, b), right)])
    left, both, right = (np.array(kind) for kind in zip(*parts, strict=True))
    pairs = np.array([m.pairs for _, m, _ in used], float)
    n, moves = pairs.sum(), P - np.eye(len(P))
    before, after_V = x.left_V[square], x.right_V[square]
    # The part of P's moves that predicts best; what remains is about it.
    gram = left.sum(0) - n * before
    size = float(np.einsum("ik,ij,jk->", moves, gram, moves))
    along = float((moves * (both.sum(0) - gram)).sum()) / size if size > 0 else 1.0
    C = np.eye(len(P)) + min(max(along, 0.0), 2.0) * moves

    def misses(C: np.ndarray) -> np.ndarray:
        return np.asarray(np.diagonal(right, axis1=1, axis2=2) + ((left @ C - 2 * both) * C).sum(1))

    squares = misses(C)
    if n > len(P) + 1:  # where means move much, what a cell does otherwise would be taken for moves
        better = Step(sums, project_rows(C)).whole
        gained = float(squares.sum() - misses(C + better).sum())
        by_chance = len(P) / (n - len(P)) * float(misses(C + better).sum())
        if gained > by_chance:
            C = C + (1 - by_chance / gained) * better
            squares = misses(C)
    mu, stay = np.maximum(x.left[keep], 0.0), np.diag(P)
    off = P * (1 - np.eye(len(P)))
    expected = mu @ (off * (1 - off)) + mu * stay * (1 - stay)
    slope = mu @ (off * (1 - 2 * off)) + mu * (1 - stay) * (2 * stay - 1)
    noise = (np.diag(after_V) + ((before @ C) * C).sum(0)) * (1 - 1 / n)
    return Changes(squares, pairs, noise, np.maximum(expected, 1e-12) * (1 - 1 / n), slope * (1 - 1 / n))


def embedded(M: np.ndarray, keep: np.ndarray, left: np.ndarray, S: int) -> np.ndarray:
    """A matrix over the states in `keep` among all S: rows of states that are never left NaN."""
    full = np.zeros((S, S))
    full[np.ix_(keep, keep)] = M
    full[~left] = np.nan
    return full
