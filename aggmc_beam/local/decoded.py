"""The bytes of a text file as UTF-8, however it is packed and encoded."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from aggmc_beam.errors import InputError

BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
#: What files of archives begin with, and names in them that are no data.
ZIP, _NO_DATA = b"PK\x03\x04", ("__MACOSX/", ".DS_Store")


@contextmanager
def open_text(path: str, encoding: str | None = None) -> Iterator[IO[bytes]]:
    """The text of a file in UTF-8, without a mark at its begin. Packed by gzip, bzip2, zstd or zip it is unpacked;
    without an `encoding` it is UTF-8, or UTF-16 if a mark says so. What is not of the encoding becomes U+FFFD,
    or stays if that is UTF-8.

    Damaged files are an `InputError`.
    """
    try:
        with _unpacked(path) as stream:
            head = stream.read(4)
            rest: Any = _Chained(head, stream)
            if encoding is None and head[:2] in _UTF16:
                encoding = "utf-16"
            if encoding is not None and codecs.lookup(encoding).name != "utf-8":
                rest = _Transcoded(rest, encoding)
                head = rest.read(3)
                rest = _Chained(head, rest)
            if head.startswith(BOM):
                rest.read(3)
            yield rest
    except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} cannot be read; it is compressed by gzip or zip and damaged ({error})"
        ) from None
    except UnicodeError as error:
        raise InputError(f"{path} is not {encoding} text ({error}); set input.encoding") from None


def unpacked(file: Any, first: bytes) -> Any:
    """A file, or one that is open, whose first four bytes are these, unpacked; None if it is not packed."""
    if first[:2] == b"\x1f\x8b":
        return gzip.open(file, "rb")
    if first[:3] == b"BZh":
        return bz2.open(file, "rb")
    if first == b"\x28\xb5\x2f\xfd":
        import pyarrow as pa

        return pa.input_stream(file, compression="zstd")
    return None


@contextmanager
def _unpacked(path: str) -> Iterator[IO[bytes]]:
    with open(path, "rb") as stream:
        first = stream.read(4)
    if first == ZIP:
        with zipfile.ZipFile(path) as archive, archive.open(_only_file(archive, path)) as inner:
            yield inner
        return
    with unpacked(path, first) or open(path, "rb") as stream:
        yield stream


def _only_file(archive: zipfile.ZipFile, path: str) -> str:
    names = [n for n in archive.namelist() if not n.endswith(("/", *_NO_DATA)) and not n.startswith(_NO_DATA)]
    if len(names) != 1:
        some = ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
        raise InputError(
            f"{path} holds {len(names)} files ({some}); unpack it, and name the ones that are meant"
        )
    return names[0]


class _Chained(io.RawIOBase):
    """Some bytes, and what follows in a stream."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def read(self, size: int = -1) -> bytes:
        if not self._head:
            return self._rest.read(size)
        found, self._head = (self._head, b"") if size < 0 else (self._head[:size], self._head[size:])
        return found + self._rest.read(size if size < 0 else size - len(found))


class _Transcoded(io.RawIOBase):
    """A stream of text of some encoding as UTF-8."""

    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        self._held = b""

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._held) < size:
            data = self._stream.read(max(size, 1 << 16))
            self._held += self._decoder.decode(data, final=not data).encode(errors="replace")
            if not data:
                break
        size = len(self._held) if size < 0 else size
        found, self._held = self._held[:size], self._held[size:]
        return found
