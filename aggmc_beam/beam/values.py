"""The values that travel between workers. Plain data: nothing here knows Beam."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from aggmc_beam.digest import Digest, Replicates
from aggmc_beam.local.survey import Extent
from aggmc_beam.moments import Counts, Moments
from aggmc_beam.profile import Profile
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
    of repeated records is the first.
    """

    group: Group
    names: tuple[str, ...]
    key: np.ndarray
    time: np.ndarray
    values: np.ndarray
    place: np.ndarray
    population: np.ndarray | None = None
    state: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True)
class Reach:
    """How far a group's data reach, as far as the rule of jackknife groups asks.

    `names`: its realizations, but no more than `ENOUGH`. `place` is that of its first row, by which
    groups are ordered.
    """

    names: frozenset[str] = frozenset()
    first: int = 2**62
    last: int = -(2**62)
    place: tuple[int, int] = (2**62, 0)

    def __add__(self, other: Reach) -> Reach:
        names = self.names | other.names
        return Reach(
            frozenset(sorted(names)[:ENOUGH]),
            min(self.first, other.first),
            max(self.last, other.last),
            min(self.place, other.place),
        )

    @property
    def extent(self) -> Extent:
        return Extent(len(self.names), self.first, self.last)


@dataclass
class Snapshot:
    """Sums that are still being added to: what a refresh is estimated from. `+=` changes it.

    `populations` summarises those of the realizations: number, sum, least, greatest. `first` and
    `last` are the outermost steps.
    """

    states: int
    parts: dict[tuple[int, int], Moments] = field(default_factory=dict)
    profiles: dict[int, Profile] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    populations: tuple[float, float, float, float] = (0.0, 0.0, np.inf, -np.inf)
    first: int = 2**62
    last: int = -(2**62)

    @property
    def records(self) -> int:
        return sum(m.records for m in self.parts.values())

    @property
    def age(self) -> tuple[int, int, int]:
        """Grows with everything that is added; of two snapshots of one key the greater is the newer."""
        return self.records, self.counts.duplicates + self.counts.late, self.counts.realizations

    def add(self, digest: Digest, counts: Counts, first: int, last: int, population: float | None) -> None:
        for at, moments in digest.parts.items():
            self.parts[at] = self.parts[at] + moments if at in self.parts else moments
        for replicate, profile in digest.profiles.items():
            known = self.profiles.get(replicate)
            self.profiles[replicate] = profile if known is None else known + profile
        self.counts = self.counts + counts
        self.first, self.last = min(self.first, first), max(self.last, last)
        if population is not None:
            one = (1.0, population, population, population)
            self.populations = _pooled(self.populations, one)

    def merge(self, other: Snapshot) -> None:
        digest = Digest(other.states, other.parts, other.profiles)
        self.add(digest, other.counts, other.first, other.last, None)
        self.populations = _pooled(self.populations, other.populations)

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
    """What one arrival added to a realization: its new records with the neighbours that they met.

    `settled` is 0 for the new rows. `population` is given when the realization is met first. With
    `cell`, only what belongs to that cell is meant; the other rows are there as neighbours.
    """

    number: int
    time: np.ndarray
    values: np.ndarray
    settled: np.ndarray
    weight: np.ndarray | None = None
    counts: Counts = field(default_factory=Counts)
    population: float | None = None
    cell: int | None = None


def _pooled(
    a: tuple[float, float, float, float], b: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
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
