"""The values that travel between workers. Plain data: nothing here knows Beam."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from aggmc_beam.beam.former.survey import Extent
from aggmc_beam.digest import Digest, Replicates
from aggmc_beam.records import Record
from aggmc_beam.saved import Sums
from aggmc_beam.tracks import Tracks

Group = tuple[str, ...]
#: From this many realizations on, the rule of jackknife groups no longer depends on how many there are.
ENOUGH = 20
#: Longest text of a record that the dead-letter output keeps.
MAX_PAYLOAD = 1000


@dataclass(frozen=True)
class Batch:
    """Records of one group, or rows of a long table, as arrays over n of them.

    `names[key[i]]` is the realization of row i; `values` [n, S], or [n, 1] with `state` [n] for the
    rows of a long table; `place` [n, 2] the number of the file and the row in it, which decides which
    of repeated records is the first. Without places a checksum of the counts decides.
    """

    group: Group
    names: tuple[str, ...]
    key: np.ndarray
    time: np.ndarray
    values: np.ndarray
    place: np.ndarray | None = None
    population: np.ndarray | None = None
    state: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.time)

    def record(self, i: int) -> Record:
        """Row i of a batch of records. A copy, so that it does not keep the whole batch alive."""
        population = None if self.population is None else float(self.population[i])
        counts = np.array(self.values[i], np.float64)
        return Record(self.names[self.key[i]], int(self.time[i]), counts, population, self.group)


@dataclass(frozen=True)
class Reach:
    """How far a group's data reach, as far as the rule of jackknife groups asks.

    `names`: its realizations, but no more than `ENOUGH`. `place` is that of its first row, by which
    groups are ordered. `rows` is how many must meet, 0 where nobody counts them.
    """

    names: frozenset[str] = frozenset()
    first: int = 2**62
    last: int = -(2**62)
    place: tuple[int, int] = (2**62, 0)
    rows: int = 0

    def __add__(self, other: Reach) -> Reach:
        names = self.names | other.names
        return Reach(
            frozenset(sorted(names)[:ENOUGH]),
            min(self.first, other.first),
            max(self.last, other.last),
            min(self.place, other.place),
            self.rows + other.rows,
        )

    @property
    def extent(self) -> Extent:
        """At least one realization and step, also of a group without a good row."""
        return Extent(len(self.names), self.first, self.last) if self.names else Extent(1, 0, 0)


def reach_of(batch: Batch) -> Reach:
    """How far the rows of a batch reach, of which there is at least one."""
    place = (0, 0) if batch.place is None else (int(batch.place[0, 0]), int(batch.place[0, 1]))
    first, last = int(batch.time.min()), int(batch.time.max())
    return Reach(frozenset(batch.names), first, last, place, len(batch)) + Reach()


def empty_sums(S: int) -> Sums:
    """The identity of joining sums."""
    return Sums(None, Digest.zero(S), Replicates(1), [], Tracks.empty(S))


def without_tracks(sums: Sums) -> Sums:
    """The same sums with no more of each realization than the span of all; they cannot be resumed."""
    if not len(sums.tracks.start):
        return sums
    first, steps = sums.span
    bare = Tracks.empty(sums.tracks.states)
    one = np.zeros(1, np.int64)
    bare = replace(bare, key=one, start=one + first, stop=one + first + steps - 1)
    return replace(sums, tracks=bare)
