"""The cells of a chain that share: see `estimators.sharing`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.chain import Chain, Cycle, EachStep, Parametric, Stationary, Window
from aggmc_beam.errors import InputError
from aggmc_beam.estimators.conditional import PairSums, Step
from aggmc_beam.estimators.dispersion import dispersion
from aggmc_beam.estimators.ground import conditional
from aggmc_beam.estimators.neighbours import Row
from aggmc_beam.estimators.rates import Changes, rates
from aggmc_beam.estimators.sharing import Shared, share
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.fit.cell import STEP_STATES, CellFit, Point
from aggmc_beam.fit.intervals import Parts, Uncertainty
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.sums.moments import Moments, add_moments

if TYPE_CHECKING:
    from aggmc_beam.fit.fit import Fit

#: A row of which less than this is seen in its own cell is told to be borrowed.
BORROWED = 0.5


def can_share(fit: Fit) -> bool:
    """Whether cells can share: the conditional mean needs the covariance of the noise and a closed population, and
    rules beyond single cells would not be kept."""
    settings, noise = fit.settings, fit.resolved.noise
    known = noise.covariance(np.ones(fit.S)) is not None
    rows_only = fit.rules is None or fit.rules.rows_only
    closed = known and not settings.open_population
    return (
        settings.pooling != "none"
        and settings.estimator == "auto"
        and closed
        and rows_only
        and fit.S <= STEP_STATES
        and not isinstance(fit.chain, Parametric)
    )


class SharedCells:
    """The cells of a fit, given as (name, members), and the one matrix that they are drawn to."""

    def __init__(self, fit: Fit, groups: Sequence[tuple[int, list[int]]]) -> None:
        self.fit, self.chain = fit, fit.chain
        self.whole = replace_chain(fit)
        self.pooled = self.whole.cell(fit.sums.cells, None)
        self.names, self.cells = [], list[CellFit]()
        self.skipped: dict[int, str] = {}
        for name, members in groups:
            try:
                self.cells.append(CellFit(fit, fit.sums.by_replicate(members), {}))
                self.names.append(name)
            except InputError as error:
                self.skipped[name] = str(error)

    def estimates(self) -> Estimates:
        centre, error, row, keep, scale = self._centre()
        square = np.ix_(keep, keep)
        sums = [PairSums.of(cell.latents, cell.x, keep) for cell in self.cells]
        units = self._units(keep)
        held = None if self.fit.rules is None else ~self.fit.rules.free[square]
        found = share(sums, centre, error, row, units, held)
        items = [
            self._item(place, cell, found, sums[place], scale[place], keep, units)
            for place, cell in enumerate(self.cells)
        ]
        return Estimates(tuple(items), replace(self.pooled, cell=None), None, skipped=self.skipped)

    def _units(self, keep: np.ndarray) -> float:
        """Individuals who count as one mover."""
        cell = max(self.cells, key=lambda cell: cell.total.pairs)
        found = dispersion(cell.x.restricted(keep), cell.latents, keep)
        return 1.0 if found is None or not found.significant else max(found.usable, 1.0)

    def _centre(self) -> tuple[np.ndarray, np.ndarray, Row, np.ndarray, np.ndarray]:
        """What each cell's matrix is without its own: its rate times the pooled moves; with standard errors."""
        fit, row = self.fit, Row(len(self.cells), isinstance(self.chain, Cycle))
        keep = np.logical_or.reduce([cell.seen.anywhere for cell in self.cells])
        square = np.ix_(keep, keep)
        P = np.nan_to_num(self.pooled.transition_matrix[square])
        lost = ~(P.sum(1) > 0)
        P[lost] = np.eye(len(P))[lost]
        P_error = np.nan_to_num(self.pooled.standard_error[square])
        changes = [self._changes(name, cell, P, keep) for name, cell in zip(self.names, self.cells, strict=True)]
        scale, scale_error = rates(changes, row)
        moves = P - np.eye(len(P))
        centre = np.eye(len(P)) + scale[:, None, None] * moves
        fixed = None if fit.rules is None else fit.rules.fixed[square]
        centre = np.stack([project_rows(M, fixed) for M in centre])
        error = np.hypot(scale[:, None, None] * P_error, scale_error[:, None, None] * moves)
        return centre, error, row, keep, scale

    def _changes(self, name: int, cell: CellFit, P: np.ndarray, keep: np.ndarray) -> Changes | None:
        """Of the counts from the cell to the one that follows."""
        follower = next_cell(self.chain, name)
        later = cell.parts if follower is None else self.fit.sums.by_replicate([follower])
        return changes(cell, later, P, keep)

    def _item(
        self,
        place: int,
        cell: CellFit,
        found: Shared,
        sums: PairSums | None,
        scale: float,
        keep: np.ndarray,
        units: float,
    ) -> Estimate:
        fit, name = self.fit, self.names[place]
        left = cell.seen.left | self._left
        P, error = (embedded(M[place], keep, left, fit.S) for M in (found.P, found.error))
        seen = np.zeros(fit.S)
        seen[keep] = found.seen[place]
        step = None if sums is None else Step(sums, found.P[place], units)
        uncertainty = Uncertainty(Parts.of_sampling(error), {}, step)
        point = Point(P, "cells that share", ground=conditional(units))
        freedom = float(np.average(found.seen[place], weights=np.maximum(cell.x.left[keep], 1e-9)))
        diagnostics: dict[str, Any] = {
            "borrowed": {
                "share": 1 - freedom,
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


def replace_chain(fit: Fit) -> Fit:
    """The same sums and settings with one matrix for all times."""
    return type(fit)(fit.sums, replace(fit.settings, chain=Stationary()))


def next_cell(chain: Chain, cell: int) -> int | None:
    """The cell that holds the right ends of a cell's pairs; None if that is itself."""
    if isinstance(chain, Cycle):
        return (cell + 1) % chain.period
    if isinstance(chain, EachStep):
        return cell + 1
    assert isinstance(chain, Window)
    return None


def changes(cell: CellFit, later: Mapping[int, Moments], P: np.ndarray, keep: np.ndarray) -> Changes | None:
    """The squared changes of a cell's counts, `later` being the moments of the right ends by replicate."""
    x, undo, square = cell.x, cell.fit.undo, np.ix_(keep, keep)
    used = [(m, later[r]) for r, m in cell.parts.items() if m.pairs and r in later and later[r].records]
    if len(used) < 2 or x.left_V is None or x.right_V is None:
        return None
    a, b = cell.total.lag1.left, add_moments(cell.fit.S, [after for _, after in used]).lag0.left
    squares = []
    for m, after in used:
        both = m.lag1.product_about(a, b)
        right = after.lag0.product_about(b, b) * (m.pairs / after.records)
        product = m.ends.product_about(a, a) + right - both - both.T
        squares.append(np.diag(undo.covariance(product)[square]))
    pairs = np.array([m.pairs for m, _ in used], float)
    n = pairs.sum()
    mu = np.maximum(x.left[keep], 0.0)
    stay = np.diag(P)
    expected = mu * (1 - stay) + mu @ P - mu * stay
    noise = np.diag((x.left_V + x.right_V)[square]) * (1 - 1 / n)
    return Changes(np.array(squares), pairs, noise, np.maximum(expected, 1e-12) * (1 - 1 / n))


def embedded(M: np.ndarray, keep: np.ndarray, left: np.ndarray, S: int) -> np.ndarray:
    """A matrix over the states in `keep` among all S: rows of states that are never left NaN."""
    full = np.zeros((S, S))
    full[np.ix_(keep, keep)] = M
    full[~left] = np.nan
    return full
