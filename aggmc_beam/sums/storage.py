"""Files of named arrays: versioned, checksummed, without pickle.

Layout: magic, format version, header length, JSON header, payload, and the SHA-256 of everything before it. Any
flipped, missing or extra byte is refused. The payload is the arrays' little-endian bytes one after the other,
deflated where the header says so. Arrays of whole numbers are stored in the fewest bytes that hold them: sums of
counts mostly are.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from aggmc_beam.errors import InputError

MAGIC = b"AGGMC\r\n\x00"
VERSION = 3
_PREFIX = struct.Struct("<8sII")
_CHECKSUM_BYTES = 32
#: Sums of counts and of their products lie below this.
LARGEST = 1e100
#: What goes wrong where bytes are not what they should be.
BROKEN = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, struct.error)
#: Types of stored numbers, and of the arrays that they are read as.
_STORED = ("|i1", "<i2", "<i4", "<i8", "<f8")
_KINDS = {"i": np.dtype(np.int64), "f": np.dtype(np.float64)}
#: Numbers that are looked at together, so that they stay in a core's cache.
PIECE = 8192
#: The fastest level of deflate: sums of small groups shrink to a third, others hardly.
_LEVEL = 1
#: Deflated bytes cannot hold more than this many times their own number.
_MOST_INFLATED = 1100

Arrays = Mapping[str, np.ndarray]


def pack(kind: str, meta: Mapping[str, Any], arrays: Arrays, deflate: bool = True) -> bytes:
    """Bytes that `unpacked` turns back into the same `meta` and `arrays` (float64 or int64).

    >>> with unpacked(pack("demo", {"S": 2}, {"x": np.eye(2)}), "demo") as (meta, arrays):
    ...     meta["S"], float(arrays["x"].trace())
    (2, 2.0)
    """
    listing, chunks, packer = [], list[Any](), zlib.compressobj(_LEVEL)
    for name, array in arrays.items():
        array = np.asarray(array)
        if array.dtype not in _KINDS.values():
            raise InputError(f"array {name!r} has type {array.dtype}; float64 or int64 is stored")
        stored = _narrowed(array)
        listing.append([name, array.dtype.kind, stored.dtype.str, list(array.shape)])
        plain = np.ascontiguousarray(stored).reshape(-1).view(np.uint8)
        chunks.append(packer.compress(plain.data) if deflate else plain)
    if deflate:
        chunks.append(packer.flush())
    about = {"kind": kind, "meta": dict(meta), "arrays": listing, "deflated": deflate}
    header = json.dumps(about).encode()
    header += b" " * (-len(header) % 8)  # so that arrays can be used where they are
    body = b"".join([_PREFIX.pack(MAGIC, VERSION, len(header)), header, *chunks])
    return body + hashlib.sha256(body).digest()


def _narrowed(x: np.ndarray) -> np.ndarray:
    """The same numbers as the smallest integers that hold them all, if they are whole."""
    if not x.size:
        return x.astype("|i1")
    low, high = x.min(), x.max()
    # False for NaN; a float beyond 2^53 may be whole and yet no exact integer.
    if not (-(2**53) < low and high < 2**53):
        return x.astype("<i8" if x.dtype.kind == "i" else "<f8", copy=False)
    size = next(s for s in (1, 2, 4, 8) if -(2 ** (8 * s - 1)) <= low and high < 2 ** (8 * s - 1))
    whole = x.astype(f"<i{size}")
    if x.dtype.kind == "f" and not (np.array_equal(whole, x) and not (np.signbit(x) & (x == 0)).any()):
        return x.astype("<f8", copy=False)
    return whole


Unpacked = tuple[dict[str, Any], dict[str, np.ndarray]]


@contextmanager
def unpacked(data: bytes | memoryview, kind: str, source: str = "these bytes") -> Iterator[Unpacked]:
    """The `meta` and `arrays` given to `pack`, to be taken apart in the block of a `with`.

    Bytes that are damaged, foreign or of another kind are an `InputError`, and so is what goes wrong in the
    block. Arrays may lie in `data`, and cannot be changed.
    """
    body = _body(data, source)
    _check(data, body, source)
    header, offset = _header(body, source)
    if header["kind"] != kind:
        raise InputError(f"{source} holds {header['kind']!r}, but {kind!r} is needed here")
    with refusing(source):
        yield header["meta"], _arrays(body[offset:], header)


def kind_of(data: bytes, source: str = "these bytes") -> str:
    """Which kind of value is stored, by the header alone: `unpacked` checks the rest."""
    body = _body(data, source)
    try:
        return str(_header(body, source)[0]["kind"])
    except InputError:
        _check(data, body, source)
        raise


def _check(data: bytes | memoryview, body: memoryview, source: str) -> None:
    if hashlib.sha256(body).digest() != data[-_CHECKSUM_BYTES:]:
        raise InputError(f"{source} is damaged: its checksum does not match; restore or recompute it")


def _body(data: bytes | memoryview, source: str) -> memoryview:
    """All but the checksum."""
    if len(data) < _PREFIX.size + _CHECKSUM_BYTES or data[: len(MAGIC)] != MAGIC:
        raise InputError(
            f"{source} is not an aggmc file; give one that was written by save() or by a run with "
            "output.moments"
        )
    return memoryview(data)[:-_CHECKSUM_BYTES]


def _header(body: memoryview, source: str) -> tuple[dict[str, Any], int]:
    """The header, and where the arrays begin."""
    _, version, length = _PREFIX.unpack_from(body)
    if version != VERSION:
        raise InputError(
            f"{source} has format version {version}, this release reads {VERSION}; "
            "read it with the release that wrote it"
        )
    offset = _PREFIX.size + length
    with refusing(source):
        if offset > len(body):
            raise InputError("its header is longer than the file")
        header = json.loads(bytes(body[_PREFIX.size : offset]))
        if not isinstance(header["meta"], dict) or not isinstance(header["kind"], str):
            raise InputError("its header describes nothing")
    return header, offset


def _arrays(payload: memoryview, header: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """A checksum proves that nothing was damaged, not that the writer meant well: every length is compared
    with the bytes that are there before anything of that size is made."""
    listing = []
    for name, kind, stored, shape in header["arrays"]:
        if kind not in _KINDS or stored not in _STORED or not all(type(n) is int and n >= 0 for n in shape):
            raise InputError(f"array {name!r} has type {kind!r}, stored as {stored!r}, and shape {shape!r}")
        if kind == "i" and stored == "<f8":
            raise InputError(f"array {name!r} is of whole numbers, but stored as fractions")
        listing.append((name, _KINDS[kind], np.dtype(stored), shape, math.prod(shape)))
    size = sum(number * stored.itemsize for _, _, stored, _, number in listing)
    if header["deflated"]:
        payload = _inflated(payload, size)
    if size > len(payload):
        raise InputError("its arrays are longer than the file")
    if size < len(payload):
        raise InputError(f"{len(payload) - size} bytes at its end belong to no array")
    arrays, offset = {}, 0
    for name, dtype, stored, shape, number in listing:
        found = np.frombuffer(payload, stored, number, offset).reshape(shape)
        offset += found.nbytes
        arrays[name] = found.astype(dtype, copy=not found.flags.aligned)
    return arrays


def _inflated(payload: memoryview, size: int) -> memoryview:
    if size > _MOST_INFLATED * (len(payload) + 1):
        raise InputError("its arrays are longer than the file can hold")
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(payload, size + 1)
    except zlib.error as error:
        raise InputError(f"its arrays cannot be inflated ({error})") from None
    if inflater.unused_data or not (inflater.eof or len(found) > size):
        raise InputError("its arrays do not end where its file does")
    return memoryview(found)


@contextmanager
def refusing(source: str) -> Iterator[None]:
    """Whatever goes wrong in taking bytes apart is one `InputError` that names their source."""
    try:
        yield
    except BROKEN as error:
        raise refusal(source, error) from error


def refusal(source: str, error: Exception) -> InputError:
    """What `refusing` makes of an error that is `BROKEN`."""
    return InputError(f"{source} cannot be used: {error}; restore or recompute it")


def array(arrays: Arrays, name: str, kind: str, *shape: int | None) -> np.ndarray:
    """The array of that name, which must be of this kind ("i" or "f") and shape (None: any length), and
    hold numbers below `LARGEST`.

    >>> array({"x": np.eye(2)}, "x", "f", None, 3)
    Traceback (most recent call last):
    aggmc_beam.errors.InputError: array 'x' has shape (2, 2), not (any, 3)
    """
    if name not in arrays:
        raise InputError(f"array {name!r} is missing")
    found = arrays[name]
    fits = len(found.shape) == len(shape) and all(
        n is None or n == m for n, m in zip(shape, found.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise InputError(f"array {name!r} has shape {found.shape}, not ({wanted})")
    if found.dtype.kind != kind:
        raise InputError(f"array {name!r} holds {found.dtype}")
    if kind == "f" and not _are_sums(found):
        raise InputError(f"array {name!r} holds numbers that are not finite, or too large for sums")
    return found


def _are_sums(x: np.ndarray) -> bool:
    """Whether all are finite and below `LARGEST`."""
    flat = x.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        return all(_is_small(flat[i : i + PIECE]) for i in range(0, len(flat), PIECE))


def _is_small(x: np.ndarray) -> bool:
    squares = np.vdot(x, x)  # read once, and fast
    # False for NaN.
    return bool(squares < LARGEST**2 or (-LARGEST < x.min() and x.max() < LARGEST))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The file's bytes; a missing or unreadable file is an `InputError` that names it."""
    with _reading(path):
        return Path(path).read_bytes()


@contextmanager
def _reading(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot read {os.fspath(path)!r}: {error.strerror}") from error
