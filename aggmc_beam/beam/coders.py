"""Coders of everything that Beam stores or ships. Their bytes are stable from release to release."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from apache_beam import coders

from aggmc_beam.beam import codec, lean
from aggmc_beam.beam.coverage import Coverage, Verdict
from aggmc_beam.beam.values import Batch, Reach
from aggmc_beam.digest import PROFILE, Digest, Replicates
from aggmc_beam.records import Record
from aggmc_beam.result import Estimate
from aggmc_beam.saved import Sums
from aggmc_beam.storage import refusing
from aggmc_beam.tracks import Tracks

# 3, 4, 5, 8 and 9 were used before, 12 to 14 are those of `stream_coders` and `known`.
BATCH, SUMS, REACH, RECORD = 1, 2, 6, 7
COVERAGE, VERDICT = 10, 11
_DIGEST = ("parts", "profiles", *(f"profile_{name}" for name in PROFILE))
_MEANS, _WEIGHT = "profile_records", "profile_weight"
_WIDE = {"i": np.int64, "f": np.float64}
_MOMENTS = ("counts", "scalars", "means", "products")
_TRACKS = ("covered", "open", "open_values", "open_weight")


class _Coder(coders.Coder):  # type: ignore[misc]
    """Deterministic: equal values have equal bytes, so they may be keys and be compared."""

    of: Any = None

    def __init_subclass__(cls) -> None:
        # Bytes may be damaged, or of another release: that is one error, of whatever coder.
        take_apart = cls.decode

        def decode(self: Any, encoded: bytes) -> Any:
            with refusing(f"an encoded {cls.of.__name__}"):
                return take_apart(self, encoded)

        cls.decode = functools.wraps(take_apart)(decode)

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return self.of

    def estimate_size(self, value: Any) -> int:
        """Roughly, for Beam's counters of bytes; by default Beam would encode every value once more."""
        return 100 + sum(getattr(part, "nbytes", 0) for part in vars(value).values())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class BatchCoder(_Coder):
    of = Batch

    def encode(self, value: Batch) -> bytes:
        """Values row by row or column by column, as they lie in memory."""
        by_column = value.values.flags.f_contiguous and not value.values.flags.c_contiguous
        meta = [list(value.group), list(value.names), value.population is not None, value.state is not None]
        if by_column or value.place is None:
            meta.append(value.place is not None)
        if by_column:
            meta.append(True)
        more = [a for a in (value.place, value.population, value.state) if a is not None]
        values = value.values.T if by_column else value.values
        return codec.encode(BATCH, meta, value.key, value.time, values, *more)

    def decode(self, encoded: bytes) -> Batch:
        """Values stay in as few bytes as they are stored in."""
        (group, names, has_population, has_state, *rest), arrays = codec.decode(encoded, BATCH, narrow=True)
        has_place = rest[0] if rest else True
        by_column = len(rest) == 2
        key, time = (array.astype(np.int64) for array in arrays[:2])
        more = iter(arrays[3:])
        place = next(more).astype(np.int64) if has_place else None
        population = next(more).astype(np.float64) if has_population else None
        state = next(more).astype(np.int64) if has_state else None
        values = arrays[2].T if by_column else arrays[2]
        return Batch(tuple(group), tuple(names), key, time, values, place, population, state)


class SumsCoder(_Coder):
    of = Sums

    def encode(self, value: Sums) -> bytes:
        rule = value.rule
        meta = [
            value.group,
            value.realizations,
            value.digest.states,
            [rule.groups, rule.per_key, rule.span, rule.start],
            bool(value.digest.parts),
            value.population is not None,
        ]
        sums = lean.sums_of([profile for _, profile in sorted(value.digest.profiles.items())])
        if sums is not None:
            meta.append(True)
        digest, tracks = value.digest.to_arrays(sums), value.tracks.to_arrays()
        arrays = [digest[n] for n in _DIGEST] + [tracks[n] for n in _TRACKS]
        if value.digest.parts:
            arrays += [digest[n] for n in _MOMENTS]
        if value.population is not None:
            arrays.append(value.population)
        return codec.encode(SUMS, meta, *arrays)

    def decode(self, encoded: bytes) -> Sums:
        meta, arrays = codec.decode(encoded, SUMS, narrow=True)
        group, names, S, rule, has_parts, has_population, *is_lean = meta
        population = arrays.pop() if has_population else None
        found = dict(zip([*_DIGEST, *_TRACKS, *(_MOMENTS if has_parts else ())], arrays, strict=True))
        if is_lean:
            found[_MEANS] = lean.means_of(found[_MEANS], found[_WEIGHT][:, 0])
        found = {name: array.astype(_WIDE[array.dtype.kind], copy=False) for name, array in found.items()}
        tracks = Tracks.from_arrays(S, {n: found[n] for n in _TRACKS})
        return Sums(group, Digest.from_arrays(S, found), Replicates(*rule), names, tracks, population)


class RecordCoder(_Coder):
    of = Record

    def encode(self, value: Record) -> bytes:
        meta = [value.realization, value.time, value.population, list(value.group)]
        return codec.encode(RECORD, meta, value.counts)

    def decode(self, encoded: bytes) -> Record:
        (realization, time, population, group), (counts,) = codec.decode(encoded, RECORD)
        return Record(realization, time, counts, population, tuple(group))


class ReachCoder(_Coder):
    of = Reach

    def encode(self, value: Reach) -> bytes:
        return codec.encode(REACH, _reach(value))

    def decode(self, encoded: bytes) -> Reach:
        return _to_reach(codec.decode(encoded, REACH)[0])


class CoverageCoder(_Coder):
    of = Coverage

    def encode(self, value: Coverage) -> bytes:
        meta = [list(value.names), _reach(value.reach)]
        return codec.encode(COVERAGE, meta, value.meets, value.key, value.start, value.stop)

    def decode(self, encoded: bytes) -> Coverage:
        (names, reach), (meets, key, start, stop) = codec.decode(encoded, COVERAGE)
        return Coverage(tuple(names), meets.astype(bool), key, start, stop, _to_reach(reach))


class VerdictCoder(_Coder):
    of = Verdict

    def encode(self, value: Verdict) -> bytes:
        meets = None if value.meets is None else sorted(value.meets)
        return codec.encode(VERDICT, [_reach(value.reach), meets])

    def decode(self, encoded: bytes) -> Verdict:
        (reach, meets), _ = codec.decode(encoded, VERDICT)
        return Verdict(_to_reach(reach), None if meets is None else frozenset(meets))


class EstimateCoder(_Coder):
    """The line of JSON that is written in the end."""

    of = Estimate

    def encode(self, value: Estimate) -> bytes:
        return value.to_json().encode()

    def decode(self, encoded: bytes) -> Estimate:
        return Estimate.from_json(encoded.decode())


def _reach(value: Reach) -> list[Any]:
    meta = [sorted(value.names), value.first, value.last, list(value.place)]
    return [*meta, value.rows] if value.rows else meta


def _to_reach(meta: list[Any]) -> Reach:
    names, first, last, (file, row), *rows = meta
    return Reach(frozenset(names), first, last, (file, row), *rows)


for _coder in (
    BatchCoder,
    SumsCoder,
    ReachCoder,
    RecordCoder,
    CoverageCoder,
    VerdictCoder,
    EstimateCoder,
):
    coders.registry.register_coder(_coder.of, _coder)
