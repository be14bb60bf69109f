import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import assert_same_moments

import aggmc_beam as am
from aggmc_beam.digest import add_moments
from aggmc_beam.moments import Moments
from aggmc_beam.pairing import block_moments
from aggmc_beam.track import Track
from aggmc_beam.tracks import Tracks

RECORDS = st.lists(st.tuples(st.integers(0, 3), st.integers(-4, 9)), max_size=40)


def rows(records, seed=0):
    key, time = np.array(records, np.int64).reshape(-1, 2).T
    return key, time, np.random.default_rng(seed).poisson(9, (len(records), 2)).astype(float)


def one_by_one(blocks):
    """The same records through one Track per realization."""
    tracks = {}
    total, duplicates = Moments.zero(2), 0
    for key, time, values in blocks:
        for k in np.unique(key):
            m = tracks.setdefault(k, Track(2)).extend(time[key == k], values[key == k])
            total, duplicates = total + m, duplicates + m.counts.duplicates
    return total, duplicates, tracks


@given(RECORDS, st.integers(1, 4))
def test_many_tracks_at_once_do_what_each_track_does(records, parts):
    key, time, values = rows(records)
    blocks = [(key[at], time[at], values[at]) for at in np.array_split(np.arange(len(key)), parts)]
    expected, duplicates, single = one_by_one(blocks)
    many, moments, repeated, firsts = Tracks.empty(2), [], 0, 0
    for block in blocks:
        taken = many.take(*block)
        moments.append(block_moments(taken.block))
        repeated += len(taken.repeated)
        firsts += len(taken.firsts)
    found = add_moments(2, moments)
    assert repeated == duplicates
    assert firsts == len(single)
    assert found.pairs == expected.pairs
    np.testing.assert_allclose(found.lag1.product, expected.lag1.product, atol=1e-9)
    np.testing.assert_allclose(found.lag2.product, expected.lag2.product, atol=1e-9)
    for k, track in single.items():
        at = many.key == k
        assert list(zip(many.start[at], many.stop[at], strict=True)) == track.covered.intervals()
        assert many.open_time[many.open_key == k].tolist() == sorted(track.open)


@given(RECORDS, RECORDS)
def test_merging_yields_the_pairs_between_and_counts_what_both_cover(left, right):
    right = [r for r in dict.fromkeys(right) if r not in left]
    left = list(dict.fromkeys(left))
    key, time, values = rows(left + right)
    n = len(left)
    whole = block_moments(Tracks.empty(2).take(key, time, values).block)
    a, b = Tracks.empty(2), Tracks.empty(2)
    first = block_moments(a.take(key[:n], time[:n], values[:n]).block)
    second = block_moments(b.take(key[n:], time[n:], values[n:]).block)
    between, shared, overlaps = a.merge(b)
    assert overlaps == 0
    assert shared == len(set(key[:n]) & set(key[n:]))
    assert_same_moments(first + second + block_moments(between), whole)


def test_a_repeated_record_is_compared_with_the_one_that_was_kept():
    tracks = Tracks.empty(1)
    key, time = np.zeros(4, np.int64), np.array([0, 1, 1, 1])
    taken = tracks.take(key, time, np.array([[1.0], [2], [2], [5]]))
    assert taken.repeated.tolist() == [2, 3]
    assert taken.conflicting.tolist() == [3]


def test_tracks_survive_storing_and_renumbering():
    key, time, values = rows([(0, 0), (0, 1), (2, 5), (1, 1)])
    tracks = Tracks.empty(2)
    tracks.take(key, time, values)
    again = Tracks.from_arrays(2, tracks.to_arrays())
    assert again.stop.tolist() == tracks.stop.tolist()
    part = again.renumbered(np.array([1, -1, 0]))
    assert part.key.tolist() == [0, 1]
    assert part.start.tolist() == [5, 0]
    assert part.open_time.tolist() == [5, 0, 1]


def test_times_too_far_apart_are_refused_before_numbers_overflow():
    with pytest.raises(am.InputError, match="check the time column and its step"):
        Tracks.empty(1).take(np.array([0, 9]), np.array([0, 2**60]), np.ones((2, 1)))
