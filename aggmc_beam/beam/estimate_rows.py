"""Estimates as typed rows, for schemas of Beam, Beam SQL and Beam YAML."""

import typing
from typing import NamedTuple, Optional

from aggmc_beam.beam.sinks import table_row
from aggmc_beam.result import Estimate

# Beam reads these types when the module is loaded, and knows no `X | None` there in older releases.


class Entry(NamedTuple):
    """One entry of a transition matrix."""

    from_state: str
    to_state: str
    probability: Optional[float]  # noqa: UP045
    standard_error: Optional[float]  # noqa: UP045
    lower: Optional[float]  # noqa: UP045
    upper: Optional[float]  # noqa: UP045


class EstimateRow(NamedTuple):
    """An estimate: the columns of the BigQuery table; `details` is all of it, as JSON."""

    group: Optional[str]  # noqa: UP045
    window_start: Optional[str]  # noqa: UP045
    window_end: Optional[str]  # noqa: UP045
    cell: Optional[int]  # noqa: UP045
    estimator: Optional[str]  # noqa: UP045
    population: Optional[float]  # noqa: UP045
    level: Optional[float]  # noqa: UP045
    records: Optional[int]  # noqa: UP045
    pairs: Optional[int]  # noqa: UP045
    rejected: Optional[int]  # noqa: UP045
    late: Optional[int]  # noqa: UP045
    refresh: Optional[int]  # noqa: UP045
    ground: Optional[str]  # noqa: UP045
    warnings: Optional[str]  # noqa: UP045
    details: str
    entries: typing.Sequence[Entry]


def to_row(estimate: Estimate) -> EstimateRow:
    """An estimate as a row that Beam knows the schema of.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate(states=2, steps=50, seed=1)
    >>> row = to_row(am.estimate(y, states=["in", "out"]))
    >>> row.pairs, row.cell, row.entries[1].to_state
    (49, None, 'out')
    """
    plain = table_row(estimate)
    entries = [Entry(**entry) for entry in plain.pop("entries")]
    for name in ("population", "level"):
        plain[name] = None if plain[name] is None else float(plain[name])
    return EstimateRow(**plain, entries=entries)
