"""Whether input files stayed as they were while a run read them: they are read more than once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from aggmc_beam.errors import InputError

#: Which file it is, its size, and when it was written last.
Stamp = tuple[int, int, int]


def stamps(paths: Iterable[str]) -> dict[str, Stamp | None]:
    """What tells a file from another one of the same name; None for what is no file."""
    return {path: _stamp(path) for path in paths}


def check_unchanged(before: dict[str, Stamp | None]) -> None:
    """`InputError` if one of these files was written, replaced or removed since."""
    for path, stamp in before.items():
        if _stamp(path) != stamp:
            raise InputError(
                f"{path} changed while it was read, so nothing was written; run again when it is complete, "
                "and let its writer rename finished files into place"
            )


def check_resumed(before: Mapping[str, Stamp | None]) -> None:
    """`InputError` if the moments that a run went on from were replaced since: what replaced them would be lost."""
    for path, stamp in before.items():
        if _stamp(path) != stamp:
            raise InputError(
                f"{path}, which this run went on from, was replaced meanwhile by another run, whose records would "
                "be lost; nothing was written; run again"
            )


def _stamp(path: str) -> Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
