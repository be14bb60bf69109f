"""The values that travel between workers. Plain data: nothing here knows Beam."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from aggmc_beam.beam.former.survey import Extent
from aggmc_beam.digest import Digest, Replicates
from aggmc_beam.moments import Counts, Moments
from aggmc_beam.profile import Profile
from aggmc_beam.records import Record
from aggmc_beam.saved import Sums
from aggmc_beam.track import Track
from aggmc_beam.tracks import Tracks

Group = tuple[str, ...]
#: From this many realizations on, the rule of jackknife groups no longer depends on how many there are.
ENOUGH = 20
#: Longest text of a record that the dead-letter output keeps.
MAX_PAYLOAD = 1000
#: Those of realizations in short: number, sum, least, greatest.
Populations = tuple[float, float, float, float]
NOBODY: Populations = (0.0, 0.0, np.inf, -np.inf)


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


@dataclass
class Snapshot:
    """Sums that are still being added to: what a refresh is estimated from. `first` and `last` are the
    outermost steps."""

    states: int
    parts: dict[tuple[int, int], Moments] = field(default_factory=dict)
    profiles: dict[int, Profile] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    populations: Populations = NOBODY
    first: int = 2**62
    last: int = -(2**62)

    @property
    def records(self) -> int:
        return sum(m.records for m in self.parts.values())

    @property
    def age(self) -> int:
        """Grows with everything that is added; of two snapshots of one key the greater is the newer."""
        counts = self.counts
        return self.records + counts.duplicates + counts.late + counts.rejected

    def add(
        self, digest: Digest, counts: Counts, first: int, last: int, populations: Populations = NOBODY
    ) -> None:
        for at, moments in digest.parts.items():
            self.parts[at] = self.parts[at] + moments if at in self.parts else moments
        for replicate, profile in digest.profiles.items():
            known = self.profiles.get(replicate)
            self.profiles[replicate] = profile if known is None else known + profile
        self.counts = self.counts + counts
        self.first, self.last = min(self.first, first), max(self.last, last)
        self.populations = pooled(self.populations, populations)

    def merge(self, other: Snapshot) -> None:
        digest = Digest(other.states, other.parts, other.profiles)
        self.add(digest, other.counts, other.first, other.last, other.populations)

    def between(self, start: int, stop: int, pane: int) -> Snapshot:
        """What it holds of the steps from `start` up to `stop`, where a cell is a pane of that many."""
        parts = {at: m for at, m in self.parts.items() if start <= at[0] * pane < stop}
        profiles = {r: p.between_steps(start, stop) for r, p in self.profiles.items()}
        return replace(
            self,
            parts=parts,
            profiles={r: p for r, p in profiles.items() if len(p.bins)},
            first=max(self.first, start),
            last=min(self.last, stop - 1),
        )

    def sums(self, group: dict[str, str] | None, rule: Replicates) -> Sums:
        """As a run's sums, to be estimated from. Tracks tell no more than the span."""
        one, none = np.zeros(1, np.int64), np.zeros(0, np.int64)
        tracks = Tracks(
            self.states, one, one + self.first, one + self.last, none, none,
            np.zeros((0, self.states)), np.zeros(0),
        )  # fmt: skip
        number, total, low, high = self.populations
        population = None
        if number:
            # Two that have the mean of all, and differ if any do: all that an estimate asks.
            half = 0.0 if low == high else (high - low) / 2
            population = np.array([total / number - half, total / number + half])
            if low == high:
                population = np.array([low, low])
        digest = Digest(self.states, dict(self.parts), dict(self.profiles))
        return Sums(group, digest.counted(self.counts), rule, [], tracks, population)


@dataclass(frozen=True)
class Delta:
    """What arrivals added: new records, each with the neighbours that it met, and what was counted.

    Rows [n, S] stand arrival by arrival; `sizes` tells how many rows each arrival has, `numbers` the
    number of its realization, and `first` is 1 where that was met for the first time. `settled` is 0 for
    new rows. `payloads` are the arrivals as they came, where a record may turn out to be late.
    """

    numbers: np.ndarray
    sizes: np.ndarray
    first: np.ndarray
    time: np.ndarray
    values: np.ndarray
    settled: np.ndarray
    weight: np.ndarray | None = None
    counts: Counts = field(default_factory=Counts)
    populations: Populations = NOBODY
    payloads: tuple[str, ...] = ()

    @property
    def arrival(self) -> np.ndarray:
        """To which arrival each row belongs."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


@dataclass
class Known:
    """What is remembered of one realization: when it was last heard of (microseconds), its track, or
    once it is forgotten the step up to which it was known; its population, if it has one of its own.

    `pending`: a runner has been given it, and did not make bytes of it yet.
    """

    newest: int
    track: Track | None = None
    floor: int | None = None
    population: float | None = None
    pending: bool = field(default=False, compare=False)

    def copy(self) -> Known:
        """One that is not changed with this one, and that no runner has been given."""
        track = None if self.track is None else self.track.copy()
        return Known(self.newest, track, self.floor, self.population)


@dataclass
class Status:
    """Where the sums of a key stand: the cells that changed since they were handed on, the event time
    that is known to have passed, whether a refresh is due, and the newest event time (microseconds)."""

    changed: set[int] = field(default_factory=set)
    passed: int | None = None
    pending: bool = False
    newest: int = -(2**62)


def pooled(a: Populations, b: Populations) -> Populations:
    return a[0] + b[0], a[1] + b[1], min(a[2], b[2]), max(a[3], b[3])


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
