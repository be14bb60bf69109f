"""Step means that travel as sums come back to the last bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggmc_beam.beam import lean
from aggmc_beam.beam.coders import SumsCoder
from aggmc_beam.chain import Stationary
from aggmc_beam.digest import Digest, Replicates
from aggmc_beam.errors import InputError
from aggmc_beam.pairing import Block
from aggmc_beam.profile import Profile
from aggmc_beam.saved import Sums
from aggmc_beam.tracks import Tracks

K, T, S = 110, 60, 10


def profile(means, number):
    n = len(number)
    weight = np.column_stack([number] * 3)
    none = np.zeros(0, np.int64)
    return Profile(1, np.arange(n), weight.astype(np.int64), weight, means, none, means[:0])


def summed(values):
    """Of 7 replicates, some with a realization more than others."""
    key, time = np.divmod(np.arange(K * T), T)
    digest = Digest.of_block(Block(np.asarray(values, float), time, key), Stationary(), key % 7)
    return Sums(None, digest, Replicates(7), [], Tracks.empty(S))


@given(st.integers(0, 2**32), st.sampled_from([10, 10**4, 10**7]))
def test_means_of_whole_numbers_tell_their_sums(seed, most):
    rng = np.random.default_rng(seed)
    sums, number = rng.integers(-most, most, (500, 10)), rng.integers(1, 200, 500).astype(float)
    means = sums / number[:, None]
    first, second = lean.sums_of([profile(means[:200], number[:200]), profile(means[200:], number[200:])])
    np.testing.assert_array_equal(np.concatenate([first, second]), sums)
    assert lean.means_of(first, number[:200]).tobytes() == means[:200].tobytes()


@pytest.mark.parametrize("odd", [0.1, np.nan, np.inf, 2.0**40])
def test_other_means_stay_what_they_are(odd):
    means, number = np.ones((500, 10)), np.ones(500)
    assert lean.sums_of([profile(means, number)]) is not None
    assert lean.sums_of([profile(means, 0 * number)]) is None
    means[-1, -1] = odd
    assert lean.sums_of([profile(np.ones((500, 10)), number), profile(means, number)]) is None


@pytest.mark.parametrize("level", [0, 10**6])
def test_sums_of_whole_counts_come_back_the_same(level):
    values = level + np.random.default_rng(1).integers(0, 100, (K * T, S))
    whole = summed(values)
    encoded = SumsCoder().encode(whole)
    assert SumsCoder().decode(encoded).digest.to_bytes() == whole.digest.to_bytes()


def test_fractions_come_back_the_same():
    sums = summed(np.random.default_rng(1).random((K * T, S)))
    assert SumsCoder().decode(SumsCoder().encode(sums)).digest.to_bytes() == sums.digest.to_bytes()


def test_sums_of_no_records_are_refused():
    with pytest.raises(InputError, match="no records"):
        lean.means_of(np.ones((2, 3)), np.array([1.0, 0.0]))
