"""The bytes of `Known`: read and written for every record of a stream, so they are put together by hand.

A head, the runs of covered steps, the steps of open records, and each open record in the narrowest form
that holds it exactly. Open records stay bytes until they are neighbours of a new one.
"""

from __future__ import annotations

import struct

import numpy as np

from aggmc_beam.beam.values import Known
from aggmc_beam.errors import InputError
from aggmc_beam.track import Row, Steps, Track

VERSION, KIND = 1, 8
#: Version, kind, what there is, newest, floor, population, states, runs, open records.
_HEAD = struct.Struct("<BBBqqdIII")
_TRACK, _FLOOR, _POPULATION = 1, 2, 4
_ROW = struct.Struct("<Bd")
_FORMS = tuple(np.dtype(form) for form in ("<i1", "<i2", "<i4", "<f8"))
_LIMITS = (1 << 7, 1 << 15, 1 << 31)


class StoredRow(Row):
    """An open record as it was read: bytes, until someone asks for its values."""

    __slots__ = ("data", "form")

    def __init__(self, form: int, data: bytes, weight: float) -> None:
        self.form, self.data, self.weight = form, data, weight

    @property
    def values(self) -> np.ndarray:  # type: ignore[override]
        return np.frombuffer(self.data, _FORMS[self.form]).astype(np.float64)


def pack(known: Known) -> bytes:
    """Bytes that `unpack` turns back."""
    track = known.track
    flags = (
        _TRACK * (track is not None)
        | _FLOOR * (known.floor is not None)
        | _POPULATION * (known.population is not None)
    )
    about = known.newest, known.floor or 0, known.population or 0.0
    if track is None:
        return _HEAD.pack(VERSION, KIND, flags, *about, 0, 0, 0)
    covered, times = track.covered, sorted(track.open)
    parts = [
        _HEAD.pack(VERSION, KIND, flags, *about, track.states, len(covered.starts), len(times)),
        struct.pack(f"<{2 * len(covered.starts) + len(times)}q", *covered.starts, *covered.stops, *times),
    ]
    for t in times:
        row = track.open[t]
        form, data = (row.form, row.data) if isinstance(row, StoredRow) else _narrow(row.values)
        parts += [_ROW.pack(form, row.weight), data]
    return b"".join(parts)


def unpack(data: bytes) -> Known:
    """What was given to `pack`; `InputError` for any other bytes."""
    try:
        version, kind, flags, newest, floor, population, S, runs, number = _HEAD.unpack_from(data)
    except struct.error:
        raise InputError(f"these {len(data)} bytes are too few for what is known of a realization") from None
    if version != VERSION:
        raise InputError(f"these bytes have format version {version}; this release reads {VERSION}")
    if kind != KIND:
        raise InputError(f"these bytes hold a value of kind {kind}, but kind {KIND} is needed here")
    track = _track(data, S, runs, number) if flags & _TRACK else None
    if track is None and len(data) != _HEAD.size:
        raise InputError("these bytes hold more than what is known of a realization")
    return Known(
        newest, track, floor if flags & _FLOOR else None, population if flags & _POPULATION else None
    )


def _track(data: bytes, S: int, runs: int, number: int) -> Track:
    at = _HEAD.size + 8 * (2 * runs + number)
    if at + number * _ROW.size > len(data):
        raise InputError("these bytes end before what they announce")
    steps = struct.unpack_from(f"<{2 * runs + number}q", data, _HEAD.size)
    rows: dict[int, Row] = {}
    for t in steps[2 * runs :]:
        if at + _ROW.size > len(data):
            raise InputError("these bytes end before what they announce")
        form, weight = _ROW.unpack_from(data, at)
        stop = at + _ROW.size + S * (_FORMS[form].itemsize if form < len(_FORMS) else 0)
        if form >= len(_FORMS) or stop > len(data):
            raise InputError("these bytes hold no record where one is announced")
        rows[t] = StoredRow(form, data[at + _ROW.size : stop], weight)
        at = stop
    if at != len(data):
        raise InputError("these bytes hold more than what they announce")
    return Track(S, Steps(list(steps[:runs]), list(steps[runs : 2 * runs])), rows)


def _narrow(values: np.ndarray) -> tuple[int, bytes]:
    """The narrowest exact form of finite numbers."""
    numbers = values.tolist()
    low, high = min(numbers), max(numbers)
    for form, limit in enumerate(_LIMITS):
        if -limit <= low and high < limit:
            packed = values.astype(_FORMS[form])
            if (packed == values).all():
                return form, packed.tobytes()
            break
    return len(_LIMITS), values.astype("<f8").tobytes()
