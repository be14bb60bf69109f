import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import assert_same_moments, moments

import aggmc_beam as am
from aggmc_beam.digest import add_moments
from aggmc_beam.moments import Moments
from aggmc_beam.track import Steps, Track


def value(t, S=2):
    """A fixed, irregular record of step t, so that duplicates carry the same counts."""
    return np.random.default_rng(t + 1000).poisson(30, S).astype(float)


def records(times):
    return {(0, t): value(t) for t in times}


arrivals = st.lists(st.lists(st.integers(-6, 12), max_size=8), max_size=6)


@given(arrivals)
def test_any_order_split_and_duplication_gives_the_sums_of_the_distinct_records(blocks):
    track = Track(2)
    deltas = [track.extend(np.array(b, int), np.array([value(t) for t in b]).reshape(-1, 2)) for b in blocks]
    found = add_moments(2, deltas)
    distinct = {t for b in blocks for t in b}
    assert_same_moments(found, moments(records(distinct), 2))
    assert found.counts.duplicates == sum(map(len, blocks)) - len(distinct)


@given(arrivals)
def test_a_record_is_remembered_only_while_a_neighbour_is_missing(blocks):
    track = Track(2)
    for b in blocks:
        track.extend(np.array(b, int), np.array([value(t) for t in b]).reshape(-1, 2))
    covered = {t for b in blocks for t in b}
    expected = {t for t in covered if {t - 2, t - 1, t + 1, t + 2} - covered}
    assert set(track.open) == expected
    assert len(track.covered) == len(covered)
    assert all(np.array_equal(row.values, value(t)) for t, row in track.open.items())


@given(st.lists(st.integers(0, 14), unique=True), st.integers(1, 5), st.randoms())
def test_any_merge_tree_of_disjoint_tracks_gives_the_sums_of_all(times, parts, random):
    tracks, total = [], Moments.zero(2)
    for part in range(parts):
        track, mine = Track(2), times[part::parts]
        total += track.extend(np.array(mine, int), np.array([value(t) for t in mine]).reshape(-1, 2))
        tracks.append(track)
    while len(tracks) > 1:
        random.shuffle(tracks)
        other = tracks.pop()
        total += tracks[-1].merge(other)
    assert_same_moments(total, moments(records(times), 2))
    # What comes after a merge finds its neighbours as if there had been one track.
    total += tracks[0].extend(np.array([20, 15]), np.array([value(20), value(15)]))
    assert_same_moments(total, moments(records([*times, 15, 20]), 2))


def test_overlap_of_merged_tracks_is_counted():
    a, b = Track(2), Track(2)
    a.extend(np.array([1, 2, 3]), np.array([value(t) for t in (1, 2, 3)]))
    b.extend(np.array([3, 4, 9]), np.array([value(t) for t in (3, 4, 9)]))
    joined = a.merge(b)
    assert joined.counts.overlaps == 1
    assert joined.lag1.pairs == 0  # (3, 4) was formed in b
    assert joined.lag2.pairs == 1  # (2, 4)


def test_weights_travel_with_open_records():
    track, N = Track(2), 40.0
    total = Moments.zero(2)
    for t in (0, 2, 1):
        total += track.extend(np.array([t]), value(t)[None], np.array([N]))
    assert_same_moments(total, moments(records(range(3)), 2, {0: N}))


def test_in_order_records_cost_four_rows_however_many_there_are():
    track = Track(2)
    for start in range(0, 3000, 100):
        times = np.arange(start, start + 100)
        track.extend(times, np.ones((100, 2)))
    assert len(track.open) == 4
    assert track.covered.intervals() == [(0, 2999)]


def test_an_open_record_does_not_keep_its_block_alive():
    track = Track(2)
    track.extend(np.arange(1000), np.ones((1000, 2)))
    assert all(row.values.base is None for row in track.open.values())


def test_random_single_arrivals_cost_about_as_much_each_whatever_came_before():
    """Counts work, not seconds: each arrival touches a bounded number of open records."""
    rng = np.random.default_rng(0)
    track, most = Track(1), 0
    for t in rng.permutation(10_000):
        block, _ = track.take(np.array([t]), np.ones((1, 1)))
        most = max(most, len(block.time))
    assert most <= 5
    assert track.covered.intervals() == [(0, 9999)]


def test_one_block_is_a_few_matrix_products_and_no_loop_over_records(monkeypatch):
    calls = 0
    plain = np.searchsorted

    def counting(*args, **kwargs):
        nonlocal calls
        calls += 1
        return plain(*args, **kwargs)

    monkeypatch.setattr(np, "searchsorted", counting)
    rng = np.random.default_rng(0)
    y = rng.poisson(10, (100_000, 10)).astype(float)
    track = Track(10)
    found = track.extend(np.arange(100_000), y)
    assert found.pairs == 99_999
    assert calls <= 4


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6))))
def test_steps_behave_like_a_set_of_integers(spans):
    steps, model = Steps(), set()
    for start, length in spans:
        missing = [t for a, b in steps.missing(start, start + length) for t in range(a, b + 1)]
        assert missing == [t for t in range(start, start + length + 1) if t not in model]
        steps.add(start, start + length)
        model |= set(range(start, start + length + 1))
    assert len(steps) == len(model)
    assert all((t in steps) == (t in model) for t in range(-1, 40))
    assert all(a[1] + 1 < b[0] for a, b in zip(steps.intervals(), steps.intervals()[1:], strict=False))


@pytest.mark.parametrize(
    ("times", "values", "message"),
    [
        ([0.5], [[1, 2]], "integer steps"),
        ([0], [[1, 2, 3]], r"values \[n, 2\]"),
        ([0, 1], [[1, 2]], r"values \[n, 2\]"),
    ],
)
def test_malformed_blocks_are_refused(times, values, message):
    with pytest.raises(am.InputError, match=message):
        Track(2).extend(np.array(times), np.array(values))


def test_tracks_of_other_states_do_not_merge():
    with pytest.raises(am.InputError, match="3 states cannot join one of 2"):
        Track(2).merge(Track(3))
