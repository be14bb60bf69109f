"""What a stream ships and keeps: sums of deltas in any split, and their bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import frames
import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions, Stream, stream_coders, stream_values
from aggmc_beam.beam.codec import narrow
from aggmc_beam.beam.coders import RecordCoder
from aggmc_beam.beam.joining import Arrivals
from aggmc_beam.beam.stream_sums import StreamRule, without_late
from aggmc_beam.beam.stream_values import FIRST, NEW, OLD, Delta, Known, Snapshot, Status
from aggmc_beam.errors import InputError
from aggmc_beam.records import Record
from aggmc_beam.sums.moments import Counts
from aggmc_beam.sums.sums import Sums
from aggmc_beam.sums.track import Track

STORED = Path(__file__).parent / "stored"


def rule(**options):
    options = {"replicates": 4, "stream": Stream(), **options}
    return StreamRule.of(EstimateTransitions(frames.STATES, am.Binomial(0.5), 200, "mom", **options).plan)


def arrivals(y, order, size):
    """Bundles of records that arrive in this order."""
    tracks = [Track() for _ in y]
    for at in range(0, len(order), size):
        found = Arrivals()
        for i in order[at : at + size]:
            k, t = divmod(int(i), y.shape[1])
            is_first = not tracks[k].starts
            row = narrow(y[k, t])[1]
            found.add(f"r{k}", k, None, is_first, t, row, tracks[k].take(t, row))
        found.counts["duplicates"] += 1
        yield found


def summed(made, bundles, pieces=False):
    """Deltas by shard, one by one or all at once, by way of their bytes."""
    delta, snapshot = stream_coders.DeltaCoder(), stream_coders.SnapshotCoder()
    shards = {}
    for bundle in bundles:
        for shard, part in made.dealt(bundle):
            shards.setdefault(shard, []).append(delta.decode(delta.encode(part)))
    found = []
    for shard, deltas in shards.items():
        if not pieces:
            found.append(made.sums(deltas, shard))
            continue
        for one in deltas:
            found += [snapshot.decode(snapshot.encode(p)) for p in made.sums([one], shard).pieces()]
    return made.total(found)


@pytest.mark.parametrize("chain", ["stationary", am.Cycle(3), "per-step", am.Window(6, 3)], ids=str)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_sums_are_those_of_an_array_for_any_order_split_and_pieces(chain, size, monkeypatch):
    monkeypatch.setattr(stream_values, "PIECE", 1000)
    y = frames.counts(K=6, T=20)
    order = np.random.default_rng(size).permutation(120)
    made = rule(chain=chain, **({"step": "1h"} if isinstance(chain, am.Window) else {}))
    number = len(range(0, 120, size))
    expected = Sums.of(y, made.spec.chain, replicates=4)
    for pieces in (False, True):
        found = summed(made, arrivals(y, order, size), pieces)
        assert (found.first, found.last) == (0, 19)
        assert found.counts == Counts(duplicates=number)
        assert found.sums.total.counts.realizations == 6
        bare = (replace(s, counts={}, realizations=0 * s.realizations) for s in (found.sums, expected))
        assert len({s.to_bytes() for s in bare}) == 1


def test_step_means_are_kept_in_bins_that_widen():
    y = frames.counts(K=2, T=300, seed=1)
    made = rule(replicates=2)
    small = replace(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamRule, "bins", 64)
        found = summed(small, arrivals(y, np.arange(600), 50))
    steps = found.sums.steps
    assert steps.width == {0: 8}
    records = steps.key[:, 3] == 0
    assert steps.number[records].sum() == 600
    np.testing.assert_array_equal(steps.total[records].sum(0), y.sum((0, 1)))
    assert made.bins == 4096


@pytest.mark.parametrize(("S", "bins"), [(2, 4096), (10, 4096), (100, 512), (1000, 64), (2000, 64)])
def test_there_are_fewer_bins_for_more_states(S, bins):
    made = EstimateTransitions([str(i) for i in range(S)], am.Exact(), stream=Stream())
    assert StreamRule.of(made.plan).bins == bins


def test_late_records_are_taken_out_with_their_names():
    mark = np.array([OLD, NEW, NEW, FIRST])
    delta = Delta(
        np.array([3, 4]),
        np.array([0, 0, 0, 1]),
        np.array([1, 2, 5, 3]),
        np.arange(8.0).reshape(4, 2),
        mark,
        names=("a", "b"),
    )
    kept, late = without_late(delta, 4)
    assert (kept.time.tolist(), kept.numbers.tolist(), kept.counts.late) == ([1, 5], [3], 2)
    assert (late.time.tolist(), late.names) == ([2, 3], ("a", "b"))
    assert without_late(delta, 2) == (delta, None)


def values():
    """One value for each coder, the same in every release."""
    y = frames.counts(K=2, T=4)
    made = rule(replicates=1)
    [bundle] = arrivals(y, np.random.default_rng(2).permutation(8), 8)
    bundle.inhabit(200.0)
    delta = bundle.delta(3)
    track = Track([3, 9], [4, 9], {3: narrow(np.array([1.0, 2, 300]))[1], 9: np.array([0.5, 2.5, 1])})
    return {
        "record": (RecordCoder(), Record("7", 3, np.array([1, 2.5]), 3.5, ("north",))),
        "snapshot": (stream_coders.SnapshotCoder(), made.sums([delta], 0)),
        "delta": (
            stream_coders.DeltaCoder(),
            replace(delta, population=np.array([200.0, 0.5]), names=("a", "ü")),
        ),
        "known": (stream_coders.KnownCoder(), Known(1_700_000_000_000_000, track, 3, 200.0)),
        "known-forgotten": (stream_coders.KnownCoder(), Known(7, None, 12)),
        "status": (stream_coders.StatusCoder(), Status({4, 3}, 1_700_000_000_000_000, True, 5, {7}, 9, 8, 2)),
    }


@pytest.mark.parametrize("name", values())
def test_bytes_of_the_first_release_are_still_read(name):
    coder, value = values()[name]
    data = (STORED / f"{name}.bin").read_bytes()
    found = coder.decode(data)
    assert type(found) is type(value)
    assert coder.encode(found) == data == coder.encode(value)


@pytest.mark.parametrize("name", values())
def test_damaged_bytes_are_refused(name):
    coder, value = values()[name]
    data = coder.encode(value)
    for damaged in (data[:-1], data[: len(data) // 2], b"", b"\x09" + data[1:], data + b"\x00"):
        with pytest.raises(InputError):
            coder.decode(damaged)


def test_counts_take_a_few_bytes():
    coder = stream_coders.DeltaCoder()
    one, values = np.arange(3), np.full((3, 100), 7, np.int8)
    assert len(coder.encode(Delta(one[:1], 0 * one, one, values, one))) < 360
    assert len(stream_coders.StatusCoder().encode(Status())) < 60


def test_no_piece_of_a_snapshot_is_large():
    S = 100
    made = rule()
    rng = np.random.default_rng(1)
    y = rng.integers(0, 100, (30, 60, S)).astype(float)
    snapshot = Snapshot(Sums.of(y, am.Cycle(12), replicates=2))
    assert made.bins
    coder = stream_coders.SnapshotCoder()
    sizes = [len(coder.encode(piece)) for piece in snapshot.pieces()]
    assert max(sizes) < 1.2 * 2**20
    assert sum(sizes) > 3 * 2**20
