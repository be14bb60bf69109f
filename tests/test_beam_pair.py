"""The pairing stage of streams, bundle by bundle."""

from __future__ import annotations

import json

import bundles
import frames
import numpy as np
import pytest
from apache_beam.transforms.window import GlobalWindow

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions, Stream, joining
from aggmc_beam.beam.combiners import MomentsFn
from aggmc_beam.beam.pair import FORGOTTEN, Pair, by_realization
from aggmc_beam.beam.timing import Timing
from aggmc_beam.chain import Stationary
from aggmc_beam.digest import Digest, Replicates
from aggmc_beam.moments import add_moments
from aggmc_beam.records import Record

TTL = 1000
STATES = [bundles.Worker, bundles.AtOnce]


def pair(shards=1, **options):
    made = EstimateTransitions(frames.STATES, am.Binomial(0.5), 200, "mom", stream=Stream(), **options)
    return Pair(made.plan, Timing(ttl=TTL), shards)


def elements(y):
    """[K][T] of what comes for each record."""
    return [[by_realization(Record(str(k), t, y[k, t])) for t in range(y.shape[1])] for k in range(len(y))]


def summed(driver):
    fn = MomentsFn(3, Stationary(), Replicates(1))
    total = fn.create_accumulator()
    for handed_on in driver.deltas:
        fn.add_input(total, handed_on.value[1])
    return total


def assert_sums_of(driver, y, duplicates=0):
    found, expected = summed(driver), Digest.of(y).total
    total = add_moments(3, found.parts.values())
    assert (total.records, total.pairs, total.counts.realizations) == (
        expected.records,
        expected.pairs,
        expected.counts.realizations,
    )
    assert found.counts.duplicates == duplicates
    for lag in ("lag0", "lag1", "lag2", "ends"):
        products = getattr(total, lag).product, getattr(expected, lag).product
        np.testing.assert_allclose(*products, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("states", STATES)
def test_what_changes_in_a_bundle_is_known_in_the_next(states):
    y = frames.counts(K=3, T=12)
    given = [(one, 0) for k in elements(y) for one in k]
    given = [given[i] for i in np.random.default_rng(3).permutation(len(given))]
    driver = bundles.Driver(pair(), states())
    for i in range(0, len(given), 9):
        driver.bundle(*given[i : i + 9], *given[max(0, i - 4) : i + 2])  # of the bundle before, and its own
    assert_sums_of(driver, y, duplicates=4 * 2 + 3 * 4)
    [known] = driver.known(given[0][0][0])
    assert known.track.covered.intervals() == [(0, 11)]


def test_state_is_read_once_written_once_and_cleared_only_if_there_was_some():
    [own] = elements(frames.counts(K=1, T=9))
    worker = bundles.Worker()
    driver = bundles.Driver(pair(), worker)
    driver.bundle(*((one, 0) for one in own[:5]))
    assert worker.far.asked == {"get": 1, "append": 1}
    driver.bundle(*((one, 0) for one in own[5:]))
    assert worker.far.asked == {"get": 1, "append": 2, "clear": 1}


@pytest.mark.parametrize("states", STATES)
def test_a_bundle_that_fails_leaves_nothing_behind(states):
    y = frames.counts(K=1, T=10)
    [own] = elements(y)
    driver = bundles.Driver(pair(), states())
    for start in range(0, 10, 2):
        for fail in (True, True, False):
            driver.bundle(*((one, start) for one in own[start : start + 2]), fail=fail)
    assert_sums_of(driver, y)


@pytest.mark.parametrize("states", STATES)
def test_a_realization_may_be_forgotten_in_the_bundle_that_brings_more_of_it(states):
    y = frames.counts(K=1, T=10)
    [own] = elements(y)
    key = own[0][0]
    driver = bundles.Driver(pair(), states())
    driver.bundle((own[0], 0), (own[1], 10))
    assert [t.micros for t in driver.timers.due] == [TTL]
    driver.bundle((own[2], 500), (key, TTL))  # heard of since
    assert [t.micros for t in driver.timers.due] == [TTL, 500 + TTL]
    driver.bundle((own[3], 500), (key, 500 + TTL), (own[1], 3000), (own[8], 3000), (own[9], 3001))
    assert [r["reason"] for r in driver.rejected] == [FORGOTTEN]
    [known] = driver.known(key)
    assert (known.newest, known.floor, known.track.covered.intervals()) == (3001, 4, [(8, 9)])
    assert (summed(driver).records, summed(driver).counts.late) == (6, 1)


def test_arrivals_are_handed_on_together_by_group_and_shard(monkeypatch):
    monkeypatch.setattr(joining, "TOGETHER", 4)
    y = frames.counts(K=3, T=3)
    driver = bundles.Driver(pair(shards=2), bundles.Worker())
    driver.bundle(*((one, 10 - t) for t, step in enumerate(zip(*elements(y), strict=True)) for one in step))
    keys = [json.loads(handed_on.value[0]) for handed_on in driver.deltas]
    assert keys == [["[]", shard] for shard in (0, 1, 1, 0, 0)]
    assert [d.value[1].numbers.tolist() for d in driver.deltas] == [[0, 2, 0], [1], [1, 1], [2, 0], [2]]
    # Whatever is handed on is as early as the earliest in it, and the ledger knows the newest.
    assert [d.timestamp.micros for d in driver.deltas] == [9, 9, 8, 8, 8]
    assert {w for d in driver.deltas for w in d.windows} == {GlobalWindow()}
    assert [ledger.value[1][:2] for ledger in driver.ledgers] == [(4, 4), (4, 4), (1, 1)]
    assert [ledger.value[1][6] for ledger in driver.ledgers] == [10, 9, 8]
    assert_sums_of(driver, y)
