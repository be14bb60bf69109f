"""Which steps of which realizations the pieces of the input hold, found before anything is summed.

A realization whose pieces share no step can be summed where it is read. Only the others must meet, all
their records at one key, so that repeated ones are recognised whatever their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from aggmc_beam.beam.values import Reach
from aggmc_beam.tracks import Line

#: With fewer rows to an interval, it is cheaper to let the records meet than to remember their ends.
DENSE = 8
#: With more names than this, a whole bucket meets.
MANY = 10_000

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Coverage:
    """The steps of some realizations as intervals (key, start, stop), `names[key]` being the realization.

    `meets[key]` tells realizations that hold a step twice, or are scattered; they have no intervals.
    """

    names: tuple[str, ...] = ()
    meets: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    key: np.ndarray = field(default_factory=lambda: _NONE)
    start: np.ndarray = field(default_factory=lambda: _NONE)
    stop: np.ndarray = field(default_factory=lambda: _NONE)
    reach: Reach = field(default_factory=Reach)

    def split(self, label: np.ndarray) -> Iterator[tuple[int, Coverage]]:
        """The coverage of the realizations of each label [K]."""
        for one in np.unique(label).tolist():
            members = np.flatnonzero(label == one)
            new = np.full(len(self.names), -1)
            new[members] = np.arange(len(members))
            at = new[self.key] >= 0
            names = tuple(self.names[k] for k in members)
            intervals = new[self.key[at]], self.start[at], self.stop[at]
            yield one, Coverage(names, self.meets[members], *intervals, self.reach)

    def reaching(self, reach: Reach) -> Coverage:
        """With what is known of its group's reach."""
        return replace(self, reach=replace(reach, names=reach.names & frozenset(self.names)))

    def __add__(self, other: Coverage) -> Coverage:
        if not other.names:
            return self
        if not self.names:
            return other
        at = {name: k for k, name in enumerate(self.names)}
        names = [*self.names, *(n for n in other.names if n not in at)]
        at = {name: k for k, name in enumerate(names)}
        theirs = np.array([at[n] for n in other.names], np.int64)
        meets = np.zeros(len(names), bool)
        meets[: len(self.names)] = self.meets
        meets[theirs] |= other.meets
        key = np.concatenate([self.key, theirs[other.key]])
        start, stop = (np.concatenate([getattr(c, n) for c in (self, other)]) for n in ("start", "stop"))
        key, start, stop = _joined(key, start, stop, meets)
        return Coverage(tuple(names), meets, key, start, stop, self.reach + other.reach)


class Covering:
    """Collects the coverage of a piece, block by block."""

    def __init__(self) -> None:
        self.meets = np.zeros(0, bool)
        self.parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = [(_NONE, _NONE, _NONE)]

    def add(self, key: np.ndarray, time: np.ndarray) -> None:
        """Rows in any order; keys are small integers."""
        if not len(key):
            return
        K = max(int(key.max()) + 1, len(self.meets))
        self.meets = np.concatenate([self.meets, np.zeros(K - len(self.meets), bool)])
        line = Line.over((key, time))
        place = line.places(key, time)
        if np.any(np.diff(place) <= 0):
            place = np.sort(place)
        step = np.diff(place)
        self.meets[line.key(place[1:][step == 0])] = True
        heads = np.concatenate([[0], np.flatnonzero(step > 1) + 1])
        tails = np.append(heads[1:], len(place)) - 1
        owner = line.key(place[heads])
        rows, runs = (np.bincount(k, minlength=K) for k in (key, owner))
        self.meets |= runs * DENSE > rows + 3 * DENSE
        kept = ~self.meets[owner]
        self.parts.append((owner[kept], *(line.time(place[at[kept]]) for at in (heads, tails))))

    def coverage(self, names: Sequence[str]) -> Coverage:
        """What was collected, `names` being those of all keys."""
        key, start, stop = (np.concatenate(arrays) for arrays in zip(*self.parts, strict=True))
        intervals = _joined(key, start, stop, self.meets)
        return Coverage(tuple(names), self.meets, *intervals)


def _joined(
    key: np.ndarray, start: np.ndarray, stop: np.ndarray, meets: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Intervals with those joined that touch. Realizations with overlaps are marked and left out."""
    line = Line.over((key, start), (key, stop))
    order = np.lexsort((start, key))
    key, first, last = key[order], *(line.places(key, t)[order] for t in (start, stop))
    ahead = np.maximum.accumulate(last)[:-1] if len(last) else last
    meets[key[1:][first[1:] <= ahead]] = True
    kept = ~meets[key]
    key, first, last = key[kept], first[kept], last[kept]
    head = np.concatenate([[True], first[1:] > last[:-1] + 1])[: len(first)]
    tail = np.append(head[1:], True)[: len(first)]
    return key[head], line.time(first[head]), line.time(last[tail])


@dataclass(frozen=True)
class Verdict:
    """What is known of a bucket once all its coverage has met: how far it reaches, and the realizations
    whose records must meet; None for all of them."""

    reach: Reach
    meets: frozenset[str] | None

    @classmethod
    def of(cls, found: Coverage) -> Verdict:
        names = [found.names[k] for k in np.flatnonzero(found.meets)]
        return cls(found.reach, None if len(names) > MANY else frozenset(names))
