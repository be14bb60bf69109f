"""Text that people will read: on a terminal, in a log, in a spreadsheet.

A name from data may hold escape sequences that clear the screen, set the window's title or hide what follows, and
signs that reverse the direction of writing; they are shown as `\\x1b` and the like. Credentials that settings may
hold, such as the password in an address, are not repeated. Text that a spreadsheet would run is not written to CSV.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from aggmc_beam.errors import InputError

HIDDEN = "***"
_NAMES = r"[\w.-]*(?:token|secret|passw(?:or)?d|pwd|signature|credential|api-?_?key|access-?_?key|sig)[\w.-]*"
_USER = re.compile(r"(?<=://)[^/\s@'\"]+(?=@)")
_QUERY = re.compile(rf"(?<=[?&;])({_NAMES})=[^&;\s'\"]*", re.IGNORECASE)
_KEY = re.compile(_NAMES, re.IGNORECASE)


def redacted(value: Any) -> Any:
    """The same plain data or text without what looks like a credential.

    Those are user and password before the host of an address, the values of query parameters named like
    a token, key or signature, and all values of keys named like that.

    >>> redacted({"files": "https://ann:pw@host/x.csv?sig=abc&day=1", "token": "abc"})
    {'files': 'https://***@host/x.csv?sig=***&day=1', 'token': '***'}
    """
    if isinstance(value, str):
        return _QUERY.sub(rf"\1={HIDDEN}", _USER.sub(HIDDEN, value))
    if isinstance(value, Mapping):
        return {
            key: HIDDEN
            if isinstance(key, str) and isinstance(v, str) and _KEY.fullmatch(key)
            else redacted(v)
            for key, v in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(v) for v in value]
    return value


#: Control characters, halves of surrogate pairs, and marks of the direction of writing.
_STEERING = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def escape_controls(text: str, keep: str = "") -> str:
    """The text with whatever would steer a terminal escaped, but for the characters in `keep`.

    >>> print(escape_controls("home\\x1b[2J"))
    home\\x1b[2J
    """

    def escape(found: re.Match[str]) -> str:
        sign = found[0]
        return sign if sign in keep else sign.encode("unicode-escape").decode()

    return _STEERING.sub(escape, text)


def say(text: object = "", stream: TextIO | None = None) -> None:
    """Print lines that hold names from data or settings, without credentials.

    Characters that the terminal has not become escapes.
    """
    stream = sys.stdout if stream is None else stream
    encoding = getattr(stream, "encoding", None) or "utf-8"
    safe = (
        escape_controls(str(redacted(str(text))), keep="\n")
        .encode(encoding, "backslashreplace")
        .decode(encoding)
    )
    print(safe, file=stream)


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


def shortened(value: Any) -> str:
    """A value as error messages show it: at most 60 characters, all of them printable.

    >>> shortened("\\x1b[2J"), len(shortened([0] * 100))
    ("'\\\\x1b[2J'", 60)
    """
    try:
        found = repr(value)
    except (ValueError, RecursionError):  # too many digits, or too deep
        return f"a {type(value).__name__} too large to show"
    return found if len(found) <= 60 else found[:57] + "..."
