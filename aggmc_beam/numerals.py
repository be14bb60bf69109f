"""Numbers as publishers write them: 4,534 and 4 534 and 1.234,5 and 12.5 %, and the marks that stand for none."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: What surrounds a name or a number and is no part of it: white space of Unicode, as Polars strips it.
SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
#: Texts that no number has, and that publishers print where a count is missing, confidential or not applicable.
MARKS = (
    "", "NA", "N/A", "na", "n/a", "n.a.", "null", "NULL", "-", "--", "–", "—", ".", "..",
    "...", "…", ":", "*", "**", "***", "c", "C", "[c]", "[x]", "[z]", "[low]", "(c)", "(D)",
    "(S)", "(X)", "#N/A",
)  # fmt: skip
#: Small counts that are hidden behind a bound, such as <5 and "fewer than 10".
_BOUND = re.compile(r"(?:<|<=|≤|under|below|less than|fewer than)\s*\d+", re.IGNORECASE)
_GROUPS = {".": ",", ",": r"\."}
#: Between groups of three digits there may also be a space or an apostrophe.
_GAPS = ("[ \xa0\u2009\u202f]", "['’]")
_THREE = re.compile(r"[1-9]\d{0,2}\.\d{3}")


@dataclass(frozen=True)
class Numerals:
    """How counts are written in text. `decimal` is the sign before the fraction, `marks` are what stands for a
    count that is missing or suppressed (None: what most publishers use, and bounds such as <5).

    >>> [Numerals().number(text) for text in ("4,534", " 4 534", "1'234.5", "12.5 %", "−3", "1.234,5")]
    [4534.0, 4534.0, 1234.5, 0.125, -3.0, None]
    >>> Numerals(",").number("1.234,5"), Numerals().is_mark("<5"), Numerals(marks=("?",)).is_mark("c")
    (1234.5, True, False)
    """

    decimal: str = "."
    marks: tuple[str, ...] | None = None

    @property
    def comma(self) -> str:
        """What stands between the numbers of a list."""
        return "," if self.decimal == "." else ";"

    def is_mark(self, text: str) -> bool:
        """Whether the text stands for a count that is not told."""
        found = text.strip(SPACE)
        if self.marks is not None:
            return not found or found in self.marks
        return found in MARKS or _BOUND.fullmatch(found) is not None

    def number(self, text: str) -> float | None:
        """The number in a text; None if it is none."""
        text = text.strip(SPACE)
        whole = text.removesuffix("%").rstrip(SPACE)
        plain = self._plain(whole.replace("−", "-", 1))
        try:
            found = None if "_" in plain else float(plain)
        except ValueError:
            return None
        return found if found is None or whole == text else found / 100

    def _plain(self, text: str) -> str:
        """The text as Python writes numbers, if it is a number."""
        for gap in (_GROUPS[self.decimal], *_GAPS):
            if re.fullmatch(rf"[-+]?\d{{1,3}}(?:{gap}\d{{3}})+(?:{re.escape(self.decimal)}\d*)?", text):
                text = re.sub(gap, "", text)
                break
        if self.decimal == ".":
            return text
        return "none" if "." in text else text.replace(",", ".", 1)


def may_be_thousands(texts: list[str]) -> str | None:
    """One of the texts, if all that have a decimal point may as well be thousands: 1.234, never 0.5 or 12.25.

    >>> may_be_thousands(["512", "1.234", "17.003"]), may_be_thousands(["512", "1.234", "0.5"])
    ('1.234', None)
    """
    pointed = [text for text in (t.strip(SPACE) for t in texts) if "." in text]
    small = all(len(t) <= 3 for t in (t.strip(SPACE).lstrip("-") for t in texts) if t.isdigit())
    return pointed[0] if pointed and small and all(map(_THREE.fullmatch, pointed)) else None
