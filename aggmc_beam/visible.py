"""Text from data on a terminal: shown as it is, but for what would steer the terminal or the eye.

A name may hold escape sequences that clear the screen, set the window's title or hide what follows, and
signs that reverse the direction of writing. They are shown as `\\x1b` and the like.
"""

from __future__ import annotations

import re
import sys
from typing import TextIO

from aggmc_beam.redact import redacted

#: Control characters, halves of surrogate pairs, and marks of the direction of writing.
_STEERING = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def visible(text: str, keep: str = "") -> str:
    """The text with whatever would steer a terminal escaped, but for the characters in `keep`.

    >>> print(visible("home\\x1b[2J"))
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
    safe = visible(str(redacted(str(text))), keep="\n").encode(encoding, "backslashreplace").decode(encoding)
    print(safe, file=stream)
