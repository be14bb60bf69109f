"""CSV that people open in a spreadsheet: text that it would run as a formula is not written."""

from __future__ import annotations

from collections.abc import Iterable

from aggmc_beam.errors import InputError

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def check_cells(texts: Iterable[object], file: object) -> None:
    """`InputError` if a text begins as formulas do. Numbers are no texts: -1 stays -1.

    An apostrophe in front, the usual remedy, would change the name for everyone who reads the file.

    >>> check_cells(["home", "=1+1", -1], "counts.csv")
    Traceback (most recent call last):
    aggmc_beam.errors.InputError: '=1+1' would be run as a formula by whoever opens counts.csv in a \
spreadsheet; rename it, or write .jsonl or .parquet
    """
    for text in texts:
        if isinstance(text, str) and text.startswith(_FORMULA):
            raise InputError(
                f"{text!r} would be run as a formula by whoever opens {file} in a spreadsheet; rename it, or "
                "write .jsonl or .parquet"
            )
