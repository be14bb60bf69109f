"""The transport projection: O(S^2) memory and S x S factorisations, for any number of states."""

from __future__ import annotations

import numpy as np

from aggmc_beam.estimators.constraints import Rules
from aggmc_beam.estimators.latent import Latent
from aggmc_beam.estimators.shrinkage import lag0_scale, positive_shares, prior, without_totals
from aggmc_beam.estimators.transport import transport


def fast(x: Latent, rules: Rules | None = None) -> np.ndarray:
    """Joint shares M = diag(mu) P nearest to the data, with M >= 0 and the margins of mu.

    Data: mu mu' + c1 with precision n1 / (a_i a_j), a = diag c0. Prior: the ridge, or the user's.
    Their weighted mean is projected onto the transport polytope.
    """
    if x.states == 1:
        return np.ones((1, 1))
    rules = Rules.none(x.states) if rules is None else rules
    row, column = margins(x, rules)
    c1 = without_totals(np.stack(x.c[:2]))[1]
    a_row, a_column = lag0_scale(x, row), lag0_scale(x, column)
    centre, precision = prior(x, column, c1, rules)
    from_data = x.pairs / np.outer(a_row, a_column)
    from_prior = precision / row[:, None] ** 2
    weight = from_data + from_prior
    target = from_data * (np.outer(row, column) + c1) + from_prior * row[:, None] * centre
    if rules.reversible:  # merged with their transposes, the solution is symmetric
        weight, target = weight + weight.T, target + target.T
    M = transport(
        target / weight,
        np.where(rules.free, 1 / weight, 0.0),
        row,
        column,
        fixed=row[:, None] * np.nan_to_num(rules.fixed),
        slack=_slack(x, rules),
    )
    P = M / row[:, None]
    sums = P.sum(1, keepdims=True)
    return np.asarray(np.where(sums > 1e-9, P / np.maximum(sums, 1e-300), centre))


def margins(x: Latent, rules: Rules) -> tuple[np.ndarray, np.ndarray]:
    """Shares at the two ends of pairs, positive; the known stationary ones where given."""
    if rules.stationary is not None:
        return rules.stationary, rules.stationary
    return (
        positive_shares(x.left, x.individuals),
        positive_shares(x.right, x.individuals),
    )


def _slack(x: Latent, rules: Rules) -> np.ndarray | None:
    """With fixed cells or a prior, sampled shares may not be met: columns get their sampling variance."""
    if rules.stationary is not None or rules.reversible or (rules.free.all() and rules.prior is None):
        return None
    return np.asarray(lag0_scale(x, x.mu) / x.individuals)
