"""The costly part of the acceptance list: `make accept`."""

import pytest
from acceptance import CASES, STEPS, geometric_mean, trials
from test_inference import coverage

pytestmark = pytest.mark.accept
#: Upper limits of gmm over mom: lags 1 and 2, and with lag 0 as far as the noise allows.
GMM = {"exact": (0.36, 0.20), "binomial .5": (0.44, 0.38), "gaussian s2=5": (0.42, 0.36)}


@pytest.mark.parametrize("name", GMM)
@pytest.mark.parametrize("T", STEPS)
def test_gmm_has_the_error_of_the_reference(name, T):
    lag0 = "gmm known" if name == "exact" else "gmm diagonal"
    errors = trials(CASES[name], ["mom", "gmm any", lag0, "gmm"], T, runs=20, seed=11)
    found = {e: geometric_mean(v) for e, v in errors.items() if e != "cls limit"}
    assert found["gmm any"] < GMM[name][0] * found["mom"]
    assert found[lag0] < GMM[name][1] * found["mom"]
    assert found["gmm"] < GMM[name][1] * found["mom"]


@pytest.mark.parametrize(("K", "T", "seed"), [(50, 200, 1000), (1, 10_000, 2000)])
def test_intervals_cover_at_their_level_over_many_chains(K, T, seed):
    assert 0.93 < coverage(K, T, 150, seed) < 0.97
