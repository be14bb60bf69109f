import json
import subprocess
import sys

import numpy as np
import pytest

import aggmc_beam as am


def counts(K=3, T=20, S=3, seed=0):
    return am.simulate(states=S, precision=3.0, steps=T, realizations=K, seed=seed).counts


def spoiled(place, value):
    y = counts()
    y[place] = value
    return y


def exceeding():
    y = counts()
    y[1, 4, 0] += 50
    return y


HALF = am.Binomial(0.5)
BAD = {
    "one dimension": (lambda: am.estimate(np.ones(5)), r"\[realizations, steps, states\]"),
    "no realization": (lambda: am.estimate(np.ones((0, 5, 2))), "none of them 0"),
    "one step": (lambda: am.estimate(np.ones((4, 1, 2))), "only one time step"),
    "words": (lambda: am.estimate([["a", "b"]]), "counts must be numbers"),
    "all missing": (lambda: am.estimate(np.full((2, 5, 3), np.nan)), "all counts are NaN"),
    "infinite": (lambda: am.estimate(spoiled((1, 2, 0), np.inf)), "realization 1, step 2, state 0"),
    "half a row": (
        lambda: am.estimate(spoiled((1, 2, 0), np.nan)),
        "step 2 has NaN for some states",
    ),
    "negative N": (lambda: am.estimate(counts(), population=-5), "positive and finite"),
    "wordy N": (lambda: am.estimate(counts(), population="many"), "'estimate'; got 'many'"),
    "too many N": (lambda: am.estimate(counts(), population=[1, 2]), "or 3, one per realization"),
    "small N": (lambda: am.estimate(counts(), population=99), "more than the population 99"),
    "moving totals": (lambda: am.estimate(exceeding()), "realization 1, step 4: its counts add up to 150"),
    "alpha 0": (lambda: am.Binomial(0.0), r"alpha"),
    "alpha 1.2": (lambda: am.Binomial(1.2), r"alpha"),
    "singular A": (lambda: am.Linear(np.ones((2, 2))), "singular"),
    "wrong A": (
        lambda: am.estimate(counts(), noise=am.Detection([0.5, 0.5]), population=200),
        "3",
    ),
    "noise by name": (
        lambda: am.estimate(counts(), noise="binomial"),
        "noise must be a noise model",
    ),
    "estimator": (lambda: am.estimate(counts(), estimator="momm"), "did you mean 'mom'"),
    "lags": (lambda: am.estimate(counts(), lags=3), "lags must be 1 or 2"),
    "level": (lambda: am.estimate(counts(), level=95), "between 0 and 1"),
    "names": (lambda: am.estimate(counts(), states=["a", "b"]), "2 state names"),
    "same names": (lambda: am.estimate(counts(), states=["a", "b", "a"]), "'a' is named twice"),
    "no neighbours": (
        lambda: am.estimate(np.where(np.arange(6)[:, None] % 2, np.nan, counts(T=6)), population=100),
        "no two records are one step apart",
    ),
    "overdispersed": (
        lambda: am.estimate(
            3 * np.random.default_rng(0).poisson(20, (3, 20, 3)), noise=am.Binomial("estimate")
        ),
        "give alpha or the population",
    ),
    "more than N": (
        lambda: am.estimate(counts(), noise=am.Binomial("estimate"), population=50),
        "counts 100 individuals, more than the population 50",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_raises_one_exception_type_that_says_what_is_wrong(case):
    call, message = BAD[case]
    with pytest.raises(am.InputError, match=message):
        call()


@pytest.mark.parametrize("estimator", ["mom", "cls", "corrected-cls", "limle", "naive", "simplex", "auto"])
def test_a_state_never_seen_has_a_nan_row_and_a_flag(estimator):
    y = np.insert(counts(), 1, 0.0, axis=2)
    est = am.estimate(y, states="abcd", population=100, estimator=estimator)
    assert np.isnan(est.transition_matrix[1]).all()
    rest = np.delete(np.arange(4), 1)
    assert np.isfinite(est.transition_matrix[rest]).all()
    assert ("b", "never-seen") in [(f["state"], f["flag"]) for f in est.diagnostics["rows"]]
    without = am.estimate(counts(), population=100, estimator=estimator).transition_matrix
    np.testing.assert_allclose(est.transition_matrix[np.ix_(rest, rest)], without, rtol=1e-9)


def test_a_rare_state_is_flagged():
    P = np.array([[0.999, 0.001], [0.9, 0.1]])
    y, _ = am.simulate(P, steps=300, noise=am.Gaussian(3.0), seed=1)
    est = am.estimate(y, states=["big", "tiny"], noise=am.Gaussian(3.0), population=100)
    assert [f["flag"] for f in est.diagnostics["rows"]] == ["rare"]
    assert "'tiny'" in str(est)


def test_json_round_trip_keeps_everything():
    y = np.insert(counts(), 1, 0.0, axis=2)
    est = am.estimate(y, states=["a", "ü", "c", "<d>"], estimator="simplex")
    again = am.Estimate.from_json(est.to_json())
    assert again.to_json() == est.to_json()
    assert str(again) == str(est)
    np.testing.assert_array_equal(again.transition_matrix, est.transition_matrix)
    assert json.loads(est.to_json())["transition_matrix"][1] == [None] * 4
    with pytest.raises(am.InputError, match="not an estimate"):
        am.Estimate.from_json('{"states": []}')


def test_missing_steps_are_gaps_and_change_nothing_else():
    y = counts(K=2, T=12)
    y[0, 5] = np.nan
    est = am.estimate(y, population=100, estimator="mom")
    assert est.counts["records"] == 23
    assert est.counts["pairs"] == 20
    assert est.counts["gaps"] == 1
    assert est.counts["realizations"] == 2


def test_exact_counts_tell_their_populations():
    N = np.array([40, 100, 250])
    y, _ = am.simulate(states=3, population=N, steps=40, seed=2)
    given = am.estimate(y, population=N, estimator="mom")
    found = am.estimate(y, estimator="mom")
    np.testing.assert_array_equal(given.transition_matrix, found.transition_matrix)
    assert found.population == pytest.approx(N.mean())


@pytest.mark.parametrize(
    ("noise", "unknown"),
    [
        (am.Gaussian(2.0), am.Gaussian("estimate")),
        (am.Laplace(2.0), am.Laplace("estimate")),
        (am.Binomial(0.4), am.Binomial("estimate")),
    ],
    ids=["gaussian", "laplace", "binomial"],
)
def test_noise_parameters_are_found_from_the_totals(noise, unknown):
    y, _ = am.simulate(states=4, steps=2000, realizations=3, noise=noise, seed=3)
    est = am.estimate(y, noise=unknown)
    assert est.population == pytest.approx(100, rel=0.1)
    for key, value in noise.to_dict().items():
        if key != "model":
            assert est.noise.to_dict()[key] == pytest.approx(value, rel=0.1)


def test_alpha_follows_from_known_populations():
    N = np.array([50, 100, 150, 80])
    y, _ = am.simulate(states=3, population=N, steps=300, noise=am.Binomial(0.3), seed=4)
    for population in (N, float(N.mean())):
        est = am.estimate(y, noise=am.Binomial("estimate"), population=population)
        assert est.noise.alpha == pytest.approx(0.3, rel=0.03)


def test_a_result_is_frozen_and_reads_well():
    est = am.estimate(counts(), states=["home", "work", "other"], population=100)
    with pytest.raises(AttributeError):
        est.population = 5
    text = str(est)
    assert "home" in text
    assert "57 pairs of 60 records" in text
    assert "±" in text


def test_the_core_imports_neither_beam_nor_polars_nor_scipy_until_needed():
    code = (
        "import sys, aggmc_beam; "
        "print([m for m in ('apache_beam', 'polars', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
