"""The estimate for moving mean shares: optimal, symmetric weights, many states."""

import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.estimators.constraints import Constraints
from aggmc_beam.estimators.drift import drift_fit
from aggmc_beam.estimators.quadratic import ColumnQuadratic, nonnegative_qp
from aggmc_beam.estimators.stationarity import Trend
from aggmc_beam.estimators.stepwise import step_sums
from aggmc_beam.sums.moments import add_moments
from aggmc_beam.sums.sums import Sums


def corner(S, noise, steps=60, realizations=8, seed=0):
    rng = np.random.default_rng(seed)
    P = 0.9 * np.eye(S) + 0.1 * rng.dirichlet(np.full(S, 0.3), S)
    setting = {"population": 1000, "start": np.eye(S)[0], "noise": noise, "seed": seed}
    y, _ = am.simulate(P, steps=steps, realizations=realizations, **setting)
    return y, P


def sums_of(y, noise, without=()):
    digest = Sums.of(y)
    parts = {r: m for r, m in digest.by_replicate(digest.cells).items() if r not in without}
    return step_sums(parts, {r: digest.profiles[r] for r in parts}, noise, 1000)


P_DRIFT = [[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.05, 0.25, 0.7]]


@pytest.fixture
def solved(monkeypatch):
    """The quadratic programs that are solved, with their solutions."""
    seen = []
    minimum = ColumnQuadratic.minimum

    def spy(self, rows, allowed, free, *margins):
        found = minimum(self, rows, allowed, free, *margins)
        seen.append((self, rows, allowed, found[0], margins))
        return found

    monkeypatch.setattr(ColumnQuadratic, "minimum", spy)
    return seen


@pytest.mark.parametrize("noise", [am.Exact(), am.Binomial(0.5)], ids=lambda n: n.name)
def test_columns_are_solved_as_the_dense_program_is(solved, noise):
    """Also without some replicates, where steps have unequal weight."""
    S = 6
    y, _ = corner(S, noise)
    for without in ((), (0, 7, 13)):
        drift_fit(sums_of(y, noise, without))
    assert len(solved) == 10
    E = np.kron(np.eye(S), np.ones((1, S)))
    for quadratic, rows, allowed, P, _ in solved:
        H = quadratic.dense()
        assert np.abs(H - H.T).max() <= 1e-12 * np.abs(H).max()
        x, _ = nonnegative_qp(H, quadratic.F.ravel(), E, rows, allowed.ravel())
        np.testing.assert_allclose(P.ravel(), x, atol=1e-9)


def test_a_known_stationary_distribution_is_kept():
    y, _ = corner(5, am.Binomial(0.5))
    mu = np.array([0.1, 0.3, 0.2, 0.15, 0.25])
    rules = Constraints(stationary=mu, forbidden=[(0, 4)], fixed={(1, 1): 0.6}).cells(
        ("0", "1", "2", "3", "4")
    )
    P = drift_fit(sums_of(y, am.Binomial(0.5)), rules).P
    np.testing.assert_allclose(mu @ P, mu, atol=1e-9)
    np.testing.assert_allclose(P.sum(1), 1, atol=1e-12)
    assert P[0, 4] == 0
    assert P[1, 1] == pytest.approx(0.6, abs=1e-12)


def test_a_stationary_distribution_that_fixed_cells_exclude_is_refused():
    y, _ = corner(3, am.Binomial(0.5))
    rules = Constraints(stationary=[0.1, 0.1, 0.8], fixed={(2, 0): 0.5}).cells(("0", "1", "2"))
    with pytest.raises(am.InputError, match="no transition matrix meets these constraints"):
        drift_fit(sums_of(y, am.Binomial(0.5)), rules)


def test_many_states_need_no_array_of_the_fourth_power():
    import tracemalloc

    S = 80
    y, truth = corner(S, am.Binomial(0.5), steps=30)
    sums = sums_of(y, am.Binomial(0.5))
    tracemalloc.start()
    P = drift_fit(sums).P
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < S**4 * 8 / 4
    np.testing.assert_allclose(P.sum(1), 1, atol=1e-12)
    assert np.abs(P - truth).mean() < np.abs(np.eye(S) - truth).mean()


@pytest.mark.parametrize("noise", [am.Exact(), am.Binomial(0.5), am.Gaussian(3.0)], ids=str)
def test_one_series_that_begins_unsettled_is_estimated_from_where_it_has_settled(noise):
    P, held = np.array(P_DRIFT), []
    for seed in range(6):
        y, _ = am.simulate(P, population=2000, steps=400, start=[1, 0, 0], noise=noise, seed=seed)
        est = am.estimate(y, noise=noise, population=2000)
        assert est.diagnostics["ground"]["name"] == "independent"
        assert est.diagnostics["choice"]["form"] == "settled"
        assert not est.warnings
        lower, upper = est.interval()
        held.append(np.mean((lower <= P) & (upper >= P)))
    assert np.mean(held) > 0.8


def test_leaving_first_steps_out_is_estimating_without_them():
    """By brute force: the records themselves left out, of a series in one replicate."""
    y, _ = am.simulate(P_DRIFT, population=500, steps=60, start=[1, 0, 0], noise=am.Binomial(0.5), seed=3)
    sums, rest = am.Sums.of(y), am.Sums.of(y[:, 8:])
    trend = Trend.of(sums.profile, 0, skipped=8)
    parts = sums.by_replicate(sums.cells)
    found = add_moments(3, [trend.taken_out(m, sums.profiles[r])[0] for r, m in parts.items()])
    for name in ("lag0", "lag1", "lag2"):
        one, other = getattr(found, name), getattr(rest.total, name)
        assert one.pairs == other.pairs
        assert one.weight == pytest.approx(other.weight)
        np.testing.assert_allclose(
            one.product_about(trend.overall, trend.overall), other.product_about(trend.overall, trend.overall),
            rtol=1e-9, atol=1e-6,
        )  # fmt: skip
