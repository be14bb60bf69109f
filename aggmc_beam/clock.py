"""From times to whole steps and back: integers, steps of a duration, and steps of the calendar."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any

import numpy as np

from aggmc_beam.dates import DAY, INSTANT, MONTH, QUARTER, WEEK, YEAR, Stamp, read_stamp
from aggmc_beam.errors import InputError, Rejected
from aggmc_beam.text import shortened
from aggmc_beam.times import iso, microseconds
from aggmc_beam.zones import DAY as DAY_LENGTH
from aggmc_beam.zones import NEVER, Zone

#: Times lie below this: what floats hold exactly.
MAX_TIME = 2**53
#: Steps of the calendar, and what may be named to tell one.
CALENDAR = {
    DAY: {INSTANT, DAY},
    WEEK: {INSTANT, DAY, WEEK},
    MONTH: {INSTANT, DAY, MONTH},
    QUARTER: {INSTANT, DAY, MONTH, QUARTER},
    YEAR: {INSTANT, DAY, MONTH, QUARTER, YEAR},
}
#: 1970-01-01 was a Thursday, three days into its week.
_MONDAY = 3


@dataclass(frozen=True)
class Clock:
    """From times to whole steps and back.

    `step` is a number of units for integer times, a duration for time stamps, which are counted from `origin`
    (microseconds since 1970), or a day, week (from Monday), month, quarter or year of the calendar, which any date
    in it tells. Stamps without an offset are those of local clocks in `zone`. `format` is how text is read, if
    `dates.read_stamp` shall not tell itself.

    >>> Clock("1h").read("1970-01-02T05:00:00Z"), Clock(5).read("15"), Clock("1h").label(29)
    (29, 3, '1970-01-02T05:00:00Z')
    >>> Clock("month").read("1971-02"), Clock("week").label(Clock("week").read("2024-W05"))
    (13, '2024-W05')
    """

    step: int | str = 1
    origin: int = 0
    zone: Zone = Zone()
    format: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.step} from {self.origin} in {self.zone.name}" if self.stamps else str(self.step)

    @property
    def stamps(self) -> bool:
        return isinstance(self.step, str)

    @property
    def is_calendar(self) -> bool:
        return self.step in CALENDAR

    @cached_property
    def unit(self) -> int:
        """The step in whatever times are counted in: the column's own units, or microseconds; of a step of the
        calendar about that."""
        if self.is_calendar:
            return {DAY: 1, WEEK: 7, MONTH: 31, QUARTER: 92, YEAR: 366}[str(self.step)] * DAY_LENGTH
        return self.step if isinstance(self.step, int) else microseconds(self.step)

    def read(self, value: Any, column: str = "time") -> int:
        """The step of a time; `Rejected` with the reason if there is none."""
        if value is None or value == "":
            raise Rejected(f"{column} is missing")
        if self.stamps:
            return self._of_stamp(value, column)
        found = _whole(value)
        if found is None:
            raise Rejected(f"{column} is {shortened(value)}, not a whole number{_hint(value)}")
        if abs(found) >= MAX_TIME:
            raise Rejected(f"{column} is {shortened(value)}, too far away for a time")
        if found % self.unit:
            raise Rejected(f"{column} is {found}, not a multiple of the step {self.step}")
        return found // self.unit

    def _of_stamp(self, value: Any, column: str) -> int:
        stamp = read_stamp(value, self.format) if self.is_calendar or not isinstance(value, int) else None
        if stamp is None or stamp.unit not in CALENDAR.get(str(self.step), {INSTANT, DAY, WEEK}):
            raise Rejected(f"{column} is {shortened(value)}, {self._wanted(stamp)}")
        found = self._step(stamp)
        if found == NEVER and self._moments(np.array([stamp.time]), not stamp.has_zone)[0] == NEVER:
            raise Rejected(f"{column} is {shortened(value)}, which clocks in {self.zone.name} skip")
        if found == NEVER:
            raise Rejected(
                f"{column} is {shortened(value)}, not a whole number of {self.step} steps from "
                f"{self._shown(self.origin)}"
            )
        return found

    def _step(self, stamp: Stamp) -> int:
        """As `steps`, of one; a stream reads its records one at a time."""
        if not self.is_calendar and (stamp.has_zone or self.zone.is_utc):
            step, rest = divmod(stamp.time - self.origin, self.unit)
            return NEVER if rest else step
        return int(self.steps(np.array([stamp.time]), not stamp.has_zone)[0])

    def _wanted(self, stamp: Stamp | None) -> str:
        if self.format is not None:
            return f"not of the form {self.format}"
        if stamp is not None:
            return f"a {stamp.unit}, longer than the step {self.step}"
        shown = {WEEK: "2026-W05", MONTH: "2026-01", QUARTER: "2026-Q1", YEAR: "2026", DAY: "2026-01-31"}
        return f"not a time such as {shown.get(str(self.step), '2026-01-31T14:00:00Z')}"

    def steps(self, times: np.ndarray, are_local: bool) -> np.ndarray:
        """The steps of time stamps in microseconds, of UTC or as local clocks show them; `NEVER` for what is on no
        step."""
        if self.is_calendar:
            return self._periods(times if are_local else times + self.zone.offsets(times))
        moments = self._moments(times, are_local)
        away = moments - self.origin
        return np.where((moments == NEVER) | (away % self.unit != 0), NEVER, away // self.unit)

    def _moments(self, times: np.ndarray, are_local: bool) -> np.ndarray:
        return self.zone.moments(times) if are_local and not self.is_calendar else times

    def _periods(self, local: np.ndarray) -> np.ndarray:
        """The days, weeks, months, quarters or years since the one of 1970-01-01."""
        days = local // DAY_LENGTH
        if self.step == DAY:
            return days
        if self.step == WEEK:
            return (days + _MONDAY) // 7
        months: np.ndarray = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        found: np.ndarray = months // {MONTH: 1, QUARTER: 3, YEAR: 12}[str(self.step)]
        return found

    def holding(self, moment: int) -> int:
        """The step that a moment lies in, in microseconds since 1970 of UTC."""
        if self.is_calendar:
            return int(self.steps(np.array([moment]), False)[0])
        return (moment - self.origin) // self.unit

    def local(self, steps: np.ndarray) -> np.ndarray:
        """Steps by what local clocks show, for phases of the day: the same where clocks are not put forward and back.
        On a day of 25 hours one number comes twice, on one of 23 hours one is left out."""
        if self.zone.is_utc or self.is_calendar:
            return steps
        moments = np.asarray(steps, np.int64) * self.unit + self.origin
        found: np.ndarray = (moments + self.zone.offsets(moments) - self._local_origin) // self.unit
        return found

    @cached_property
    def _local_origin(self) -> int:
        return self.origin + int(self.zone.offsets(np.array([self.origin]))[0])

    def label(self, step: int) -> int | str:
        """The time at which a step begins, as the user writes times."""
        if not self.stamps:
            return step * self.unit
        if self.is_calendar:
            return _period_label(str(self.step), step)
        return self._shown(step * self.unit + self.origin)

    def label_local(self, step: int) -> int | str:
        """As `label`, of a step by what local clocks show."""
        if self.zone.is_utc or self.is_calendar or not self.stamps:
            return self.label(step)
        local = step * self.unit + self._local_origin
        moment = self.zone.moment(local)
        return self._shown(
            local - int(self.zone.offsets(np.array([local]))[0]) if moment == NEVER else moment
        )

    def _shown(self, moment: int) -> str:
        if self.zone.is_utc:
            return iso(moment)
        ahead = int(self.zone.offsets(np.array([moment]))[0])
        minutes = abs(ahead) // (60 * 10**6)
        return f"{iso(moment + ahead)[:-1]}{'+' if ahead >= 0 else '-'}{minutes // 60:02}:{minutes % 60:02}"


def _period_label(unit: str, step: int) -> str:
    try:
        if unit == WEEK:
            week = date.fromordinal(719_163 + 7 * step - _MONDAY).isocalendar()
            return f"{week[0]:04}-W{week[1]:02}"
        if unit == DAY:
            return date.fromordinal(719_163 + step).isoformat()
        months = {MONTH: 1, QUARTER: 3, YEAR: 12}[unit] * step
        year, month = 1970 + months // 12, months % 12
        date(year, 1, 1)
    except (ValueError, OverflowError):
        raise InputError(f"{step} {unit}s from 1970 lie beyond all calendars") from None
    return {MONTH: f"{year:04}-{month + 1:02}", QUARTER: f"{year:04}-Q{month // 3 + 1}", YEAR: f"{year:04}"}[
        unit
    ]


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            return int(value) if "_" not in value else None
        except ValueError:
            pass
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, int | np.integer):
        return int(value)
    whole = (
        isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < MAX_TIME
    )
    return int(value) if whole else None


def _hint(value: Any) -> str:
    """What step a time stamp asks for."""
    stamp = None if isinstance(value, int | float) else read_stamp(value)
    if stamp is None:
        return ""
    if stamp.unit == INSTANT:
        return "; for time stamps give step as a duration such as 1h"
    if stamp.unit == DAY:
        return "; for dates give step as day, week, month, quarter or year"
    return f"; give step as {stamp.unit}"
