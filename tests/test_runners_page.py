"""The page about runners says what the conformance suite found."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "conformance"))

import features
import page
import pytest


def test_the_table_is_made_from_the_outcomes():
    text = page.PAGE.read_text(encoding="utf-8")
    assert text == page.with_table(text)


@pytest.mark.parametrize("name", page.ORDER)
def test_every_feature_has_an_outcome_for_every_runner(name):
    found = json.loads((page.RESULTS / f"{name}.json").read_text(encoding="utf-8"))["features"]
    assert list(found) == list(features.FEATURES)
    for feature, outcome in found.items():
        reason = features.UNSUPPORTED.get((name, feature))
        assert outcome == (f"not supported: {reason}" if reason else "pass")
