"""One golden: what it is called, how its record is made, and how near a number must come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .doors import Record

#: Of numbers that come from whole sums by a few operations; of those from sums of fractions; of those that
#: are searched for, where the search may end a step sooner or later; and where steps downhill end it. Other
#: kernels of BLAS move none of the cases so far.
CLOSE, FRACTIONS, SEARCHED, DOWNHILL = 1e-12, 1e-10, 1e-5, 1e-4


@dataclass(frozen=True)
class Case:
    """`record` gets an empty directory. Numbers may be `tolerance` away, relative to the largest of their
    array."""

    id: str
    record: Callable[[Path], Record]
    tolerance: float = CLOSE


class Cases:
    """Cases that are listed by decorating functions."""

    def __init__(self) -> None:
        self.all: list[Case] = []

    def add(self, id: str, tolerance: float = CLOSE) -> Callable[[Callable[[Path], Record]], Callable]:
        def keep(function: Callable[[Path], Record]) -> Callable:
            self.all.append(Case(id, function, tolerance))
            return function

        return keep
