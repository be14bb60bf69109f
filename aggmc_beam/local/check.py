"""What a run would do, told without running it: its input is read, or the first rows of it if it is large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from aggmc_beam.config.special import chain_to_plain
from aggmc_beam.errors import InputError
from aggmc_beam.fit.fit import NO_PAIRS
from aggmc_beam.local.engine import HELD_VALUES, Summing, nothing_used
from aggmc_beam.local.explain import Rejection, explain
from aggmc_beam.local.plan import Plan, size_of
from aggmc_beam.local.reasons import Reasons
from aggmc_beam.sums.jackknife import REPLICATES

#: Rows that are looked at in large input, and of how many files.
SAMPLE = 10_000
FILES = 20


def describe(plan: Plan) -> list[str]:
    """Lines that say what would be read, assumed and written; `InputError` if nothing fits."""
    config, schema = plan.config, plan.schema
    formats = ", ".join(sorted({s.format for s in plan.sources}))
    columns = schema.counts if isinstance(schema.counts, str) else ", ".join(schema.counts)
    step = f"{schema.clock.step} ({'time stamps' if schema.clock.stamps else 'whole numbers'})"
    given = config.uncertainty.replicates
    groups = f"up to {REPLICATES}" if given is None else str(given)
    series = "take all rows as one series"
    if schema.realization is not None:
        series = f"take realization from {schema.realization!r}"
    lines = [
        f"read {len(plan.sources)} {formats} file(s) in {config.input.layout} layout: {plan.sources[0].name}"
        + (" ..." if len(plan.sources) > 1 else ""),
        f"{series}, time from {schema.time_name!r} with step {step}, counts from {columns!r}",
        f"estimate moves between {len(schema.states)} states: {', '.join(schema.states)}",
        f"assume noise {config.noise} and population {_population(plan)}",
        f"use chain {chain_to_plain(config.chain)}, estimator {config.estimator}, "
        f"{groups} jackknife groups, level {config.uncertainty.level:g}",
    ]
    if schema.group_by:
        lines.append(f"make an estimate for each {', '.join(schema.group_by)}")
    if config.input.resume is not None:
        plan.state()
        lines.append(f"go on from {config.input.resume}")
    wanted = [name for name in ("moments", "report") if getattr(config.output, name)]
    wanted += [f"tables in {format}" for format in config.output.tables]
    lines.append(f"write {', '.join(['estimates', *wanted])} to {config.output.directory}")
    return lines + _found(plan)


def _population(plan: Plan) -> str:
    known = {"column": f"from column {plan.schema.population!r}", "totals": "from the totals of exact counts"}
    return known.get(plan.spec.populations, str(plan.config.population or "estimate"))


def _found(plan: Plan) -> list[str]:
    """What a run would find in the input, but for its estimates; `InputError` where it would stop."""
    if size_of(plan) > HELD_VALUES:
        return _sample(plan)
    state = plan.state()
    before = state.records
    summing = Summing(plan, state)
    summing.sum()
    counts = summing.counts
    if not state.records:
        raise InputError(nothing_used(counts.read, explain(plan.sources, plan.schema, counts)))
    if not state.sums.total.pairs:
        raise InputError(NO_PAIRS)
    lines = [
        f"find {state.records - before:,} records in {counts.read:,} rows, drop {summing.duplicate:,} as duplicates, "
        f"and reject {counts.rejected:,}"
    ]
    if counts.conflicting:
        lines.append(f"drop {counts.conflicting:,} that have other counts than the record that is kept")
    return lines + _reasons(explain(plan.sources, plan.schema, counts))


def _sample(plan: Plan) -> list[str]:
    """The first rows of input that takes long to read."""
    reader = replace(plan, sources=plan.sources[:FILES]).reader()
    records = len(reader.sample(SAMPLE).records)
    rows, counts = reader.counts.read, reader.counts
    if not records:
        reasons = explain(reader.sources, plan.schema, replace(counts, reasons={}))
        raise InputError(f"in the first {rows:,} rows, {nothing_used(rows, reasons)}")
    lines = [
        f"find {records:,} records in the first {rows:,} rows, and reject {counts.rejected:,}; what comes after is "
        "looked at by the run"
    ]
    return lines + _reasons(explain(reader.sources, plan.schema, replace(counts, reasons={})))


def _reasons(rejections: Iterator[Rejection]) -> list[str]:
    return [f"  {line}" for line in Reasons.of(rejections).lines()]
