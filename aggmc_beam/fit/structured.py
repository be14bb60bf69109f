"""The estimate of a cell by the structure of its states: see `estimators.gravity`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.estimators.auto import View
from aggmc_beam.estimators.constraints import Rules
from aggmc_beam.estimators.dispersion import in_units
from aggmc_beam.estimators.gravity import TOLD, Learned, learn
from aggmc_beam.estimators.latent import Latent
from aggmc_beam.estimators.leaving import Rates, own_rates, rates_of, series_rates
from aggmc_beam.estimators.structure import StateMap

if TYPE_CHECKING:
    from aggmc_beam.fit.cell import CellFit, Point

#: No prior is surer than this of a probability.
LEAST_VARIANCE = 1e-14


def structured(cell: CellFit, view: View, states: StateMap) -> Point:
    """The estimate by `auto`, drawn to moves by attraction and distance."""
    keep = cell.seen.anywhere
    where = states.restricted(keep)
    if view.x.V is None or where.allowed.shape[0] < 2:
        return cell.automatic(view, cell.rules)
    learned = _learned(cell, view, where)
    rules = Rules.none(len(learned.centre)) if cell.rules is None else cell.rules
    # What makes the data doubtful is not known to the estimators, so it is the prior that counts for more.
    precision = max(learned.note["doubt"], 1.0) / np.maximum(learned.variance, LEAST_VARIANCE)
    rules = replace(rules, prior=learned.centre, precision=precision)
    point = cell.automatic(view, rules)
    share = float(np.maximum(view.x.mu, 0.0) @ (1 - learned.seen))
    rows = np.full(len(keep), np.nan)
    rows[keep] = 1 - learned.seen
    note = {**learned.note, "sentences": list(sentences(learned, where))}
    borrowed = {"share": share, "from": "moves by attraction and distance", "rows": rows.tolist()}
    return replace(
        point,
        sampling=cell.seen.embed(np.where(where.allowed, learned.error, 0.0)),
        diagnostics={**point.diagnostics, "structure": note, "borrowed": borrowed},
    )


def _learned(cell: CellFit, view: View, where: StateMap) -> Learned:
    x, found = view.x, view.dispersion
    units, rates = 1.0, _rates(cell, x)
    if cell.period is not None:
        x = cell.about_trend(cell.period.steps)[0].x
    elif rates is None and found is not None and found.significant:
        units = found.factor
        rates = _rates(cell, in_units(x, units))
    if rates is None:  # lag 0 is not that of independent movers about one mean
        plain = cell.automatic(view, cell.rules)
        assert plain.choice is not None
        x, units = _as_chosen(view, plain), plain.choice.units
        P = np.nan_to_num(plain.P[np.ix_(cell.seen.anywhere, cell.seen.anywhere)])
        steps = plain.choice.form == "steps"
        rates = (own_rates(in_units(x, units)) if steps else None) or rates_of(in_units(x, units), P)
    return learn(in_units(x, units), where.allowed, where.distance, where.forms, rates)


def _rates(cell: CellFit, x: Latent) -> Rates | None:
    """By the whole series if there is one, or else by a few lags."""
    path, profile = x.trajectory, cell.profile
    single = cell.total.counts.realizations == 1 and profile is not None and profile.width == 1
    if single and path is not None and len(path.time) == x.records and x.V is not None:
        mu = np.clip(x.mu, 0.5 / x.individuals, 1 - 1e-9)
        period = None if cell.period is None else cell.period.steps
        return series_rates(path.shares, x.individuals / x.records, x.V, mu, period)
    return None if cell.period is not None else own_rates(x)


def _as_chosen(view: View, plain: Point) -> Latent:
    """The moments about what the plain estimate took out: the mean of each step, or a trend."""
    choice, sums = plain.choice, plain.sums
    if choice is not None and choice.form == "steps" and sums is not None and sums.pairs > sums.steps:
        freedom, freedom2 = sums.pairs - sums.steps, sums.pairs2 - sums.steps
        c2 = sums.lag2.sum(0) / freedom2 if freedom2 > 0 else view.x.c2
        return view.x.replaced(
            c0=sums.ends.sum(0) / freedom,
            c1=sums.lag1.sum(0) / freedom,
            c2=c2,
            numbers=(freedom, freedom, max(freedom2, 0)),
        )
    return view.x if plain.view is None else plain.view.x


def sentences(learned: Learned, where: StateMap) -> Iterator[str]:
    """What a user must know of the structure first."""
    note: dict[str, Any] = learned.note
    if where.distance is not None and where.forms and not note["follows_distance"]:
        yield (
            "these counts do not tell that moves follow the distances "
            f"(logarithm of the odds {note['decay']['gain']:.2g}, {TOLD:g} would)"
        )
    if note["gravity"] > TOLD:
        yield (
            "moves differ from what attraction and distance say; that counts as "
            f"{1 / note['tau']:,.3g} moves seen from each state"
        )
