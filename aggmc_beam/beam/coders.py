"""Coders of what Beam stores or ships. Their bytes are stable from release to release."""

from __future__ import annotations

import functools
import json
import math
import struct
from typing import Any

from apache_beam import coders

from aggmc_beam.beam import codec
from aggmc_beam.errors import InputError
from aggmc_beam.records import Record
from aggmc_beam.result import Estimate
from aggmc_beam.sums.state import AggregationState
from aggmc_beam.sums.storage import BROKEN, refusal

# 1 to 11 were used before, 12 to 14 are those of `stream_coders` and `known`, 15 and 16 of `blocks` and `combine`,
# 20 of `live_coder`.
RECORD = 17
#: Version, kind, form of the counts, time, population or NaN, lengths of the realization and the group, states.
_RECORD = struct.Struct("<BBBqdIII")


class SmallCoder(coders.Coder):  # type: ignore[misc]
    """Deterministic: equal values have equal bytes, so they may be keys and be compared."""

    of: Any = None

    def __init_subclass__(cls) -> None:
        # Bytes may be damaged, or of another release: that is one error, of whatever coder.
        take_apart = cls.decode

        def decode(self: Any, encoded: bytes) -> Any:
            try:
                return take_apart(self, encoded)
            except BROKEN as error:
                raise refusal(f"an encoded {cls.of.__name__}", error) from error

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


class StateCoder(SmallCoder):
    """Bytes of states, not deflated: what is sent soon is read."""

    of = AggregationState

    def encode(self, value: AggregationState) -> bytes:
        return value.to_bytes(deflate=False)

    def decode(self, encoded: bytes) -> AggregationState:
        return AggregationState.from_bytes(encoded, "an encoded state")


class RecordCoder(SmallCoder):
    """Each record of a stream is written and read once, so its bytes are put together by hand. Counts that were read
    stay in as few bytes as they are stored in."""

    of = Record

    def encode(self, value: Record) -> bytes:
        name = value.realization.encode()
        group = json.dumps(value.group, ensure_ascii=False).encode() if value.group else b""
        form, counts = codec.narrow(value.counts)
        N = math.nan if value.population is None else value.population
        sizes = len(name), len(group), counts.size
        return (
            _RECORD.pack(codec.VERSION, RECORD, form, value.time, N, *sizes) + name + group + counts.tobytes()
        )

    def decode(self, encoded: bytes) -> Record:
        version, kind, form, time, N, name, group, S = _RECORD.unpack_from(encoded)
        codec.check_kind(version, kind, RECORD)
        at = _RECORD.size
        realization = encoded[at : at + name].decode()
        names = tuple(json.loads(encoded[at + name : at + name + group])) if group else ()
        counts = codec.stored(encoded[at + name + group :], form)
        if len(counts) != S:
            raise InputError(f"it has {len(counts)} counts where {S} were written")
        return Record(realization, time, counts, None if N != N else N, names)


class EstimateCoder(SmallCoder):
    """The line of JSON that is written in the end."""

    of = Estimate

    def encode(self, value: Estimate) -> bytes:
        return value.to_json().encode()

    def decode(self, encoded: bytes) -> Estimate:
        return Estimate.from_json(encoded.decode())


for _coder in (RecordCoder, EstimateCoder):
    coders.registry.register_coder(_coder.of, _coder)
