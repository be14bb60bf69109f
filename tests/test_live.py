"""Flows, forecasts and alarms while records arrive."""

import numpy as np
import pytest
from walks import chain, walk

import aggmc_beam as am
from aggmc_beam.sums.records import Records
from aggmc_beam.uses import live
from aggmc_beam.uses.live import Live, Wanted

P = chain()


def arrivals(y, cuts, rng=None):
    """Blocks of records by step, in each part in no order."""
    K, T, _ = y.shape
    for a, b in zip([0, *cuts], [*cuts, T], strict=True):
        key, time = (v.ravel() for v in np.meshgrid(np.arange(K), np.arange(a, b), indexing="ij"))
        order = np.arange(len(key)) if rng is None else rng.permutation(len(key))
        key, time = key[order], time[order]
        names, of = np.arange(K), np.zeros(K, int)
        yield Records(key, time, y[key, time].astype(float), names, of)


def pairs_of(tables):
    return [
        (str(r), int(t)) for table in tables for r, t in zip(table["realization"], table["time"], strict=True)
    ]


@pytest.fixture(scope="module")
def data():
    n, moves = walk(P, K=4, T=90)
    return n, moves, am.estimate(n, population=300)


def test_each_flow_is_told_once_whatever_the_parts(data):
    n, moves, est = data
    state, found = Live(), []
    for block in arrivals(n, [1, 2, 30, 31, 60], np.random.default_rng(0)):
        state, told = state.tell([block, block], est, Wanted(flows=True))
        found += told.flows
    pairs = pairs_of(found)
    assert len(pairs) == 4 * 89 * 16
    assert len(set(pairs)) == 4 * 89
    mean = np.concatenate([t["mean"] for t in found])
    order = np.lexsort((np.arange(len(mean)), [t for _, t in pairs], [r for r, _ in pairs]))
    truth = moves.reshape(-1)
    assert np.corrcoef(mean[order], truth)[0, 1] > 0.97


def test_a_late_record_brings_the_flows_on_both_its_sides(data):
    n, _, est = data
    late = arrivals(n, [])
    whole = next(late)
    gap = (whole.realization == 2) & (whole.time == 40)
    state, told = Live().tell([whole.take(np.flatnonzero(~gap))], est, Wanted(flows=True))
    assert len(set(pairs_of(told.flows))) == 4 * 89 - 2
    state, told = state.tell([whole.take(np.flatnonzero(gap))], est, Wanted(flows=True))
    assert set(pairs_of(told.flows)) == {("2", 39), ("2", 40)}
    _, told = state.tell([whole], est, Wanted(flows=True))
    assert not told.flows


def test_forecasts_are_checked_when_their_time_has_come(data):
    n, _, est = data
    state, checked = Live(), []
    for block in arrivals(n, list(range(40, 90, 5))):
        state, told = state.tell([block], est, Wanted(forecast=3))
        checked = told.scores or checked
        assert len(told.forecasts) == 4
    assert [t["realization"][0] for t in checked] == ["0", "1", "2", "3"]
    assert all(t["horizon"].tolist() == [1, 2, 3] for t in checked)
    assert all(t["forecasts"].tolist() == [10, 10, 10] for t in checked)
    assert np.mean([t["rmse"] for t in checked]) < np.mean([t["persistence"] for t in checked])
    assert np.mean([t["coverage"] for t in checked]) > 0.88


def test_noisy_counts_are_held_by_bands_as_wide_as_their_noise(data):
    n, _, _ = data
    noise = am.Gaussian(8.0)
    y = noise.sample(n, np.random.default_rng(1))
    est, state, checked = am.estimate(y, noise=noise, population=300), Live(), []
    for block in arrivals(y, list(range(40, 90, 5))):
        state, told = state.tell([block], est, Wanted(forecast=2))
        checked = told.scores or checked
    assert np.mean([t["coverage"] for t in checked]) > 0.88


def test_alarms_come_at_their_rate_and_where_something_happened():
    n, _ = walk(P, K=2, T=900, seed=4)
    n = n.astype(float)
    n[1, 800] += [-60, 60, 0, 0]
    est, state, raised = am.estimate(n[:, :700], population=300), Live(), []
    for block in arrivals(n, list(range(50, 900, 50))):
        state, told = state.tell([block], est, Wanted(alarms=0.02))
        raised += pairs_of(told.alarms)
    assert ("1", 800) in raised
    assert 0.01 < len(raised) / 1700 < 0.035


def test_what_is_held_is_bounded_and_what_was_dropped_is_not_told_again(data, monkeypatch):
    n, _, est = data
    monkeypatch.setattr(live, "HELD", 60)
    monkeypatch.setattr(live, "HELD_EACH", 20)
    state, found = Live(), []
    for block in arrivals(n, [30, 60]):
        state, told = state.tell([block], est, Wanted(flows=True))
        found += pairs_of(told.flows)
        assert len(state.records) <= 80
    assert len(set(found)) == 4 * 89
    _, told = state.tell(arrivals(n, []), est, Wanted(flows=True))
    assert not told.flows


def test_a_realization_that_is_not_closed_is_named(data):
    n, _, est = data
    y = n.astype(float)
    y[3, 10] += 1
    _, told = Live().tell(arrivals(y, []), est, Wanted(flows=True))
    assert list(told.without) == ["3"]
    assert {r for r, _ in pairs_of(told.flows)} == {"0", "1", "2"}
