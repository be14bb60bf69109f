"""All goldens."""

from __future__ import annotations

from pathlib import Path

from .beams import BEAM
from .case import Case
from .combinations import read_table
from .special import SPECIAL

#: One combination in each line, its columns those of `combinations.VALUES`. Any two values that can go
#: together do in some line.
TABLE = Path(__file__).with_name("combinations.txt")


def all_cases() -> list[Case]:
    combinations = read_table(TABLE.read_text(encoding="utf-8"))
    found = [Case(c.id, c.record, c.tolerance) for c in combinations] + SPECIAL.all + BEAM.all
    names = [case.id for case in found]
    assert len(set(names)) == len(names), "two goldens have one name"
    return found
