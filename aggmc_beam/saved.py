"""What a run saves: the sums of every group, and what its realizations must remember.

From such a file estimates are made again under other settings, runs are joined, and a later run
goes on: records that it holds already are recognised, and pairs that straddle two runs are formed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from aggmc_beam import storage
from aggmc_beam.blas import one_blas_thread
from aggmc_beam.chain import Chain, as_chain
from aggmc_beam.config.special import ChainKind, chain_to_plain
from aggmc_beam.digest import Digest, Replicates
from aggmc_beam.durations import microseconds
from aggmc_beam.errors import InputError
from aggmc_beam.fitting import Settings, estimate_digest
from aggmc_beam.moments import Counts
from aggmc_beam.noise import Exact, Noise, noise_from_dict
from aggmc_beam.prepare import as_counts
from aggmc_beam.records import MAX_COUNT, realization_number
from aggmc_beam.resolve import Mapped
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.tracks import Tracks

KIND = "run"
FILE_NAME = "moments.aggmc"


@dataclass(frozen=True)
class Sums:
    """One group: its digest, the rule of its jackknife groups, and its realizations with their tracks.

    `population` [K] is that of each realization where sums are of shares, else None.
    """

    group: dict[str, str] | None
    digest: Digest
    rule: Replicates
    realizations: list[str]
    tracks: Tracks
    population: np.ndarray | None = None

    @property
    def span(self) -> tuple[int, int]:
        """First step, and number of steps from there to the last."""
        if not len(self.tracks.start):
            return 0, 1
        first, last = int(self.tracks.start.min()), int(self.tracks.stop.max())
        return first, last - first + 1


@dataclass(frozen=True)
class Saved:
    """All groups of a run and how their sums were made.

    `weighted`: sums are of shares, weighted by population. `undone`: the noise model whose mean was
    undone on each record, if any. `clock` is the step and origin of time.
    """

    states: tuple[str, ...]
    chain: Chain
    groups: list[Sums] = field(default_factory=list)
    weighted: bool = False
    undone: Noise | None = None
    clock: tuple[int | str, int] = (1, 0)

    def to_bytes(self) -> bytes:
        chain = chain_to_plain(self.chain)
        if chain is None:
            raise InputError("moments of a chain with given covariates cannot be saved")
        arrays: dict[str, np.ndarray] = {}
        for i, sums in enumerate(self.groups):
            rule = sums.rule
            parts = {
                **sums.digest.to_arrays(),
                **sums.tracks.to_arrays(),
                "rule": np.array([rule.groups, rule.per_key, rule.span, rule.start], np.int64),
            }
            if sums.population is not None:
                parts["population"] = np.asarray(sums.population, np.float64)
            arrays |= {f"{i}/{name}": array for name, array in parts.items()}
        meta = {
            "states": list(self.states),
            "chain": chain,
            "weighted": self.weighted,
            "undone": None if self.undone is None else self.undone.to_dict(),
            "clock": list(self.clock),
            "groups": [{"group": s.group, "realizations": s.realizations} for s in self.groups],
        }
        return storage.pack(KIND, meta, arrays)

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "these bytes") -> Saved:
        with storage.unpacked(data, KIND, source) as (meta, arrays):
            return cls._of(meta, arrays)

    @classmethod
    def _of(cls, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Saved:
        states = _names(meta["states"], "states")
        if not states or not isinstance(meta["weighted"], bool):
            raise InputError("its header is not that of a run")
        parts: dict[str, dict[str, np.ndarray]] = {}
        for name, array in arrays.items():
            number, _, rest = name.partition("/")
            parts.setdefault(number, {})[rest] = array
        groups = [
            _sums(entry, parts.get(str(i), {}), len(states), meta["weighted"])
            for i, entry in enumerate(meta["groups"])
        ]
        undone = None if meta["undone"] is None else noise_from_dict(meta["undone"])
        chain = ChainKind().read(meta["chain"], "chain")
        step, origin = meta["clock"]
        if not (type(origin) is int and (isinstance(step, str) or (type(step) is int and step > 0))):
            raise InputError("its clock is not that of a run")
        if isinstance(step, str):
            microseconds(step)
        return cls(states, chain, groups, meta["weighted"], undone, (step, origin))

    def save(self, path: str | os.PathLike[str]) -> None:
        storage.write_atomically(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Saved:
        # BLAS threads that still wait for more after their last work would disturb the checksum.
        with one_blas_thread(), storage.loaded(find(path), KIND) as (meta, arrays):
            return cls._of(meta, arrays)

    def estimate(self, settings: Settings) -> Estimate | Estimates:
        """The estimate of a run that has one group."""
        if len(self.groups) != 1:
            raise InputError(
                f"the file holds {len(self.groups)} groups; `aggmc moments estimate` estimates each of them"
            )
        return estimate_sums(self, self.groups[0], settings)

    def check_joins(self, other: Saved, what: str) -> None:
        """`InputError` unless sums of the other can be added to these."""
        differences = {
            "states": (list(self.states), list(other.states)),
            "the chain": (chain_to_plain(self.chain), chain_to_plain(other.chain)),
            "the time step": (self.clock, other.clock),
            "whether populations are known for each realization": (self.weighted, other.weighted),
            "the noise that changes with time": (self.undone, other.undone),
        }
        for name, (a, b) in differences.items():
            if a != b:
                raise InputError(f"{what} cannot be joined: {name} differ ({a} and {b})")

    def merged(self, other: Saved) -> Saved:
        """The sums of both, with the pairs between them. Steps that both hold are counted as overlaps."""
        self.check_joins(other, "these moments")
        mine = {_name(s.group): s for s in self.groups}
        for theirs in other.groups:
            own = mine.get(_name(theirs.group))
            mine[_name(theirs.group)] = theirs if own is None else join_sums(own, theirs, self.chain)
        return replace(self, groups=list(mine.values()))


def find(path: str | os.PathLike[str]) -> str:
    """The file meant by a path, a path without its ending, or an output directory."""
    name = os.fspath(path)
    if os.path.isdir(name):
        return os.path.join(name, FILE_NAME)
    if not os.path.exists(name) and os.path.exists(f"{name}.aggmc"):
        return f"{name}.aggmc"
    return name


def _names(given: Any, what: str) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(n, str) for n in given):
        raise InputError(f"its {what} are not a list of names")
    if len(set(given)) != len(given):
        raise InputError(f"its {what} are not all different")
    return tuple(given)


def _sums(entry: dict[str, Any], arrays: dict[str, np.ndarray], S: int, weighted: bool) -> Sums:
    """One group from its entry in the header and its arrays."""
    names = _names(entry["realizations"], "realizations")
    tracks = Tracks.from_arrays(S, arrays)
    if tracks.key.max(initial=-1) >= len(names):
        raise InputError("it covers steps of realizations that it does not name")
    rule = Replicates(*storage.array(arrays, "rule", "i", 4).tolist())
    if min(rule.groups, rule.per_key, rule.span) < 1:
        raise InputError("its jackknife groups are not those of any data")
    population = None
    if weighted or "population" in arrays:
        population = arrays["population"]
        known = population[np.isfinite(population)]
        sizes = bool(len(known)) and bool((known > 0).all() and (known < MAX_COUNT).all())
        if population.shape != (len(names),) or not sizes:
            raise InputError("its populations do not fit its realizations")
    group = entry["group"]
    if group is not None and not all(isinstance(v, str) for v in group.values()):
        raise InputError("its group is not a mapping of names")
    return Sums(group, Digest.from_arrays(S, arrays), rule, list(names), tracks, population)


def _name(group: dict[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((group or {}).items()))


def join_sums(a: Sums, b: Sums, chain: Chain) -> Sums:
    at = {name: k for k, name in enumerate(a.realizations)}
    names = [*a.realizations, *(n for n in b.realizations if n not in at)]
    at = {name: k for k, name in enumerate(names)}
    keys = np.array([at[n] for n in b.realizations], np.int64)
    tracks = replace(a.tracks)
    block, shared, overlaps = tracks.merge(b.tracks.renumbered(keys))
    assert block.key is not None
    numbers = np.array([realization_number(n) for n in names], np.int64)
    labels = a.rule.labels(numbers[block.key], block.time)
    none = np.zeros(0, np.int64)
    between = Digest.of_block(block, chain, labels, none)
    digest = (a.digest + b.digest + between).counted(Counts(realizations=-shared, overlaps=overlaps))
    population = None
    if a.population is not None and b.population is not None:
        population = np.full(len(names), np.nan)
        population[keys] = b.population
        population[: len(a.realizations)] = a.population
    return Sums(a.group, digest, a.rule, names, tracks, population)


def plain(saved: Saved) -> dict[str, Any]:
    """What the file holds, in a few words, for `aggmc moments show`."""
    total = [s.digest.total for s in saved.groups]
    return {
        "states": list(saved.states),
        "chain": chain_to_plain(saved.chain),
        "groups": len(saved.groups),
        "realizations": sum(len(s.realizations) for s in saved.groups),
        "records": sum(m.records for m in total),
        "pairs": sum(m.pairs for m in total),
        "duplicates": sum(m.counts.duplicates for m in total),
        "overlaps": sum(m.counts.overlaps for m in total),
        "gaps": sum(m.gaps for m in total),
        "rejected": sum(m.counts.rejected for m in total),
        "open records": sum(len(s.tracks.open_time) for s in saved.groups),
    }


def estimate_sums(saved: Saved, sums: Sums, settings: Settings) -> Estimate | Estimates:
    """The estimate of one group of a run. Populations that sums know need not be given."""
    digest, noise, population = sums.digest, settings.noise, settings.population
    if chain_to_plain(as_chain(settings.chain)) not in (chain_to_plain(saved.chain), "stationary"):
        raise InputError(
            f"the sums were kept for chain {chain_to_plain(saved.chain)}; estimate with that, or with "
            "stationary"
        )
    if saved.undone is not None:
        if noise != saved.undone:
            raise InputError(
                f"the sums hold for the noise {saved.undone} only; run over the data for another"
            )
        start, steps = sums.span
        noise = Mapped(noise, steps, start)
    weighted = saved.weighted
    if weighted:
        assert sums.population is not None
        if population != "estimate":
            raise InputError("populations were given for each realization; another cannot be set")
        N = sums.population[np.isfinite(sums.population)]
        population = float(N.mean())
        if np.ptp(N) == 0:
            digest, weighted = as_counts(digest, population), False
    if settings.open_population and isinstance(noise, Exact) and population == "estimate":
        population = float(digest.total.lag0.left.sum())
    known: Any = digest
    return estimate_digest(
        known, replace(settings, noise=noise, population=population, weighted=weighted, states=saved.states)
    )
