"""Which columns hold what, once the files are known: the config's wishes and the data's columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from aggmc_beam.config import Config, Input
from aggmc_beam.errors import InputError, nearest
from aggmc_beam.local.batches import Batch
from aggmc_beam.local.sources import Source, reading
from aggmc_beam.local.tidy import distinct_names
from aggmc_beam.records import Clock, Rejected, Schema, read_place
from aggmc_beam.sums.spec import REFUSED, gaps_of

LIST_COLUMN, COUNT_COLUMN, STATE_COLUMN = "counts", "count", "state"


def find_schema(config: Config, sources: list[Source]) -> Schema:
    """The schema of the records in some sources; states are looked up in the data if need be."""
    columns = config.input.columns
    schema = Schema(
        states=config.known_states or (),
        counts=_counts(config, sources[0]),
        state=(columns.state or STATE_COLUMN) if config.input.layout == "long" else None,
        realization=columns.realization,
        time=columns.time,
        clock=clock(config.input),
        group_by=config.group_by,
        population=columns.population,
        gaps=has_gaps(config),
        unit=unit_of(config),
        shares=config.input.values != "counts",
    )
    for source in sources:
        for column in schema.columns:
            if column not in source.columns:
                raise InputError(_no_column(source, column, config))
    return schema if schema.states else replace(schema, states=_states(schema, sources))


def has_gaps(config: Config) -> bool:
    """Whether counts may be missing."""
    return gaps_of(config.noise, config.input.missing == "pairwise") != REFUSED


def unit_of(config: Config) -> float:
    """What shares are multiplied by, besides the population of their row if that is a column."""
    unit = {"counts": 1.0, "shares": 1.0, "percent": 0.01}[config.input.values]
    of_all = config.input.values != "counts" and isinstance(config.population, float | int)
    return unit * float(config.population) if of_all else unit  # type: ignore[arg-type]


def clock(input: Input) -> Clock:
    return Clock(input.step, input.origin or 0)


def _counts(config: Config, source: Source) -> str | tuple[str, ...]:
    given = config.input.columns.counts
    if given is not None:
        return given
    if config.input.layout == "long":
        return COUNT_COLUMN
    if LIST_COLUMN in source.columns:
        return LIST_COLUMN
    if config.known_states is not None:
        return config.known_states
    columns = config.input.columns
    other = {columns.realization, columns.time, columns.population, *config.group_by}
    free = tuple(c for c in source.columns if c not in other)
    if not free:
        raise InputError(
            f"{source.name} has no columns of counts; its columns are {', '.join(source.columns)}"
        )
    return free


def _states(schema: Schema, sources: list[Source]) -> tuple[str, ...]:
    """Names from the data: of columns, of the values of the state column, or 0 .. S - 1."""
    if schema.state is None and isinstance(schema.counts, tuple):
        return schema.counts
    if schema.state is None:
        return _list_states(schema, sources)
    names: set[str] = set()
    for batch in _batches(schema, sources, [schema.state]):
        names |= distinct_names(batch, schema.state)
    if not names:
        raise InputError(f"column {schema.state!r} is empty, so there are no states")
    return tuple(sorted(names))


def _list_states(schema: Schema, sources: list[Source]) -> tuple[str, ...]:
    for batch in _batches(schema, sources, list(dict.fromkeys(schema.columns))):
        for i in range(batch.frame.height):
            try:
                row = batch.raw(i)
                read_place(row, schema)
            except Rejected:
                continue
            found = row.get(str(schema.counts))
            found = found.split(",") if isinstance(found, str) else found
            if isinstance(found, list) and found:
                return tuple(str(s) for s in range(len(found)))
    raise InputError(
        f"column {schema.counts!r} holds no list of counts, so the number of states is not known"
    )


def _batches(schema: Schema, sources: list[Source], columns: list[str]) -> Iterator[Batch]:
    for source in sources:
        with reading(source):
            for make in source.batches(schema, columns):
                yield make()


def _no_column(source: Source, column: str, config: Config) -> str:
    states = config.known_states or ()
    hint = nearest(column, source.columns) if source.columns else "it has none"
    if column in states and config.input.columns.counts is None and config.input.layout == "wide":
        return (
            f"{source.name} has neither a column {LIST_COLUMN!r} nor one for the state {column!r}; name them "
            "in input.columns.counts, or set input.layout: long"
        )
    return f"{source.name} has no column {column!r}; {hint}"
