"""The acceptance list: consistency, rates and plateaus on simulated data (see acceptance.py)."""

from functools import cache

import numpy as np
import pytest
from acceptance import CASES, STEPS, K, geometric_mean, trials

ESTIMATORS = ["mom", "simplex", "cls", "naive", "fast"]


# Tests of one case stay on one worker, so that its trials are run once.
pytestmark = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in CASES]
)


@cache
def results(name):
    """Errors by number of steps, for one noise model."""
    return {T: trials(CASES[name], ESTIMATORS, T, runs=20, seed=11) for T in STEPS}


def test_mom_converges_at_the_rate_of_one_over_tk(name):
    errors = results(name)
    x = np.log([T * K for T in STEPS])
    y = [np.log(geometric_mean(errors[T]["mom"])) for T in STEPS]
    assert -1.25 < np.polyfit(x, y, 1)[0] < -0.75


def test_mom_has_the_error_of_the_reference(name):
    case, errors = CASES[name], results(name)
    assert 0.55 < geometric_mean(errors[1000]["mom"]) * 1000 * K / case.mom_times_TK < 2


def test_least_squares_stays_at_its_limit_under_noise_and_wins_without(name):
    case, errors = CASES[name], results(name)
    at_end = {e: geometric_mean(v) for e, v in errors[5000].items() if e != "cls limit" or name != "exact"}
    if name == "exact":
        assert 0.25 < at_end["cls"] / at_end["mom"] < 0.65
    else:
        assert 0.97 < at_end["cls"] / at_end["cls limit"] < case.cls_high
    if name == "binomial .5":
        assert at_end["cls"] / at_end["mom"] > 50


def test_projecting_onto_the_simplex_never_loses(name):
    errors = results(name)
    for T in STEPS:
        assert np.all(errors[T]["simplex"] <= errors[T]["mom"] * (1 + 1e-9))


def test_naive_is_where_it_should_be(name):
    errors = results(name)
    if name == "exact":
        assert 0.040 < errors[5000]["naive"].mean() < 0.075


def test_fast_beats_mom_by_far(name):
    errors = results(name)
    for T in STEPS:
        assert geometric_mean(errors[T]["fast"]) < 0.70 * geometric_mean(errors[T]["mom"])
