"""What a run would do, told without running it; a sample of the input is read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from aggmc_beam.config.special import chain_to_plain
from aggmc_beam.errors import InputError
from aggmc_beam.local.explain import explain
from aggmc_beam.local.plan import Plan
from aggmc_beam.sums.jackknife import REPLICATES

#: Rows that are looked at, and of how many files.
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
    lines = [
        f"read {len(plan.sources)} {formats} file(s) in {config.input.layout} layout: {plan.sources[0].name}"
        + (" ..." if len(plan.sources) > 1 else ""),
        f"take realization from {schema.realization!r}, time from {schema.time!r} with step {step}, counts "
        f"from {columns!r}",
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
    return lines + _sample(plan)


def _population(plan: Plan) -> str:
    known = {"column": f"from column {plan.schema.population!r}", "totals": "from the totals of exact counts"}
    return known.get(plan.spec.populations, str(plan.config.population or "estimate"))


def _sample(plan: Plan) -> list[str]:
    """The first rows, read as a run would; what would be rejected, and why."""
    reader = replace(plan, sources=plan.sources[:FILES]).reader()
    records = len(reader.sample(SAMPLE).records)
    rows, counts = reader.counts.read, reader.counts
    reasons = list(explain(reader.sources, plan.schema, replace(counts, reasons={})))
    if not rows:
        raise InputError("the input has no rows, only a header or nothing at all")
    if not records:
        first = reasons[0] if reasons else None
        why = f": {first.reason} ({first.file}, row {first.row})" if first else ""
        raise InputError(f"none of the first {rows:,} rows is a record{why}")
    lines = [f"find {records:,} records in the first {rows:,} rows, and reject {len(reasons):,}"]
    for reason, number in Counter(r.reason for r in reasons).most_common(3):
        example = next(r for r in reasons if r.reason == reason)
        lines.append(f"  {number:,} x {reason} (first: {example.file}, row {example.row})")
    return lines
