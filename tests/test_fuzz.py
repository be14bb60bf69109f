"""The checked-in inputs of the fuzzer, crashers of the past among them, and its structured targets."""

import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent.parent / "fuzz"
sys.path.insert(0, str(FUZZ))

from differential import check  # noqa: E402
from structured import STRUCTURED  # noqa: E402
from targets import TARGETS  # noqa: E402


@pytest.mark.parametrize("target", TARGETS)
def test_every_known_input_gets_a_proper_answer(target):
    inputs = sorted((FUZZ / "corpus" / target).iterdir())
    assert inputs
    for path in inputs:
        try:
            TARGETS[target](path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{path.relative_to(FUZZ)} of the fuzzing corpus fails") from error


@pytest.mark.parametrize("target", STRUCTURED)
def test_inputs_that_are_nearly_right_get_a_proper_answer(target):
    STRUCTURED[target]()
    for path in sorted((FUZZ / "corpus" / target).glob("*")):
        STRUCTURED[target].hypothesis.fuzz_one_input(path.read_bytes())


def test_all_ways_of_reading_and_summing_agree_with_the_definition():
    """The first inputs of a million rows that `make fuzz` compares."""
    assert sum(check(1, number) for number in range(1, 7)) > 1000
