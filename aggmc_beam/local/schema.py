"""Which columns hold what, once the files are known: the config's wishes and the data's columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from aggmc_beam.config import Config
from aggmc_beam.errors import InputError, Rejected, nearest
from aggmc_beam.local.batches import Batch
from aggmc_beam.local.sources import Source, check_row_groups, reading
from aggmc_beam.local.text import lines_above
from aggmc_beam.local.tidy import distinct_names
from aggmc_beam.logs import LOGGER
from aggmc_beam.numerals import may_be_thousands
from aggmc_beam.records import REALIZATION, Schema, read_place
from aggmc_beam.sums.spec import REFUSED, gaps_of

#: Rows that are looked at for what columns hold.
SAMPLE = 1000
LIST_COLUMN, COUNT_COLUMN, STATE_COLUMN = "counts", "count", "state"


def find_schema(config: Config, sources: list[Source]) -> Schema:
    """The schema of the records in some sources; states are looked up in the data if need be."""
    columns = config.input.columns
    realization = columns.realization
    if realization is None and any(REALIZATION in source.columns for source in sources):
        realization = REALIZATION
    schema = Schema(
        states=config.known_states or (),
        counts=_counts(config, sources[0]),
        state=(columns.state or STATE_COLUMN) if config.input.layout == "long" else None,
        realization=realization,
        time=columns.time,
        clock=config.input.clock,
        group_by=config.group_by,
        population=columns.population,
        gaps=has_gaps(config),
        unit=unit_of(config),
        shares=config.input.values != "counts",
        numerals=config.input.numerals,
    )
    for source in sources:
        for column in schema.columns:
            if column not in source.columns:
                raise InputError(_no_column(source, column, config))
        if source.format == "parquet":
            check_row_groups(source, schema.columns, config.limits.memory)
    if config.input.decimal is None:
        _check_decimal(schema, sources)
    _tell(schema, config, sources[0])
    if schema.states:
        return schema
    pattern = columns.counts if isinstance(columns.counts, str) else None
    return replace(schema, states=_states(schema, sources, pattern))


def has_gaps(config: Config) -> bool:
    """Whether counts may be missing."""
    return gaps_of(config.noise, config.input.missing == "pairwise") != REFUSED


def unit_of(config: Config) -> float:
    """What shares are multiplied by, besides the population of their row if that is a column."""
    unit = {"counts": 1.0, "shares": 1.0, "percent": 0.01}[config.input.values]
    of_all = config.input.values != "counts" and isinstance(config.population, float | int)
    return unit * float(config.population) if of_all else unit  # type: ignore[arg-type]


def _counts(config: Config, source: Source) -> str | tuple[str, ...]:
    given = config.input.columns.counts
    if isinstance(given, str) and config.input.layout == "wide" and _is_pattern(given, source):
        return _matching(given, config, source)
    if given is not None:
        return given
    if config.input.layout == "long":
        return COUNT_COLUMN
    if LIST_COLUMN in source.columns:
        return LIST_COLUMN
    if config.known_states is not None:
        return config.known_states
    found = tuple(c for c in source.columns if c not in _no_counts(config))
    if not found:
        raise InputError(
            f"{source.name} has no columns of counts; its columns are {', '.join(source.columns)}"
        )
    return found


def _no_counts(config: Config) -> set[str | None]:
    """The columns that hold something else."""
    columns = config.input.columns
    times = {columns.time} if isinstance(columns.time, str) else set(columns.time)
    return {columns.realization or REALIZATION, *times, columns.population, *config.group_by}


def _is_pattern(given: str, source: Source) -> bool:
    return given.count("*") == 1 and given not in source.columns


def _matching(pattern: str, config: Config, source: Source) -> tuple[str, ...]:
    """The columns of a pattern, in the order of the states if those are listed, else of the file."""
    if config.known_states is not None:
        return tuple(pattern.replace("*", state) for state in config.known_states)
    begin, end = pattern.split("*")
    found = tuple(
        c
        for c in source.columns
        if c not in _no_counts(config)
        and c.startswith(begin) and c.endswith(end) and len(c) > len(begin) + len(end)
    )  # fmt: skip
    if not found:
        raise InputError(
            f"no column of {source.name} is of the form {pattern!r} (input.columns.counts); its columns are "
            f"{', '.join(source.columns)}"
        )
    return found


def _tell(schema: Schema, config: Config, source: Source) -> None:
    """Say in the log what may be other than it was meant."""
    if config.known_states is not None and config.input.columns.counts is None:
        unused = unused_columns(schema, source)
        if unused:
            LOGGER.warning(
                f"{source.name}: columns of numbers that are not read: {', '.join(unused)}; if they are states, list "
                "them in states"
            )
    if schema.realization is None:
        LOGGER.info(f"{source.name} has no column {REALIZATION!r}, so its rows are taken for one series")


def unused_columns(schema: Schema, source: Source) -> list[str]:
    """The columns of numbers that are not read: states that were left out, perhaps."""
    if schema.state is not None or isinstance(schema.counts, str):
        return []
    others = [c for c in source.columns if c not in schema.columns]
    if not source.is_text:
        return [c for c in others if source.columns[c].is_numeric()]
    batch = _first(source, schema, others)
    if batch is None:
        return []
    numerals = schema.numerals

    def is_numeric(column: str) -> bool:
        values = [v for v in map(str, batch.frame[column].drop_nulls().to_list()) if not numerals.is_mark(v)]
        return bool(values) and all(numerals.number(value) is not None for value in values)

    return [c for c in others if is_numeric(c)]


def _first(source: Source, schema: Schema, columns: list[str]) -> Batch | None:
    """The first rows of some columns, as text."""
    if not columns:
        return None
    shown = replace(schema, counts=(), state=columns[0], realization=None, time=tuple(columns[1:]), group_by=(),
                    population=None)  # fmt: skip
    with reading(source):
        make = next(iter(source.batches(shown, columns)), None)
        return None if make is None else make().head(SAMPLE)


def _check_decimal(schema: Schema, sources: list[Source]) -> None:
    """`InputError` if counts of CSV such as 1.234 may be meant as 1234."""
    columns = [schema.counts] if isinstance(schema.counts, str) else list(schema.counts)
    for source in sources:
        if source.format != "csv":
            continue
        batch = _first(source, schema, columns)
        texts = [] if batch is None else [v for c in columns for v in batch.frame[c].drop_nulls().to_list()]
        found = may_be_thousands(list(map(str, texts)))
        if found is not None:
            raise InputError(
                f"counts of {source.name} such as {found!r} may be thousands or fractions; set input.decimal to ',' "
                "or to '.', whichever is the sign before a fraction"
            )


def _states(schema: Schema, sources: list[Source], pattern: str | None = None) -> tuple[str, ...]:
    """Names from the data: of columns, of the values of the state column, or 0 .. S - 1."""
    if schema.state is None and isinstance(schema.counts, tuple):
        begin, end = pattern.split("*") if pattern is not None else ("", "")
        return tuple(c[len(begin) : len(c) - len(end)] for c in schema.counts)
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
            found = found.split(schema.numerals.comma) if isinstance(found, str) else found
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
    if source.format == "csv" and (above := lines_above(source, column)):
        skip = source.skip + above
        hint = f"its line {skip + 1} looks like the header: set input.skip_lines to {skip}"
    return f"{source.name} has no column {column!r}; {hint}"
