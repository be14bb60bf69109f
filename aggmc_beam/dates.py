"""Times as people write them: time stamps, dates, ISO weeks, months, quarters and years."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any

from aggmc_beam.errors import InputError
from aggmc_beam.times import instant

INSTANT, DAY, WEEK, MONTH, QUARTER, YEAR = UNITS = ("instant", "day", "week", "month", "quarter", "year")
_WEEK = re.compile(r"(\d{4})-?[Ww](\d\d)(?:-?([1-7]))?")
_MONTH = re.compile(r"(\d{4})(?:[-/.]|-?M| )?(\d\d)")
_QUARTER = re.compile(
    r"(?P<year>\d{4})[-/ ]?Q(?P<quarter>[1-4])|Q(?P<q>[1-4])[-/ ]?(?P<y>\d{4})", re.IGNORECASE
)
_YEAR = re.compile(r"\d{4}")
_DAY = re.compile(r"(\d{4})(\d\d)(\d\d)|(\d{4})/(\d\d?)/(\d\d?)")
_DOTS = re.compile(r"(\d\d?)\.(\d\d?)\.(\d{4})(?:[ T](.+))?")
_HOUR = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d?)")
_ISO = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class Stamp:
    """When something was: microseconds since 1970, of UTC if `has_zone`, else as local clocks show them. `unit` tells
    what the text names, of which this is the beginning."""

    time: int
    has_zone: bool = False
    unit: str = INSTANT


def read_stamp(value: Any, format: str | None = None) -> Stamp | None:
    """The time in a value; None if there is none. Text is of a form that has one meaning only, or of `format`, as
    `datetime.strptime` has it.

    >>> from aggmc_beam.times import iso
    >>> for text in ("2024-W05", "2024-03", "Q2 2024", "31.01.2024", "2024-01-31 7"):
    ...     print(iso(read_stamp(text).time), read_stamp(text).unit)
    2024-01-29T00:00:00Z week
    2024-03-01T00:00:00Z month
    2024-04-01T00:00:00Z quarter
    2024-01-31T00:00:00Z day
    2024-01-31T07:00:00Z instant
    >>> read_stamp("31/01/2024"), read_stamp("31/01/2024", "%d/%m/%Y") == read_stamp("2024-01-31T00:00")
    (None, True)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        value = str(value)
    try:
        if isinstance(value, datetime):
            return _of(value)
        if isinstance(value, date):
            return Stamp(instant(value), unit=DAY)
        if isinstance(value, str):
            text = value.strip()
            return _of(datetime.strptime(*_whole(text, format))) if format else _of_text(text)
    except (ValueError, InputError, OverflowError):
        pass
    return None


def _whole(text: str, format: str) -> tuple[str, str]:
    """Python reads a week only with a day of it."""
    if re.search("%[GV]", format) and not re.search("%[uaAw]", format):
        return f"{text} 1", f"{format} %u"
    return text, format


def _of(value: datetime) -> Stamp:
    return Stamp(instant(value), value.tzinfo is not None)


def _of_text(text: str) -> Stamp | None:
    if hour := _HOUR.fullmatch(text):
        text = f"{hour[1]} {int(hour[2]):02}:00"
    if _ISO.match(text):
        found = datetime.fromisoformat(re.sub(r"\s*[zZ]$", "+00:00", text))
        return Stamp(instant(found), found.tzinfo is not None, DAY if _ISO.fullmatch(text) else INSTANT)
    if dots := _DOTS.fullmatch(text):
        return _of_text(f"{dots[3]}-{int(dots[2]):02}-{int(dots[1]):02}" + (f" {dots[4]}" if dots[4] else ""))
    if week := _WEEK.fullmatch(text):
        begin = date.fromisocalendar(int(week[1]), int(week[2]), int(week[3] or 1))
        return Stamp(instant(begin), unit=DAY if week[3] else WEEK)
    if day := _DAY.fullmatch(text):
        return Stamp(instant(date(*(int(part) for part in day.groups() if part))), unit=DAY)
    if month := _MONTH.fullmatch(text):
        return Stamp(_first(month[1], month[2]), unit=MONTH)
    if part := _QUARTER.fullmatch(text):
        quarter = int(part["quarter"] or part["q"])
        return Stamp(_first(part["year"] or part["y"], 3 * quarter - 2), unit=QUARTER)
    if _YEAR.fullmatch(text):
        return Stamp(_first(text, 1), unit=YEAR)
    return None


def _first(year: Any, month: Any) -> int:
    return instant(datetime(int(year), int(month), 1, tzinfo=timezone.utc))
