"""Digest: all that a run keeps of its data, from which every estimate is made.

Moments for each cell of the chain and each replicate, and a profile of step means for each
replicate. Replicates are the groups of the jackknife; they also spread the work.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from aggmc_beam import storage
from aggmc_beam.chain import Chain, EachStep, Stationary
from aggmc_beam.errors import InputError
from aggmc_beam.moments import PARTS, Counts, Moments, add_moments, pack_moments, states_in, unpack_moments
from aggmc_beam.pairing import Block, labelled_moments
from aggmc_beam.profile import Profile, add_profiles

KIND = "digest"
#: Jackknife groups. With fewer realizations than `FEW`, stretches of time are left out instead.
REPLICATES = 50
FEW = 20
#: Values of matrices, beyond which there are fewer groups, down to `FEW`.
MATRICES = 1 << 25

#: The arrays of a profile, as they are stored.
PROFILE = ("bins", "number", "weight", "records", "odd", "ends")

Cell = int
Replicate = int


def jackknife_groups(S: int, given: int | None = None) -> int:
    """How many jackknife groups are made for S states, unless it is `given`.

    Each has matrices of its own, which for very many states would take more memory than the data.

    >>> jackknife_groups(10), jackknife_groups(500), jackknife_groups(1000)
    (50, 33, 20)
    """
    if given is not None:
        return given
    return max(FEW, min(REPLICATES, MATRICES // (len(PARTS) * S * S)))


@dataclass(frozen=True)
class Replicates:
    """The rule by which records fall into jackknife groups; every engine uses the same.

    Realizations, numbered, are dealt out in turn over `groups`. With `per_key` above 1 each is cut
    into that many blocks of time over `span` steps from `start`; neighbouring blocks depend on each
    other only through their borders.

    >>> Replicates.plan(K=1, T=6, groups=3).labels(np.zeros(6, int), np.arange(6)).tolist()
    [0, 0, 1, 1, 2, 2]
    """

    groups: int
    per_key: int = 1
    span: int = 1
    start: int = 0

    @classmethod
    def plan(
        cls, K: int, T: int, groups: int = REPLICATES, start: int = 0, blocks: bool = True
    ) -> Replicates:
        """For K realizations of about T steps: by realization, or with fewer than `FEW` by block."""
        if groups < 1:
            raise InputError(f"replicates must be at least 1; got {groups}")
        if not blocks or K >= min(FEW, groups):
            return cls(groups)
        # A block of a single step would be all border.
        per_key = max(1, min(-(-groups // K), T // 2))
        return cls(K * per_key, per_key, T, start)

    def labels(self, key: np.ndarray, time: np.ndarray) -> np.ndarray:
        """The group of each record, given its realization's number and its step."""
        if self.per_key == 1:
            return np.asarray(key % self.groups)
        block = (time - self.start) * self.per_key // self.span
        return np.asarray((key * self.per_key + block) % self.groups)


@dataclass(frozen=True, eq=False)
class Digest:
    """The sums of a data set, by cell and replicate. `+` joins parts that share no record.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate(states=3, steps=10, realizations=30, seed=1)
    >>> digest = Digest.of(y)
    >>> digest.total.records, len(digest.replicates)
    (300, 30)
    """

    states: int
    parts: Mapping[tuple[Cell, Replicate], Moments]
    profiles: Mapping[Replicate, Profile]

    @classmethod
    def zero(cls, S: int) -> Digest:
        return cls(S, {}, {})

    @classmethod
    def of(
        cls,
        counts: np.ndarray,
        chain: Chain | None = None,
        weight: np.ndarray | None = None,
        replicates: int | None = None,
    ) -> Digest:
        """The digest of an array [K, T, S], NaN rows being missing steps.

        `weight` [K] makes the values shares of that population, weighted by it.
        """
        K, T, S = counts.shape
        seen = ~np.isnan(counts).any(2)
        key, time = np.nonzero(seen)
        block = Block(counts[seen], time, key, None if weight is None else weight[key])
        chain = chain or Stationary()
        # At a single step only the realizations can be told apart.
        groups = jackknife_groups(S, replicates)
        rule = Replicates.plan(K, T, groups, blocks=not isinstance(chain, EachStep))
        return cls.of_block(block, chain, rule.labels(key, time))

    @classmethod
    def of_block(
        cls, block: Block, chain: Chain, replicate: np.ndarray, firsts: np.ndarray | None = None
    ) -> Digest:
        """The digest of a block whose rows have these cells and replicates.

        `firsts` are the rows at which a realization is met for the first time, by default its first
        row in the block; each realization is counted there, once.
        """
        cells, cell_at = np.unique(chain.cells(block.time), return_inverse=True)
        G = int(replicate.max(initial=0)) + 1
        parts = {
            (int(cells[label // G]), label % G): moments
            for label, moments in labelled_moments(block, cell_at * G + replicate).items()
        }
        if firsts is None:
            firsts = _firsts(block)
        for at, number in Counter((cell_at[firsts] * G + replicate[firsts]).tolist()).items():
            place = int(cells[at // G]), at % G
            counts = parts[place].counts + Counts(realizations=number)
            parts[place] = replace(parts[place], counts=counts)
        return cls(block.values.shape[1], parts, Profile.labelled(block, replicate))

    @cached_property
    def replicates(self) -> list[Replicate]:
        return sorted({replicate for _, replicate in self.parts})

    @cached_property
    def cells(self) -> list[Cell]:
        return sorted({cell for cell, _ in self.parts})

    @cached_property
    def total(self) -> Moments:
        return add_moments(self.states, self.parts.values())

    @cached_property
    def profile(self) -> Profile:
        return add_profiles(self.profiles.values(), self.states)

    @cached_property
    def _by_cell(self) -> dict[Cell, dict[Replicate, Moments]]:
        found: dict[Cell, dict[Replicate, Moments]] = {}
        for (cell, replicate), moments in sorted(self.parts.items(), key=lambda item: item[0]):
            found.setdefault(cell, {})[replicate] = moments
        return found

    def by_replicate(self, cells: Iterable[Cell]) -> dict[Replicate, Moments]:
        """The moments of these cells together, for each replicate that has any."""
        return reduce(_merged, (self._by_cell[c] for c in cells), {})

    def __add__(self, other: Digest) -> Digest:
        if self.states != other.states:
            raise InputError(f"a digest of {other.states} states cannot join one of {self.states}")
        return Digest(
            self.states,
            _merged(self.parts, other.parts),
            _merged(self.profiles, other.profiles),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file that `load` and `am.estimate` read."""
        storage.write_atomically(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Digest:
        with storage.loaded(path, KIND) as (meta, arrays):
            return cls.from_arrays(states_in(meta), arrays)

    def counted(self, counts: Counts) -> Digest:
        """With more counts, which belong to no cell in particular; they are kept with the first."""
        at = min(self.parts, default=(0, 0))
        moments = self.parts.get(at, Moments.zero(self.states))
        changed = replace(moments, counts=moments.counts + counts)
        return replace(self, parts={**self.parts, at: changed})

    def to_bytes(self) -> bytes:
        return storage.pack(KIND, {"S": self.states}, self.to_arrays())

    def to_arrays(self, means: Sequence[np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Everything but the number of states, for `storage.pack`; with `means` instead of the step means of
        each profile, in the order of replicates."""
        parts = sorted(self.parts)
        steps = [self.profiles[r] for r in sorted(self.profiles)]
        if means is not None:
            steps = [replace(p, records=given) for p, given in zip(steps, means, strict=True)]
        return {
            **(pack_moments([self.parts[p] for p in parts]) if parts else {}),
            "parts": np.array(parts, np.int64).reshape(-1, 2),
            "profiles": np.array(
                [(r, p.width, len(p.bins), len(p.odd)) for r, p in sorted(self.profiles.items())],
                np.int64,
            ).reshape(-1, 4),
            **{
                f"profile_{name}": np.concatenate(
                    [getattr(p, name) for p in steps or [Profile.zero(self.states)]]
                )
                for name in PROFILE
            },
        }

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "these bytes") -> Digest:
        with storage.unpacked(data, KIND, source) as (meta, arrays):
            return cls.from_arrays(states_in(meta), arrays)

    @classmethod
    def from_arrays(cls, S: int, arrays: storage.Arrays) -> Digest:
        """The inverse of `to_arrays`."""
        keys = [(int(c), int(r)) for c, r in storage.array(arrays, "parts", "i", None, 2)]
        listing = storage.array(arrays, "profiles", "i", None, 4)
        if (listing[:, 1:] < (1, 0, 0)).any() or len(np.unique(listing[:, 0])) != len(listing):
            raise InputError("its profiles are not those of any data")
        bins, odd = (int(n) for n in listing[:, 2:].sum(0))
        shapes = (bins,), (bins, 3), (bins, 3), (bins, S), (odd,), (odd, S)
        columns = [
            storage.array(arrays, f"profile_{name}", kind, *shape)
            for name, kind, shape in zip(PROFILE, "iiffif", shapes, strict=True)
        ]
        profiles, row, end = {}, 0, 0
        sound = Profile.zero(S)
        for replicate, width, length, more in listing.tolist():
            parts = [column[row : row + length] for column in columns[:4]]
            parts += [column[end : end + more] for column in columns[4:]]
            found = profiles[replicate] = Profile(width, *parts)
            # Most replicates are like each other.
            sound = found if found.is_laid_out_as(sound) else found.checked()
            row, end = row + length, end + more
        moments = unpack_moments(arrays, S) if keys else []
        return cls(S, dict(zip(keys, moments, strict=True)), profiles)


def _firsts(block: Block) -> np.ndarray:
    """The first row of each realization."""
    if block.key is None:
        return np.zeros(min(1, len(block.time)), int)
    return np.asarray(np.unique(block.key, return_index=True)[1])


def _merged(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> dict[Any, Any]:
    """The union, adding the values of keys that both have."""
    merged = dict(a)
    for key, value in b.items():
        merged[key] = merged[key] + value if key in merged else value
    return merged
