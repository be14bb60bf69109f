"""Through its public doors the product gives what it gave when goldens were recorded.

A change that is wanted is recorded anew, see `record.py`, and the difference is looked at in the commit.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from .case import DOWNHILL, Case
from .cases import TABLE, all_cases
from .combinations import VALUES, read_table
from .compare import difference
from .record import PARTS, expected, record_of

CASES = all_cases()
#: Of statistics that are made from fits of few data by steps downhill: there the ground is flat.
FLAT = 0.01


@cache
def recorded(part: str) -> dict[str, Any]:
    return expected(part)


@cache
def found_now(case: Case) -> dict[str, Any]:
    return record_of(case)


def check(case: Case, parts: list[str]) -> None:
    for part in parts:
        near = max(case.tolerance, 10.0 ** (3 - PARTS[part]))
        if part == "errors" and case.tolerance == DOWNHILL:
            near = FLAT
        differs = difference(found_now(case)[part], recorded(part).get(case.id, {}), near)
        assert differs is None, f"{part}: {differs}"


for_each_case = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])


@pytest.mark.filterwarnings("ignore")
@for_each_case
def test_the_answer_is_what_it_was(case):
    check(case, ["points"])


@pytest.mark.filterwarnings("ignore")
@for_each_case
def test_statistics_and_choices_are_what_they_were(case):
    check(case, ["auto", "errors"])


def test_no_golden_is_left_of_a_case_that_is_gone():
    names = {case.id for case in CASES}
    for part in PARTS:
        assert recorded(part).keys() <= names


def test_every_value_of_every_column_is_in_a_combination():
    found = read_table(TABLE.read_text(encoding="utf-8"))
    for column, values in VALUES.items():
        assert {getattr(c, column) for c in found} == set(values)
    assert all(c.possible for c in found)
