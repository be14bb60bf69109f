"""Records in, sums out: the bookkeeping of a run over any number of groups and realizations."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from aggmc_beam.beam.former.assemble import Records, Refused
from aggmc_beam.beam.former.keys import Group, Keys
from aggmc_beam.beam.former.survey import Extent
from aggmc_beam.chain import Chain, EachStep
from aggmc_beam.digest import Digest, Replicates, jackknife_groups
from aggmc_beam.errors import InputError
from aggmc_beam.moments import Counts
from aggmc_beam.noise import Exact
from aggmc_beam.pairing import Block
from aggmc_beam.prepare import Preparation
from aggmc_beam.records import Schema
from aggmc_beam.saved import Saved, Sums
from aggmc_beam.tracks import Tracks

#: How a realization's population is known: not at all or one for all, from a column, or by its total.
ONE, COLUMN, TOTALS = "one", "column", "totals"


@dataclass
class Accumulator:
    """Sums of all groups so far."""

    schema: Schema
    chain: Chain
    preparation: Preparation
    populations: str
    keys: Keys
    refused: Refused
    population: float | None = None
    digests: list[Digest] = field(default_factory=list)
    rules: list[Replicates] = field(default_factory=list)
    known: np.ndarray = field(default_factory=lambda: np.zeros(0))
    kept: int = 0
    used: int = 0
    duplicate: int = 0
    """Records that entered the sums in this run, their rows, and the rows of records that had been met."""
    conflicts: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tracks = Tracks.empty(len(self.schema.states))

    def resume(self, saved: Saved) -> None:
        """Start from the sums of an earlier run."""
        parts: list[tuple[Tracks, np.ndarray]] = []
        known: list[np.ndarray] = []
        for sums in saved.groups:
            group = tuple((sums.group or {}).get(c, "") for c in self.schema.group_by)
            self.keys.add_group(group)
            keys = np.array([self.keys.add(group, name) for name in sums.realizations], np.int64)
            self.digests.append(sums.digest)
            self.rules.append(sums.rule)
            parts.append((sums.tracks, keys))
            known.append(np.full(len(keys), np.nan) if sums.population is None else sums.population)
        self.known = np.concatenate([*known, np.zeros(0)])
        for tracks, keys in parts:
            self.tracks.merge(tracks.renumbered(keys))

    def add_groups(self, extents: dict[Group, Extent], replicates: int | None, block: int | None) -> None:
        """Make the jackknife rules of groups that an earlier run did not have."""
        for name in extents:
            self.keys.add_group(name)
        for name in self.keys.groups[len(self.rules) :]:
            # A group may have rows, and none of them good.
            self.add_rule(extents.get(name, Extent(1, 0, 0)), replicates, block)

    def add_rule(self, extent: Extent, replicates: int | None, block: int | None) -> None:
        """The jackknife rule of the group that comes next in `keys.groups`."""
        steps = extent.last - extent.first + 1
        S = len(self.schema.states)
        groups = jackknife_groups(S, replicates)
        self.digests.append(Digest.zero(S))
        self.rules.append(rule(self.chain, extent.realizations, steps, extent.first, groups, block))

    @property
    def records(self) -> int:
        """How many records are in the sums, those of earlier runs included."""
        return sum(digest.total.records for digest in self.digests)

    @property
    def filled(self) -> list[int]:
        """The groups that have sums, by number."""
        return [g for g, digest in enumerate(self.digests) if digest.parts]

    @property
    def open_values(self) -> int:
        """How many values are held that later records could pair with."""
        return self.tracks.open_values.size

    def take(self, records: Records) -> None:
        records, N = self._populations(records)
        if not len(records.key):
            return
        counts = np.ascontiguousarray(records.counts, np.float64)
        values = self.preparation.values(counts, records.time, N)
        weight = N if self.preparation.weighted else None
        taken = self.tracks.take(records.key, records.time, values, weight)
        self._sum(taken.block, taken.firsts)
        again = records.rows_of(taken.repeated)
        self.kept += len(records.key) - len(taken.repeated)
        self.used += records.all_rows - again
        self.duplicate += again
        if len(taken.repeated):
            self.count_duplicates(self.keys.group[records.key[taken.repeated]])
            self.conflicts.append(records.place[taken.conflicting])
            self.refused.conflicting += len(taken.conflicting)

    def count_duplicates(self, groups: np.ndarray) -> None:
        """Count one duplicate for each entry, in that group."""
        for group, number in zip(*np.unique(groups, return_counts=True), strict=True):
            if group < len(self.digests) and self.digests[group].parts:
                self.digests[group] = self.digests[group].counted(Counts(duplicates=int(number)))

    def count_repeated(self) -> None:
        """Count the repeated rows that never became records."""
        for keys in self.refused.repeated:
            self.count_duplicates(self.keys.group[keys])

    def _sum(self, block: Block, firsts: np.ndarray) -> None:
        assert block.key is not None
        group = self.keys.group[block.key]
        first = np.zeros(len(group), bool)
        first[firsts] = True
        numbers = self.keys.numbers[block.key]
        for g in np.unique(group):
            at = np.flatnonzero(group == g)
            part = _part(block, at) if len(at) < len(group) else block
            labels = self.rules[g].labels(numbers[at], part.time)
            self.digests[g] += Digest.of_block(part, self.chain, labels, np.flatnonzero(first[at]))

    def _populations(self, records: Records) -> tuple[Records, np.ndarray | None]:
        """The population of each record; records that contradict it are refused."""
        if self.populations == ONE:
            if self.population is not None and isinstance(self.preparation.noise, Exact):
                self._check_totals(records, self.population)
            return records, None
        found = records.counts.sum(1) if self.populations == TOTALS else records.population
        assert found is not None
        self.known = np.concatenate([self.known, np.full(len(self.keys) - len(self.known), np.nan)])
        fresh, first = np.unique(records.key, return_index=True)
        new = np.isnan(self.known[fresh])
        self.known[fresh[new]] = found[first[new]]
        expected = self.known[records.key]
        same = np.isclose(found, expected, rtol=1e-9, atol=0)
        if self.populations == TOTALS:
            self._check_closed(records, found, expected, same)
            return records, expected
        if isinstance(self.preparation.noise, Exact):
            self._check_totals(records, expected)
        for at in np.flatnonzero(~same):
            file, row = records.place[np.array([at])][0].tolist()
            self.refused.reasons[file, row] = (
                f"population {found[at]:g} differs from {expected[at]:g}, given before for realization "
                f"{self.keys.realizations[records.key[at]]!r}"
            )
        self.refused.add(records.place[~same], rows=records.rows_of(np.flatnonzero(~same)))
        kept = np.flatnonzero(same)
        return records.part(kept), expected[kept]

    def _check_closed(
        self, records: Records, total: np.ndarray, expected: np.ndarray, same: np.ndarray
    ) -> None:
        wrong = np.flatnonzero(~same | (total <= 0))
        if len(wrong):
            at = wrong[0]
            name = self.keys.realizations[records.key[at]]
            raise InputError(
                "the totals of exact counts change with time, so the population is not closed or the counts "
                f"are noisy; name the noise model or give the population (realization {name!r}, time "
                f"{self.schema.clock.label(int(records.time[at]))}: {total[at]:g}, before {expected[at]:g})"
            )

    def _check_totals(self, records: Records, population: np.ndarray | float) -> None:
        totals = records.counts.sum(1)
        excess = np.flatnonzero(totals > population * (1 + 1e-9))
        if len(excess):
            at = excess[0]
            N = np.broadcast_to(population, totals.shape)[at]
            raise InputError(
                f"realization {self.keys.realizations[records.key[at]]!r}, time "
                f"{self.schema.clock.label(int(records.time[at]))} counts {totals[at]:g} individuals, more "
                f"than the population {N:g}; correct the population, or name the noise model if the counts "
                "are noisy"
            )

    def saved(self, remember: bool = True) -> Saved:
        """Everything, ready to be stored, estimated from or resumed. For estimates alone, nobody needs to
        `remember` what realizations there are."""
        groups = [self._sums_of(g, remember) for g in self.filled]
        undone = self.preparation.noise if self.preparation.undo else None
        clock = (self.schema.clock.step, self.schema.clock.origin)
        return Saved(self.schema.states, self.chain, groups, self.preparation.weighted, undone, clock)

    def _sums_of(self, g: int, remember: bool) -> Sums:
        name = dict(zip(self.schema.group_by, self.keys.groups[g], strict=True)) or None
        group, realizations = self.keys.group, self.keys.realizations
        members = np.flatnonzero(group == g)
        keys = np.full(len(group), -1)
        keys[members] = np.arange(len(members))
        return Sums(
            name,
            self.digests[g],
            self.rules[g],
            [realizations[k] for k in members],
            self.tracks if len(members) == len(group) else self.tracks.renumbered(keys),
            None if self.populations == ONE else self.known[members],
        )


def rule(chain: Chain, K: int, T: int, start: int, replicates: int, block: int | None = None) -> Replicates:
    """The rule of jackknife groups; with `block`, one that does not depend on how much data there is."""
    if block is not None and not isinstance(chain, EachStep):
        return Replicates(replicates, replicates, block * replicates, 0)
    return Replicates.plan(K, T, replicates, start, blocks=not isinstance(chain, EachStep))


def _part(block: Block, at: np.ndarray) -> Block:
    assert block.key is not None
    weight = None if block.weight is None else block.weight[at]
    settled = None if block.settled is None else block.settled[at]
    return Block(block.values[at], block.time[at], block.key[at], weight, settled)
