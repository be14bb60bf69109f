"""The track of one realization in a stream against `Tracks`, which holds those of a run."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aggmc_beam.sums.track import Track
from aggmc_beam.sums.tracks import Tracks


@given(st.lists(st.integers(-12, 12), max_size=40))
def test_a_track_takes_records_one_by_one_as_tracks_do(steps):
    track, tracks = Track(), Tracks.empty(1)
    key = np.zeros(1, np.int64)
    for number, t in enumerate(steps):
        near = track.take(t, float(number))
        taken = tracks.take(key, np.array([t]), np.array([[float(number)]]))
        assert (near is None) == (len(taken.repeated) == 1)
        if near is not None:
            old = np.flatnonzero(taken.settled) if taken.settled is not None else []
            assert near == [(int(taken.time[i]), float(taken.values[i, 0])) for i in old]
        assert (track.starts, track.stops) == (tracks.start.tolist(), tracks.stop.tolist())
        rows = dict(zip(tracks.open_time.tolist(), tracks.open_values[:, 0].tolist(), strict=True))
        assert track.open == rows


def test_records_in_order_leave_four():
    track = Track()
    for t in range(100):
        track.take(t, t)
    assert sorted(track.open) == [0, 1, 98, 99]
    assert (track.starts, track.stops) == ([0], [99])


def test_a_copy_is_not_changed_with_its_track():
    track = Track()
    track.take(0, "a")
    copy = track.copy()
    track.take(1, "b")
    assert (copy.starts, copy.stops, copy.open) == ([0], [0], {0: "a"})
