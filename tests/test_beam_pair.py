"""The pairing stage of streams, bundle by bundle."""

from __future__ import annotations

import json
from dataclasses import replace

import bundles
import frames
import numpy as np
import pytest
from apache_beam.transforms.window import GlobalWindow

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions, Stream, joining
from aggmc_beam.beam.guard import by_realization
from aggmc_beam.beam.pair import FORGOTTEN, Pair
from aggmc_beam.beam.timing import Timing
from aggmc_beam.records import Record
from aggmc_beam.sums.kernel import find_pairs
from aggmc_beam.sums.sums import Sums

TTL = 1000
STATES = [bundles.Worker, bundles.AtOnce]


def pair(**options):
    options = {"replicates": 1, "stream": Stream(), **options}
    return Pair(
        EstimateTransitions(frames.STATES, am.Binomial(0.5), 200, "mom", **options).plan, Timing(ttl=TTL)
    )


def elements(y):
    """[K][T] of what comes for each record."""
    return [[by_realization(Record(str(k), t, y[k, t])) for t in range(y.shape[1])] for k in range(len(y))]


def summed(driver):
    """The sums of all that was handed on, delta by delta as shards keep them."""
    rule, parts = driver.pair.rule, {}
    for handed_on in driver.deltas:
        key, delta = handed_on.value
        parts.setdefault(json.loads(key)[1], []).append(delta)
    return rule.total(rule.sums(deltas, shard) for shard, deltas in parts.items())


def assert_sums_of(driver, y, duplicates=0):
    found, expected = summed(driver).sums.total, Sums.of(y, replicates=driver.pair.rule.spec.replicates).total
    assert (found.records, found.pairs, found.counts.realizations) == (
        expected.records,
        expected.pairs,
        expected.counts.realizations,
    )
    assert found.counts.duplicates == duplicates
    for lag in ("lag0", "lag1", "lag2", "ends"):
        products = getattr(found, lag).product, getattr(expected, lag).product
        np.testing.assert_array_equal(*products)


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
    assert (known.track.starts, known.track.stops) == ([0], [11])


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
    assert (known.newest, known.floor, known.track.starts, known.track.stops) == (3001, 4, [8], [9])
    assert (summed(driver).records, summed(driver).counts.late) == (6, 1)


def test_arrivals_are_handed_on_together_by_group_and_jackknife_group(monkeypatch):
    monkeypatch.setattr(joining, "TOGETHER", 4)
    y = frames.counts(K=3, T=3)
    driver = bundles.Driver(pair(replicates=2), bundles.Worker())
    driver.bundle(*((one, 10 - t) for t, step in enumerate(zip(*elements(y), strict=True)) for one in step))
    keys = [json.loads(handed_on.value[0]) for handed_on in driver.deltas]
    assert keys == [["[]", shard] for shard in (0, 1, 0, 1, 0)]
    deltas = [handed_on.value[1] for handed_on in driver.deltas]
    assert [d.numbers.tolist() for d in deltas] == [[0, 2], [1], [2, 0], [1], [2]]
    # Each row once: the first four records, then four with those before them, then the last with two.
    assert [d.time.tolist() for d in deltas] == [[0, 1, 0], [0], [0, 1, 0, 1, 2], [0, 1, 2], [0, 1, 2]]
    assert [d.mark.tolist() for d in deltas] == [[2, 0, 2], [2], [1, 0, 1, 1, 0], [1, 0, 0], [1, 1, 0]]
    # Whatever is handed on is as early as the earliest in it, and the ledger knows the newest.
    assert [d.timestamp.micros for d in driver.deltas] == [9, 9, 8, 8, 8]
    assert {w for d in driver.deltas for w in d.windows} == {GlobalWindow()}
    assert [ledger.value[1][:2] for ledger in driver.ledgers] == [(4, 4), (4, 4), (1, 1)]
    assert [ledger.value[1][6] for ledger in driver.ledgers] == [10, 9, 8]
    assert_sums_of(driver, y)


@pytest.mark.parametrize(
    "options", [{"replicates": 3}, {"replicates": 3, "block": 2}, {"chain": am.Cycle(4)}], ids=str
)
def test_jackknife_groups_that_are_summed_apart_are_those_of_the_whole(options):
    y = frames.counts(K=7, T=25)
    given = [(one, 0) for k in elements(y) for one in k]
    given = [given[i] for i in np.random.default_rng(3).permutation(len(given))]
    driver = bundles.Driver(pair(**options), bundles.Worker())
    for i in range(0, len(given), 30):
        driver.bundle(*given[i : i + 30])
    rule, found = driver.pair.rule, summed(driver).sums
    key, time = (a.ravel() for a in np.mgrid[:7, :25])
    expected = Sums.of_rows(y.reshape(-1, 3), time, key, find_pairs(key, time), 0 * key, rule.spec.chain,
                            rule.replicates.labels(key, time))  # fmt: skip
    # Realizations are counted where they are met first, which is elsewhere.
    assert found.realizations.sum() == expected.realizations.sum()
    found, expected = (replace(s, counts={}, realizations=0 * s.realizations) for s in (found, expected))
    assert found.to_bytes() == expected.to_bytes()


def test_how_late_the_earliest_of_a_bundle_is_is_told_in_seconds(monkeypatch):
    monkeypatch.setattr(Timing, "latest", lambda self: 10**15 + self.ahead)
    driver, seen = bundles.Driver(pair(), bundles.AtOnce()), []
    driver.pair.lateness = type("Kept", (), {"update": staticmethod(seen.append)})
    [own] = elements(frames.counts(K=1, T=3))
    driver.bundle((own[0], 10**15 - 30_500_000), (own[1], 10**15 - 2_000_000))
    driver.bundle((own[2], 10**15 + 1_000_000))
    assert seen == [30, 0]


def test_a_record_of_more_individuals_than_there_are_is_set_aside():
    plan = EstimateTransitions(frames.STATES, am.Exact(), 200, "mom", replicates=1, stream=Stream()).plan
    driver = bundles.Driver(Pair(plan, Timing(ttl=TTL)), bundles.AtOnce())
    totals = {0: [100, 60, 40], 1: [100, 60, 41], 2: [100, 60, 40 + 1e-8]}
    driver.bundle(*((by_realization(Record("0", t, np.array(n, float))), 0) for t, n in totals.items()))
    assert [r["reason"] for r in driver.rejected] == [
        "it counts 201 individuals, more than the population 200"
    ]
    assert summed(driver).sums.total.records == 2


def test_a_record_of_another_population_than_its_realization_has_is_set_aside_and_the_rest_kept_narrow():
    plan = EstimateTransitions(
        frames.STATES,
        am.Binomial(0.5),
        "estimate",
        "mom",
        replicates=1,
        population_column="n",
        stream=Stream(),
    ).plan
    driver = bundles.Driver(Pair(plan, Timing(ttl=TTL)), bundles.AtOnce())
    given = [Record("0", t, np.array([9.0, 8.0, 7.0]), N) for t, N in enumerate((50.0, 50.0, 60.0, 50.0))]
    given = [by_realization(record) for record in given]
    driver.bundle(*((one, 0) for one in given))
    assert len(driver.rejected) == 1
    assert "60" in driver.rejected[0]["reason"]
    assert "50" in driver.rejected[0]["reason"]
    [known] = driver.known(given[0][0])
    assert known.population == 50.0
    assert (known.track.starts, known.track.stops) == ([0, 3], [1, 3])
    assert {row.dtype for row in known.track.open.values()} == {np.dtype(np.int8)}
