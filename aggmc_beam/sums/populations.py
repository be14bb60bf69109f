"""Populations of realizations as records tell them, and the records that contradict them."""

from __future__ import annotations

from typing import Any

import numpy as np

from aggmc_beam.errors import InputError
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


def check_populations(
    spec: SumSpec, records: Records, told: np.ndarray | None, expected: np.ndarray | None
) -> dict[int, str]:
    """The records that tell another population than is `expected` of their realization, with reasons. Counts that
    the population forbids are an `InputError`."""
    is_exact = isinstance(spec.noise, Exact)
    if told is None or expected is None:
        if spec.population is not None and is_exact:
            _check_totals(spec, records, spec.population)
        return {}
    same = np.isclose(told, expected, rtol=1e-9, atol=0)
    if spec.populations == TOTALS:
        _check_closed(spec, records, told, expected, same)
        return {}
    if is_exact:
        _check_totals(spec, records, expected)
    names = records.names[records.realization]
    return {
        int(at): f"population {told[at]:g} differs from {expected[at]:g}, given before for realization "
        f"{str(names[at])!r}"
        for at in np.flatnonzero(~same)
    }


def _check_closed(
    spec: SumSpec, records: Records, total: np.ndarray, expected: np.ndarray, same: np.ndarray
) -> None:
    wrong = np.flatnonzero(~same | (total <= 0))
    if len(wrong):
        at = wrong[0]
        raise InputError(
            "the totals of exact counts change with time, so the population is not closed or the counts "
            f"are noisy; name the noise model or give the population ({_place(spec, records, at)}: "
            f"{total[at]:g}, before {expected[at]:g})"
        )


def _check_totals(spec: SumSpec, records: Records, population: np.ndarray | float) -> None:
    totals = np.asarray(np.nansum(records.counts, 1, dtype=np.float64))
    excess = np.flatnonzero(totals > population * (1 + 1e-9))
    if len(excess):
        at = excess[0]
        N = np.broadcast_to(population, totals.shape)[at]
        raise InputError(
            f"{_place(spec, records, at)} counts {totals[at]:g} individuals, more than the population {N:g}; "
            "correct the population, or name the noise model if the counts are noisy"
        )


def _place(spec: SumSpec, records: Records, at: Any) -> str:
    name = str(records.names[records.realization[at]])
    return f"realization {name!r}, time {spec.clock.label(int(records.time[at]))}"
