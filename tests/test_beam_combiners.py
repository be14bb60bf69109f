"""Combiners and coders of the Beam engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import oracle
import pytest
from combine_checks import check_combine_fn

import aggmc_beam as am
from aggmc_beam.beam import coders
from aggmc_beam.beam.combiners import GroupFn, ReachFn, TrackFn
from aggmc_beam.beam.values import Batch, Reach, without_tracks
from aggmc_beam.chain import Cycle, EachStep, Stationary
from aggmc_beam.digest import Digest, Replicates
from aggmc_beam.errors import InputError
from aggmc_beam.records import Record
from aggmc_beam.saved import Sums
from aggmc_beam.tracks import Tracks

STORED = Path(__file__).parent / "stored"
RULE = Replicates(3)


def part(y, names, key, time, chain, population=None):
    """The sums of some records."""
    tracks = Tracks.empty(y.shape[2])
    taken = tracks.take(key, time, y[key, time])
    labels = RULE.labels(taken.block.key, taken.block.time)
    digest = Digest.of_block(taken.block, chain, labels, taken.firsts)
    return Sums(None, digest, RULE, names, tracks, population)


def scattered(chain, K=3, T=10, parts=4, S=2):
    """The records of K realizations, dealt into parts at random."""
    y = am.simulate(states=S, steps=T, realizations=K, seed=2).counts
    key, time = (a.ravel() for a in np.mgrid[:K, :T])
    names = [f"r{k}" for k in range(K)]
    owner = np.random.default_rng(5).integers(0, parts, K * T)
    return y, [part(y, names, key[owner == p], time[owner == p], chain) for p in range(parts)]


def same_digest(found, expected):
    assert {p for p, m in found.parts.items() if m.records} == {
        p for p, m in expected.parts.items() if m.records
    }
    for at, moments in expected.parts.items():
        if moments.records:
            known = replace(found.parts[at], counts=moments.counts)
            oracle.assert_same_moments(known, moments)
    assert found.total.counts == expected.total.counts
    for replicate, profile in expected.profiles.items():
        np.testing.assert_array_equal(found.profiles[replicate].number, profile.number)
        used = profile.number[:, [0, 1, 1, 2, 2]] > 0
        np.testing.assert_allclose(found.profiles[replicate].means[used], profile.means[used], atol=1e-9)


def same_sums(found, expected):
    same_digest(found.digest, expected.digest)
    assert sorted(found.realizations) == sorted(expected.realizations)
    assert found.span == expected.span


@pytest.mark.parametrize("chain", [Stationary(), EachStep(), Cycle(3)], ids=lambda c: c.name)
def test_track_fn_joins_scattered_records_for_any_split_and_tree(chain):
    y, parts = scattered(chain)
    check_combine_fn(TrackFn(2, chain), parts, same_sums)
    fn = TrackFn(2, chain)
    records = {(k, t): y[k, t] for k in range(y.shape[0]) for t in range(y.shape[1])}
    oracle.assert_same_moments(fn.merge_accumulators(parts).digest.total, oracle.moments(records, 2))


def test_group_fn_adds_realizations_and_keeps_their_span():
    y = am.simulate(states=2, steps=9, realizations=3, seed=1).counts
    time = np.arange(9)
    alone = [
        without_tracks(
            part(y[k : k + 1], [f"r{k}"], np.zeros(9, int), time, Stationary(), np.array([10.0 * k]))
        )
        for k in range(3)
    ]

    def same(found, expected):
        same_digest(found.digest, expected.digest)
        assert found.span == expected.span
        if expected.population is not None:
            assert sorted(found.population) == sorted(expected.population)

    check_combine_fn(GroupFn(2, Stationary()), alone, same)


def test_reach_fn_tells_how_far_a_group_reaches():
    parts = [Reach(frozenset([f"r{k}"]), -k, k * k, (k % 2, 7 - k)) for k in range(5)]

    def same(found, expected):
        assert found == expected

    check_combine_fn(ReachFn(), parts, same)
    many = [Reach(frozenset([f"r{k}"]), 0, 1, (0, k), 3) for k in range(100)]
    whole = ReachFn().merge_accumulators(many)
    assert len(whole.names) == 20
    assert whole.rows == 300
    coder = coders.ReachCoder()
    assert coder.decode(coder.encode(whole)) == whole


def values():
    """One value for each coder, the same in every release."""
    _, parts = scattered(Cycle(3), T=5, parts=1)
    one = np.arange(2)
    batch = Batch(("north",), ("a", "ü"), one, one + 7, np.array([[1.0, 2], [3, 0.25]]), np.ones((2, 2), int))
    weighted = replace(batch, population=np.array([3.0, 4]), state=np.array([0, 1]), values=np.ones((2, 1)))
    return {
        "batch": (coders.BatchCoder(), batch),
        "batch-long": (coders.BatchCoder(), weighted),
        "sums": (coders.SumsCoder(), replace(parts[0], group={"region": "north"}, population=np.ones(3))),
        "record": (coders.RecordCoder(), Record("7", 3, np.array([1.0, 2.5]), 3.5, ("north",))),
        "reach": (coders.ReachCoder(), Reach(frozenset(["b", "a"]), 2, 9, (0, 3))),
    }


@pytest.mark.parametrize("name", values())
def test_bytes_of_the_first_release_are_still_read(name):
    coder, value = values()[name]
    data = (STORED / f"{name}.bin").read_bytes()
    found = coder.decode(data)
    assert type(found) is type(value)
    assert coder.encode(found) == data
    if isinstance(found, Sums):
        same_sums(found, value)
    else:
        assert coder.encode(value) == data


def test_a_batch_keeps_its_columns_and_their_few_bytes():
    coder, batch = values()["batch"]
    counts = np.array([[1, 300], [2, -300], [3, 0]], order="F")
    wide = replace(batch, key=np.array([0, 1, 1]), time=np.arange(3), values=counts, place=None)
    for given in (wide, replace(wide, place=np.ones((3, 2), int), population=np.ones(3))):
        found = coder.decode(coder.encode(given))
        assert (found.values.dtype, found.values.flags.f_contiguous) == (np.int16, True)
        assert (found.key.dtype, found.time.dtype) == (np.int64, np.int64)
        np.testing.assert_array_equal(found.values, counts)
        np.testing.assert_array_equal(found.population is None, given.population is None)
        np.testing.assert_array_equal(found.place, given.place)


@pytest.mark.parametrize("name", values())
def test_a_value_is_not_taken_for_another_version_or_kind(name):
    coder, value = values()[name]
    data = coder.encode(value)
    with pytest.raises(InputError, match="version 9"):
        coder.decode(b"\x09" + data[1:])
    with pytest.raises(InputError, match="kind 99"):
        coder.decode(data[:1] + b"\x63" + data[2:])
