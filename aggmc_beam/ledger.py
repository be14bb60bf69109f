"""The ledger: what became of every row that was read, and how many may be rejected. The same for every engine.

A row is what the input is made of: one record, or in the long layout the count of one state in a record.
Every row ends in exactly one of four places, so the four numbers add up to what was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from aggmc_beam.errors import InputError

#: The share of rows that may be rejected where a config does not say.
USUAL = 0.05
#: A share is judged from this many records on while more may come; of all records, at any number.
MIN_SHARED = 1000


class Unbalanced(RuntimeError):
    """A row was lost or counted twice. It is a defect of the engine, never of the data."""


@dataclass(frozen=True)
class Ledger:
    """`read` rows, of which each is one of:

    `used`: it entered the sums. `duplicate`: its group, realization and time (in the long layout also its
    state) had been met, with the same counts or others. `rejected`: it is no valid record, or part of one
    that is incomplete. `late`: its window had closed or its realization had been forgotten.

    >>> day = Ledger(read=10, used=7, duplicate=2, rejected=1)
    >>> print((day + Ledger.of({"records": 5, "late": 1})).check())
    16 rows read: 12 used, 2 duplicate, 1 rejected, 1 late
    >>> Ledger(read=10, used=9).check()
    Traceback (most recent call last):
    aggmc_beam.ledger.Unbalanced: 1 row is missing from the ledger (10 rows read: 9 used, 0 duplicate, \
0 rejected, 0 late)
    """

    read: int = 0
    used: int = 0
    duplicate: int = 0
    rejected: int = 0
    late: int = 0

    @classmethod
    def of(cls, counts: Mapping[str, Any], read: int | None = None) -> Ledger:
        """From counts by the names that estimates use; without `read`, that is their sum.

        The counts of an estimate are those of its group, where a row that does not tell its group is not.
        """
        names = ("records", "duplicates", "rejected", "late")
        ends = [int(counts.get(name, 0)) for name in names]
        return cls(sum(ends) if read is None else read, *ends)

    def __add__(self, other: Ledger) -> Ledger:
        return Ledger(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def missing(self) -> int:
        """Rows that were read and are nowhere; below 0 if some were counted twice."""
        return self.read - self.used - self.duplicate - self.rejected - self.late

    def check(self) -> Ledger:
        """Itself; `Unbalanced` if it does not add up."""
        if self.missing or min(asdict(self).values()) < 0:
            rows = f"{abs(self.missing):,} row{' is' if abs(self.missing) == 1 else 's are'}"
            place = "missing from" if self.missing > 0 else "too many in"
            raise Unbalanced(f"{rows} {place} the ledger ({self})")
        return self

    def to_dict(self) -> dict[str, int]:
        return asdict(self)

    def __str__(self) -> str:
        ends = ", ".join(f"{getattr(self, f.name):,} {f.name}" for f in fields(self)[1:])
        return f"{self.read:,} rows read: {ends}"


def check_rejected(
    rejected: int,
    read: int,
    limit: int | float | None,
    complete: bool = True,
    reasons: Callable[[], object] | None = None,
) -> None:
    """`InputError` if more than `limit` of `read` records were rejected.

    `limit` is a number, or as a float a share. `complete` tells that no more records will come; `reasons` are those
    of the rejections, for the message.

    >>> check_rejected(3, 100, 0.02, complete=False)
    >>> check_rejected(3, 100, 0.02)
    Traceback (most recent call last):
    aggmc_beam.errors.InputError: 3 of 100 records were rejected, more than max_rejected: 0.02; \
`aggmc check` and the dead-letter output show them
    """
    if limit is None:
        return
    share = isinstance(limit, float)
    if share and not complete and read < MIN_SHARED:
        return
    if rejected > (limit * read if share else limit):
        shown = f"{limit:g}" if share else f"{limit:,}"
        why = "`aggmc check` and the dead-letter output show them"
        if reasons is not None:
            why = f"the commonest reasons: {reasons()}"
        raise InputError(
            f"{rejected:,} of {read:,} records were rejected, more than max_rejected: {shown}; {why}"
        )
