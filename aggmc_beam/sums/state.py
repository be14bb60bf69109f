"""AggregationState: records in, sums out; the accumulator of every engine.

Blocks of records may come in any order, repeat each other and be merged from parts. Each (realization, time) is
counted once within a state, pairs are formed over the borders of blocks, and every row that came is used, a
duplicate, or refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aggmc_beam.budget import check_memory, size_of_fit, size_of_sums
from aggmc_beam.noise.undo import undo_noise
from aggmc_beam.sums.jackknife import Extent, Replicates
from aggmc_beam.sums.kernel import find_pairs
from aggmc_beam.sums.moments import Counts
from aggmc_beam.sums.populations import check_populations, told_populations, usual_populations
from aggmc_beam.sums.records import Group, Records, extents_of, realization_numbers
from aggmc_beam.sums.spec import MISSING, ONE, REFUSED, SumSpec
from aggmc_beam.sums.sums import Sums, add_sums
from aggmc_beam.sums.tracks import Taken, Tracks

#: The rule of a group without records.
_NO_RULE = Replicates(0)


@dataclass(frozen=True)
class Added:
    """What became of a block: positions of records that were dropped as repeated, of those among them that are
    known to differ from the record that was kept, and the reasons of those that were refused."""

    repeated: np.ndarray
    conflicting: np.ndarray
    refused: Mapping[int, str]


class AggregationState:
    """The sums of all groups so far, and what their realizations must remember.

    >>> import aggmc_beam as am
    >>> from aggmc_beam.chain import Stationary
    >>> y, _ = am.simulate(states=2, steps=6, realizations=3, seed=1)
    >>> state = AggregationState(SumSpec(("in", "out"), Stationary()))
    >>> block = Records.of_array(y)
    >>> len(state.add(block).repeated), len(state.add(block).repeated)
    (0, 18)
    >>> state.sums.total.records, state.sums.total.counts.duplicates
    (18, 18)
    """

    def __init__(self, spec: SumSpec) -> None:
        S = spec.columns
        self.spec = spec
        self.groups: list[Group] = []
        self.rules: list[Replicates] = []
        self.names = np.zeros(0, np.int64)
        self.group_of = np.zeros(0, np.int64)
        self.numbers = np.zeros(0, np.int64)
        self.population = np.zeros(0)
        self.tracks = Tracks.empty(S)
        self._parts = [Sums.zero(S)]
        self._centre = np.zeros((0, S))
        self.of_shares = False
        self._group_at: dict[Group, int] = {}
        self._key_at: dict[tuple[int, str], int] | None = None

    @property
    def sums(self) -> Sums:
        if len(self._parts) > 1:
            self._join_parts()
        return self._parts[0]

    @sums.setter
    def sums(self, sums: Sums) -> None:
        self._parts = [sums]

    def _put(self, part: Sums) -> None:
        """Add the sums of a block. Parts are joined when together they are as large as the first, so that a block
        costs no more than it holds."""
        self._parts.append(part)
        size, *more = (len(p.label) * self.spec.columns + len(p.steps.key) for p in self._parts)
        if sum(more) >= size:
            self._join_parts()

    def _join_parts(self) -> None:
        self._parts = [add_sums(self.spec.columns, self._parts)]

    def _centres(self) -> np.ndarray | None:
        """[groups, S]: about what the sums of groups are, as far as there are any."""
        if len(self._centre) < len(self.groups) or np.isnan(self._centre).any():
            found = np.full((len(self.groups), self.spec.columns), np.nan)
            first = self._parts[0]
            found[first.label[:, 0]] = first.centre
            self._centre = found
        return None if np.isnan(self._centre).all() else self._centre

    @property
    def records(self) -> int:
        return int(self.sums.number[:, 0].sum())

    def expect(self, extents: Mapping[Group, Extent]) -> None:
        """Make the jackknife rules of groups before their records come, where these come in several blocks."""
        for group, extent in extents.items():
            self._add_group(group, extent)

    def add(self, records: Records) -> Added:
        """Add a block."""
        none = np.zeros(0, np.int64)
        if not len(records):
            return Added(none, none, {})
        records = records.without_unused_names()
        key = self._keys(records)[records.realization]
        N, refused = self._populations(records, key)
        if self.spec.gaps == REFUSED and records.counts.dtype.kind == "f":
            refused |= dict.fromkeys(np.flatnonzero(np.isnan(records.counts).any(1)).tolist(), MISSING)
        at = None
        if refused:
            at = np.setdiff1d(np.arange(len(records)), np.fromiter(refused, np.int64))
            records, key, N = records.take(at), key[at], None if N is None else N[at]
        values, weight = self.spec.summed(records.counts), None
        if self.spec.undo:
            values = undo_noise(np.asarray(values, np.float64), records.time, self.spec.noise)
        if N is not None and (self.of_shares or not self._is_one_population()):
            self._use_shares()
            values, weight = values / N[:, None], N
        taken = self.tracks.take(key, records.time, values, weight)
        group = self.group_of[taken.key]
        self._make_rules(taken, group)
        pairs = find_pairs(taken.key, taken.time, taken.settled)
        replicate = self._replicates(taken.key, taken.time, group)
        self._check_memory(group, taken.time, replicate)
        self._put(Sums.of_rows(
            taken.values, taken.time, taken.key, pairs, group, self.spec.cells, replicate, taken.weight,
            taken.firsts, self._centres(),
        ))  # fmt: skip
        self._count(self.group_of[key[taken.repeated]], "duplicates")
        if at is None:
            return Added(taken.repeated, taken.conflicting, refused)
        return Added(at[taken.repeated], at[taken.conflicting], refused)

    def count(self, group: Group, **counts: int) -> None:
        """Add to what was met of a group, such as rejected=3."""
        if group in self._group_at:
            self.sums = self.sums.counted(Counts(**counts), self._group_at[group])

    def __add__(self, other: AggregationState) -> AggregationState:
        """The state of the records of both, with the pairs between them. Steps that both hold were summed twice,
        and are counted as overlaps."""
        self.spec.check_joins(other.spec, "these sums")
        if not len(other.names):
            return self
        if not len(self.names):
            return other
        both = self.copy()
        numbers = np.array([both._add_group(group) for group in other.groups], np.int64)
        for g, rule in zip(numbers.tolist(), other.rules, strict=True):
            both.rules[g] = rule if both.rules[g] == _NO_RULE else both.rules[g]
        keys = both._add_names(other.names, numbers[other.group_of], other.numbers)
        both._know(keys, other.population)
        if both.of_shares or other.of_shares or not both._is_one_population():
            both._use_shares()
            other = other.copy()
            other._use_shares()
        between = both.tracks.merge(other.tracks.renumbered(keys))
        pairs = find_pairs(between.key, between.time, between.settled)
        group = both.group_of[between.key]
        weight = between.weight if both.of_shares else None
        between_sums = Sums.of_rows(
            between.values, between.time, between.key, pairs, group, both.spec.cells,
            both._replicates(between.key, between.time, group), weight, np.zeros(0, np.int64),
        )  # fmt: skip
        both.sums = both.sums + other.sums.renumbered(numbers) + between_sums
        for g, shared in _by_group(both.group_of[between.shared]):
            both.sums = both.sums.counted(Counts(realizations=-shared), g)
        for g, overlaps in _by_group(both.group_of[between.overlaps]):
            both.sums = both.sums.counted(Counts(overlaps=overlaps), g)
        return both

    def index_groups(self) -> None:
        """Find groups by name, after they were set."""
        self._group_at, self._key_at = {group: g for g, group in enumerate(self.groups)}, None

    def to_bytes(self, deflate: bool = True) -> bytes:
        """Bytes that `from_bytes` turns back into an equal state; quicker and larger without `deflate`."""
        from aggmc_beam.sums.run_file import state_to_bytes

        return state_to_bytes(self, deflate)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, source: str = "these bytes") -> AggregationState:
        from aggmc_beam.sums.run_file import state_from_bytes

        return state_from_bytes(data, source)

    def copy(self) -> AggregationState:
        """One that is not changed with this one."""
        found = AggregationState(self.spec)
        vars(found).update(vars(self))
        found.groups, found.rules = list(self.groups), list(self.rules)
        found._group_at, found._key_at = dict(self._group_at), None
        found.tracks, found._parts = replace(self.tracks), list(self._parts)
        return found

    def span(self, group: int | None = None) -> tuple[int, int]:
        """First step of a group, or of all, and the number of steps from there to the last."""
        at = slice(None) if group is None else self.group_of[self.tracks.key] == group
        start, stop = self.tracks.start[at], self.tracks.stop[at]
        if not len(start):
            return 0, 1
        return int(start.min()), int(stop.max() - start.min()) + 1

    def _add_group(self, group: Group, extent: Extent | None = None) -> int:
        """The number of a group. Without an extent its rule is made when its first records are added."""
        at = self._group_at.get(group)
        if at is None:
            at = self._group_at[group] = len(self.groups)
            self.groups.append(group)
            self.rules.append(_NO_RULE)
        if extent is not None and self.rules[at] == _NO_RULE:
            spec = self.spec
            self.rules[at] = Replicates.for_group(
                spec.chain, len(spec.states), extent, spec.replicates, spec.block
            )
        return at

    def _make_rules(self, taken: Taken, group: np.ndarray) -> None:
        """The jackknife rules of groups that had no records before."""
        if any(rule == _NO_RULE for rule in self.rules):
            for number, extent in extents_of(taken.key, taken.time, group).items():
                self._add_group(self.groups[number], extent)

    def _keys(self, records: Records) -> np.ndarray:
        """The key of each realization of a block."""
        numbers = np.array([self._add_group(group) for group in records.groups], np.int64)
        return self._add_names(records.names, numbers[records.group_of], realization_numbers(records.names))

    def _add_names(self, names: np.ndarray, group: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The keys of realizations, new ones being added."""
        if not len(self.names):
            self.names, self.group_of, self.numbers = names, group, numbers
            self.population = np.full(len(names), np.nan)
            return np.arange(len(names))
        if names is self.names and group is self.group_of:
            return np.arange(len(names))
        if self._key_at is None:
            known = zip(self.group_of.tolist(), map(str, self.names.tolist()), strict=True)
            self._key_at = {place: k for k, place in enumerate(known)}
        size = len(self.names)
        at = self._key_at
        places = zip(group.tolist(), map(str, names.tolist()), strict=True)
        keys = np.array([at.setdefault(place, len(at)) for place in places], np.int64)
        fresh = np.flatnonzero(keys >= size)
        if len(fresh):
            same = self.names.dtype.kind == names.dtype.kind == "i"
            kind: Any = np.int64 if same else object
            parts = [list(map(str, a.tolist())) if not same else a for a in (self.names, names[fresh])]
            self.names = np.concatenate([np.asarray(part, kind) for part in parts])
            self.group_of = np.concatenate([self.group_of, group[fresh]])
            self.numbers = np.concatenate([self.numbers, numbers[fresh]])
            self.population = np.concatenate([self.population, np.full(len(fresh), np.nan)])
        return keys

    def _know(self, keys: np.ndarray, population: np.ndarray) -> None:
        """The populations of realizations, unless they are known."""
        known = self.population.copy()
        known[keys] = np.where(np.isnan(known[keys]), population, known[keys])
        self.population = known

    def _is_one_population(self) -> bool:
        known = self.population[~np.isnan(self.population)]
        return bool(len(known) == 0 or (known == known[0]).all())

    def _use_shares(self) -> None:
        """Let sums be of shares, weighted by population, from now on: as long as all realizations have the same,
        they are of counts, which are whole numbers."""
        if self.of_shares:
            return
        self.of_shares = True
        if len(self.tracks.key):
            N = float(self.population[self.tracks.key[0]])
            self.sums = self.sums.as_shares(N)
            self._centre = self._centre[:0]
            self.tracks = replace(
                self.tracks,
                open_values=self.tracks.open_values / N,
                open_weight=np.full(len(self.tracks.open_weight), N),
            )

    def _replicates(self, key: np.ndarray, time: np.ndarray, group: np.ndarray) -> np.ndarray:
        if len(self.rules) == 1:
            return self.rules[0].labels(self.numbers[key], time)
        rules = np.array([(r.groups, r.per_key, r.span, r.start) for r in self.rules], np.int64)
        groups, per_key, span, start = rules[self.group_of].T  # of each realization
        first = self.numbers * per_key
        if not (per_key > 1).any():
            return np.asarray((first % groups)[key])
        block = np.where(per_key[key] == 1, 0, (time - start[key]) * per_key[key] // span[key])
        return np.asarray((first[key] + block) % groups[key])

    def _count(self, groups: np.ndarray, what: str) -> None:
        for group, number in zip(*np.unique(groups, return_counts=True), strict=True):
            self.sums = self.sums.counted(Counts(**{what: int(number)}), int(group))

    def population_of(self, group: int) -> np.ndarray | None:
        """The known populations of a group's realizations; None if all have one that the spec tells."""
        if self.spec.populations == ONE:
            return None
        N = self.population[self.group_of == group]
        return np.asarray(N[~np.isnan(N)])

    def _populations(self, records: Records, key: np.ndarray) -> tuple[np.ndarray | None, dict[int, str]]:
        """The population of each record, and the records that contradict it, with reasons."""
        told, expected = told_populations(self.spec, records), None
        if told is not None:
            keys, population = usual_populations(self.spec, key, told)
            self._know(keys, population)
            expected = self.population[key]
        return expected, check_populations(self.spec, records, told, expected)

    def _check_memory(self, group: np.ndarray, time: np.ndarray, replicate: np.ndarray) -> None:
        """`InputError` if the sums of these rows, and an estimate from them, would take more than they may."""
        S = len(self.spec.states)
        limit = self.spec.memory - size_of_fit(S, min(int(replicate.max(initial=0)) + 1, len(time)))
        if size_of_sums(S, len(time)) <= limit:
            return
        cells = self.spec.cells.cells(time)
        parts = [len(np.unique(part)) for part in (group, cells, replicate)]
        labels = len(time) if size_of_sums(S, math.prod(parts)) > limit else 0
        if labels:
            _, cell = np.unique(cells, return_inverse=True)
            labels = len(np.unique((group * parts[1] + cell) * (int(replicate.max()) + 1) + replicate))
        what = "the sums of {:,} groups, {:,} cells, {:,} replicates and {:,} states".format(*parts, S)
        names = ("group_by has fewer groups", "chain has fewer cells", "uncertainty.replicates is smaller")
        largest = names[int(np.argmax(parts))] if max(parts) > 1 else "there are fewer states"
        needed = size_of_sums(S, labels) + self.spec.memory - limit
        check_memory(needed, self.spec.memory, what, f"see that {largest}")


def _by_group(group: np.ndarray) -> Iterator[tuple[int, int]]:
    """(group, how often it is there)."""
    yield from zip(*map(np.ndarray.tolist, np.unique(group, return_counts=True)), strict=True)
