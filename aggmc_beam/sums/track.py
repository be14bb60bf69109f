"""Track: what one realization must remember in a stream, where records come one at a time and in any order."""

from __future__ import annotations

from bisect import bisect_left
from typing import Generic, TypeVar

Row = TypeVar("Row")


class Track(Generic[Row]):
    """Covered steps as intervals starts[i] ... stops[i], sorted and apart, and the open records by step.

    A record within two steps of an uncovered one is open: it may still find a neighbour. All others are
    forgotten, so memory is O(gaps): records that come in order leave four. What a record holds is not looked at.

    >>> track = Track()
    >>> track.take(0, "a"), track.take(2, "c"), track.take(1, "b"), track.take(1, "again")
    ([], [(0, 'a')], [(0, 'a'), (2, 'c')], None)
    >>> track.starts, track.stops
    ([0], [2])
    """

    __slots__ = ("open", "starts", "stops")

    def __init__(
        self,
        starts: list[int] | None = None,
        stops: list[int] | None = None,
        open: dict[int, Row] | None = None,
    ) -> None:
        self.starts = [] if starts is None else starts
        self.stops = [] if stops is None else stops
        self.open: dict[int, Row] = {} if open is None else open

    def copy(self) -> Track[Row]:
        """One that is not changed with this one; records are shared."""
        return Track(self.starts.copy(), self.stops.copy(), self.open.copy())

    def take(self, t: int, row: Row) -> list[tuple[int, Row]] | None:
        """Take a record; the open records one and two steps away, in order of time, or None if its step is
        covered."""
        starts, stops, rows = self.starts, self.stops, self.open
        i = bisect_left(stops, t)
        if i < len(starts) and starts[i] <= t:
            return None
        near = [(s, rows[s]) for s in (t - 2, t - 1, t + 1, t + 2) if s in rows]
        start, stop = self._cover(t, i)
        for s, _ in near:
            if start + 2 <= s <= stop - 2:
                del rows[s]
        if not start + 2 <= t <= stop - 2:
            rows[t] = row
        return near

    def _cover(self, t: int, i: int) -> tuple[int, int]:
        """Cover step t, which lies before interval i and after the one before; the interval that it is in now."""
        starts, stops = self.starts, self.stops
        after = i < len(starts) and starts[i] == t + 1
        if i and stops[i - 1] == t - 1:
            if after:
                stops[i - 1] = stops[i]
                del starts[i], stops[i]
            else:
                stops[i - 1] = t
            return starts[i - 1], stops[i - 1]
        if after:
            starts[i] = t
        else:
            starts.insert(i, t)
            stops.insert(i, t)
        return starts[i], stops[i]
