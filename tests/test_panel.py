"""The fast road of whole realizations against the general one, and against itself in other arithmetic."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from loops import ROADS, numpy_alone

from aggmc_beam import lagged, paneldigest, panelsums
from aggmc_beam.chain import Stationary
from aggmc_beam.digest import Digest
from aggmc_beam.pairing import Block
from aggmc_beam.panelsums import PanelSums
from aggmc_beam.tracks import Tracks

LABELS = 7
LAGS = ("lag0", "lag1", "lag2", "ends")


def deal(key):
    return key % LABELS


def records(K, T, missing=0.0, most=100, S=3, fractions=False, ragged=0, seed=0):
    """`ragged` realizations begin at steps of their own, so many apart at most."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, most, (K, T, S))
    seen = rng.random((K, T)) >= missing
    seen[:, 0] = True
    key, time = np.nonzero(seen)
    values = y[seen] + rng.random((len(key), S)) if fractions else y[seen]
    return key, time + rng.integers(0, ragged + 1, K)[key], values


def summed(key, time, values, parts=1, spread=map, start=0, order="C"):
    total = PanelSums(values.shape[1], LABELS, start, int(time.max()) - start + 1, spread)
    for keys in np.array_split(np.unique(key), parts):
        at = np.isin(key, keys)
        assert total.add(key[at], time[at], np.asarray(values[at], order=order), deal)
    return total.digest, total.tracks


def check_same(found, expected, scale):
    assert sorted(found.parts) == sorted(expected.parts)
    for part, moments in expected.parts.items():
        assert found.parts[part].counts == moments.counts
        assert found.parts[part].inverse_weight == moments.inverse_weight
        for lag in LAGS:
            a, b = getattr(found.parts[part], lag), getattr(moments, lag)
            assert (a.pairs, a.weight) == (b.pairs, b.weight)
            np.testing.assert_allclose([a.left, a.right], [b.left, b.right], rtol=1e-12)
            np.testing.assert_allclose(a.product, b.product, rtol=1e-10, atol=1e-12 * scale**2)
    assert sorted(found.profiles) == sorted(expected.profiles)
    for label, profile in expected.profiles.items():
        mine = found.profiles[label]
        np.testing.assert_array_equal(mine.bins, profile.bins)
        np.testing.assert_array_equal(mine.number, profile.number)
        used = profile.weight[:, [0, 1, 1, 2, 2]] > 0
        np.testing.assert_allclose(mine.means[used], profile.means[used], rtol=1e-11)


def check_tracks(found, expected):
    for name in ("key", "start", "stop", "open_key", "open_time", "open_values", "open_weight"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_nothing_can_be_added_once_the_sums_were_handed_on():
    total = PanelSums(2, 1, 0, 4)
    key, time = np.zeros(2, np.int64), np.arange(2)
    assert total.add(key, time, np.eye(2), lambda k: 0 * k)
    assert total.digest is total.digest
    with pytest.raises(AssertionError):
        total.add(key + 1, time, np.eye(2), lambda k: 0 * k)


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("fractions", [False, True], ids=["whole", "fractions"])
@pytest.mark.parametrize("most", [100, 10**9], ids=["small", "large"])
@pytest.mark.parametrize("missing", [0, 0.05, 0.5])
@pytest.mark.parametrize(
    ("K", "T", "ragged"),
    [
        (30, 200, 0),
        (50, 10, 0),
        (20, 3, 0),
        (25, 1, 0),
        (12, 500, 0),
        (40, 12, 3),
        (40, 12, 100),
        (20, 90, 60),
    ],
)
def test_sums_profiles_and_tracks_are_those_of_the_general_road(
    K, T, ragged, missing, most, fractions, road, monkeypatch
):
    monkeypatch.setattr(panelsums, "BLOCK", 192)
    monkeypatch.setattr(paneldigest, "POOL", 3)
    key, time, values = records(K, T, missing, most, fractions=fractions, ragged=ragged)
    expected = Digest.of_block(Block(values, time, key), Stationary(), deal(key))
    tracks = Tracks.empty(3)
    tracks.take(key, time, values.astype(float))
    shuffled = np.random.default_rng(1).permutation(len(key))
    for order, parts, by, alike in (
        ("F", 1, slice(None), 1),
        ("C", 3, slice(None), 3),
        ("F", 2, shuffled, LABELS + 1),
    ):
        monkeypatch.setattr(paneldigest, "ALIKE", alike)
        with ROADS[road]():
            found, mine = summed(key[by], time[by], values[by], parts, order=order)
        check_same(found, expected, most)
        check_tracks(mine, tracks)


@pytest.mark.parametrize("states", [1, 2, 5, 16, 40, 97, 130])
def test_products_do_not_depend_on_how_many_places_are_multiplied_as_one_row(states):
    key, time, values = records(9, 70, 0.05, S=states)
    with numpy_alone():
        found = summed(key, time, values)[0]
    check_same(found, Digest.of_block(Block(values, time, key), Stationary(), deal(key)), 100)


def test_whole_numbers_give_the_same_bits_for_any_split_chunk_and_number_of_threads(monkeypatch):
    key, time, values = records(60, 90, 0.02)
    with ThreadPoolExecutor(4) as pool:
        found = {
            summed(key, time, values, parts, spread)[0].to_bytes()
            for parts in (1, 7)
            for spread in (map, pool.map)
        }
        for module, name, value in (
            (lagged, "WIDE", 1),
            (panelsums, "BLOCK", 150),
        ):
            monkeypatch.setattr(module, name, value)
            for road in ROADS.values():
                with road():
                    found.add(summed(key, time, values, 7, pool.map)[0].to_bytes())
    assert len(found) == 1


def test_fractions_give_the_same_bits_for_any_number_of_threads():
    key, time, values = records(60, 90, 0.02, fractions=True)
    with ThreadPoolExecutor(4) as pool:
        spread = summed(key, time, values, 3, pool.map)[0]
    assert spread.to_bytes() == summed(key, time, values, 3)[0].to_bytes()


def test_single_precision_is_taken_only_where_it_is_exact(monkeypatch):
    for most in (50, 200, 300, 5000):
        key, time, values = records(40, 300, 0.01, most)
        with numpy_alone():
            quick = summed(key, time, values)[0]
            monkeypatch.setattr(lagged, "SINGLE", 0.0)
            assert quick.to_bytes() == summed(key, time, values)[0].to_bytes()
        monkeypatch.undo()


def test_digits_survive_large_and_moving_counts():
    """Each block of realizations has a level of its own, and replicates must not see the others'."""
    key, time, values = records(35, 50, fractions=True)
    level = 1e9 * (1 + key // LABELS)[:, None]
    found = summed(key, time, values + level, 5)[0].parts[0, 0].lag1
    mine = key % LABELS == 0
    block = Block((values + level)[mine], time[mine], key[mine])
    expected = Digest.of_block(block, Stationary(), deal(key[mine])).parts[0, 0].lag1
    np.testing.assert_allclose(found.product, expected.product, rtol=1e-12)


@pytest.mark.parametrize(
    ("key", "time"),
    [
        ([0, 0, 0], [0, 1, 1]),
        ([0, 1, 0], [1, 0, 1]),
        ([0, 0, 1], [0, 1, 7]),
        ([0, 0, 1], [-1, 0, 1]),
    ],
    ids=["twice", "twice and apart", "beyond the steps", "before the steps"],
)
def test_repeated_records_and_steps_beyond_are_left_to_the_general_road(key, time):
    total = PanelSums(1, LABELS, 0, 5)
    assert not total.add(np.array(key), np.array(time), np.ones((3, 1)), deal)
    assert not total.digest.parts


def test_records_that_lie_too_far_apart_are_left_to_the_general_road():
    total = PanelSums(1, LABELS, 0, 4000)
    assert not total.add(np.array([0, 0, 1, 1]), np.array([0, 3000, 5, 2000]), np.ones((4, 1)), deal)
    assert total.add(np.array([0, 1, 0, 1]), np.array([1, 3000, 0, 3001]), np.ones((4, 1)), deal)
    assert total.digest.total.pairs == 2


def test_a_realization_that_goes_on_in_the_next_block_is_left_to_the_general_road():
    total = PanelSums(1, LABELS, 0, 5)
    assert total.add(np.array([0, 1]), np.array([0, 0]), np.ones((2, 1)), deal)
    assert not total.add(np.array([1]), np.array([1]), np.ones((1, 1)), deal)
