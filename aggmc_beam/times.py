"""Durations and time stamps as users write them, in whole microseconds of UTC."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone

from aggmc_beam.errors import InputError

_UNITS = {
    "ms": 1_000,
    "s": 10**6,
    "m": 60 * 10**6,
    "h": 3600 * 10**6,
    "d": 86400 * 10**6,
    "w": 604800 * 10**6,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def microseconds(text: str) -> int:
    """The length of a duration such as 30s, 15m, 1h, 1d or 1w.

    >>> microseconds("1h")
    3600000000
    """
    found = re.fullmatch(r"(\d{1,12})\s*(ms|s|m|h|d|w)", text.strip())
    if not found or int(found[1]) == 0:
        raise InputError(
            f"{text!r} is not a duration; write a whole number and a unit: ms, s, m, h, d or w, such as 1h"
        )
    return int(found[1]) * _UNITS[found[2]]


def instant(value: str | date) -> int:
    """Microseconds since 1970 of an ISO 8601 time; without an offset it is UTC.

    >>> instant("1970-01-01T01:00:00Z") == instant("1970-01-01 02:00+01:00") == 3_600_000_000
    True
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", value.strip()))
        except ValueError:
            raise InputError(f"{value!r} is not a time such as 2026-01-31T14:00:00Z") from None
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if value.tzinfo is None:
        value = value.replace(tzinfo=timezone.utc)
    gap = value - _EPOCH
    return (gap.days * 86400 + gap.seconds) * 10**6 + gap.microseconds


def iso(moment: int) -> str:
    """The inverse of `instant`, to the second where that is exact.

    >>> iso(3_600_000_000)
    '1970-01-01T01:00:00Z'
    """
    try:
        found = _EPOCH + timedelta(microseconds=moment)
    except OverflowError:
        raise InputError(f"{moment} microseconds from 1970 lie beyond all calendars") from None
    return found.isoformat().replace("+00:00", "Z")
