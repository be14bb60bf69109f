"""A run on this machine: files in, estimates out. Polars reads and sorts; the core does the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from aggmc_beam.beam.former.accumulate import COLUMN, ONE, TOTALS, Accumulator
from aggmc_beam.beam.former.assemble import Long, Records, Refused, Wide
from aggmc_beam.beam.former.explain import Rejection, explain
from aggmc_beam.beam.former.keys import Keys
from aggmc_beam.beam.former.layout import find_schema
from aggmc_beam.beam.former.narrow import compact
from aggmc_beam.beam.former.rows import (
    arranged,
    filled,
    gathered,
    joined,
    portions,
    sliced,
    whole_realizations,
)
from aggmc_beam.beam.former.sources import ROW, Source, open_files
from aggmc_beam.beam.former.survey import BATCH, Survey, batches, extents_of, steps_back, survey
from aggmc_beam.beam.former.threads import Map, spread
from aggmc_beam.beam.former.tidy import FILE, KEY, TIME, group_columns, tidy
from aggmc_beam.config import Config
from aggmc_beam.digest import FEW
from aggmc_beam.errors import InputError
from aggmc_beam.fitting import Settings
from aggmc_beam.ledger import Ledger, Unbalanced, check_rejected
from aggmc_beam.local.unchanged import Stamp, check_unchanged, stamps
from aggmc_beam.moments import Counts
from aggmc_beam.noise import Exact
from aggmc_beam.prepare import Preparation
from aggmc_beam.records import Clock, Schema
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.saved import Saved, estimate_sums

#: Values that are held at once, rows times states; whole realizations are better taken together.
VALUES, PANEL = 2_000_000, 1 << 25
#: Values that are read at once where all are gathered.
READ = 1 << 23
#: With at most this share of rows out of order, keeping them open is cheaper than sorting.
DISORDER = 0.001

Progress = Callable[[str, int, int | None], None]


def no_progress(stage: str, done: int, total: int | None) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Result:
    """What a run found: estimates of each group, in a list as they are written; the ledger of what was used
    and not used; why records were rejected; how to save the sums."""

    estimates: list[Estimate]
    results: dict[tuple[str, ...], Estimate | Estimates]
    ledger: dict[str, Any]
    rejections: Callable[[], Iterator[Rejection]]
    keep: Callable[[], Saved]

    @cached_property
    def saved(self) -> Saved:
        """The sums, from which estimates are made again and a later run goes on."""
        return self.keep()

    def save(self, path: Any) -> None:
        self.saved.save(path)


@dataclass(frozen=True)
class Plan:
    """Where the records are, and how they are read."""

    config: Config
    sources: list[Source]
    schema: Schema
    chosen: Settings | None = None
    """Settings that no config can express, instead of the config's."""

    @property
    def settings(self) -> Settings:
        return self.chosen or settings(self.config)

    @classmethod
    def open(cls, config: Config) -> Plan:
        """Open the files of a config, without reading more than it takes to know their columns."""
        check_local(config)
        input = config.input
        sources = open_files(input.patterns, input.format, input.separator)
        return cls(config, sources, find_schema(config, sources))

    @property
    def frame(self) -> pl.LazyFrame:
        """All rows as tidy rows, in the order of the files."""
        return _one_frame(self._tidy(self.sources))

    @property
    def frames(self) -> list[pl.LazyFrame]:
        """The tidy rows of each source, with the types that they have together."""
        frames = self._tidy(self.sources)
        types = _one_frame(frames).collect_schema()
        return [frame.cast(types) for frame in frames]

    def _tidy(self, sources: list[Source]) -> list[pl.LazyFrame]:
        return [tidy(source, i, self.schema, native=True) for i, source in enumerate(sources)]

    @property
    def populations(self) -> str:
        """How the populations of realizations are known."""
        if self.schema.population is not None:
            return COLUMN
        unknown = self.config.population in (None, "estimate")
        closed = isinstance(self.config.noise, Exact) and not self.settings.open_population
        return TOTALS if unknown and closed else ONE


def _one_frame(frames: list[pl.LazyFrame]) -> pl.LazyFrame:
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="vertical_relaxed")


def check_local(config: Config) -> None:
    """`InputError` for what only another engine can do."""
    for name, given in (
        ("input.pubsub", config.input.pubsub),
        ("input.watch", config.input.watch),
        ("stream", config.stream),
    ):
        if given is not None:
            raise InputError(f"{name} needs the Beam engine; the local engine reads files")


def run(config: Config, progress: Progress = no_progress) -> Result:
    """Run a config and hand back the result; nothing is written."""
    return run_plan(Plan.open(config), progress)


def run_plan(plan: Plan, progress: Progress = no_progress) -> Result:
    with explained(plan) as files:
        return _run(plan, progress, files)


@contextmanager
def explained(plan: Plan) -> Iterator[dict[str, Stamp | None]]:
    """Errors of reading a plan's files as `InputError`, which tells if one has changed. Gives what they were
    like."""
    before = stamps(source.name for source in plan.sources)
    try:
        yield before
    except (pl.exceptions.PolarsError, OSError, Unbalanced) as error:
        check_unchanged(before)
        if isinstance(error, Unbalanced):
            raise
        raise InputError(_culprit(plan, error)) from error


def _run(plan: Plan, progress: Progress, files: dict[str, Stamp | None]) -> Result:
    config = plan.config
    saved = None if config.input.resume is None else Saved.load(config.input.resume)
    before = 0 if saved is None else sum(s.digest.total.records for s in saved.groups)
    total, rows, sort = sum_plan(plan, saved, progress)
    refused = total.refused
    _count(total)
    after = total.saved(remember=False)
    used = total.records

    def rejections() -> Iterator[Rejection]:
        yield from explain(plan.sources, plan.schema, refused.places, refused.reasons, total.conflicts)
        check_unchanged(files)

    check_unchanged(files)
    if not used:
        raise InputError(_nothing(rows, rejections()))
    results, skipped = estimate_groups(after, plan.settings, plan.schema.clock)
    ledger = {
        "files": len(plan.sources),
        "rows": _ledger(total, rows, used - before).to_dict(),
        "sorted": sort,
        "records": used,
        "pairs": sum(s.digest.total.pairs for s in after.groups),
        "realizations": sum(s.digest.total.counts.realizations for s in after.groups),
        "groups": len(after.groups),
        "duplicates": sum(s.digest.total.counts.duplicates for s in after.groups),
        "conflicting": refused.conflicting,
        "gaps": sum(s.digest.total.gaps for s in after.groups),
        "rejected": refused.number,
        "filled_with_zero": refused.filled,
        "incomplete": refused.incomplete,
        "skipped": skipped,
    }
    return Result(listed(results), results, ledger, rejections, total.saved)


def _ledger(total: Accumulator, read: int, records: int) -> Ledger:
    """What became of every row of this run; `Unbalanced` if one was lost, also on the way to the sums, which
    hold `records` more than before."""
    used = total.used - (total.kept - records)
    return Ledger(read, used, total.duplicate + total.refused.duplicate, total.refused.number).check()


def sum_plan(
    plan: Plan, saved: Saved | None = None, progress: Progress = no_progress
) -> tuple[Accumulator, int, bool]:
    """All sums, how many rows were read, and whether they had to be sorted."""
    frame = gathered(plan.sources, len(plan.schema.columns), lambda: plan.frame)
    total = accumulator(plan, saved)
    with spread() as threads:
        if isinstance(frame, pl.DataFrame):
            records = _reader(plan, total, threads).read(frame)
            rows = frame.height
            progress("looking", rows, None)
            sort = _sum_records(plan, records, rows, total, threads)
            progress("summing", rows, rows)
        else:
            rows, sort = _sum_stream(plan, frame, total, threads, progress)
    return total, rows, sort


def _sum_records(plan: Plan, records: Records, rows: int, total: Accumulator, threads: Map) -> bool:
    """Add the records of all rows, in one go where that is possible; whether they had to be sorted."""
    config = plan.config
    check_rejected(total.refused.number, rows, config.max_rejected)
    extents = extents_of(total.keys, records.key, records.time, records.heads)
    total.add_groups(extents, config.uncertainty.replicates, config.uncertainty.block)
    sort = steps_back(records.key, records.time) > DISORDER * len(records.key)
    size = _batch_size(plan)
    for part in arranged(records, size) if sort else sliced(records, size):
        total.take(part)
    return sort


def _sum_stream(
    plan: Plan, frame: pl.LazyFrame, total: Accumulator, threads: Map, progress: Progress
) -> tuple[int, bool]:
    """Add rows that are read twice: first to see how they lie, then some at a time."""
    config, schema = plan.config, plan.schema
    found = look(frame, schema, progress)
    total.add_groups(found.extents, config.uncertainty.replicates, config.uncertainty.block)
    sort = is_disordered(found, schema)
    if sort and schema.state is None:
        records = _read_compactly(plan, total, found.rows, threads, progress)
        return found.rows, _sum_records(plan, records, found.rows, total, threads)
    for records in stream(plan, frame, total, found, sort, threads, progress):
        total.take(records)
        check_rejected(total.refused.number, found.rows, config.max_rejected)
    return found.rows, sort


def _read_compactly(plan: Plan, total: Accumulator, rows: int, threads: Map, progress: Progress) -> Records:
    """All records, in as few bytes as hold them; what is read at once is bounded."""
    parts, reader = [], _reader(plan, total, threads)
    for portion in portions(plan.sources, plan.frames, max(1, READ // len(plan.schema.states))):
        records = reader.feed(portion)
        parts.append(replace(records, counts=compact(records.counts, threads)))
        progress("reading", sum(len(part.key) for part in parts), rows)
    return joined(parts)


def look(frame: pl.LazyFrame, schema: Schema, progress: Progress) -> Survey:
    """The survey; without reading counts a second time where they cannot matter."""

    def show(rows: int) -> None:
        progress("looking", rows, None)

    if not schema.group_by:
        found = survey(frame, schema, show, exact=False)
        # With many realizations, the rule of jackknife groups does not depend on how many there are.
        if all(extent.realizations >= FEW for extent in found.extents.values()):
            return found
    return survey(frame, schema, show)


def accumulator(plan: Plan, saved: Saved | None = None) -> Accumulator:
    """The sums to begin with: none, or those of an earlier run."""
    config, schema = plan.config, plan.schema
    S = len(schema.states)
    noise, populations = config.noise, plan.populations
    preparation = Preparation.plan(noise, None, S)
    if populations != ONE:
        undo = noise.varies or (noise.is_known and bool((noise.offset(S) != 0).any()))
        preparation = Preparation(noise, True, undo)
    N = config.population if isinstance(config.population, float) else None
    N = None if plan.settings.open_population else N
    keys = Keys(group_columns(schema))
    total = Accumulator(schema, config.chain, preparation, populations, keys, Refused(), N)
    if saved is not None:
        saved.check_joins(total.saved(), f"{config.input.resume} and this run")
        total.resume(saved)
    return total


def _reader(plan: Plan, total: Accumulator, threads: Map) -> Wide | Long:
    if plan.schema.state is None:
        return Wide(plan.schema, total.keys, total.refused, threads)
    return Long(plan.schema, total.keys, total.refused, plan.config.input.absent or "zero", threads)


def _batch_size(plan: Plan) -> int:
    return max(1, min(BATCH, VALUES // len(plan.schema.states)))


def stream(
    plan: Plan,
    frame: pl.LazyFrame,
    total: Accumulator,
    found: Survey,
    sort: bool,
    threads: Map,
    progress: Progress,
) -> Iterator[Records]:
    """The records of tidy rows, a bounded number at a time."""
    schema, reader = plan.schema, _reader(plan, total, threads)
    size = _batch_size(plan)
    if sort:
        frame = frame.sort(*group_columns(schema), KEY, TIME, FILE, ROW, nulls_last=True)
        parts = batches(frame, size)
    else:
        parts = filled(batches(frame, size), size)
    done = 0
    if schema.state is None and found.is_grouped:
        parts = whole_realizations(parts, size)
    for batch in parts:
        yield reader.feed(batch)
        done += batch.height
        progress("summing", done, found.rows)
    rest = reader.finish()
    if rest is not None:
        yield rest


def is_disordered(found: Survey, schema: Schema) -> bool:
    """Whether rows must be sorted. Rows of a long table must be in order to be put together."""
    allowed = 0 if schema.state is not None else int(DISORDER * found.rows)
    return found.backwards > allowed


def settings(config: Config) -> Settings:
    population: float | str = "estimate" if config.population is None else config.population
    return Settings(
        config.noise,
        population,
        config.estimator,
        config.chain,
        config.uncertainty.level,
        lags=config.lags,
        constraints=None if config.constraints is None else config.constraints.constraints(),
        open_population=config.open_population,
    )


def estimate_groups(
    saved: Saved, settings: Settings, clock: Clock
) -> tuple[dict[tuple[str, ...], Estimate | Estimates], dict[str, str]]:
    """Estimates by group, and the groups that have too little data, with the reason."""
    results: dict[tuple[str, ...], Estimate | Estimates] = {}
    skipped: dict[str, str] = {}
    for sums in saved.groups:
        name = tuple((sums.group or {}).values())
        try:
            found = estimate_sums(saved, sums, settings)
        except InputError as error:
            if len(saved.groups) == 1:
                raise
            skipped[", ".join(name)] = str(error)
            continue
        results[name] = labelled(found, sums.group, clock)
    if not results:
        raise InputError(f"no group has enough data; the first one: {next(iter(skipped.values()))}")
    return results, skipped


def listed(results: dict[tuple[str, ...], Estimate | Estimates]) -> list[Estimate]:
    """All estimates, group by group and cell by cell."""
    found: list[Estimate] = []
    for result in results.values():
        found += [result] if isinstance(result, Estimate) else list(result)
    return found


def labelled(found: Estimate | Estimates, group: dict[str, str] | None, clock: Clock) -> Estimate | Estimates:
    """With the group, and windows in the user's own times."""

    def label(e: Estimate) -> Estimate:
        window = e.window
        if window is not None:
            window = {name: clock.label(step) for name, step in window.items()}  # type: ignore[misc]
        return replace(e, group=group, window=window)

    if isinstance(found, Estimate):
        return label(found)
    pooled = None if found.pooled is None else label(found.pooled)
    return replace(found, items=tuple(label(e) for e in found.items), pooled=pooled)


def _count(total: Accumulator) -> None:
    """Add what readers noticed to the groups' own counts.

    A rejected row may not tell its group, so among several groups only the ledger counts it.
    """
    total.count_repeated()
    if len(total.filled) == 1:
        (only,) = total.filled
        total.digests[only] = total.digests[only].counted(Counts(rejected=total.refused.number))


def _nothing(rows: int, rejections: Iterator[Rejection]) -> str:
    if not rows:
        return "the input has no rows, only a header or nothing at all"
    first = next(rejections, None)
    if first is None:
        return "no record is complete; see input.absent"
    return f"all {rows:,} rows were rejected; the first: {first.reason} ({first.file}, row {first.row})"


def _culprit(plan: Plan, error: Exception) -> str:
    """Which file Polars could not read."""
    for i, source in enumerate(plan.sources):
        try:
            tidy(source, i, plan.schema).select(pl.len()).collect(engine="streaming")
            tidy(source, i, plan.schema).filter(pl.col(TIME) < 0).collect(engine="streaming")
        except (pl.exceptions.PolarsError, OSError) as own:
            text = str(own)
            if "not properly escaped" in text:
                return f"{source.name}: a quotation mark is opened and not closed"
            return f"{source.name} cannot be read: {text.splitlines()[0]}"
    return f"the input cannot be read: {str(error).splitlines()[0]}"
