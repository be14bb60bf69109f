import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import assert_same_moments, moments
from test_moments import array_records

import aggmc_beam as am
from aggmc_beam.chain import as_chain
from aggmc_beam.digest import Replicates
from aggmc_beam.pairing import Block
from aggmc_beam.profile import LEFT1, MAX_BINS, RECORDS, RIGHT1, Profile, add_profiles

CHAINS = ["stationary", "per-step", am.Window(4, 2), am.Window(6, 4), am.Cycle(3)]


def counts_with_gaps(seed=0, shape=(5, 12, 3)):
    rng = np.random.default_rng(seed)
    y = rng.poisson(20, shape).astype(float)
    y[rng.random(shape[:2]) < 0.15] = np.nan
    return y


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_every_pair_is_in_the_cell_of_its_left_end_and_none_is_lost(chain):
    y, chain = counts_with_gaps(), as_chain(chain)
    digest = am.Digest.of(y, chain)
    records = array_records(y)
    assert_same_moments(digest.total, moments(records, 3))
    for cell in digest.cells:
        parts = digest.by_replicate([cell]).values()
        left = [(k, t) for k, t in records if chain.cells(np.array([t]))[0] == cell]
        assert sum(m.records for m in parts) == len(left)
        assert sum(m.pairs for m in parts) == sum((k, t + 1) in records for k, t in left)
        assert sum(m.lag2.pairs for m in parts) == sum((k, t + 2) in records for k, t in left)


def test_windows_hold_exactly_the_pairs_that_start_in_them():
    y, window = counts_with_gaps(1), am.Window(6, 4)
    digest = am.Digest.of(y, window)
    records = array_records(y)
    for start, panes in window.groups(digest.cells):
        found = sum(m.pairs for m in digest.by_replicate(panes).values())
        inside = [(k, t) for k, t in records if start <= t < start + 6 and (k, t + 1) in records]
        assert found == len(inside)


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_digests_of_separate_realizations_add_up(chain):
    y, chain = counts_with_gaps(2, (24, 8, 2)), as_chain(chain)
    half = np.full_like(y, np.nan)
    first, second = np.where(np.arange(24)[:, None, None] < 11, y, half), y.copy()
    second[:11] = np.nan
    both = am.Digest.of(first, chain) + am.Digest.of(second, chain)
    whole = am.Digest.of(y, chain)
    assert both.parts.keys() == whole.parts.keys()
    for key, expected in whole.parts.items():
        assert_same_moments(both.parts[key], expected)
    np.testing.assert_allclose(both.profile.means, whole.profile.means, rtol=1e-12)
    assert np.array_equal(both.profile.number, whole.profile.number)


def test_the_profile_holds_the_mean_of_each_step():
    y = counts_with_gaps(3)
    profile = am.Digest.of(y).profile
    for t, means, number in zip(profile.bins, profile.means, profile.number, strict=True):
        seen = y[~np.isnan(y[:, t, 0]), t]
        np.testing.assert_allclose(means[RECORDS], seen.mean(0), rtol=1e-12)
        if t + 1 < 12:
            both = ~np.isnan(y[:, t, 0]) & ~np.isnan(y[:, t + 1, 0])
            assert number[1] == both.sum()
            np.testing.assert_allclose(means[LEFT1], y[both, t].mean(0), rtol=1e-12)
            np.testing.assert_allclose(means[RIGHT1], y[both, t + 1].mean(0), rtol=1e-12)


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_taking_out_the_movement_of_the_means_centres_step_by_step(lag):
    y = np.random.default_rng(4).poisson(20, (6, 9, 3)) + 5.0 * np.arange(9)[:, None]
    digest = am.Digest.of(y)
    centred = y - y.mean(0)
    expected = sum(centred[:, t].T @ centred[:, t + lag] for t in range(9 - lag))
    product = getattr(digest.total, f"lag{lag}").product
    np.testing.assert_allclose(product - digest.profile.between(lag), expected, rtol=1e-9)


@given(st.integers(1, 3 * MAX_BINS), st.integers(1, 5))
def test_a_long_profile_is_bounded_and_does_not_depend_on_the_order_of_merging(T, parts):
    y = np.arange(T, dtype=float)[:, None]
    cuts = np.array_split(np.arange(T), parts)
    pieces = [Profile.labelled(Block(y[c], c), np.zeros(len(c), int)).get(0, Profile.zero(1)) for c in cuts]
    forward, backward = Profile.zero(1), Profile.zero(1)
    for a, b in zip(pieces, reversed(pieces), strict=True):
        forward, backward = forward + a, backward + b
    assert len(forward.bins) <= MAX_BINS
    assert forward.width == backward.width
    assert np.array_equal(forward.bins, backward.bins)
    np.testing.assert_allclose(forward.means[:, 0], backward.means[:, 0], rtol=1e-12)
    np.testing.assert_allclose(forward.mean(RECORDS), y.mean(), atol=1e-9)


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


def test_means_of_ends_are_stored_only_where_a_record_has_no_partner():
    y = np.random.default_rng(5).poisson(20, (40, 30, 3)).astype(float)
    profile = am.Digest.of(y, replicates=4).profile
    assert not len(profile.odd)
    y[3, 10] = np.nan  # those at steps 8, 9, 11 and 12 lose a partner
    assert len(am.Digest.of(y, replicates=4).profile.odd) == 4


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 8]))
def test_profiles_add_up_however_they_are_cut_and_padded(seed, width):
    """Against means straight from the definition, with gaps, missing steps and bins of several steps."""
    rng = np.random.default_rng(seed)
    y = rng.poisson(20, (9, 25, 2)).astype(float)
    y[rng.random(y.shape[:2]) < rng.choice([0.0, 0.02, 0.5])] = np.nan
    y[:, rng.random(25) < 0.2] = np.nan
    parts = [y.copy() for _ in range(3)]
    for k, owner in enumerate(rng.integers(0, 3, 9)):
        for i in range(3):
            parts[i][k] = y[k] if i == owner else np.nan
    added = sum((am.Digest.of(p).profile for p in parts), Profile.zero(2)).coarsened(width)
    arrays = am.Digest(2, {}, {0: added}).to_arrays()
    added = am.Digest.from_arrays(2, arrays).profiles[0]
    seen = ~np.isnan(y[..., 0])
    for row, b in enumerate(added.bins):
        for kind, (lag, shift) in enumerate([(0, 0), (1, 0), (1, 1), (2, 0), (2, 2)]):
            found = [
                y[k, t + shift]
                for k in range(9)
                for t in range(b * width, min((b + 1) * width, 25 - lag))
                if seen[k, t] and seen[k, t + lag]
            ]
            assert added.number[row, lag] == len(found)
            if found:
                np.testing.assert_allclose(added.means[row, kind], np.mean(found, 0), rtol=1e-12)


@given(st.integers(0, 10**6), st.integers(-2, 27), st.integers(0, 27))
def test_a_stretch_of_a_profile_has_all_its_means(seed, start, length):
    y = counts_with_gaps(seed, (5, 25, 2))
    whole = am.Digest.of(y).profile
    part = whole.between_steps(start, start + length)
    at = np.isin(whole.bins, part.bins)
    assert np.array_equal(part.bins, whole.bins[(whole.bins >= start) & (whole.bins < start + length)])
    np.testing.assert_array_equal(part.means, whole.means[at])


@given(st.integers(0, 10**6), st.sampled_from([1, 4]))
def test_a_few_bins_are_added_where_they_belong(seed, width):
    """As a stream does, against the sum of whole profiles."""
    rng = np.random.default_rng(seed)
    y = rng.poisson(20, (4, 60, 2)).astype(float)
    y[rng.random(y.shape[:2]) < rng.choice([0.0, 0.1])] = np.nan
    late = np.full((1, 60, 2), np.nan)
    start = rng.integers(0, 57)
    late[0, start : start + 3] = rng.poisson(20, (3, 2))
    many, few = (am.Digest.of(part).profile.coarsened(width) for part in (y, late))
    expected = add_profiles([many, few], 2)
    for found in (many + few, few + many):
        assert found.checked()
        assert np.array_equal(found.bins, expected.bins)
        assert np.array_equal(found.number, expected.number)
        np.testing.assert_allclose(found.means, expected.means, rtol=1e-13)


def test_very_many_states_have_fewer_jackknife_groups_on_every_road(tmp_path, monkeypatch):
    import frames

    from aggmc_beam import digest
    from aggmc_beam.beam.running import stream_rule
    from aggmc_beam.config import read_config
    from aggmc_beam.local.engine import Plan, sum_plan

    monkeypatch.setattr(digest, "MATRICES", 4 * 3**2 * 25)
    y = frames.counts(K=60, T=5)
    assert len(am.Digest.of(y).replicates) == 25
    assert len(am.Digest.of(y, replicates=40).replicates) == 40
    plan = Plan.open(read_config(frames.config(frames.save(frames.wide(y), tmp_path / "data.csv"))))
    total, _, _ = sum_plan(plan)
    assert total.rules[0] == digest.Replicates(25)
    assert stream_rule(plan) == digest.Replicates(25)
