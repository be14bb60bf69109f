"""Estimates drawn to what several have in common, see `estimators.alike`: groups of a run, windows of a chain.

What they have in common is told by sums, so that engines may add them up in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.chain import Window
from aggmc_beam.errors import InputError
from aggmc_beam.estimators.alike import Common, draw
from aggmc_beam.estimators.conditional import PairSums, Step
from aggmc_beam.estimators.constraints import refuse_tied_rows
from aggmc_beam.estimators.registry import GROUPS, SMOOTH
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.fit.cell import STEP_STATES, CellFit, settled
from aggmc_beam.fit.intervals import Parts, Uncertainty
from aggmc_beam.fit.shared import replace_chain
from aggmc_beam.result import Estimate, Estimates

if TYPE_CHECKING:
    from aggmc_beam.fit.fit import Fit, Settings

#: What the groups have in common, by cell of the chain; None is the one matrix for all times.
InCommon = Mapping[int | None, Common]
#: Groups from which it is said that they look alike, and how much each would then borrow.
SEVERAL, MUCH = 3, 0.5


def check_groups_share(settings: Settings, group_by: Sequence[str]) -> None:
    """`InputError` for what groups that share cannot honour."""
    if settings.pooling != GROUPS:
        return
    if not group_by:
        raise InputError(
            "pooling 'groups' draws groups to each other: name the columns that tell them in group_by"
        )
    if settings.constraints is not None:
        refuse_tied_rows(settings.constraints)


def told(fit: Fit, own: Estimate | Estimates) -> InCommon:
    """What a group adds to what all have in common, from its sums and its own estimates."""
    return {estimate.cell: Drawing.of(fit, estimate).told() for estimate in _each(own)}


def add_told(parts: Iterable[InCommon]) -> InCommon:
    """What several groups tell."""
    total: dict[int | None, Common] = {}
    for part in parts:
        for cell, one in part.items():
            total[cell] = total[cell] + one if cell in total else one
    return total


def drawn(fit: Fit, own: Estimate | Estimates, common: InCommon) -> Estimate | Estimates:
    """The estimates of a group, drawn to those of all groups."""

    def one(estimate: Estimate) -> Estimate:
        return Drawing.of(fit, estimate).drawn(common[estimate.cell], "groups")

    if isinstance(own, Estimate):
        return one(own)
    pooled = None if own.pooled is None else one(own.pooled)
    return replace(own, items=tuple(map(one, own.items)), pooled=pooled)


def draw_windows(fit: Fit, own: Sequence[Estimate]) -> list[Estimate]:
    """Windows that were estimated by themselves, drawn to each other. Of windows that overlap, only those that do
    not, counted from the last, tell what all have in common."""
    chain, told_by, next_one = fit.chain, list[Estimate](), np.inf
    assert isinstance(chain, Window)
    for estimate in reversed(own):
        assert estimate.cell is not None
        if estimate.cell + chain.size <= next_one:
            told_by.append(estimate)
            next_one = estimate.cell
    if len(told_by) < 2:
        return list(own)
    common = Drawing.of(fit, told_by[0]).told()
    for estimate in told_by[1:]:
        common = common + Drawing.of(fit, estimate).told()
    return [Drawing.of(fit, estimate).drawn(common, "windows") for estimate in own]


def advice(results: Iterable[Estimate | Estimates], pooling: str) -> str | None:
    """A sentence, if several groups that were estimated apart look alike."""
    if pooling == GROUPS:
        return None
    one_each = [found if isinstance(found, Estimate) else found.pooled or found[0] for found in results]
    known = [e for e in one_each if np.isfinite(e.standard_error).any()]
    if len(known) < SEVERAL:
        return None
    common = [Common.of(e.transition_matrix, e.standard_error) for e in known]
    total = common[0]
    for other in common[1:]:
        total = total + other
    borrowed = [draw(e.transition_matrix, e.standard_error, total).borrowed for e in known]
    share = float(np.mean([e.stationary @ b for e, b in zip(known, borrowed, strict=True)]))
    if share < MUCH:
        return None
    return (
        f"The {len(known)} groups look alike: with pooling groups each would borrow about {100 * share:.0f}% of its "
        "matrix from the others."
    )


def _each(own: Estimate | Estimates) -> Iterator[Estimate]:
    if isinstance(own, Estimate):
        yield own
        return
    yield from own
    if own.pooled is not None:
        yield own.pooled


class Drawing:
    """An estimate that was made by itself, with the data that it was made from."""

    def __init__(self, fit: Fit, data: CellFit, estimate: Estimate) -> None:
        self.fit, self.data, self.estimate = fit, data, estimate

    @classmethod
    def of(cls, fit: Fit, estimate: Estimate) -> Drawing:
        sums = fit.sums
        if estimate.cell is None:
            fit = replace_chain(fit)
            return cls(fit, CellFit(fit, sums.by_replicate(sums.cells), {}, sums.total), estimate)
        members = dict(fit.chain.groups(sums.cells))[estimate.cell]
        return cls(fit, CellFit(fit, sums.by_replicate(members), {}), estimate)

    def told(self) -> Common:
        P, error = self.estimate.transition_matrix, self.estimate.standard_error
        step = self._step(P) if self.fit.settings.estimator == "auto" else None
        if step is None:
            return Common.of(P, error)
        # Without the bounds and priors of the estimate, whose errors would not cancel between groups.
        free = self.data.seen.embed(step.P + step.whole)
        free_error = self.data.seen.embed(step.error)
        return Common.of(free, np.where(np.isnan(error), np.nan, np.maximum(error, free_error)))

    def _step(self, P: np.ndarray) -> Step | None:
        """From a matrix towards the conditional mean's least squares."""
        keep = self.data.seen.anywhere
        if self.fit.settings.open_population or keep.sum() > STEP_STATES:
            return None
        sums = PairSums.of(self.data.latents, self.data.x, keep)
        square = np.ix_(keep, keep)
        held = None if self.fit.rules is None else ~self.fit.rules.free[square]
        return None if sums is None else Step(sums, np.nan_to_num(P[square]), held=held)

    def drawn(self, common: Common, others: str) -> Estimate:
        fit, own = self.fit, self.estimate
        found = draw(own.transition_matrix, own.standard_error, common)
        P, known = found.P.copy(), ~np.isnan(found.P).any(1)
        if fit.settings.estimator not in SMOOTH:
            fixed = None if fit.rules is None else fit.rules.fixed[known]
            P[known] = project_rows(P[known], fixed)
        uncertainty = self._uncertainty(P, found.kept, found.error)
        parts, diagnostics = uncertainty.parts, dict(own.diagnostics)
        diagnostics["borrowed"] = borrowed(own, found.borrowed, self.data.x.mu, common, others)
        diagnostics["scores"] = self.data.scores(P, uncertainty, 1 - diagnostics["borrowed"]["share"])
        made = replace(
            own,
            transition_matrix=P,
            standard_error=parts.error,
            **vars(parts),
            stationary=settled(P),
            diagnostics=diagnostics,
        )
        diagnostics["rows"] = fit.row_flags(self.data, P, self.data.share_error(), uncertainty, diagnostics)
        return replace(made, warnings=tuple(fit.warnings(made, self.data, fit.checks(self.data))))

    def _uncertainty(self, P: np.ndarray, kept: np.ndarray, error: np.ndarray) -> Uncertainty:
        own = self.estimate
        left = [kept * np.nan_to_num(part) for part in (own.sampling, own.differences, own.disagreement)]
        fixed = np.isnan(own.standard_error) & np.isfinite(own.standard_error).any(1, keepdims=True)
        parts = Parts(np.hypot(left[0], error), left[1], left[2]).known(~np.isnan(P) & ~fixed)
        flags = own.diagnostics["rows"]
        contradicted = {row["state"] for row in flags if row.get("contradicted")}
        still = np.array([name in contradicted for name in own.states]) & (kept[:, 0] > 0.5)
        tests = own.diagnostics["interval"]["tests"]
        return Uncertainty(parts, tests, self._step(P), still)


def borrowed(own: Estimate, rows: np.ndarray, mu: np.ndarray, common: Common, others: str) -> dict[str, Any]:
    """What is borrowed from others, and of cells that share from other cells before; and what was there without."""
    before = own.diagnostics.get("borrowed")
    of_cells = np.zeros(len(rows)) if before is None else np.array(before["rows"], float)
    rows = 1 - (1 - rows) * (1 - of_cells)
    weight = np.maximum(np.nan_to_num(mu), 1e-9)
    return {
        **(before or {}),
        "share": float(np.average(rows, weights=weight)),
        "from": f"the other {others}" if before is None else f"the other cells and {others}",
        "rows": rows.tolist(),
        others: common.groups,
        "spread": common.spread.tolist(),
        "apart": {
            "transition_matrix": own.transition_matrix.tolist(),
            "standard_error": own.standard_error.tolist(),
        },
    }
