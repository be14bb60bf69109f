"""Coders of what Beam stores or ships. Their bytes are stable from release to release."""

from __future__ import annotations

import functools
import json
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
#: Version, kind, form of the counts, what there is, time, bytes of the name, states.
_RECORD = struct.Struct("<BBBBqII")
_GROUP, _POPULATION = 1, 2


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
        group, N = value.group, value.population
        flags = _GROUP * bool(group) | _POPULATION * (N is not None)
        text = json.dumps([value.realization, *group], ensure_ascii=False) if group else value.realization
        name, people = text.encode(), b"" if N is None else struct.pack("<d", N)
        form, counts = codec.narrow(value.counts)
        head = _RECORD.pack(
            codec.VERSION, RECORD, form % codec.WHOLE, flags, value.time, len(name), counts.size
        )
        return head + name + people + counts.tobytes()

    def decode(self, encoded: bytes) -> Record:
        version, kind, form, flags, time, length, S = _RECORD.unpack_from(encoded)
        codec.check_kind(version, kind, RECORD)
        at = _RECORD.size + length
        name, group, N = encoded[_RECORD.size : at].decode(), [], None
        if flags & _GROUP:
            name, *group = json.loads(name)
        if flags & _POPULATION:
            (N,) = struct.unpack_from("<d", encoded, at)
            at += 8
        counts = codec.stored(encoded[at:], form)
        if len(counts) != S:
            raise InputError(f"it has {len(counts)} counts where {S} were written")
        return Record(name, time, counts, N, tuple(group))


class EstimateCoder(SmallCoder):
    """The line of JSON that is written in the end."""

    of = Estimate

    def encode(self, value: Estimate) -> bytes:
        return value.to_json().encode()

    def decode(self, encoded: bytes) -> Estimate:
        return Estimate.from_json(encoded.decode())


for _coder in (RecordCoder, EstimateCoder):
    coders.registry.register_coder(_coder.of, _coder)
