"""A run on this machine: files in, estimates out. `for block in blocks(files): state.add(block)`, then a fit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aggmc_beam.config import Config
from aggmc_beam.errors import InputError
from aggmc_beam.fit.drawing import advice
from aggmc_beam.fit.groups import estimate_state, listed
from aggmc_beam.ledger import USUAL, Ledger, Unbalanced, check_rejected
from aggmc_beam.local.blocks import Block, BlockReader, RowCounts
from aggmc_beam.local.explain import Rejection, explain
from aggmc_beam.local.follow_up import FollowUp
from aggmc_beam.local.plan import Plan, size_of
from aggmc_beam.local.reasons import Reasons, key_of
from aggmc_beam.local.survey import Survey
from aggmc_beam.local.unchanged import Stamp, check_unchanged, stamps
from aggmc_beam.logs import LOGGER
from aggmc_beam.progress import ProgressHook, no_progress
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.sums.records import Group, Records
from aggmc_beam.sums.run_file import save_run
from aggmc_beam.sums.state import AggregationState

#: Input of at most so many values is held at once: half a gigabyte of floats, an eighth of that as small integers.
HELD_VALUES = 1 << 26
#: Values of a block of larger input: enough for sums to be made at full speed.
BLOCK_VALUES = 1 << 24


def no_tables(directory: Path) -> None:
    """Write no table."""


@dataclass(frozen=True)
class Result:
    """What a run found: estimates of each group, in a list as they are written; the ledger of what was used
    and not used; why records were rejected; the state, from which estimates are made again and a later run
    goes on. `follow_up` writes the tables of flows, forecasts and alarms that were asked for."""

    estimates: list[Estimate]
    results: dict[Group, Estimate | Estimates]
    ledger: dict[str, Any]
    rejections: Callable[[], Iterator[Rejection]]
    state: AggregationState
    follow_up: Callable[[Path], None] = no_tables
    resumed: Mapping[str, Stamp | None] = field(default_factory=dict)
    """The saved moments that this run went on from, as they were then."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the state."""
        save_run(self.state, path)


def run(config: Config, progress: ProgressHook = no_progress) -> Result:
    """Run a config and hand back the result; nothing is written."""
    return run_plan(Plan.open(config), progress)


def run_plan(plan: Plan, progress: ProgressHook = no_progress) -> Result:
    """Run a plan. An error while files are read tells if one of them has changed meanwhile."""
    files = stamps(source.name for source in plan.sources)
    try:
        return _run(plan, progress, files)
    except (InputError, Unbalanced):
        check_unchanged(files)
        raise


def _run(plan: Plan, progress: ProgressHook, files: dict[str, Stamp | None]) -> Result:
    resumed = stamps(plan.resumed)
    state = plan.state()
    before = state.records
    summing = Summing(plan, state, progress)
    passes = summing.sum()
    counts = summing.counts

    def rejections() -> Iterator[Rejection]:
        yield from explain(plan.sources, plan.schema, counts)
        check_unchanged(files)

    check_unchanged(files)
    if not state.records:
        raise InputError(nothing_used(counts.read, rejections()))
    summing.count_in_state()
    rows = summing.ledger(state.records - before)
    results, skipped = estimate_state(state, plan.settings, progress)
    total = state.sums.total
    ledger = {
        "files": len(plan.sources),
        "rows": rows.to_dict(),
        "sorted": passes > 1,
        "records": total.records,
        "pairs": total.pairs,
        "realizations": total.counts.realizations,
        "groups": len(state.sums.groups),
        "duplicates": total.counts.duplicates,
        "conflicting": counts.conflicting,
        "gaps": total.gaps,
        "rejected": counts.rejected,
        "filled_with_zero": counts.filled,
        "incomplete": counts.incomplete,
        "skipped": skipped,
        "advice": advice(results.values(), plan.settings.pooling),
    }
    follow_up = FollowUp(plan, results, passes, progress=progress)
    if plan.config.output.flows:
        ledger["without_flows"] = follow_up.skipped
    return Result(listed(results), results, ledger, rejections, state, follow_up.write, resumed)


@dataclass
class Summing:
    """The way of a plan's records into a state."""

    plan: Plan
    state: AggregationState
    progress: ProgressHook = no_progress
    used: int = 0
    records: int = 0
    duplicate: int = 0
    """Rows and records that entered the sums, and rows of records that had been met."""
    reader: BlockReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = self.plan.reader()

    @property
    def counts(self) -> RowCounts:
        return self.reader.counts

    def sum(self) -> int:
        """Add all records to the state; how often the input was gone through for that."""
        if size_of(self.plan) <= HELD_VALUES:
            self.progress("reading", 0, None)
            self.reader.on_read = lambda rows: self.progress("reading", rows, None)
            for block in self.reader.blocks():
                self._check_rejected()
                self.progress("summing", 0, self.counts.read)
                self._add(block)
                self.progress("summing", self.counts.read, self.counts.read)
            return 1
        rows, passes = self._look()
        self._check_rejected(rows)
        size = max(1, BLOCK_VALUES // self._width)
        for part in range(passes):
            for block in self.reader.blocks(size if passes == 1 else None, (part, passes)):
                self._add(block)
                self.progress("summing", self.used + self.duplicate + self.counts.rejected, rows)
                self._check_rejected(rows)
        self._check_rejected()
        return passes

    @property
    def _width(self) -> int:
        """Values of a row."""
        return 1 if self.plan.schema.state is not None else len(self.plan.schema.states)

    def _look(self) -> tuple[int, int]:
        """How many rows there are, and in how many parts they are best read: in one as they come, unless too many
        records would wait for their neighbours, or rows of a long table for theirs."""
        reader, survey = self.plan.reader(), Survey()
        for block in reader.blocks(max(1, BLOCK_VALUES // self._width)):
            survey.add(block.records)
            self.progress("looking", reader.counts.read, None)
        self.state.expect(survey.extents())
        rows = reader.counts.read
        waiting = survey.open_records() * len(self.plan.schema.states)
        in_order = self.plan.schema.state is None or survey.is_apart()
        passes = 1
        if waiting > HELD_VALUES or not in_order:
            passes = max(2, -(-rows * self._width // HELD_VALUES))
            LOGGER.info(f"rows are in no order, so that the input is read {passes} times")
        return rows, passes

    def _add(self, block: Block) -> None:
        records, place, counts = block.records, block.place, self.counts
        added = self.state.add(records)
        for at, reason in added.refused.items():
            where = np.array([at])
            counts.reject(place.at(where), reason, records.number_of_rows(where))
        again = records.number_of_rows(added.repeated)
        refused = np.fromiter(added.refused, np.int64)
        self.duplicate += again
        self.used += records.number_of_rows() - again - records.number_of_rows(refused)
        self.records += len(records) - len(added.repeated) - len(refused)
        counts.conflicting += len(added.conflicting)
        if len(added.conflicting):
            counts.conflicts.append(place.at(added.conflicting))
            self._check_series(records, int(added.conflicting[0]))

    def _check_series(self, records: Records, at: int) -> None:
        """`InputError` if rows without a column of the realization are of several."""
        schema, number = self.plan.schema, self.counts.conflicting
        if schema.realization is None and number > USUAL * self.records:
            raise InputError(
                f"{number:,} rows have the {schema.time_name} of another row and other counts (the first: "
                f"{schema.clock.label(int(records.time[at]))}), so they are not of one series; name the column that "
                "tells series apart in input.columns.realization, or in group_by"
            )

    def _check_rejected(self, rows: int | None = None) -> None:
        counts, limit = self.counts, self.plan.config.max_rejected
        rows = counts.read if rows is None else rows
        if counts.rejected < rows or self.state.records:  # if there is nothing else, that is told
            check_rejected(counts.rejected, rows, limit, reasons=self._reasons)

    def _reasons(self) -> Reasons:
        return Reasons.of(explain(self.plan.sources, self.plan.schema, self.counts))

    def count_in_state(self) -> None:
        """Add what was met to the groups' own counts.

        A rejected row may not tell its group, so among several groups only the ledger counts it.
        """
        for group, number in self.reader.repeated.items():
            self.state.count(group, duplicates=number)
        if len(self.state.groups) == 1:
            self.state.count(self.state.groups[0], rejected=self.counts.rejected)

    def ledger(self, records: int) -> Ledger:
        """What became of every row; `Unbalanced` if one was lost, also on the way to the sums, which hold
        `records` more than before."""
        used = self.used - (self.records - records)
        counts = self.counts
        return Ledger(counts.read, used, self.duplicate + counts.duplicate, counts.rejected).check()


def nothing_used(rows: int, rejections: Iterator[Rejection]) -> str:
    """Why input has no records."""
    if not rows:
        return "the input has no rows, only a header or nothing at all"
    first = next(rejections, None)
    if first is None:
        return "no record is complete; see input.absent"
    return (
        f"all {rows:,} rows were rejected; the first: {first.reason} ({first.file}, row {first.row}; see "
        f"{key_of(first.reason)})"
    )
