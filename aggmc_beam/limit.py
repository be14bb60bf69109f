"""max_rejected: how many records, or what share of them, may be rejected before a run stops."""

from __future__ import annotations

from aggmc_beam.errors import InputError

#: A share is judged from this many records on while more may come; of all records, at any number.
ENOUGH = 1000


def check_rejected(rejected: int, read: int, limit: int | float | None, complete: bool = True) -> None:
    """`InputError` if more than `limit` of `read` records were rejected.

    `limit` is a number, or as a float a share. `complete` tells that no more records will come.

    >>> check_rejected(3, 100, 0.02, complete=False)
    >>> check_rejected(3, 100, 0.02)
    Traceback (most recent call last):
    aggmc_beam.errors.InputError: 3 of 100 records were rejected, more than max_rejected: 0.02; \
`aggmc check` and the dead-letter output show them
    """
    if limit is None:
        return
    share = isinstance(limit, float)
    if share and not complete and read < ENOUGH:
        return
    if rejected > (limit * read if share else limit):
        shown = f"{limit:g}" if share else f"{limit:,}"
        raise InputError(
            f"{rejected:,} of {read:,} records were rejected, more than max_rejected: {shown}; "
            "`aggmc check` and the dead-letter output show them"
        )
