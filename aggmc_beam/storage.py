"""Files of named arrays: versioned, checksummed, without pickle.

Layout: magic, format version, header length, JSON header, raw little-endian array bytes, and a checksum
of everything before it: the SHA-256 of the SHA-256 of each MiB, which are found on several cores (in
version 1 the SHA-256 of everything). Any flipped, missing or extra byte is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from aggmc_beam.errors import InputError

MAGIC = b"AGGMC\r\n\x00"
VERSION = 2
_PREFIX = struct.Struct("<8sII")
_DIGEST_BYTES = 32
#: Sums of counts and of their products lie below this.
LARGEST = 1e100
_DTYPES = {"<f8", "<i8"}
#: Numbers that are looked at together: for more, libraries would start threads, and the checksum has one.
PIECE = 8192
#: Bytes that have a checksum of their own, and threads that find them.
_MIB, _THREADS = 1 << 20, 2

Arrays = Mapping[str, np.ndarray]


def pack(kind: str, meta: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Bytes that `unpacked` turns back into the same `meta` and `arrays` (float64 or int64).

    >>> with unpacked(pack("demo", {"S": 2}, {"x": np.eye(2)}), "demo") as (meta, arrays):
    ...     meta["S"], float(arrays["x"].trace())
    (2, 2.0)
    """
    listing, chunks = [], []
    for name, array in arrays.items():
        array = np.asarray(array)
        if array.dtype.str not in _DTYPES:
            raise InputError(f"array {name!r} has type {array.dtype}; float64 or int64 is stored")
        listing.append([name, array.dtype.str, list(array.shape)])
        chunks.append(array.tobytes())
    header = json.dumps({"kind": kind, "meta": dict(meta), "arrays": listing}).encode()
    header += b" " * (-len(header) % 8)  # so that arrays can be used where they are
    body = b"".join([_PREFIX.pack(MAGIC, VERSION, len(header)), header, *chunks])
    return body + _checksum(body, map)


Unpacked = tuple[dict[str, Any], dict[str, np.ndarray]]


@contextmanager
def unpacked(data: bytes | memoryview, kind: str, source: str = "these bytes") -> Iterator[Unpacked]:
    """The `meta` and `arrays` given to `pack`, to be taken apart in the block of a `with`.

    Bytes that are damaged, foreign or of another kind are an `InputError`, and so is what goes wrong in the
    block. The checksum is found meanwhile: what the block makes may be used once the block has ended. Arrays
    may lie in `data`, and cannot be changed.
    """
    body = _body(data, source)
    with ThreadPoolExecutor(_THREADS + 1) as pool:
        yield from _taken_apart(data, body, pool.submit(_checksum, body, pool.map), kind, source)


@contextmanager
def loaded(path: str | os.PathLike[str], kind: str) -> Iterator[Unpacked]:
    """As `unpacked` of what a file holds."""
    with _reading(path):
        data = _read(path)
    with unpacked(data, kind, os.fspath(path)) as found:
        yield found


def _taken_apart(
    data: bytes | memoryview, body: memoryview, found: Future[bytes], kind: str, source: str
) -> Iterator[Unpacked]:
    try:
        header, offset = _header(body, source)
        if header["kind"] != kind:
            raise InputError(f"{source} holds {header['kind']!r}, but {kind!r} is needed here")
        with refusing(source):
            yield header["meta"], _arrays(body, header["arrays"], offset)
    finally:
        _check(data, found.result(), source)  # damage comes before all that it may have led to


def _read(path: str | os.PathLike[str]) -> bytes | memoryview:
    """All bytes of a file."""
    with open(path, "rb", buffering=0) as stream:
        size, at = os.fstat(stream.fileno()).st_size, 0
        # An array, as it is made of large pages.
        data = np.empty(size, np.uint8).data
        while n := stream.readinto(data[at:]):
            at += n
        more = stream.readall()
    if at == size and not more:
        return data.toreadonly()
    # It is no ordinary file, or became another one meanwhile.
    return bytes(data[:at]) + more


def _checksum(body: bytes | memoryview, over: Callable[..., Iterable[bytes]]) -> bytes:
    """Of all that comes before it; `over` is a map that may run its calls at once."""
    if _PREFIX.unpack_from(body)[1] == 1:
        return hashlib.sha256(body).digest()
    view = memoryview(body)
    pieces = (view[at : at + _MIB] for at in range(0, len(view), _MIB))
    return hashlib.sha256(b"".join(over(lambda piece: hashlib.sha256(piece).digest(), pieces))).digest()


def kind_of(data: bytes, source: str = "these bytes") -> str:
    """Which kind of value is stored, by the header alone: `unpacked` checks the rest."""
    body = _body(data, source)
    try:
        return str(_header(body, source)[0]["kind"])
    except InputError:
        _check(data, _checksum(body, map), source)
        raise


def _body(data: bytes | memoryview, source: str) -> memoryview:
    """All but the checksum."""
    if len(data) < _PREFIX.size + _DIGEST_BYTES or data[: len(MAGIC)] != MAGIC:
        raise InputError(
            f"{source} is not an aggmc file; give one that was written by save() or by a run with "
            "output.moments"
        )
    return memoryview(data)[:-_DIGEST_BYTES]


def _check(data: bytes | memoryview, found: bytes, source: str) -> None:
    if found != data[-_DIGEST_BYTES:]:
        raise InputError(f"{source} is damaged: its checksum does not match; restore or recompute it")


def _header(body: memoryview, source: str) -> tuple[dict[str, Any], int]:
    """The header, and where the arrays begin."""
    _, version, length = _PREFIX.unpack_from(body)
    if version not in (1, VERSION):
        raise InputError(
            f"{source} has format version {version}, this release reads 1 and {VERSION}; "
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


def _arrays(body: memoryview, listing: Any, offset: int) -> dict[str, np.ndarray]:
    """A checksum proves that nothing was damaged, not that the writer meant well: every length is compared
    with the bytes that are there before anything of that size is made."""
    arrays = {}
    for name, dtype, shape in listing:
        if dtype not in _DTYPES or not all(type(n) is int and n >= 0 for n in shape):
            raise InputError(f"array {name!r} has type {dtype!r} and shape {shape!r}")
        size = 8 * math.prod(shape)
        if size > len(body) - offset:
            raise InputError(f"array {name!r} is longer than the file")
        found = np.frombuffer(body, dtype, size // 8, offset).reshape(shape)
        arrays[name] = found if found.flags.aligned else found.copy()
        offset += size
    if offset != len(body):
        raise InputError(f"{len(body) - offset} bytes at its end belong to no array")
    return arrays


@contextmanager
def refusing(source: str) -> Iterator[None]:
    """Whatever goes wrong in taking bytes apart is one `InputError` that names their source."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"{source} cannot be used: {error}; restore or recompute it") from error


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


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write beside the target, then rename: readers see the old file or the new one, never half."""
    target = Path(path)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes it private
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


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
