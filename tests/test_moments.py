import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import assert_same_moments, moments

import aggmc_beam as am
from aggmc_beam.sums.moments import PARTS, CoMoment, Moments


def array_records(y):
    return {(k, t): y[k, t] for k, t in np.ndindex(y.shape[:2]) if not np.isnan(y[k, t]).any()}


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 4)),
    missing=st.floats(0, 0.9),
)
def test_moments_of_an_array_equal_the_definition(seed, shape, missing):
    rng = np.random.default_rng(seed)
    y = rng.poisson(20, shape).astype(float)
    y[rng.random(shape[:2]) < missing] = np.nan
    assert_same_moments(am.Sums.of(y).total, moments(array_records(y), shape[2]))


@given(seed=st.integers(0, 2**32 - 1), parts=st.integers(1, 6))
def test_any_merge_tree_gives_the_same_sums(seed, parts):
    rng = np.random.default_rng(seed)
    y = rng.normal(50, 10, (parts, 7, 3))
    pieces = [am.Sums.of(y[k : k + 1]).total for k in range(parts)] + [Moments.zero(3)]
    while len(pieces) > 1:
        rng.shuffle(pieces)
        pieces[-2:] = [pieces[-2] + pieces[-1]]
    assert_same_moments(pieces[0], moments(array_records(y), 3))


def test_zero_is_an_exact_identity():
    m = am.Sums.of(np.random.default_rng(0).normal(1e9, 1, (3, 20, 4))).total
    for same in (Moments.zero(4) + m, m + Moments.zero(4)):
        assert [getattr(same, n) for n in PARTS] == [getattr(m, n) for n in PARTS]
    assert (m + m).lag1 != m.lag1


def test_moments_of_other_states_cannot_be_added():
    with pytest.raises(am.InputError, match="2 states.*of 3"):
        Moments.zero(2) + Moments.zero(3)


def test_six_digits_survive_a_population_of_a_billion_with_unit_noise():
    rng = np.random.default_rng(1)
    small = rng.normal(0, 1, (40, 500, 3))
    huge = small + np.array([6e8, 3e8, 1e8])
    small = huge - np.array([6e8, 3e8, 1e8])  # what is left of the noise in double precision
    exact = moments(array_records(small), 3)
    found = sum((am.Sums.of(huge[k : k + 1]).total for k in range(40)), Moments.zero(3))
    for name in ("lag0", "lag1", "lag2", "ends"):
        a, b = getattr(found, name).product, getattr(exact, name).product
        assert np.abs(a - b).max() < 1e-6 * np.abs(b).max()


def test_weights_are_those_of_the_left_ends():
    rng = np.random.default_rng(2)
    y, N = rng.normal(50, 10, (3, 6, 2)), np.array([10.0, 20.0, 70.0])
    found = am.Sums.of(y, weight=N).total
    assert_same_moments(found, moments(array_records(y), 2, dict(enumerate(N))))


def test_a_co_moment_can_be_moved_to_any_centre():
    rng = np.random.default_rng(3)
    x, y = rng.normal(5, 1, (30, 2)), rng.normal(-3, 2, (30, 2))
    a, b = np.array([1.0, 2.0]), np.array([0.5, -4.0])
    m = CoMoment(30, 30.0, x.mean(0), y.mean(0), (x - x.mean(0)).T @ (y - y.mean(0)))
    np.testing.assert_allclose(m.product_about(a, b), (x - a).T @ (y - b), rtol=1e-12)


def test_gaps_count_the_interruptions_of_realizations():
    y = np.ones((2, 10, 1))
    y[0, 3:5] = np.nan
    y[0, 7] = np.nan
    y[1, 0] = np.nan
    assert am.Sums.of(y).total.gaps == 2
