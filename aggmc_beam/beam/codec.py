"""Bytes of small values: a version, a kind, a little JSON and packed arrays. No pickle.

Numbers are stored in the narrowest form that holds them exactly: counts are mostly small integers,
so a record of ten states takes some twenty bytes and not eighty.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.sums.storage import refusing

VERSION = 1
#: How an array is stored, and what it is read back as.
_FORMS = ("<i1", "<i2", "<i4", "<i8", "<f8")
WHOLE = len(_FORMS)
_DTYPES = [np.dtype(form) for form in _FORMS]
#: Whole numbers of the first forms lie below these.
_LIMITS = (1 << 7, 1 << 15, 1 << 31)
#: Up to this many numbers plain Python is quicker than numpy.
_SMALL = 64
_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def encode(kind: int, meta: Any, *arrays: np.ndarray) -> bytes:
    """Bytes that `decode` turns back into `meta` (JSON-able) and `arrays` (int64 or float64).

    >>> data = encode(7, ["a"], np.array([1.0, 2.0]), np.array([[0.5]]))
    >>> len(data), decode(data, 7)
    (26, (['a'], [array([1., 2.]), array([[0.5]])]))
    """
    text = _text(meta).encode()
    parts = [bytes([VERSION, kind]), _varint(len(text)), text, _varint(len(arrays))]
    for array in arrays:
        form, packed = narrow(np.asarray(array))
        parts += [bytes([form, packed.ndim]), *(_varint(n) for n in packed.shape), _bytes(packed)]
    return b"".join(parts)


def decode(data: bytes, kind: int, narrow: bool = False) -> tuple[Any, list[np.ndarray]]:
    """What was given to `encode`; `InputError` for another version or kind, and for damaged bytes.

    With `narrow`, integers stay in the form in which they are stored, and are not copied.

    Every length is compared with the bytes that are left before anything of that size is made.
    """
    check_kind(data[0] if len(data) > 1 else "none", data[1] if len(data) > 1 else "none", kind)
    with refusing("an encoded value"):
        size, at = _read_varint(data, 2)
        meta = json.loads(data[at : at + size])
        number, at = _read_varint(data, at + size)
        arrays = []
        for _ in range(number):
            array, at = _read_array(data, at, narrow)
            arrays.append(array)
        if at != len(data):
            raise InputError(f"it has {len(data)} bytes where {at} were written")
    return meta, arrays


def check_kind(version: int | str, found: int | str, wanted: int) -> None:
    """`InputError` for bytes of another version, or of a value of another kind."""
    if version != VERSION:
        raise InputError(f"these bytes have format version {version}; this release reads {VERSION}")
    if found != wanted:
        raise InputError(f"these bytes hold a value of kind {found}, but kind {wanted} is needed here")


def stored(data: bytes, form: int) -> np.ndarray:
    """The numbers in bytes of a form that `narrow` gave."""
    return np.frombuffer(data, _DTYPES[form % WHOLE])


def _read_array(data: bytes, at: int, narrow: bool) -> tuple[np.ndarray, int]:
    form, ndim = data[at], data[at + 1]
    at += 2
    shape = []
    for _ in range(ndim):
        n, at = _read_varint(data, at)
        shape.append(n)
    if form >= 2 * WHOLE:
        raise InputError(f"it holds an array of form {form}")
    stored = _DTYPES[form % WHOLE]
    count = math.prod(shape)
    if count * stored.itemsize > len(data) - at:
        raise InputError("it holds an array that is longer than all its bytes")
    found = np.frombuffer(data, stored, count, at).reshape(shape)
    integers = form < WHOLE and stored.kind == "i"
    if not (narrow and integers):
        found = found.astype(np.int64 if integers else np.float64)
    return found, at + count * stored.itemsize


def _bytes(array: np.ndarray) -> Any:
    """The bytes of an array, not copied where they are many."""
    return array.tobytes() if array.size <= _SMALL else np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def narrow(array: np.ndarray) -> tuple[int, np.ndarray]:
    """The narrowest exact form of numbers; forms from `WHOLE` on are whole numbers that were floats.

    >>> narrow(np.array([3.0, 200.0])), narrow(np.array([0.5]))
    ((6, array([  3, 200], dtype=int16)), (4, array([0.5])))
    """
    floats = array.dtype.kind == "f"
    if floats or array.dtype.kind != "i":
        array = array.astype(np.float64 if floats else np.int64, copy=False)
    low: Any = 0
    high: Any = 0
    few = array.ravel().tolist() if array.size <= _SMALL else None
    if few:
        total = sum(few)
        # Of NaN among others min and max tell nothing.
        low, high = (min(few), max(few)) if total == total else (np.nan, np.nan)
    elif few is None:
        some = array.flat[:_SMALL]
        if floats and not (np.rint(some) == some).all():
            return 4, array
        low, high = array.min(), array.max()
    for form, limit in enumerate(_LIMITS):
        if -limit <= low and high < limit:  # False for NaN
            packed = array.astype(_DTYPES[form], copy=False)
            if not floats:
                return form, packed
            same = (packed == array).all() if few is None else packed.ravel().tolist() == few
            return (WHOLE + form, packed) if same else (4, array)
    return (4, array) if floats else (3, array.astype(np.int64, copy=False))


def _varint(n: int) -> bytes:
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    n = shift = 0
    while True:
        byte = data[at]
        at += 1
        n |= (byte & 0x7F) << shift
        if byte < 0x80:
            return n, at
        shift += 7
        if shift > 63:
            raise InputError("it holds a length of more than 63 bits")
