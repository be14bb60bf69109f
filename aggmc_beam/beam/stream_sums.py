"""How the records of a stream are summed: by jackknife group, in values that stay small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from aggmc_beam.beam.stream_values import FIRST, NOBODY, OLD, Delta, Snapshot, pooled
from aggmc_beam.chain import Window
from aggmc_beam.noise.undo import undo_noise
from aggmc_beam.sums.jackknife import Extent, Replicates
from aggmc_beam.sums.kernel import Pairs, find_pairs
from aggmc_beam.sums.moments import Counts
from aggmc_beam.sums.spec import ONE, SumSpec
from aggmc_beam.sums.steps import MAX_BINS
from aggmc_beam.sums.sums import Sums

if TYPE_CHECKING:
    from aggmc_beam.beam.joining import Arrivals
    from aggmc_beam.local.plan import Plan

#: Jackknife groups, unless a config tells. Each has sums of its own, which are kept and handed on at each refresh,
#: so a stream has fewer than the 50 of a file: with 19 degrees of freedom instead of 49 the error of a standard
#: error is 16 instead of 10 percent, and an interval 4 percent longer, which the estimate's `degrees` tell.
REPLICATES = 20
#: Keys over which the sums of a group are spread. More would bear more records a second; fewer leave more of a
#: bundle together.
SHARDS = 4
#: Realizations that are as many as it takes for the rule not to depend on them.
_MANY = 10**9
#: Step means that a jackknife group keeps, as numbers; they are in wider bins where there would be more.
STEP_VALUES = 1 << 16
FEWEST_BINS = 64


@dataclass(frozen=True)
class StreamRule:
    """What a stream is summed by: the spec of its sums, the rule of its jackknife groups, and over how many
    shards, each under a key of its own, these groups are dealt. The records of a window are summed under one key,
    which alone decides what is late."""

    spec: SumSpec
    replicates: Replicates
    shards: int

    @classmethod
    def of(cls, plan: Plan) -> StreamRule:
        config, schema = plan.config, plan.schema
        given = config.uncertainty.replicates
        spec = SumSpec.plan(
            schema.states, config.chain, config.noise, config.population, schema.population is not None,
            plan.settings.open_population, schema.clock, schema.group_by,
            REPLICATES if given is None else given, config.uncertainty.block, schema.realization or "",
            plan.pairwise, config.limits.memory,
        )  # fmt: skip
        rule = Replicates.for_group(spec.chain, len(spec.states), Extent(_MANY, _MANY, 0, _MANY), spec.replicates,
                                    spec.block)  # fmt: skip
        return cls(spec, rule, 1 if isinstance(spec.chain, Window) else SHARDS)

    @property
    def states(self) -> int:
        """How many numbers of a record are summed."""
        return self.spec.columns

    @property
    def weighted(self) -> bool:
        """Whether sums are of shares of populations, weighted by these."""
        return self.spec.populations != ONE

    @property
    def bins(self) -> int:
        """The most bins of step means that are kept."""
        if isinstance(self.spec.chain, Window):
            return MAX_BINS
        return min(MAX_BINS, max(FEWEST_BINS, 1 << max(1, STEP_VALUES // self.states).bit_length() - 1))

    def dealt(self, arrivals: Arrivals) -> Iterator[tuple[int, Delta]]:
        """What arrived by shard. What was counted belongs to none, and goes with the first."""
        whole = arrivals.delta(self.states, self.weighted, named=isinstance(self.spec.chain, Window))
        if self.shards == 1 or not len(whole.time):
            yield 0, whole
            return
        counts, populations = whole.counts, whole.populations
        for shard, rows in self._shards(whole):
            yield shard, replace(whole.part(rows), counts=counts, populations=populations)
            counts, populations = Counts(), NOBODY

    def _shards(self, delta: Delta) -> Iterator[tuple[int, np.ndarray]]:
        """The rows that each shard needs: its new records and pairs, with both rows of these."""
        n = len(delta.time)
        label = self.replicates.labels(delta.numbers[delta.key], delta.time) % self.shards
        if self.replicates.per_key == 1:
            owner, row = label, np.arange(n)
        else:
            pairs = find_pairs(delta.key, delta.time, _settled(delta))
            left1, left2 = np.flatnonzero(pairs.next1 < n), np.flatnonzero(pairs.next2 < n)
            new = np.flatnonzero(delta.mark != OLD)
            row = np.concatenate([new, left1, pairs.next1[left1], left2, pairs.next2[left2]])
            owner = np.concatenate([label[new], label[left1], label[left1], label[left2], label[left2]])
            owner, row = np.divmod(np.unique(owner * n + row), n)
        order = np.argsort(owner, kind="stable")
        starts = np.flatnonzero(np.diff(owner[order], prepend=-1))
        for a, b in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
            yield int(owner[order[a]]), row[order[a:b]]

    def records(self, delta: Delta, shard: int) -> int:
        """How many new records of a shard there are."""
        new = delta.mark != OLD
        if self.shards > 1 and self.replicates.per_key > 1:
            label = self.replicates.labels(delta.numbers[delta.key], delta.time)
            new = new & (label % self.shards == shard)
        return int(new.sum())

    def sums(self, deltas: Sequence[Delta], shard: int) -> Snapshot:
        """The sums of what came for a shard."""
        found = Snapshot.zero(self.states)
        counts = sum((d.counts for d in deltas), Counts())
        for d in deltas:
            found = replace(found, populations=pooled(found.populations, d.populations))
        filled = [d for d in deltas if len(d.time)]
        if filled:
            found = self._summed(_joined(filled), shard, found)
        if any(vars(counts).values()):
            found = replace(found, sums=found.sums.counted(counts))
        return found

    def _summed(self, all: Delta, shard: int, into: Snapshot) -> Snapshot:
        values, time, weight = all.values, all.time, None
        if self.spec.undo:
            values = undo_noise(values.astype(np.float64), time, self.spec.noise)
        if self.weighted:
            assert all.population is not None
            weight = all.population[all.key]
            values = values / weight[:, None]
        replicate = self.replicates.labels(all.numbers[all.key], time)
        pairs, mine = find_pairs(all.key, time, _settled(all)), np.ones(len(time), bool)
        if self.shards > 1:
            mine = replicate % self.shards == shard
            next1, next2 = (np.where(mine, to, len(time)) for to in (pairs.next1, pairs.next2))
            assert pairs.new is not None
            pairs = Pairs(next1, next2, pairs.new & mine)
        firsts = np.flatnonzero((all.mark == FIRST) & mine)
        group = np.zeros(len(time), np.int64)
        sums = Sums.of_rows(values, time, all.key, pairs, group, self.spec.chain, replicate, weight, firsts)
        new = time[(all.mark != OLD) & mine]
        sums = replace(sums, steps=sums.steps.in_bins(self.bins))
        return replace(
            into,
            sums=sums,
            first=int(new.min(initial=into.first)),
            last=int(new.max(initial=into.last)),
        )

    def total(self, parts: Iterable[Snapshot]) -> Snapshot:
        """All of them."""
        found = Snapshot.zero(self.states)
        for part in parts:
            found = found + part
        return replace(found, sums=replace(found.sums, steps=found.sums.steps.in_bins(self.bins)))


def without_late(delta: Delta, floor: int) -> tuple[Delta, Delta | None]:
    """What is in time, and what is late: new records before the floor, if there are any."""
    late = (delta.mark != OLD) & (delta.time < floor)
    if not late.any():
        return delta, None
    counts = delta.counts + Counts(late=int(late.sum()))
    kept = replace(delta.part(np.flatnonzero(~late)), counts=counts, populations=delta.populations)
    return kept, delta.part(np.flatnonzero(late))


def _settled(delta: Delta) -> np.ndarray:
    return np.asarray(delta.mark == OLD, np.int8)


def _joined(deltas: Sequence[Delta]) -> Delta:
    """The rows of several, each with realizations of its own: what they share, they hold as older records."""
    if len(deltas) == 1:
        return deltas[0]
    size = np.array([len(d.numbers) for d in deltas])
    offset = np.repeat(np.cumsum(size) - size, [len(d.time) for d in deltas])
    population = [d.population for d in deltas if d.population is not None]
    return Delta(
        np.concatenate([d.numbers for d in deltas]),
        np.concatenate([d.key for d in deltas]) + offset,
        np.concatenate([d.time for d in deltas]),
        np.concatenate([d.values for d in deltas]),
        np.concatenate([d.mark for d in deltas]),
        np.concatenate(population) if population else None,
    )
