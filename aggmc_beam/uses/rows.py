"""Estimates as rows with a schema, for tables, Parquet, schemas of Beam, Beam SQL and Beam YAML."""

import json
import typing
from typing import NamedTuple, Optional

from aggmc_beam.result import Estimate

# Beam reads these types when they are used, and knows no `X | None` there in older releases.


class Entry(NamedTuple):
    """One entry of a transition matrix."""

    from_state: str
    to_state: str
    probability: Optional[float]  # noqa: UP045
    standard_error: Optional[float]  # noqa: UP045
    lower: Optional[float]  # noqa: UP045
    upper: Optional[float]  # noqa: UP045


class EstimateRow(NamedTuple):
    """An estimate: the columns of the BigQuery table; `group` is JSON, `details` is all of it, as JSON."""

    group: Optional[str]  # noqa: UP045
    window_start: Optional[str]  # noqa: UP045
    window_end: Optional[str]  # noqa: UP045
    cell: Optional[int]  # noqa: UP045
    estimator: str
    ground: Optional[str]  # noqa: UP045
    warnings: Optional[str]  # noqa: UP045
    population: Optional[float]  # noqa: UP045
    level: float
    records: int
    pairs: int
    rejected: int
    late: int
    refresh: int
    details: str
    entries: typing.Sequence[Entry]


def to_row(estimate: Estimate) -> EstimateRow:
    """An estimate as a row: one entry for each pair of states.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate(states=2, steps=50, seed=1)
    >>> row = to_row(am.estimate(y, states=["in", "out"]))
    >>> row.pairs, row.cell, row.entries[1].to_state
    (49, None, 'out')
    """
    plain = estimate.to_dict()
    cells = ("transition_matrix", "standard_error", "lower", "upper")
    entries = [
        Entry(a, b, *(plain[name][i][j] for name in cells))
        for i, a in enumerate(estimate.states)
        for j, b in enumerate(estimate.states)
    ]
    window, counts, population = plain["window"] or {}, plain["counts"], plain["population"]
    return EstimateRow(
        group=None if plain["group"] is None else json.dumps(plain["group"], ensure_ascii=False),
        window_start=str(window["start"]) if window else None,
        window_end=str(window["end"]) if window else None,
        cell=plain["cell"],
        estimator=plain["estimator"],
        ground=plain["diagnostics"].get("ground", {}).get("name"),
        warnings=" ".join(f"{w}." for w in plain["warnings"]) or None,
        population=None if population is None else float(population),
        level=float(plain["level"]),
        records=counts["records"],
        pairs=counts["pairs"],
        rejected=counts["rejected"],
        late=counts["late"],
        refresh=plain["refresh"],
        details=json.dumps(plain, ensure_ascii=False),
        entries=entries,
    )
