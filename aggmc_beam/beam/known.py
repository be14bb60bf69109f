"""The bytes of `Known`: read and written for every record of a stream, so they are put together by hand.

A head, the runs of covered steps, the steps of open records, and each open record in the narrowest form
that holds it exactly. Open records stay bytes until they are neighbours of a new one.
"""

from __future__ import annotations

import struct

import numpy as np

from aggmc_beam.beam import codec
from aggmc_beam.beam.stream_values import Known
from aggmc_beam.errors import InputError
from aggmc_beam.sums.track import Track

KIND = 13
#: Version, kind, what there is, newest, floor, population, states, runs, open records.
_HEAD = struct.Struct("<BBBqqdIII")
_TRACK, _FLOOR, _POPULATION = 1, 2, 4
_FORMS = tuple(np.dtype(form) for form in ("|i1", "<i2", "<i4", "<f8"))
_FORM_OF = {dtype: form for form, dtype in enumerate(_FORMS)}


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
        return _HEAD.pack(codec.VERSION, KIND, flags, *about, 0, 0, 0)
    times = sorted(track.open)
    rows = [track.open[t] for t in times]
    S = len(rows[0]) if rows else 0
    forms = bytes([_FORM_OF[row.dtype] for row in rows])
    return b"".join(
        [
            _HEAD.pack(codec.VERSION, KIND, flags, *about, S, len(track.starts), len(times)),
            struct.pack(f"<{2 * len(track.starts) + len(times)}q", *track.starts, *track.stops, *times),
            forms,
            *[row.tobytes() for row in rows],
        ]
    )


def unpack(data: bytes) -> Known:
    """What was given to `pack`."""
    version, kind, flags, newest, floor, population, S, runs, number = _HEAD.unpack_from(data)
    codec.check_kind(version, kind, KIND)
    track = _track(data, S, runs, number) if flags & _TRACK else None
    if track is None and len(data) != _HEAD.size:
        raise InputError("these bytes hold more than what is known of a realization")
    return Known(
        newest, track, floor if flags & _FLOOR else None, population if flags & _POPULATION else None
    )


def _track(data: bytes, S: int, runs: int, number: int) -> Track[np.ndarray]:
    at = _HEAD.size + 8 * (2 * runs + number)
    forms = data[at : at + number]
    if len(forms) < number or max(forms, default=0) >= len(_FORMS):
        raise InputError("these bytes hold no record where one is announced")
    steps = struct.unpack_from(f"<{2 * runs + number}q", data, _HEAD.size)
    at += number
    if at + S * sum(_FORMS[form].itemsize for form in forms) != len(data):
        raise InputError("these bytes do not end where what they announce does")
    rows: dict[int, np.ndarray] = {}
    for t, form in zip(steps[2 * runs :], forms, strict=True):
        rows[t] = np.frombuffer(data, _FORMS[form], S, at)
        at += rows[t].nbytes
    return Track(list(steps[:runs]), list(steps[runs : 2 * runs]), rows)
