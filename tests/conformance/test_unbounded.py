"""A stream on a runner: estimates are refreshed, and each is that of the local engine on the same records."""

from __future__ import annotations

import numpy as np
import pytest
from streams import Stream, rows

NUMBERS = ("transition_matrix", "standard_error", "lower", "upper", "stationary")


def assert_same(found, expected):
    for name in NUMBERS:
        np.testing.assert_allclose(
            np.array(found[name], float), np.array(expected[name], float), rtol=0, atol=1e-10, err_msg=name
        )
    for name in ("records", "pairs", "realizations", "gaps"):
        assert found["counts"][name] == expected["counts"][name], name


@pytest.mark.feature("stream", "stream-bad")
def test_every_refresh_is_the_estimate_of_what_has_arrived(runner, tmp_path):
    items = rows()
    with Stream(runner, tmp_path) as stream:
        stream.put(items[:50])
        first = stream.until(50)
        assert_same(first, stream.local(items[:50]))
        # Half of the rest in disorder, with records that came before, and with garbage.
        stream.put([*items[:81:-1], *items[10:20], "no JSON"])
        stream.put([*items[50:82], {**items[60], "counts": [1, 2]}])
        last = stream.until(len(items), duplicates=10)
        assert_same(last, stream.local(items))
        assert last["refresh"] > first["refresh"]
        rejected = stream.wait(
            lambda: len(stream.rejected()) >= 2 and stream.rejected(), lambda: "2 rejected"
        )
    assert len(rejected) == 2
    assert any(r["record"] == "no JSON" for r in rejected)
    assert any("2 values for 3 states" in r["reason"] for r in rejected)
