"""Intervals belong to the estimate that is shown, whatever makes it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.estimators.registry import FREE, NAMES
from aggmc_beam.report.collection import DIGITS, collect

P = np.array([[0.8, 0.15, 0.05], [0.2, 0.7, 0.1], [0.0, 0.3, 0.7]])
HALF = am.Binomial(0.5)
CHAINS = {
    "stationary": "stationary",
    "window": am.Window(5),
    "cycle": am.Cycle(3),
    "per-step": "per-step",
    "parametric": am.Parametric.harmonics(3, order=1),
}
RULES = {
    "free": None,
    "forbidden": am.Constraints(forbidden=[("c", "a")]),
    "fixed": am.Constraints(fixed={("a", "a"): 0.8}),
    "absorbing": am.Constraints(absorbing=["c"]),
    "stationary": am.Constraints(stationary=np.array([0.5, 0.3, 0.2])),
    "reversible": am.Constraints(reversible=True),
    "prior": am.Constraints(prior=P),
}


def counts(seed=1, K=10, T=9):
    return am.simulate(P, population=150, steps=T, realizations=K, noise=HALF, seed=seed)[0]


def refused(estimator, chain, rules):
    """Free estimators keep no rules, simplex only cells, and limle needs the mean of each step."""
    if rules != "free" and estimator in FREE:
        return True
    if rules in ("stationary", "reversible", "prior") and estimator == "simplex":
        return True
    return estimator == "limle" and chain in ("cycle", "per-step", "parametric")


def shown(estimator, chain="stationary", rules="free", y=None, **settings):
    """All estimates that a setting gives."""
    settings = {"noise": HALF, "population": 150} | settings
    y, chain, rules = counts() if y is None else y, CHAINS[chain], RULES[rules]
    found = am.estimate(
        y, states=["a", "b", "c"], estimator=estimator, chain=chain, constraints=rules, **settings
    )
    if isinstance(found, am.Estimate):
        return [found]
    return [*found, *([] if found.pooled is None else [found.pooled])]


def check(est, fixed):
    """That the interval holds its own estimate, is none where nothing is uncertain, and is told alike everywhere."""
    A, (lower, upper) = est.transition_matrix, est.interval()
    known = np.isfinite(lower)
    assert (known == np.isfinite(upper)).all()
    assert (known == np.isfinite(est.standard_error)).all()
    assert not known[np.isnan(A)].any()
    assert not known[fixed].any()
    assert (lower <= A)[known].all()
    assert (A <= upper)[known].all()
    assert (upper - lower)[known].min(initial=1.0) > 0
    parts = np.sqrt(est.sampling**2 + est.differences**2 + est.disagreement**2)
    np.testing.assert_allclose(parts[known], est.standard_error[known])
    plain = json.loads(est.to_json())
    row = est.to_row()
    for name, bound in (("lower", lower), ("upper", upper)):
        told = np.array(plain[name], float)
        np.testing.assert_array_equal(told, bound)
        entries = np.array([getattr(entry, name) for entry in row.entries], float)
        np.testing.assert_array_equal(entries.reshape(A.shape), bound)
    assert est.diagnostics["ground"]["sentence"] in " ".join(str(est).split())
    assert row.ground == plain["diagnostics"]["ground"]["name"]
    item = collect([plain]).items[0]
    np.testing.assert_allclose(item.lower, lower, atol=10**-DIGITS)
    np.testing.assert_allclose(item.upper, upper, atol=10**-DIGITS)
    return known


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("estimator", NAMES)
def test_an_interval_holds_its_own_estimate_and_is_told_alike_everywhere(estimator, rules):
    fixed = np.zeros((3, 3), bool) if RULES[rules] is None else ~RULES[rules].cells("abc").free
    for chain in CHAINS:
        if refused(estimator, chain, rules):
            with pytest.raises(am.InputError):
                shown(estimator, chain, rules)
            continue
        told = [check(est, fixed) for est in shown(estimator, chain, rules)]
        assert told[0][~fixed].all()


def broken(kind):
    """Counts that are not those of independent movers, or say little, and what is said of them."""
    rng = np.random.default_rng(4)
    if kind == "households":
        return 4 * am.simulate(P, population=40, steps=30, realizations=10, seed=2)[0], am.Exact(), 160
    if kind == "mixed":
        starts = np.array([rng.multinomial(200, p) for p in rng.dirichlet([1, 1, 1], 12)])
        n = [starts]
        for _ in range(8):
            n.append(rng.multinomial(n[-1], P).sum(1))
        return np.stack(n, 1), am.Exact(), 200
    if kind == "shocks":
        shares = np.clip(np.cumsum(rng.normal(0, 0.02, (200, 3)), 0) * 0.2 + 1 / 3, 0.05, 1)
        return np.array([rng.multinomial(5000, p / p.sum()) for p in shares])[None], am.Exact(), 5000
    if kind == "sticky":
        return (
            am.simulate(0.999 * np.eye(3) + 0.001 / 3, population=90, steps=30, realizations=8, seed=3)[0],
            am.Exact(),
            90,
        )
    if kind == "noise alone":
        return rng.normal(30, 40, (8, 20, 3)), am.Gaussian(40.0), 90
    y = counts(K=1, T=120) if kind == "one series" else counts()
    if kind == "never seen":
        y = y + np.array([0, 1, 0]) * y[..., 2:]
        y[..., 2] = 0
    return y, HALF, 150


@pytest.mark.parametrize("estimator", [name for name in NAMES if name != "limle"])  # its errors take seconds
@pytest.mark.parametrize(
    "kind", ["households", "mixed", "shocks", "sticky", "noise alone", "one series", "never seen"]
)
def test_an_interval_holds_its_own_estimate_of_counts_that_break_the_model(kind, estimator):
    y, noise, population = broken(kind)
    for est in shown(estimator, y=y, noise=noise, population=population):
        check(est, np.zeros((3, 3), bool))
