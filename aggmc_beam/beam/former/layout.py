"""Which columns hold what, once the files are known: the config's wishes and the data's columns."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from aggmc_beam.beam.former.sources import Source
from aggmc_beam.beam.former.tidy import KEY, STATE, tidy
from aggmc_beam.config import Config, Input
from aggmc_beam.errors import InputError, nearest
from aggmc_beam.records import Clock, Schema

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
    )
    for source in sources:
        for column in schema.columns:
            if column not in source.columns:
                raise InputError(_no_column(source, column, config))
    return schema if schema.states else replace(schema, states=_states(schema, sources))


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
    frames = [tidy(source, i, schema).select(STATE) for i, source in enumerate(sources)]
    names = pl.concat(frames).unique().drop_nulls().collect(engine="streaming")[STATE].to_list()
    if not names:
        raise InputError(f"column {schema.state!r} is empty, so there are no states")
    return tuple(sorted(names))


def _list_states(schema: Schema, sources: list[Source]) -> tuple[str, ...]:
    for i, source in enumerate(sources):
        frame = tidy(source, i, schema).drop_nulls().drop(KEY).head(1).collect()
        if frame.height:
            return tuple(str(s) for s in range(len(frame["__values"][0])))
    raise InputError(
        f"column {schema.counts!r} holds no list of counts, so the number of states is not known"
    )


def _no_column(source: Source, column: str, config: Config) -> str:
    states = config.known_states or ()
    hint = nearest(column, source.columns) if source.columns else "it has none"
    if column in states and config.input.columns.counts is None and config.input.layout == "wide":
        return (
            f"{source.name} has neither a column {LIST_COLUMN!r} nor one for the state {column!r}; name them "
            "in input.columns.counts, or set input.layout: long"
        )
    return f"{source.name} has no column {column!r}; {hint}"
