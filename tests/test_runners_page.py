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


@pytest.mark.parametrize("path", sorted(page.RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_outcomes_are_of_features_that_the_suite_knows(path):
    assert path.stem in page.ORDER
    for feature, outcome in json.loads(path.read_text(encoding="utf-8"))["features"].items():
        reason = features.UNSUPPORTED.get((path.stem, feature))
        assert feature in features.FEATURES
        assert outcome in ([f"not supported: {reason}"] if reason else ["pass", "fails"])
