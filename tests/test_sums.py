"""Sums and states against the definition, for any order, split, repetition and merge tree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import assert_same_moments, moments
from test_moments import array_records

import aggmc_beam as am
from aggmc_beam.chain import as_chain
from aggmc_beam.sums.jackknife import Extent, Replicates
from aggmc_beam.sums.profile import LEFT1, RECORDS, RIGHT1
from aggmc_beam.sums.records import Records, joined_records
from aggmc_beam.sums.spec import SumSpec
from aggmc_beam.sums.state import AggregationState
from aggmc_beam.sums.steps import MAX_BINS

CHAINS = ["stationary", "per-step", am.Window(4, 2), am.Window(6, 4), am.Cycle(3)]


def counts_with_gaps(seed=0, shape=(5, 12, 3)):
    rng = np.random.default_rng(seed)
    y = rng.poisson(20, shape).astype(float)
    y[rng.random(shape[:2]) < 0.15] = np.nan
    return y


def state_of(spec, blocks):
    state = AggregationState(spec)
    state.expect(joined_records(blocks).extents() if blocks else {})
    for block in blocks:
        state.add(block)
    return state


def cut(records, seed, parts):
    """The records in any order, in that many blocks, some of them twice."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(records))
    again = rng.choice(order, len(order) // 4)
    return [records.take(at) for at in np.array_split(np.concatenate([order, again]), parts)], len(again)


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_every_pair_is_in_the_cell_of_its_left_row_and_none_is_lost(chain):
    y, chain = counts_with_gaps(), as_chain(chain)
    sums = am.Sums.of(y, chain)
    records = array_records(y)
    assert_same_moments(sums.total, moments(records, 3))
    for cell in sums.cells:
        parts = sums.by_replicate([cell]).values()
        left = [(k, t) for k, t in records if chain.cells(np.array([t]))[0] == cell]
        assert sum(m.records for m in parts) == len(left)
        assert sum(m.pairs for m in parts) == sum((k, t + 1) in records for k, t in left)
        assert sum(m.lag2.pairs for m in parts) == sum((k, t + 2) in records for k, t in left)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("weight", [None, np.array([2.0, 5.0, 3.0])])
def test_labels_of_more_rows_than_are_multiplied_at_once_hold_them_all(whole, weight):
    """Segments of unlike lengths, in single precision and in double."""
    rng = np.random.default_rng(2)
    y = rng.poisson(20, (3, 1300, 2)).astype(float) + (0.0 if whole else 0.25)
    y[0, 900:] = y[1, 100:101] = np.nan
    records = array_records(y)
    sums = am.Sums.of(y, as_chain(am.Cycle(2)), weight=weight, replicates=2)
    weights = None if weight is None else dict(enumerate(weight))
    assert_same_moments(sums.total, moments(records, 2, weights))
    cells = [sums.by_replicate([cell]) for cell in sums.cells]
    parts = [m for found in cells for m in found.values()]
    assert len({m.records for m in parts}) > 2
    assert max(m.records for m in parts) > 600
    expected = sum(np.outer(v, v) * (1 if weight is None else weight[k]) for (k, _), v in records.items())
    zero = np.zeros(2)
    np.testing.assert_allclose(sum(m.lag0.product_about(zero, zero) for m in parts), expected, rtol=1e-12)


def test_windows_hold_exactly_the_pairs_that_start_in_them():
    y, window = counts_with_gaps(1), am.Window(6, 4)
    sums = am.Sums.of(y, window)
    records = array_records(y)
    for start, panes in window.groups(sums.cells):
        found = sum(m.pairs for m in sums.by_replicate(panes).values())
        inside = [(k, t) for k, t in records if start <= t < start + 6 and (k, t + 1) in records]
        assert found == len(inside)


@given(st.integers(0, 10**6), st.sampled_from(CHAINS), st.booleans(), st.integers(1, 5), st.booleans())
def test_a_state_holds_the_sums_of_its_distinct_records_however_they_come(seed, chain, whole, parts, shares):
    """In any order, repeated, in blocks or in states that are merged: against brute force, and whole counts to
    the bit."""
    rng = np.random.default_rng(seed)
    y = counts_with_gaps(seed, (4, 9, 2))
    if not whole:
        y += rng.random(y.shape)
    N = rng.integers(200, 300, 4).astype(float) if shares else None
    spec = SumSpec.plan(
        ("a", "b"), as_chain(chain), am.Binomial(0.5), "estimate" if shares else 200, shares, replicates=3
    )
    records = Records.of_array(y, N)
    blocks, again = cut(records, seed, parts)
    state = state_of(spec, blocks)
    expected = array_records(y if N is None else y / N[:, None, None])
    assert_same_moments(
        state.sums.total, moments(expected, 2, None if N is None else dict(enumerate(N))), 1e-10
    )
    assert state.sums.total.counts.duplicates == again
    once = state_of(spec, [records])
    if whole and not shares:
        assert state.to_bytes() == state.from_bytes(state.to_bytes()).to_bytes()
        assert state.sums.counted(am.Sums.zero(2).total.counts).to_bytes() is not None
        assert np.array_equal(state.sums.canonical().product, once.sums.canonical().product)
        assert np.array_equal(state.sums.canonical().ends, once.sums.canonical().ends)


@given(st.integers(0, 10**6), st.sampled_from(CHAINS), st.integers(2, 5), st.booleans())
def test_states_of_separate_records_add_up_in_any_tree(seed, chain, parts, shares):
    """Parts that share realizations, and parts whose populations are known or alike."""
    rng = np.random.default_rng(seed)
    y = counts_with_gaps(seed, (4, 9, 2))
    N = rng.choice([100.0, 150.0], 4) if shares else None
    spec = SumSpec.plan(
        ("a", "b"), as_chain(chain), am.Binomial(0.5), "estimate" if shares else 200, shares, replicates=3
    )
    records = Records.of_array(y, N)
    states = []
    for at in np.array_split(rng.permutation(len(records)), parts):
        state = AggregationState(spec)
        state.expect(records.extents())
        state.add(records.take(at))
        states.append(state)
    while len(states) > 1:
        a, b = states.pop(rng.integers(len(states))), states.pop(rng.integers(len(states)))
        states.append(a + b)
    [state] = states
    expected = array_records(y if not state.of_shares else y / N[:, None, None])
    weights = dict(enumerate(N)) if state.of_shares else None
    assert_same_moments(state.sums.total, moments(expected, 2, weights), 1e-10)
    again = AggregationState.from_bytes(state.to_bytes())
    assert again.to_bytes() == state.to_bytes()
    assert len(state.add(records).repeated) == len(records)
    assert_same_moments(state.sums.total, moments(expected, 2, weights), 1e-10)


def test_steps_that_two_states_both_hold_are_counted_as_overlaps():
    spec = SumSpec.plan(("a", "b"), as_chain("stationary"), am.Exact(), 100, replicates=2)
    records = Records.of_array(counts_with_gaps(shape=(3, 9, 2)))
    a, b = state_of(spec, [records]), state_of(spec, [records])
    assert (a + b).sums.total.counts.overlaps == len(records)
    assert (a + b).sums.total.counts.realizations == 3


def test_groups_keep_their_records_apart():
    spec = SumSpec.plan(
        ("a", "b", "c"), as_chain(am.Cycle(3)), am.Exact(), 100, group_by=("region",), replicates=2
    )
    ys = [counts_with_gaps(seed) for seed in range(3)]
    blocks = []
    for name, y in zip("xyz", ys, strict=True):
        block = Records.of_array(y)
        blocks.append(
            Records(block.realization, block.time, block.counts, block.names, block.group_of, ((name,),))
        )
    both = joined_records(blocks)
    order = np.random.default_rng(0).permutation(len(both))
    state = state_of(spec, [both.take(order[:50]), both.take(order[50:])])
    assert state.groups == [("x",), ("y",), ("z",)]
    for g, y in enumerate(ys):
        assert_same_moments(state.sums.of_group(g).total, moments(array_records(y), 3))
    again = AggregationState.from_bytes(state.to_bytes())
    assert again.to_bytes() == state.to_bytes()
    assert_same_moments(again.sums.of_group(1).total, state.sums.of_group(1).total)


def test_six_digits_survive_a_population_of_a_billion_when_parts_with_other_centres_merge():
    rng = np.random.default_rng(3)
    y = np.round(1e9 + rng.normal(0, 1, (40, 30, 3)) + rng.integers(-1000, 1000, (40, 1, 1)) * 1e3)
    spec = SumSpec.plan(("a", "b", "c"), as_chain("stationary"), am.Gaussian(1), 3e9, replicates=5)
    records = Records.of_array(y)
    states = []
    for k in range(40):
        state = AggregationState(spec)
        state.expect(records.extents())
        state.add(records.take(np.flatnonzero(records.realization == k)))
        states.append(state)
    total = states[0]
    for state in states[1:]:
        total = total + state
    found, expected = total.sums.total, moments(array_records(y), 3)
    for name in ("lag0", "lag1", "lag2"):
        np.testing.assert_allclose(getattr(found, name).product, getattr(expected, name).product, rtol=1e-9)


def test_one_giant_count_among_others_costs_only_its_own_digits():
    y = counts_with_gaps(5, (3, 40, 2)) + 1e11
    y[1, 7] = 1e29
    sums = am.Sums.of(y, replicates=3)
    assert_same_moments(sums.total, moments(array_records(y), 2), 1e-9)


def test_the_profile_holds_the_mean_of_each_step():
    y = counts_with_gaps(3)
    profile = am.Sums.of(y).profile
    for t, means, number in zip(profile.bins, profile.means, profile.number, strict=True):
        seen = y[~np.isnan(y[:, t, 0]), t]
        np.testing.assert_allclose(means[RECORDS], seen.mean(0), rtol=1e-12)
        if t + 1 < 12:
            both = ~np.isnan(y[:, t, 0]) & ~np.isnan(y[:, t + 1, 0])
            assert number[1] == both.sum()
            np.testing.assert_allclose(means[LEFT1], y[both, t].mean(0), rtol=1e-12)
            np.testing.assert_allclose(means[RIGHT1], y[both, t + 1].mean(0), rtol=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_profiles_of_replicates_have_the_means_of_their_own_pairs(seed, blocks):
    """Also where blocks of time end, so that the two rows of a pair are of different replicates."""
    y = counts_with_gaps(seed, (3, 11, 2))
    sums = am.Sums.of(y, replicates=3 * blocks)
    key, time = np.nonzero(~np.isnan(y[..., 0]))
    rule = Replicates.for_group(as_chain("stationary"), 2, Extent(3, len(key), 0, 10), 3 * blocks)
    label = dict(
        zip(zip(key.tolist(), time.tolist(), strict=True), rule.labels(key, time).tolist(), strict=True)
    )
    seen = ~np.isnan(y[..., 0])
    for replicate, profile in sums.profiles.items():
        for row, t in enumerate(profile.bins):
            for kind, (lag, shift) in enumerate([(0, 0), (1, 0), (1, 1), (2, 0), (2, 2)]):
                found = [
                    y[k, t + shift]
                    for k in range(3)
                    if label.get((k, t)) == replicate and t + lag < 11 and seen[k, t + lag]
                ]
                assert profile.number[row, lag] == len(found)
                if found:
                    np.testing.assert_allclose(profile.means[row, kind], np.mean(found, 0), rtol=1e-12)


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_taking_out_the_movement_of_the_means_centres_step_by_step(lag):
    y = np.random.default_rng(4).poisson(20, (6, 9, 3)) + 5.0 * np.arange(9)[:, None]
    sums = am.Sums.of(y)
    centred = y - y.mean(0)
    expected = sum(centred[:, t].T @ centred[:, t + lag] for t in range(9 - lag))
    product = getattr(sums.total, f"lag{lag}").product
    np.testing.assert_allclose(product - sums.profile.between(lag), expected, rtol=1e-9)


@given(st.integers(1, 3 * MAX_BINS), st.integers(1, 5))
def test_a_long_profile_is_bounded_and_does_not_depend_on_the_order_of_merging(T, parts):
    y = np.arange(T, dtype=float)
    spec = SumSpec.plan(("a",), as_chain("stationary"), am.Exact(), 1e9, replicates=2)
    zeros = np.zeros(T, np.int64)
    records = Records(zeros, np.arange(T), y[:, None], np.zeros(1, np.int64), np.zeros(1, np.int64))
    pieces = []
    for at in np.array_split(np.arange(T), parts):
        state = AggregationState(spec)
        state.expect(records.extents())
        state.add(records.take(at))
        pieces.append(state)
    forward, backward = AggregationState(spec), AggregationState(spec)
    for a, b in zip(pieces, reversed(pieces), strict=True):
        forward, backward = forward + a, backward + b
    one, other = forward.sums.profile, backward.sums.profile
    assert len(one.bins) <= MAX_BINS
    assert one.width == other.width
    assert np.array_equal(one.bins, other.bins)
    np.testing.assert_allclose(one.means[:, 0], other.means[:, 0], rtol=1e-12)
    np.testing.assert_allclose(one.mean(RECORDS), y.mean(), atol=1e-9)


@given(st.integers(0, 10**6), st.integers(-2, 27), st.integers(0, 27))
def test_a_stretch_of_a_profile_has_all_its_means(seed, start, length):
    y = counts_with_gaps(seed, (5, 25, 2))
    whole = am.Sums.of(y).profile
    part = whole.between_steps(start, start + length)
    at = np.isin(whole.bins, part.bins)
    assert np.array_equal(part.bins, whole.bins[(whole.bins >= start) & (whole.bins < start + length)])
    np.testing.assert_array_equal(part.means, whole.means[at])


def test_few_realizations_are_cut_into_blocks_of_time_and_many_are_dealt_out():
    key, time = np.divmod(np.arange(3 * 100), 100)
    few = Replicates.plan(3, 100, 50).labels(key, time)
    assert len(np.unique(few)) == 51
    assert all(len(np.unique(key[few == g])) == 1 for g in np.unique(few))
    key, time = np.divmod(np.arange(120 * 2), 2)
    many = Replicates.plan(120, 2, 50).labels(key, time)
    assert np.array_equal(np.bincount(many) // 2, [3] * 20 + [2] * 30)
    assert Replicates.plan(1, 3, 50).labels(np.zeros(3, int), np.arange(3)).tolist() == [0, 0, 0]
    shifted = Replicates.plan(3, 100, 50, start=1000).labels(key[:10], time[:10] + 1000)
    assert np.array_equal(shifted, Replicates.plan(3, 100, 50).labels(key[:10], time[:10]))
    with pytest.raises(am.InputError, match="at least 1"):
        Replicates.plan(3, 100, 0)


def test_populations_that_are_alike_leave_whole_counts_whole_until_they_differ():
    y = counts_with_gaps(6, (4, 9, 2))
    spec = SumSpec.plan(
        ("a", "b"), as_chain("stationary"), am.Binomial(0.5), has_populations=True, replicates=2
    )
    state = AggregationState(spec)
    first = Records.of_array(y, np.full(4, 250.0))
    state.expect(first.extents())
    state.add(first)
    assert not state.of_shares
    assert (state.sums.product == np.rint(state.sums.product)).all()
    other = Records.of_array(counts_with_gaps(7, (1, 9, 2)), np.array([500.0]))
    state.add(Records(other.realization, other.time, other.counts, np.array([9]), other.group_of,
                      population=other.population))  # fmt: skip
    assert state.of_shares
    records = array_records(y / 250) | {(9, t): v / 2 for (_, t), v in array_records(
        counts_with_gaps(7, (1, 9, 2)) / 250).items()}  # fmt: skip
    weights = {0: 250.0, 1: 250.0, 2: 250.0, 3: 250.0, 9: 500.0}
    assert_same_moments(state.sums.total, moments(records, 2, weights), 1e-10)


def test_sums_of_other_states_or_chains_are_not_joined():
    with pytest.raises(am.InputError, match="3 states cannot join sums of 2"):
        am.Sums.zero(2) + am.Sums.zero(3)
    a = AggregationState(SumSpec(("a", "b"), as_chain("stationary")))
    for spec, what in (
        (SumSpec(("a", "c"), as_chain("stationary")), "states differ"),
        (SumSpec(("a", "b"), am.Cycle(3)), "chains differ"),
        (SumSpec(("a", "b"), as_chain("stationary"), group_by=("region",)), "columns of groups differ"),
        (SumSpec(("a", "b"), as_chain("stationary"), populations="totals"), "rules of populations differ"),
    ):
        with pytest.raises(am.InputError, match=what):
            a + AggregationState(spec)
