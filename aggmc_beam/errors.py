"""The exception that callers need to know, its kind that commands tell apart, and the hint that its messages give."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class InputError(ValueError):
    """Something given to the library is wrong; the message says what, and what would be right.

    >>> import aggmc_beam as am
    >>> am.estimate([[1, 2], [2, 1]], estimator="mom2")
    Traceback (most recent call last):
    aggmc_beam.errors.InputError: estimator 'mom2' is not known; did you mean 'mom'?
    """


class UsageError(InputError):
    """The command or the config is wrong, rather than the data."""


class Rejected(ValueError):
    """A row that is not a record; the message says why."""


def nearest(given: Any, valid: Iterable[str]) -> str:
    """A hint with the nearest valid name.

    >>> nearest("estimater", ["estimator", "engine"])
    "did you mean 'estimator'?"
    """
    names = list(valid)
    close = difflib.get_close_matches(str(given), names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"choose from {', '.join(names)}" if names else "there are no other keys"
