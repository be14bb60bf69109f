"""Local time: what the clocks of a time zone show, for many moments at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from aggmc_beam.errors import InputError

DAY = 86400 * 10**6
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: In the place of a moment that there is not.
NEVER = np.iinfo(np.int64).min
#: Days from 1970 that calendars of Python reach.
_FIRST, _LAST = -719_000, 2_932_000


@dataclass(frozen=True)
class Zone:
    """A time zone by its IANA name. Moments are microseconds since 1970, of UTC or as local clocks show them.

    >>> berlin = Zone("Europe/Berlin")
    >>> hour = 3600 * 10**6
    >>> berlin.offsets(np.array([0, 4000 * 24 * hour])) // hour
    array([1, 1])
    """

    name: str = "UTC"

    def __post_init__(self) -> None:
        _zone(self.name)

    @property
    def is_utc(self) -> bool:
        return self.name == "UTC"

    def offsets(self, moments: np.ndarray) -> np.ndarray:
        """How far local clocks are ahead of UTC at these moments."""
        return self._by_day(np.asarray(moments, np.int64), self._offset)

    def moments(self, local: np.ndarray) -> np.ndarray:
        """The moments at which local clocks show these times: the first one where clocks are put back over it, and
        `NEVER` where they are put forward over it."""
        local = np.asarray(local, np.int64)
        ahead = self._by_day(local, self._offset_of_local)
        found: np.ndarray = np.where(ahead == NEVER, NEVER, local - ahead)
        return found

    def moment(self, local: int) -> int:
        """As `moments`, of one."""
        return int(self.moments(np.array([local]))[0])

    def _by_day(self, times: np.ndarray, offset: Callable[[int], int]) -> np.ndarray:
        if self.is_utc or not len(times):
            return np.zeros(len(times), np.int64)
        times = np.clip(times, _FIRST * DAY, _LAST * DAY)
        days, at = np.unique(times // DAY, return_inverse=True)
        # A day on which, and around which, nothing changes has one offset.
        ends = np.array([[self._offset((d - 1) * DAY), self._offset((d + 2) * DAY)] for d in days.tolist()])
        found: np.ndarray = ends[at, 0]
        for i in np.flatnonzero((ends[:, 0] != ends[:, 1])[at]).tolist():
            found[i] = offset(int(times[i]))
        return found

    def _offset(self, moment: int) -> int:
        shown = (EPOCH + timedelta(microseconds=moment)).astimezone(_zone(self.name))
        return _micros(shown.utcoffset())

    def _offset_of_local(self, local: int) -> int:
        naive = (EPOCH + timedelta(microseconds=local)).replace(tzinfo=None)
        shown = naive.replace(tzinfo=_zone(self.name))
        back = shown.astimezone(timezone.utc).astimezone(_zone(self.name))
        return _micros(shown.utcoffset()) if back.replace(tzinfo=None) == naive else NEVER


def _micros(gap: timedelta | None) -> int:
    assert gap is not None
    return (gap.days * 86400 + gap.seconds) * 10**6 + gap.microseconds


@cache
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(f"{name!r} is not a time zone; use a name such as Europe/Berlin or UTC") from None
