"""Coders of what a stream ships and keeps. Their bytes are stable from release to release."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
from apache_beam import coders

from aggmc_beam.beam import codec, known
from aggmc_beam.beam.coders import SmallCoder
from aggmc_beam.beam.stream_values import NOBODY, Delta, Known, Snapshot, Status
from aggmc_beam.errors import InputError
from aggmc_beam.sums import storage
from aggmc_beam.sums.moments import Counts
from aggmc_beam.sums.run_file import sums_from_arrays, sums_to_arrays

#: Kinds of values; 3, 5, 8 and 9 were used before.
DELTA, STATUS = 12, 14
SNAPSHOT = "snapshot"


class DeltaCoder(SmallCoder):
    of = Delta

    def encode(self, value: Delta) -> bytes:
        populations = list(value.populations) if value.populations[0] else None
        counts = astuple(value.counts)
        meta = [counts if any(counts) else None, populations, value.population is not None, value.names]
        more = [] if value.population is None else [value.population]
        return codec.encode(
            DELTA, meta, value.numbers, value.key, value.time, value.values, value.mark, *more
        )

    def decode(self, encoded: bytes) -> Delta:
        """Values stay in as few bytes as they are stored in."""
        (counts, populations, has_population, names), arrays = codec.decode(encoded, DELTA, narrow=True)
        population = arrays.pop().astype(np.float64) if has_population else None
        numbers, key, time, values, mark = arrays
        numbers, key, time, mark = (a.astype(np.int64) for a in (numbers, key, time, mark))
        n, K = len(time), len(numbers)
        sizes = key.shape == time.shape == mark.shape == (n,) and values.ndim == 2 and len(values) == n
        if not sizes or (n and not 0 <= key.min() <= key.max() < K):
            raise InputError("its rows do not fit each other")
        if (population is not None and population.shape != (K,)) or len(names) not in (0, K):
            raise InputError("its realizations do not fit each other")
        counted = Counts() if counts is None else Counts(*counts)
        known = NOBODY if populations is None else tuple(populations)
        return Delta(numbers, key, time, values, mark, population, counted, known, tuple(names))


class SnapshotCoder(SmallCoder):
    of = Snapshot

    def encode(self, value: Snapshot) -> bytes:
        number, total, low, high = value.populations
        meta = {
            "S": value.sums.states,
            "populations": [number, total, low, high] if number else None,
            "span": [value.first, value.last],
        }
        return storage.pack(SNAPSHOT, meta, sums_to_arrays(value.sums), deflate=False)

    def decode(self, encoded: bytes) -> Snapshot:
        with storage.unpacked(encoded, SNAPSHOT) as (meta, arrays):
            sums = sums_from_arrays(meta["S"], arrays)
            first, last = meta["span"]
            found = Snapshot(sums, NOBODY, first, last)
            if meta["populations"] is not None:
                number, total, low, high = meta["populations"]
                found = replace(found, populations=(number, total, low, high))
            return found

    def estimate_size(self, value: Snapshot) -> int:
        return 2000 + value.nbytes


class KnownCoder(SmallCoder):
    of = Known

    def encode(self, value: Known) -> bytes:
        value.pending = False  # what changes from now on is not in these bytes
        return known.pack(value)

    def decode(self, encoded: bytes) -> Known:
        return known.unpack(encoded)

    def estimate_size(self, value: Known) -> int:
        return 100


class StatusCoder(SmallCoder):
    of = Status

    def encode(self, value: Status) -> bytes:
        meta = [sorted(value.changed), value.passed, value.pending, value.newest, sorted(value.cells)]
        return codec.encode(STATUS, [*meta, value.waiting, value.summed, value.version])

    def decode(self, encoded: bytes) -> Status:
        (changed, passed, pending, newest, cells, *numbers), _ = codec.decode(encoded, STATUS)
        return Status(set(changed), passed, pending, newest, set(cells), *numbers)


for _coder in (DeltaCoder, SnapshotCoder, KnownCoder, StatusCoder):
    coders.registry.register_coder(_coder.of, _coder)
