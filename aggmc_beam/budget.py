"""What sums and files take in memory, computed before anything is made of it."""

from __future__ import annotations

import re

from aggmc_beam.errors import InputError

#: Bytes that sums, and what is held of one file at once, may take where a config does not say: most machines have as
#: much to spare.
MEMORY = 4 << 30
#: Matrices [S, S] of floats that sums keep for each group, cell and replicate.
MATRICES = 4
#: Matrices that an estimate is made with, and written as lists of numbers; and that it takes more for each replicate.
#: Measured with 150 to 3,000 states: `mom` takes as much as any other with few replicates.
FIT, FIT_REPLICATE = 45, 11
_UNITS = {"MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def size_of_sums(states: int, labels: int) -> int:
    """Bytes of the sums of so many groups x cells x replicates.

    >>> shown_size(size_of_sums(3000, 10))
    '2.7 GB'
    """
    return labels * (MATRICES * states * states + 8 * states) * 8


def size_of_fit(states: int, replicates: int) -> int:
    """Bytes of what is made of the sums of one cell.

    >>> shown_size(size_of_fit(3000, 10))
    '10.4 GB'
    """
    return (FIT + FIT_REPLICATE * replicates) * states * states * 8


def check_memory(needed: int, limit: int, what: str, change: str) -> None:
    """`InputError` if something takes more than the limit; `change` says which numbers to change.

    >>> check_memory(9 << 30, 4 << 30, "the sums", "lower uncertainty.replicates")
    Traceback (most recent call last):
    aggmc_beam.errors.InputError: the sums would take about 9.0 GB, more than limits.memory: 4.0 GB; lower \
uncertainty.replicates, or raise limits.memory
    """
    if needed > limit:
        raise InputError(
            f"{what} would take about {shown_size(needed)}, more than limits.memory: {shown_size(limit)}; "
            f"{change}, or raise limits.memory"
        )


def read_size(text: str) -> int | None:
    """Bytes as a config gives them; None if it does not.

    >>> read_size("512MB") == 512 << 20, read_size("1.5 GB") == 3 << 29, read_size("9")
    (True, True, None)
    """
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*(MB|GB|TB)", text.strip())
    return int(float(found[1]) * _UNITS[found[2]]) or None if found else None


def shown_size(size: int) -> str:
    unit = next((u for u in ("TB", "GB") if size >= _UNITS[u]), "MB")
    return f"{size / _UNITS[unit]:,.1f} {unit}"
