"""Populations of realizations as records tell them, and the records that contradict them."""

from __future__ import annotations

from typing import Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.ledger import USUAL
from aggmc_beam.noise import Exact
from aggmc_beam.sums.records import Records
from aggmc_beam.sums.spec import ONE, TOTALS, SumSpec


def told_populations(spec: SumSpec, records: Records) -> np.ndarray | None:
    """What each record tells of its realization's population; None if the spec tells that of all."""
    if spec.populations == ONE:
        return None
    found = records.counts.sum(1, dtype=np.float64) if spec.populations == TOTALS else records.population
    assert found is not None
    return np.asarray(found)


def usual_populations(spec: SumSpec, key: np.ndarray, told: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys, and what records tell of their populations: where totals differ, the most frequent one."""
    keys, first = np.unique(key, return_index=True)
    found = np.zeros(int(keys.max(initial=-1)) + 1)
    found[keys] = told[first]
    if spec.populations == TOTALS and not np.array_equal(found[key], told):
        return _most_frequent(key, told)
    return keys, told[first]


def _most_frequent(key: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys, and the most frequent value of each, the least one if there are several.

    >>> _most_frequent(np.array([0, 0, 0, 4]), np.array([9.0, 5.0, 5.0, 2.0]))
    (array([0, 4]), array([5., 2.]))
    """
    pairs, number = np.unique(np.column_stack([key, value]), axis=0, return_counts=True)
    order = np.lexsort((pairs[:, 1], -number, pairs[:, 0]))
    keys, first = np.unique(pairs[order, 0], return_index=True)
    return keys.astype(np.int64), pairs[order][first, 1]


def check_populations(
    spec: SumSpec, records: Records, told: np.ndarray | None, expected: np.ndarray | None
) -> dict[int, str]:
    """The records that tell another population than is `expected` of their realization, or more individuals, with
    reasons. Many that the population forbids are an `InputError`."""
    is_exact = isinstance(spec.noise, Exact)
    if told is None or expected is None:
        return _beyond(spec, records, spec.population) if spec.population is not None and is_exact else {}
    if spec.populations == TOTALS:
        return _not_closed(spec, records, told, expected)
    names = records.names[records.realization]
    return (_beyond(spec, records, expected) if is_exact else {}) | {
        int(at): f"population {told[at]:g} differs from {expected[at]:g}, given before for realization "
        f"{str(names[at])!r}"
        for at in np.flatnonzero(~np.isclose(told, expected, rtol=1e-9, atol=0))
    }


def _are_many(wrong: np.ndarray, records: Records) -> bool:
    """Whether so many records contradict the population that it is the noise model that is wrong."""
    return len(wrong) > max(1, USUAL * len(records))


def _not_closed(spec: SumSpec, records: Records, total: np.ndarray, expected: np.ndarray) -> dict[int, str]:
    wrong = np.flatnonzero(~np.isclose(total, expected, rtol=1e-9, atol=0) | (total <= 0))
    if _are_many(wrong, records):
        at = wrong[0]
        raise InputError(
            "the totals of exact counts change with time, so the population is not closed or the counts "
            f"are noisy; name the noise model or give the population ({_place(spec, records, at)}: "
            f"{total[at]:g}, before {expected[at]:g})"
        )
    return {
        at: f"its counts add up to {total[at]:g}, those of its realization to {expected[at]:g}, "
        "which exact counts do not"
        for at in wrong.tolist()
    }


def _beyond(spec: SumSpec, records: Records, population: np.ndarray | float) -> dict[int, str]:
    totals = np.asarray(np.nansum(records.counts, 1, dtype=np.float64))
    excess = np.flatnonzero(totals > population * (1 + 1e-9))
    N = np.broadcast_to(population, totals.shape)
    if _are_many(excess, records):
        at = excess[0]
        raise InputError(
            f"{_place(spec, records, at)} counts {totals[at]:g} individuals, more than the population {N[at]:g}; "
            "correct the population, or name the noise model if the counts are noisy"
        )
    return {
        at: f"it counts {totals[at]:g} individuals, more than the population {N[at]:g}"
        for at in excess.tolist()
    }


def _place(spec: SumSpec, records: Records, at: Any) -> str:
    name = str(records.names[records.realization[at]])
    return f"realization {name!r}, time {spec.clock.label(int(records.time[at]))}"
