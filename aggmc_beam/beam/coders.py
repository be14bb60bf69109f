"""Coders of what Beam stores or ships. Their bytes are stable from release to release."""

from __future__ import annotations

import functools
from typing import Any

from apache_beam import coders

from aggmc_beam.beam import codec
from aggmc_beam.records import Record
from aggmc_beam.result import Estimate
from aggmc_beam.sums.state import AggregationState
from aggmc_beam.sums.storage import refusing

# 1 to 6 and 8 to 11 were used before, 12 to 14 are those of `stream_coders` and `known`, 15 and 16 of `blocks` and
# `combine`, 20 of `live_coder`.
RECORD = 7


class SmallCoder(coders.Coder):  # type: ignore[misc]
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


class StateCoder(SmallCoder):
    """Bytes of states, not deflated: what is sent soon is read."""

    of = AggregationState

    def encode(self, value: AggregationState) -> bytes:
        return value.to_bytes(deflate=False)

    def decode(self, encoded: bytes) -> AggregationState:
        return AggregationState.from_bytes(encoded, "an encoded state")


class RecordCoder(SmallCoder):
    of = Record

    def encode(self, value: Record) -> bytes:
        meta = [value.realization, value.time, value.population, list(value.group)]
        return codec.encode(RECORD, meta, value.counts)

    def decode(self, encoded: bytes) -> Record:
        (realization, time, population, group), (counts,) = codec.decode(encoded, RECORD)
        return Record(realization, time, counts, population, tuple(group))


class EstimateCoder(SmallCoder):
    """The line of JSON that is written in the end."""

    of = Estimate

    def encode(self, value: Estimate) -> bytes:
        return value.to_json().encode()

    def decode(self, encoded: bytes) -> Estimate:
        return Estimate.from_json(encoded.decode())


for _coder in (RecordCoder, EstimateCoder):
    coders.registry.register_coder(_coder.of, _coder)
