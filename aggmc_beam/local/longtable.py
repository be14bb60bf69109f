"""Rows of a long table, one for each state of a record, put together to records."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from aggmc_beam.local.columns import narrowed

#: Places for each row of a table by realization and time, beyond which rows are sorted.
SPARSE = 8

SPOILED = "another row of its record cannot be used, so the record is not"
NOTHING = "all its counts are missing"
INCOMPLETE = "its record has no row for some state, and input.absent is missing"


@dataclass(frozen=True)
class Joined:
    """R records: the `first` row of each, its `counts` [R, S] and how many `rows` it is made of.

    `duplicate` rows repeat another of their record; `again` has the realization of a record once for each time
    that all of its rows came again. `conflicting` records have such rows with other counts. `rejected` are rows,
    with the reason. `filled` counts states without a row that were taken as zero, `incomplete` records without
    a row for some state.
    """

    first: np.ndarray
    counts: np.ndarray
    rows: np.ndarray
    duplicate: int
    again: np.ndarray
    conflicting: int
    filled: int
    incomplete: int
    rejected: list[tuple[np.ndarray, str]] = field(default_factory=list)


def join_rows(
    realization: np.ndarray,
    time: np.ndarray,
    state: np.ndarray,
    count: np.ndarray,
    population: np.ndarray | None,
    S: int,
    absent: str = "zero",
    gaps: bool = False,
) -> Joined:
    """The records that rows in any order make. A row of state -1 spoils its record.

    `absent` tells what a state without a row means: "zero", or that the record is "missing", or only its count if
    there may be `gaps`.

    >>> join_rows(*np.array([[0, 0, 0], [5, 5, 6], [0, 1, 1], [3, 4, 9]]), None, 2).counts.tolist()
    [[3, 4], [0, 9]]
    """
    order, record, first = _records(realization, time)
    R = len(first)
    if order is not None:
        state, count = state[order], count[order]
    bad = state < 0
    spoiled = np.zeros(R, bool)
    spoiled[record[bad]] = True
    good = slice(None) if not bad.any() else ~bad
    cell, value = (record * S + state)[good], count[good]
    times = np.bincount(cell, minlength=R * S).reshape(R, S)
    whole = len(cell) == R * S and bool((times == 1).all()) and not spoiled.any()
    lacking = gaps and absent == "missing"
    table = np.full(R * S, np.nan) if lacking else np.zeros(R * S, count.dtype)
    # Written backwards, so that of repeated rows the first stays.
    table[cell[::-1]] = value[::-1]
    keep = ~spoiled
    rejected, filled, incomplete, conflicting = [], 0, 0, 0
    place = np.arange(len(record)) if order is None else order
    if spoiled.any():
        rejected.append((place[~bad & spoiled[record]], SPOILED))
    if not whole:
        kept_value = table[cell]
        differs = (kept_value != value) & ~((kept_value != kept_value) & (value != value))
        conflicting = len(np.unique(cell[differs] // S))
        short = (times == 0).any(1) & keep
        if lacking:
            pass
        elif absent == "missing":
            keep &= ~short
            incomplete = int(short.sum())
            rejected.append((place[short[record]], INCOMPLETE))
        else:
            filled = int((times[short] == 0).sum())
    if gaps:
        nothing = np.isnan(table.reshape(R, S)).all(1) & keep
        keep &= ~nothing
        rejected.append((place[nothing[record]], NOTHING))
    at = first if keep.all() else first[keep]
    distinct = np.full(R, S) if whole else (times[keep] > 0).sum(1)
    again = (
        np.repeat(realization[first], np.maximum(times.max(1, initial=1) - 1, 0)) if not whole else first[:0]
    )
    counts = table.reshape(R, S) if keep.all() else table.reshape(R, S)[keep]
    duplicate = 0 if whole else int(times[keep].sum() - distinct.sum())
    return Joined(at, narrowed(counts), distinct, duplicate, again, conflicting, filled, incomplete, rejected)


def _records(realization: np.ndarray, time: np.ndarray) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """An order of the rows by realization and time (None: as they are), the record of each row in that order,
    and the first row of each record."""
    n = len(time)
    if not n:
        return None, time, time
    low = int(time.min())
    width = int(time.max()) - low + 1
    keys = int(realization.max()) + 1
    if keys * width < 2**62:
        place = realization * width + (time - low)
        step = np.diff(place)
        order = None
        if (step < 0).any():
            order = np.argsort(place, kind="stable")
            step = np.diff(place[order])
        begins = np.concatenate([[True], step != 0])
    else:
        order = np.lexsort((time, realization))
        begins = np.concatenate([[True], (np.diff(realization[order]) != 0) | (np.diff(time[order]) != 0)])
    record = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    return order, record, first if order is None else order[first]
