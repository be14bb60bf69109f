"""The commonest reasons for which rows were rejected, each with an example and the key that would mend it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

#: So many reasons are told.
SHOWN = 3
#: So many rejections are looked at for an error message.
LOOKED_AT = 100_000
_VALUES = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|-?\d[\d.,:e+-]*")
#: What a reason holds, and the key to look at.
_KEYS = (
    (r"not UTF-8", "input.encoding"),
    (r"fields than the header|be taken apart|quotation mark", "input.separator"),
    (r"is not declared", "states, or input.columns.state"),
    (r"values for \d+ states|not a list of counts", "input.columns.counts"),
    (r"give step as|for time stamps give step|not a multiple of the step|not a whole number", "input.step"),
    (r"steps from|longer than the step", "input.step or input.origin"),
    (r"not a time such as|not of the form", "input.time_format"),
    (r"which clocks in", "input.timezone"),
    (r"population", "input.columns.population"),
    (r"the count of .* is (missing|NaN)", "input.missing and input.marks"),
    (r"the count of .* not a number", "input.decimal, input.marks or input.columns.counts"),
    (r"input\.absent", "input.absent"),
)


def kind_of(reason: str) -> str:
    """A reason without the values of its row.

    >>> kind_of("the count of 'home' is '4,534', not a number")
    'the count of … is …, not a number'
    """
    return _VALUES.sub("…", reason)


def key_of(reason: str) -> str:
    """The key that would mend what a reason tells of.

    >>> key_of("time is '31/01/2024', not a time such as 2026-01-31T14:00:00Z")
    'input.time_format'
    """
    return next((key for pattern, key in _KEYS if re.search(pattern, reason)), "input.columns")


#: Of each kind of reason: how often, and an example with its file and row. Plain values, as Beam ships them.
Met = dict[str, tuple[int, str, str, int]]


@dataclass
class Reasons:
    """How often each kind of reason was met, and the example of it that stands first: the reason, file and row.

    >>> found = Reasons()
    >>> for row in range(2, 5):
    ...     _ = found.add(f"time is '{row}.5', not a whole number", "x.csv", row)
    >>> str(found)
    "3 x time is '2.5', not a whole number (x.csv, row 2; see input.step)"
    """

    met: Met = field(default_factory=dict)

    @property
    def number(self) -> dict[str, int]:
        """How often each kind was met."""
        return {kind: found[0] for kind, found in self.met.items()}

    @classmethod
    def of(cls, rejections: Iterable[Any]) -> Reasons:
        """Of the first of some rejections."""
        found = cls()
        for r in islice(rejections, LOOKED_AT):
            found.add(r.reason, r.file, r.row)
        return found

    def add(self, reason: str, file: str, row: int) -> int:
        """Count a reason; how often its kind was met so far."""
        return self._join(kind_of(reason), (1, reason, file, row))

    def __add__(self, other: Reasons) -> Reasons:
        """Those of both, with the example that stands first."""
        found = Reasons(dict(self.met))
        for kind, more in other.met.items():
            found._join(kind, more)
        return found

    def _join(self, kind: str, more: tuple[int, str, str, int]) -> int:
        known = self.met.get(kind, (0, *more[1:]))
        _, reason, file, row = min(known, more, key=lambda found: found[2:])
        number = known[0] + more[0]
        self.met[kind] = (number, reason, file, row)
        return number

    def lines(self) -> list[str]:
        """The commonest, one on each line."""
        commonest = sorted(self.met.values(), key=lambda found: -found[0])[:SHOWN]
        return [
            f"{number:,} x {reason} ({file}, row {row}; see {key_of(reason)})"
            for number, reason, file, row in commonest
        ]

    def __str__(self) -> str:
        return "; ".join(self.lines())
