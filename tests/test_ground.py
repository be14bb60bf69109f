"""What estimates stand on, and what their intervals hold, where counts break the model and where they do not."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.estimators.conditional import PairSums, Step
from aggmc_beam.estimators.dispersion import dispersion, in_units, step_dispersion, steps_in_units
from aggmc_beam.estimators.drift import drift_fit
from aggmc_beam.estimators.gmm import gmm
from aggmc_beam.estimators.latent import latent
from aggmc_beam.estimators.stepwise import step_sums

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import violations
from violations import NOISES, RIGHT, VIOLATED

HALF = am.Binomial(0.5)


def fit(case):
    return am.estimate(case.y, noise=case.noise, population=case.population)


def covered(est, case):
    lower, upper = est.interval()
    return np.mean((lower <= case.truth + 1e-9) & (upper >= case.truth - 1e-9))


def latents(sums, noise, N):
    return [latent(m, noise, N) for m in sums.by_replicate(sums.cells).values()]


def test_moments_in_units_of_people_are_those_of_fewer_people():
    """A household of 4 as one mover: the same matrix, exactly."""
    case = violations.households(am.Exact(), 3, size=4, N=400)
    whole = latent(am.Sums.of(case.y).total, am.Exact(), 400.0)
    few = latent(am.Sums.of(case.y / 4).total, am.Exact(), 100.0)
    np.testing.assert_allclose(gmm(in_units(whole, 4.0), lag0="known"), gmm(few, lag0="known"), atol=1e-9)
    found = []
    for y, N in ((case.y, 400.0), (case.y / 4, 100.0)):
        sums = am.Sums.of(y)
        found.append(step_sums(sums.by_replicate([0]), sums.profiles, am.Gaussian(2.0 * N / 400), N))
    np.testing.assert_allclose(
        drift_fit(steps_in_units(found[0], 4.0)).P, drift_fit(found[1]).P, atol=1e-7
    )  # fmt: skip


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_the_dispersion_of_households_is_their_size(noise):
    case = violations.households(noise, 1, size=4)
    sums = am.Sums.of(case.y)
    x = latent(sums.total, noise, 1000.0)
    found = dispersion(x, latents(sums, noise, 1000.0))
    assert found.significant
    assert abs(found.factor - 4) < 4 * found.error
    assert found.error < 0.5
    np.testing.assert_allclose(found.by_state, 4, rtol=0.3)
    by_steps = step_dispersion(step_sums(sums.by_replicate([0]), sums.profiles, noise, 1000.0))
    assert by_steps.factor == pytest.approx(found.factor, rel=0.1)


def test_the_step_from_any_matrix_leads_to_least_squares_on_the_pairs_themselves():
    """With exact counts and many pairs, where a ridge weighs nothing: (X'X)^-1 X'Y, by brute force."""
    case = violations.composition(am.Exact(), 1, precision=8, K=200)
    sums = am.Sums.of(case.y)
    parts = latents(sums, am.Exact(), 1000.0)
    pairs = PairSums.of(parts, latent(sums.total, am.Exact(), 1000.0), np.ones(4, bool))
    X, Y = case.y[:, :-1].reshape(-1, 4), case.y[:, 1:].reshape(-1, 4)
    expected = np.linalg.lstsq(X, Y, rcond=None)[0]
    step = Step(pairs, 0.9 * case.truth + 0.1 * case.shares)
    np.testing.assert_allclose(step.P + step.whole, expected, atol=2e-3)
    np.testing.assert_allclose(pairs.gram.sum(0) * 1000, X.T @ X, rtol=1e-9)
    np.testing.assert_allclose(pairs.cross.sum(0) * 1000, X.T @ Y, rtol=1e-9)


@pytest.mark.parametrize("name", ["households of 2", "households of 4"])
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_households_that_move_together_are_dispersed_movers(name, noise):
    cases = [VIOLATED[name](noise, seed) for seed in range(4)]
    found = [fit(case) for case in cases]
    assert {e.diagnostics["ground"]["name"] for e in found} == {"dispersed"}
    assert np.mean([c.error(e.transition_matrix) for e, c in zip(found, cases, strict=True)]) < 0.05
    assert np.mean([covered(e, c) for e, c in zip(found, cases, strict=True)]) > 0.9


@pytest.mark.parametrize("precision", [56, 8])
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_realizations_of_different_composition_stand_on_the_conditional_mean(precision, noise):
    cases = [violations.composition(noise, seed, precision) for seed in (0, 1, 3)]
    found = [fit(case) for case in cases]
    # Compositions that mix quickly look like groups that move together.
    assert {e.diagnostics["ground"]["name"] for e in found} <= {"conditional", "dispersed"}
    assert found[0].diagnostics["ground"]["name"] == "conditional"
    assert np.mean([c.error(e.transition_matrix) for e, c in zip(found, cases, strict=True)]) < 0.03
    assert np.mean([covered(e, c) for e, c in zip(found, cases, strict=True)]) > 0.9


def test_a_daily_cycle_of_one_series_is_seen_taken_out_and_told():
    for seed in range(3):
        case = violations.daily_cycle(HALF, seed)
        est = fit(case)
        assert est.diagnostics["choice"]["form"] == "periodic"
        assert est.diagnostics["period"]["steps"] == 24
        assert any("Cycle(24)" in warning for warning in est.warnings)
        assert case.error(est.transition_matrix) < 0.1
        assert covered(est, case) > 0.9


@pytest.mark.parametrize("period", [5, 7, 12, 17, 24])
def test_a_period_is_found_whatever_its_length_and_a_sticky_chain_has_none(period):
    rng = np.random.default_rng(period)
    P = violations.sticky(3, rng)
    wave = 0.1 * np.cos(2 * np.pi * np.arange(1500) / period)[:, None, None]
    moving = P + wave * (np.roll(np.eye(3), 1, 0) - 1 / 3)
    moving = np.clip(moving, 0, 1) / np.clip(moving, 0, 1).sum(2, keepdims=True)
    y = violations.walk(rng, moving, [[500, 300, 200]], 1500)
    assert am.diagnose(y).period == period
    y = violations.walk(rng, 0.95 * np.eye(3) + 0.05 * P, [[500, 300, 200]], 1500)
    assert am.diagnose(y).period is None


def labour_like(seed):
    """Shares of one country that shocks and seasons move, with rates of moving that are far higher."""
    rng = np.random.default_rng(seed)
    P = np.array([[0.95, 0.015, 0.035], [0.27, 0.51, 0.22], [0.05, 0.02, 0.93]])
    n, shares = [], np.array([0.59, 0.04, 0.37])
    slow = np.zeros(3)
    for t in range(270):
        slow = 0.97 * slow + rng.normal(0, 0.002, 3)
        season = 0.004 * np.cos(2 * np.pi * (t % 12) / 12 + np.arange(3))
        shares = np.clip(shares @ P + slow - slow.mean() + season - season.mean(), 0.01, 1)
        shares = shares / shares.sum()
        n.append(rng.multinomial(60_000, shares))
    return np.array(n, float)[None], P


def test_what_one_series_with_shocks_cannot_tell_is_said_and_held_by_intervals():
    for seed in range(4):
        y, P = labour_like(seed)
        est = am.estimate(y, population=60_000)
        lower, upper = est.interval()
        lost = {row["state"] for row in est.diagnostics["rows"] if row["flag"] == "not-determined"}
        assert est.warnings
        for i in range(3):
            assert str(i) in lost
            assert ((lower[i] <= P[i]) & (P[i] <= upper[i])).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (violations.fixed_panel, r"panel: use Panel\(\)"),
        (violations.alpha_off, "add up to"),
        (violations.population_off, "add up to"),
        (violations.noise_with_memory, "remember from step to step"),
    ],
)
def test_what_is_said_wrongly_of_the_counts_is_told_first(make, words):
    for seed in range(3):
        est = fit(make(am.Exact(), seed))
        assert any(re.search(words, warning) for warning in est.warnings), est.warnings
        assert str(est).startswith("Warning: ")
        assert am.Estimate.from_json(est.to_json()).warnings == est.warnings


def test_a_panel_is_exact_on_its_own_members():
    case = violations.fixed_panel(am.Exact(), 2)
    est = am.estimate(case.y, noise=am.Panel())
    assert est.population == 500
    assert case.error(est.transition_matrix) < 0.06
    assert not est.warnings
    assert est.noise.to_dict() == {"model": "panel"}
    with pytest.raises(am.InputError, match="a panel counts its own members"):
        am.estimate(case.y, noise=am.Panel(), population=1000)


def test_shares_and_percentages_are_not_taken_for_counts():
    rng = np.random.default_rng(1)
    shares = rng.dirichlet([30, 20, 10], (30, 20))
    for y, words in ((shares, "look like shares"), (100 * shares, "look like percentages")):
        assert any(words in w for w in am.estimate(y, noise=am.Exact()).warnings)


def test_sightings_that_cannot_be_are_refused_or_told():
    y = violations.right(HALF, 1, T=5).y
    with pytest.raises(am.InputError, match="never below 0"):
        am.estimate(y - 30, noise=HALF, population=200)
    sums = am.Sums.of(y)
    assert "add up to" in am.estimate(sums, noise=HALF, population=60).warnings[0]  # more than there are


def test_right_runs_warn_of_nothing():
    warned = []
    for seed, (make, noise) in enumerate([(m, n) for m in RIGHT.values() for n in NOISES.values()]):
        est = fit(make(noise, 500 + seed))
        assert est.diagnostics["ground"]["name"] in ("independent", "dispersed")
        warned += est.warnings
    assert not warned


def test_cells_have_scores_and_grounds_too():
    case = violations.households(HALF, 1, T=48)
    cells = am.estimate(case.y, noise=HALF, population=1000, chain=am.Cycle(4))
    for est in cells:
        assert est.diagnostics["scores"]["estimate"] < est.diagnostics["scores"]["identity"]
        assert est.diagnostics["ground"]["name"] == "conditional"
        assert covered(est, case) > 0.8
    harmonic = am.estimate(case.y, noise=HALF, population=1000, chain=am.Parametric.harmonics(4, order=1))
    assert all("estimate" in est.diagnostics["scores"] for est in harmonic)


def test_an_estimate_that_predicts_worse_than_identity_says_so():
    rng = np.random.default_rng(1)
    P = 0.999 * np.eye(3) + 0.001 / 3
    y = HALF.sample(violations.walk(rng, P, np.tile([40, 30, 30], (30, 1)), 40), rng)
    est = am.estimate(y, noise=HALF, population=100, estimator="naive")
    assert 'on data left out, "nobody moves" predicts' in est.warnings[0]


@pytest.mark.parametrize("steps", [60, 90])
def test_a_short_series_with_shocks_tells_nothing(steps):
    """A few years of shares of a country show but a handful of states of affairs, whatever they predict."""
    for seed in range(6):
        y, P = labour_like(seed)
        est = am.estimate(y[:, 40 : 40 + steps], population=60_000)
        lower, upper = est.interval()
        assert ((lower <= P) & (P <= upper)).all()
        assert {row["flag"] for row in est.diagnostics["rows"]} == {"not-determined"}


def test_a_series_of_households_is_long_enough_for_what_it_tells():
    rng = np.random.default_rng(2)
    P = violations.sticky(4, rng)
    y = 4 * violations.walk(rng, P, violations.settled(rng, P, 250, 1), 400)
    est = am.estimate(y, population=1000)
    assert est.diagnostics["ground"]["name"] == "dispersed"
    assert not est.diagnostics["rows"]


@pytest.mark.parametrize("K", [1, 30])
def test_noisy_counts_that_hardly_move_are_no_few_movers(K):
    """600 bicycles of which nearly none leaves its town in a month, half of them seen."""
    rng = np.random.default_rng(3)
    P = 0.9995 * np.eye(5) + 0.0005 / 5
    n = violations.walk(rng, P, [[60, 40, 50, 310, 140]], 720)
    y = HALF.sample(n, rng).reshape(K, -1, 5)
    est = am.estimate(y, noise=HALF, population=600)
    assert est.diagnostics["ground"]["name"] == "conditional"
    shares = n.mean((0, 1)) / 600
    assert np.sqrt(shares @ ((est.transition_matrix - P) ** 2).sum(1)) < 0.1


def test_a_matrix_that_changes_with_time_is_told_by_the_movement_about_the_means():
    """Intervals are not widened by means that one matrix cannot move, and a warning says what is wrong."""
    rng = np.random.default_rng(5)
    young, old = np.array([[0.9, 0.1, 0], [0.05, 0.9, 0.05], [0, 0.02, 0.98]]), np.eye(3)
    w = np.linspace(0, 1, 59)[:, None, None]
    moving = (1 - w) * young + w * (0.9 * old + 0.1 * np.roll(old, -1, 1))
    n = violations.walk(rng, moving, np.tile([200, 0, 0], (60, 1)), 60)
    visits = n[:, :-1].sum(0)
    truth = (visits[:, :, None] * moving).sum(0) / visits.sum(0)[:, None]
    est = am.estimate(n, population=200)
    assert est.diagnostics["interval"]["tests"]["means"] > 1
    assert any("may change with time" in warning for warning in est.warnings)
    lower, upper = est.interval()
    assert ((lower <= truth + 1e-9) & (truth <= upper + 1e-9)).mean() > 0.85
    assert np.nanmax(est.disagreement) == 0
    assert am.diagnose(n, population=200).recommended["chain"] == "per-step"


def test_a_diagnosis_says_what_is_told_and_what_suits():
    found = am.diagnose(*(violations.households(HALF, 2).y, HALF, 1000), states=list("abcd"))
    assert found.ground["name"] == "dispersed"
    assert found.dispersion == pytest.approx(4, rel=0.2)
    assert found.effective_movers == pytest.approx(250, rel=0.2)
    assert found.rank == found.directions == 4
    assert [row.state for row in found.rows] == list("abcd")
    assert found.can_tell
    assert "model" in found.yaml()
    text = str(found)
    assert "Recommended settings" in text
    assert "dispersed movers" in text
    panel = violations.fixed_panel(am.Exact(), 0)
    found = am.diagnose(panel.y, panel.noise, panel.population)
    assert not found.can_tell
    assert found.recommended["noise"] == {"model": "panel"}
    few = am.diagnose(violations.right(HALF, 1, T=4, K=20).y, HALF, 200)
    assert any(row.times > 1 and row.verdict != "told" for row in few.rows)


def test_a_diagnosis_tells_how_much_data_a_precision_takes():
    """Four times the data, half the width."""
    short = violations.right(HALF, 3, K=40)
    asked = am.diagnose(short.y, HALF, 200, precision=0.02)
    wide = max(row.half_width for row in asked.rows)
    times = max(row.times for row in asked.rows)
    assert times == pytest.approx((wide / 0.02) ** 2)
    long = violations.right(HALF, 3, K=160)
    assert max(r.half_width for r in am.diagnose(long.y, HALF, 200).rows) == pytest.approx(wide / 2, rel=0.3)


@pytest.mark.parametrize("name", ["mom", "simplex", "fast"])
def test_an_estimator_that_does_not_allow_for_dispersion_says_so_first(name):
    case = violations.households(HALF, 1)
    est = am.estimate(case.y, noise=HALF, population=1000, estimator=name)
    assert est.diagnostics["ground"]["name"] == "independent"
    assert f"for which {name} does not allow" in est.warnings[0]
    settled = violations.right(HALF, 1)
    assert not am.estimate(settled.y, noise=HALF, population=200, estimator=name).warnings


@pytest.mark.parametrize("estimator", ["mom", "gmm", "cls"])
@pytest.mark.parametrize(
    "chain",
    [am.Cycle(4), am.Parametric.harmonics(4, order=1), "per-step"],
    ids=["cycle", "parametric", "per-step"],
)
def test_every_cell_and_what_is_pooled_of_them_has_a_ground_and_holds_its_own_estimate(chain, estimator):
    case = violations.right(HALF, 2, K=30, T=12)
    found = am.estimate(case.y, noise=HALF, population=200, chain=chain, estimator=estimator)
    for est in [*found, found.pooled]:
        assert est.diagnostics["ground"]["sentence"] in " ".join(str(est).split())
        lower, upper = est.interval()
        known = np.isfinite(lower)
        assert known.any()
        assert ((lower <= est.transition_matrix) & (est.transition_matrix <= upper) & (lower < upper))[
            known
        ].all()


def test_a_period_whose_means_come_back_widens_no_interval():
    case = violations.daily_cycle(am.Exact(), 1)
    est = fit(case)
    assert est.diagnostics["choice"]["form"] == "periodic"
    assert covered(est, case) > 0.85
    lower, upper = est.interval()
    assert (upper - lower).mean() / 2 < 3 * 1.96 * np.sqrt(((est.transition_matrix - case.truth) ** 2).mean())


def test_percentages_are_told_from_noisy_counts_of_a_hundred():
    rng = np.random.default_rng(3)
    case = violations.right(am.Laplace(2.0), 1, N=100)
    assert not any(
        "percentages" in w for w in am.estimate(case.y, noise=am.Laplace(2.0), population=100).warnings
    )
    shares = np.round(100 * violations.right(am.Exact(), 1, N=377).y / 377, 1)
    found = am.estimate(shares + rng.normal(0, 1e-9, shares.shape), noise=am.Gaussian(0.1), population=100)
    assert any("percentages" in w for w in found.warnings)


def test_a_score_made_anew_takes_the_place_of_the_one_it_puts_right():
    """Scores that say the estimate is best are not accompanied by a doubt of another score."""
    for seed in range(6):
        case = violations.right(am.Binomial(0.2), seed, S=6, N=1000, K=20, T=12)
        scores = am.estimate(case.y, noise=case.noise, population=1000).diagnostics["scores"]
        assert ("worse" in scores) == (scores["estimate"] > min(scores["identity"], scores["naive"]))


@pytest.mark.parametrize("chain", ["stationary", am.Cycle(4), am.Window(20), "per-step"], ids=str)
def test_what_is_said_of_the_totals_is_checked_whatever_the_chain(chain):
    case = violations.alpha_off(am.Exact(), 1)
    found = am.estimate(case.y, noise=case.noise, population=case.population, chain=chain)
    assert any("add up to" in warning for warning in found.warnings)
    assert str(found).startswith("Warning: ")


@pytest.mark.parametrize("K", [1, 3])
def test_few_totals_that_are_not_those_of_alpha_and_the_population_are_seen(K):
    case = violations.alpha_off(am.Exact(), 1)
    few = am.estimate(case.y[:K, :6], noise=case.noise, population=case.population)
    assert any("add up to" in warning for warning in few.warnings)
    right = violations.right(HALF, 1, N=1000)
    assert not any(
        "add up to" in w for w in am.estimate(right.y[:K, :6], noise=HALF, population=1000).warnings
    )


@pytest.mark.parametrize(
    "noise", [am.Exact(), am.Panel(), HALF, am.Detection([0.5] * 3), am.Poisson(0.5)], ids=str
)
def test_counts_below_none_or_above_all_are_refused(noise):
    y = violations.right(am.Exact(), 1, S=3, K=6, T=8).y.astype(float)
    y[2, 3, 1] -= 500
    with pytest.raises(am.InputError, match="realization 2, step 3"):
        am.estimate(y, noise=noise, population=200)


def test_seen_individuals_cannot_be_more_than_there_are():
    y = violations.right(HALF, 1).y
    with pytest.raises(am.InputError, match="more than the population 60"):
        am.estimate(y, noise=HALF, population=60)


def test_a_row_whose_counts_never_vary_by_themselves_has_no_full_rank():
    """Two states that always move together: only their sum can be told."""
    case = violations.right(am.Exact(), 2)
    twins = np.concatenate([case.y[..., :1] / 2, case.y[..., :1] / 2, case.y[..., 1:]], 2)
    rows = am.diagnose(twins).rows
    assert max(row.identified for row in rows[:2]) < 0.6
    assert min(row.identified for row in rows[2:]) > 0.99
