"""Files that survive a crash: content reaches the disk before a name points at it, and the name before we go on."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


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
    sync(target.parent)


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until a file's content, or the names in a directory, are on the disk."""
    try:
        found = os.open(path, os.O_RDONLY)
    except PermissionError:
        if os.name == "nt":  # Windows opens no directories, and writes names at once
            return
        raise
    try:
        os.fsync(found)
    finally:
        os.close(found)


def _umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask
