"""The sections of a config, as frozen dataclasses. Names, help and kinds here are the reference."""

# ruff: noqa: RUF009 - `key` makes a dataclass field

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aggmc_beam.budget import MEMORY
from aggmc_beam.chain import Chain, Stationary
from aggmc_beam.clock import CALENDAR, Clock
from aggmc_beam.config.kinds import (
    Choice,
    Either,
    Section,
    Several,
    flag,
    integer,
    key,
    name,
    number,
    probability,
    text,
)
from aggmc_beam.config.special import (
    ChainKind,
    Duration,
    Encoding,
    Moment,
    NoiseKind,
    Size,
    Step,
    ZoneKind,
    points,
    square,
)
from aggmc_beam.errors import InputError
from aggmc_beam.estimators.constraints import Constraints, refuse_tied_rows
from aggmc_beam.estimators.registry import GROUPS, POOLINGS, check_estimator
from aggmc_beam.estimators.registry import NAMES as ESTIMATORS
from aggmc_beam.estimators.structure import DECAYS, Structure
from aggmc_beam.ledger import USUAL
from aggmc_beam.noise import Exact, Noise
from aggmc_beam.numerals import Numerals
from aggmc_beam.records import REALIZATION
from aggmc_beam.sums.jackknife import FEWEST, REPLICATES
from aggmc_beam.zones import Zone

FROM_DATA = "from-data"
#: Rejections of one reason that are written out.
KEPT = 100
NAMES = Several(name(), unique=True)


def _by_type(*types: type) -> Any:
    """Which of several kinds a value is meant for, by its type."""

    def fits(value: Any) -> int:
        for at, kind in enumerate(types):
            if isinstance(value, kind) and not isinstance(value, bool):
                return at
        return -1

    return fits


def _is_separator(text: str) -> bool:
    """Whether fields may stand apart by it: Polars takes one byte, which is no part of a name or number."""
    return len(text) == 1 and text.isascii() and not text.isalnum() and text not in '"\r\n\0'


def _number_or_word(value: Any) -> int:
    if isinstance(value, str) and not value[:1].isdigit():
        return 1
    return -1 if isinstance(value, bool) or not isinstance(value, int | float | str) else 0


@dataclass(frozen=True)
class Columns:
    """Which column of the data holds what."""

    realization: str | None = key(
        text("a column"),
        "column that tells realizations apart",
        None,
        "`realization`; if files have no such column, all rows (of a group) are one series",
    )
    time: str | tuple[str, ...] = key(
        Either((text("a column"), NAMES), _by_type(str, list)),
        "column of the time step; of several, such as `[day, hour]` or `[year, month]`, the values are put "
        "together with a space between them: a date and an hour from 0 to 23, or see `input.time_format`",
        "time",
    )
    counts: str | tuple[str, ...] | None = key(
        Either((text("a column"), NAMES), _by_type(str, list)),
        "wide: a column of lists, one column per state in the order of `states`, or a pattern of their names such "
        "as `n_*`, of which the part at the `*` is the state; long: the column of the count",
        None,
        "wide: `counts` if there is one, else the columns named as the states; long: `count`; of BigQuery the "
        "columns named as the states",
    )
    state: str | None = key(text("a column"), "long layout: column of the state's name", None, "`state`")
    population: str | None = key(
        text("a column"), "column of the number of individuals behind each realization's counts", None, "none"
    )


@dataclass(frozen=True)
class PubSub:
    """A Pub/Sub source, for the Beam engine."""

    subscription: str | None = key(text("projects/P/subscriptions/S"), "subscription to read", None, "none")
    topic: str | None = key(text("projects/P/topics/T"), "topic to read", None, "none")
    timestamp: str | None = key(
        text("an attribute"),
        "attribute of a message that tells its event time",
        None,
        "when it was published",
    )

    def __post_init__(self) -> None:
        if (self.subscription is None) == (self.topic is None):
            raise InputError("{path}subscription or {path}topic must be given, one of them")


@dataclass(frozen=True)
class BigQuery:
    """A table of BigQuery, or a query, for the Beam engine."""

    table: str | None = key(text("project:dataset.table"), "table to read", None, "none")
    query: str | None = key(
        text("SELECT ..."), "query in GoogleSQL whose rows are read, in any order", None, "none"
    )

    def __post_init__(self) -> None:
        if (self.table is None) == (self.query is None):
            raise InputError("{path}table or {path}query must be given, one of them")


@dataclass(frozen=True)
class Input:
    """Where the counts are and how they are written."""

    files: tuple[str, ...] | str | None = key(
        Either((text("a path or glob"), Several(text("a path or glob"))), _by_type(str, list)),
        "path, glob such as `data/*.parquet`, or a list of them",
        None,
        "none",
    )
    watch: str | None = key(
        Duration(),
        "look for new and changed files this often, for ever (Beam engine); a record that was read before "
        "is dropped as a duplicate. Put files there complete, by renaming them",
        None,
        "read the files once",
    )
    pubsub: PubSub | None = key(
        Section(PubSub), "read from Pub/Sub instead of files (Beam engine)", None, "none"
    )
    bigquery: BigQuery | None = key(
        Section(BigQuery), "read rows of BigQuery instead of files (Beam engine)", None, "none"
    )
    format: str = key(
        Choice(("auto", "jsonl", "csv", "parquet", "excel")),
        "of the files; `auto` goes by their names",
        "auto",
    )
    separator: str | None = key(
        text("one character"),
        "between the fields of CSV files",
        None,
        "that of `,` `;` `|` and the tab of which the header has most",
    )
    encoding: str | None = key(
        Encoding(),
        "of text files, such as `latin-1`, `windows-1252` or `utf-16`",
        None,
        "UTF-8, or UTF-16 if the file begins with its mark",
    )
    skip_lines: int = key(integer(0), "lines above the header, such as titles", 0)
    sheet: str | None = key(
        text("a name"), "of workbooks (`aggmc-beam[excel]`): the sheet that is read", None, "the first"
    )
    decimal: str | None = key(
        Choice((".", ",")),
        "sign before the fraction of a count in text. The other one may stand between groups of three digits, "
        "as may spaces and apostrophes; a percent sign makes 12.5 % the share .125",
        None,
        "`.`, unless all counts of the first lines that have one look like thousands (`1.234`), which is an "
        "error",
    )
    marks: tuple[str, ...] | None = key(
        Several(name()),
        "texts that stand for a count that is missing or suppressed",
        None,
        "`NA`, `n/a`, `null`, `-`, `*`, `.`, `..`, `:`, `c`, `[c]`, `[x]`, `(D)` and the like, and bounds such "
        "as `<5`",
    )
    layout: str = key(Choice(("wide", "long")), "one row per record, or one row per record and state", "wide")
    columns: Columns = key(Section(Columns), "names of the columns", Columns)
    step: int | str = key(
        Either((integer(1), Step()), _by_type(int, str)),
        "length of a time step: a number for integer times; for time stamps a duration such as `1h`, or a `day`, "
        "`week` (from Monday), `month`, `quarter` or `year` of the calendar, which any date in it tells",
        1,
    )
    timezone: str | None = key(
        ZoneKind(),
        "time zone of stamps without an offset, by whose clocks days, weeks, months and the phases of cycles and "
        "windows go",
        None,
        "UTC",
    )
    time_format: str | None = key(
        text("a format such as `%d/%m/%Y`"),
        "of times in text, with the signs of Python's `strptime`",
        None,
        "ISO 8601; dates such as `31.01.2026`, `2026-W05`, `2026-01`, `2026-Q1` and `2026`",
    )
    origin: int | None = key(
        Moment(),
        "a time at which a step begins; time stamps must be whole steps away from it. A weekly step from "
        "Mondays needs a Monday here",
        None,
        "1970-01-01T00:00:00 in `timezone`",
    )
    absent: str | None = key(
        Choice(("zero", "missing")),
        "long layout: what it means that a record has no row for some state. `zero`: nobody was there, as "
        "in tables that leave out zeros, which is what counting rows by state gives. `missing`: the whole "
        "record is unknown and is left out, or with `input.missing: pairwise` that count. "
        "Cells filled with zero are counted in the run's summary",
        None,
        "`zero`",
    )
    values: str = key(
        Choice(("counts", "shares", "percent")),
        "what the values are: counts, or shares or percentages of the population, which must then be given, known or "
        "assumed: `population` or `input.columns.population`",
        "counts",
    )
    missing: str = key(
        Choice(("reject", "pairwise")),
        "what becomes of a record with a count that is missing (null, NaN or empty): it is rejected, or used for the "
        "pairs of states that it has, as if counts were missing at random. Counts that noise `suppressed` with "
        "`shown: missing` leaves out need neither",
        "reject",
    )
    resume: str | None = key(
        text("a path"),
        "moments saved by an earlier run: the new files are added to them, and records they already hold "
        "are dropped as duplicates",
        None,
        "none",
    )

    def __post_init__(self) -> None:
        if sum(source is not None for source in (self.files, self.pubsub, self.bigquery)) != 1:
            raise InputError("{path}files, {path}pubsub or {path}bigquery must be given, one of them")
        if self.bigquery is not None and (self.layout == "long" or self.resume is not None):
            other = "layout: long" if self.layout == "long" else "resume"
            raise InputError(f"{{path}}bigquery does not go with {{path}}{other}; drop one of them")
        if self.watch is not None and self.files is None:
            raise InputError("{path}watch needs {path}files, a path or glob to watch")
        if self.watch is not None and (self.layout == "long" or self.resume is not None):
            other = "layout: long" if self.layout == "long" else "resume"
            raise InputError(f"{{path}}watch does not go with {{path}}{other}; drop one of them")
        if self.layout == "wide" and (self.absent or self.columns.state):
            wrong = "absent" if self.absent else "columns.state"
            raise InputError(f"{{path}}{wrong} is for the long layout; set {{path}}layout: long or drop it")
        if self.layout == "long" and isinstance(self.columns.counts, tuple):
            raise InputError("{path}columns.counts must be one column in the long layout")
        if self.origin is not None and (isinstance(self.step, int) or self.step in CALENDAR):
            raise InputError("{path}origin needs {path}step to be a duration such as 1h")
        for what, given in (("timezone", self.timezone), ("time_format", self.time_format)):
            if given is not None and isinstance(self.step, int):
                raise InputError(
                    f"{{path}}{what} needs {{path}}step to be a duration such as 1h, or a step of the calendar "
                    "such as month"
                )
        if self.separator is not None and not _is_separator(self.separator):
            raise InputError(
                f"{{path}}separator must be one character of ASCII, but no letter, digit, quotation mark or end of "
                f"a line; got {self.separator!r}: write the file anew with a comma, a semicolon or tabs"
            )

    @property
    def clock(self) -> Clock:
        """How times become steps."""
        zone = Zone(self.timezone or "UTC")
        is_duration = isinstance(self.step, str) and self.step not in CALENDAR
        origin = (zone.moment(0) if is_duration else 0) if self.origin is None else self.origin
        return Clock(self.step, origin, zone, self.time_format)

    @property
    def numerals(self) -> Numerals:
        """How counts are written in text."""
        return Numerals(self.decimal or ".", self.marks)

    @property
    def endless(self) -> bool:
        """Whether more may always come."""
        return self.pubsub is not None or self.watch is not None

    @property
    def patterns(self) -> tuple[str, ...]:
        if self.files is None:
            return ()
        return (self.files,) if isinstance(self.files, str) else self.files


@dataclass(frozen=True)
class Uncertainty:
    """How standard errors and intervals are made."""

    level: float = key(number(0, 1), "probability with which an interval holds its entry", 0.95)
    replicates: int | None = key(
        integer(2),
        "number of jackknife groups",
        None,
        f"{FEWEST} to {REPLICATES}, as many as the records fill",
    )
    block: int | None = key(
        integer(1),
        "make the jackknife groups from blocks of this many steps instead of realizations. Daily runs that "
        "resume need it to have the same standard errors as one run, if there are fewer than 20 realizations",
        None,
        "none",
    )


@dataclass(frozen=True)
class Limits:
    """What a run may take."""

    memory: int = key(
        Size(),
        "of sums, and of what is held of a file at once. What would take more is refused before it is made, with the "
        "number to change",
        MEMORY,
        "`4GB`",
    )


@dataclass(frozen=True)
class Stream:
    """Settings of unbounded input, for the Beam engine."""

    refresh: str = key(Duration(), "how often estimates are made anew", "60s")
    allowed_lateness: str = key(Duration(), "how late a record may come", "10m")
    state_ttl: str = key(Duration(), "after what silence a realization is forgotten", "7d")
    max_ahead: str = key(Duration(), "how far ahead of now a time may be; what is beyond is set aside", "1d")


#: Formats of tables; `aggmc_beam.tables` writes them.
TABLES = ("csv", "parquet")


@dataclass(frozen=True)
class Output:
    """What is written, and where."""

    directory: str = key(text("a path"), "directory of all output; made if needed", "out")
    rejected: str = key(
        Choice(("sample", "all")),
        f"what `rejected.jsonl` holds of rejected rows: the first {KEPT} of each reason, or all. `run.json` counts "
        "all",
        "sample",
    )
    moments: bool = key(flag(), "save the sums in `moments.aggmc`, for `aggmc moments` and to resume", False)
    report: bool = key(flag(), "write `report.html`", False)
    flows: bool = key(
        flag(), "write how many moved from each state to each other in every step, see docs/flows.md", False
    )
    forecast: int | None = key(
        integer(1), "write the counts to be expected in so many steps, see docs/forecast.md", None, "none"
    )
    alarms: float | None = key(
        number(0, 1),
        "write the steps whose counts are not what those before them led to expect: this part of the steps in "
        "which nothing happened, such as `0.01`",
        None,
        "none",
    )
    form: str = key(Choice(("parquet", "csv")), "of the files of flows, forecasts and alarms", "parquet")
    parquet: bool = key(flag(), "also write estimates as Parquet (Beam engine)", False)
    tables: tuple[str, ...] = key(
        Several(Choice(TABLES), unique=True),
        "also write estimates as tables, `transitions` and `summary`, in these formats: `csv`, `parquet`",
        (),
        "none",
    )
    pubsub: str | None = key(
        text("projects/P/topics/T"), "topic to which estimates are published (Beam engine)", None, "none"
    )
    bigquery: str | None = key(
        text("project:dataset.table"), "table to which estimates are added (Beam engine)", None, "none"
    )
    bigquery_method: str = key(
        Choice(("auto", "load", "stream")),
        "how rows get there: load jobs or streaming inserts; `auto` streams from a stream",
        "auto",
    )


@dataclass(frozen=True)
class Other:
    """A second matrix that applies for part of each cycle."""

    matrix: tuple[tuple[float, ...], ...] = key(square(), "transition matrix")
    period: int = key(integer(2), "steps in a cycle")
    begin: int = key(integer(0), "first phase at which it applies")
    end: int = key(integer(1), "first phase at which it no longer applies")


@dataclass(frozen=True)
class Simulate:
    """Data to draw when the input files do not exist; also what `aggmc simulate CONFIG` draws."""

    matrix: tuple[tuple[float, ...], ...] | None = key(square(), "transition matrix", None, "a random one")
    until: tuple[tuple[float, ...], ...] | None = key(
        square(), "matrix of the last step; those in between change evenly", None, "none"
    )
    other: Other | None = key(Section(Other), "another matrix for part of a cycle", None, "none")
    population: int | tuple[int, ...] = key(
        Either((integer(1), Several(integer(1))), _by_type(int, list)),
        "individuals per realization, one number or one for each",
        100,
    )
    realizations: int = key(integer(1), "realizations (in each group)", 1)
    steps: int = key(integer(2), "time steps", 100)
    groups: tuple[str, ...] = key(
        NAMES, "values of the (one) `group_by` column; each is drawn anew", (), "none"
    )
    seed: int = key(integer(0), "seed of the random numbers", 0)


@dataclass(frozen=True)
class Fixed:
    """A cell of the matrix that is known."""

    origin: str = key(name(), "state that is left")
    target: str = key(name(), "state that is entered")
    probability: float = key(probability(), "of the move")


@dataclass(frozen=True)
class KnownMoves:
    """What is known of the transition matrix beforehand; kept exactly, but for the prior."""

    forbidden: tuple[tuple[str, ...], ...] = key(
        Several(Several(name())), "moves `[from, to]` that cannot happen", (), "none"
    )
    fixed: tuple[Fixed, ...] = key(Several(Section(Fixed)), "cells with a known value", (), "none")
    absorbing: tuple[str, ...] = key(NAMES, "states that are never left", (), "none")
    reversible: bool = key(flag(), "as many move from i to j as from j to i", False)
    stationary: tuple[float, ...] | None = key(
        Several(number(0)), "the stationary shares, in the order of `states`", None, "none"
    )
    prior: tuple[tuple[float, ...], ...] | None = key(
        square(), "a matrix that the estimate is drawn to", None, "none"
    )
    prior_weight: float = key(number(0), "as if so many moves from each state had been seen", 100.0)

    def __post_init__(self) -> None:
        for i, move in enumerate(self.forbidden):
            if len(move) != 2:
                raise InputError(f"{{path}}forbidden[{i}] must be two states, [from, to]")

    def constraints(self) -> Constraints:
        return Constraints(
            forbidden=[(a, b) for a, b in self.forbidden],
            fixed={(f.origin, f.target): f.probability for f in self.fixed},
            absorbing=self.absorbing,
            reversible=self.reversible,
            stationary=None if self.stationary is None else np.array(self.stationary),
            prior=None if self.prior is None else np.array(self.prior),
            prior_weight=self.prior_weight,
        )


@dataclass(frozen=True)
class Layout:
    """How many states lie to each other: see docs/structure.md."""

    moves: str | tuple[tuple[str, ...], ...] | None = key(
        Either((text("a path"), Several(Several(name()))), _by_type(str, list)),
        "the moves `[from, to]` that can happen, both ways unless `directed`, or a CSV file with two columns. "
        "Staying can always happen",
        None,
        "all",
    )
    coordinates: str | dict[str, tuple[float, float]] | None = key(
        Either((text("a path"), points()), _by_type(str, dict)),
        "where states are, or a CSV file with columns state, x, y",
        None,
        "none",
    )
    geographic: bool = key(
        flag(), "coordinates are latitude and longitude in degrees; distances are kilometres", False
    )
    distances: str | tuple[tuple[float, ...], ...] | None = key(
        Either((text("a path"), square()), _by_type(str, list)),
        "between states, in the order of `states`, or a CSV file with columns from, to, distance",
        None,
        "those of `coordinates`",
    )
    radius: float | None = key(number(0), "moves further than this cannot happen", None, "none")
    directed: bool = key(flag(), "`moves` can happen in the direction given only", False)
    decay: str = key(
        Choice(DECAYS),
        "how moves fall off with distance; `auto` lets the counts choose. Its scale is estimated",
        "auto",
    )

    def __post_init__(self) -> None:
        for i, move in enumerate(() if isinstance(self.moves, str) else self.moves or ()):
            if len(move) != 2:
                raise InputError(f"{{path}}moves[{i}] must be two states, [from, to]")

    def structure(self) -> Structure:
        return Structure(
            self.moves,
            self.coordinates,
            self.distances,
            self.radius,
            self.geographic,
            self.directed,
            self.decay,
        )


@dataclass(frozen=True)
class Config:
    """One run."""

    input: Input = key(Section(Input), "where the counts are and how they are written")
    version: int = key(integer(1), "version of this format", 1)
    name: str = key(text(), "of the run; shown in the report", "run")
    states: tuple[str, ...] | str = key(
        Either((text(f"`{FROM_DATA}`"), NAMES), _by_type(str, list)),
        f"names of the states, in order, or `{FROM_DATA}`",
        FROM_DATA,
    )
    group_by: tuple[str, ...] = key(NAMES, "columns; each combination is estimated by itself", (), "none")
    noise: Noise = key(NoiseKind(), "how the counts came about", Exact, "`exact`")
    population: float | str | None = key(
        Either((number(0), Choice(("estimate",))), _number_or_word),
        "number of individuals behind the counts, or `estimate`",
        None,
        "the column `input.columns.population` if there is one, else `estimate`",
    )
    chain: Chain = key(ChainKind(), "how transitions may change with time", Stationary, "`stationary`")
    estimator: str = key(Choice(ESTIMATORS), "method of estimation", "auto")
    pooling: str = key(
        Choice(POOLINGS),
        "what borrows from each other, as far as the data show it to be alike: the `cells` of a chain; the "
        "`groups` of `group_by` too; or `none`",
        "cells",
    )
    lags: int = key(integer(1), "how far apart the pairs may be that estimators use, 1 or 2", 2)
    open_population: bool = key(flag(), "individuals enter and leave, so that totals vary", False)
    constraints: KnownMoves | None = key(Section(KnownMoves), "what is known of the matrix", None, "none")
    structure: Layout | None = key(
        Section(Layout),
        "how many states lie to each other, for counts that tell little of each pair",
        None,
        "none",
    )
    uncertainty: Uncertainty = key(Section(Uncertainty), "standard errors and intervals", Uncertainty)
    max_rejected: int | float | None = key(
        Either((integer(0), probability()), _by_type(int, float)),
        "stop with an error when more records than this are rejected: a number such as `100`, or a share "
        "such as `0.01`; `1.0` allows all",
        None,
        f"`{USUAL}`, and no limit for a stream",
    )
    limits: Limits = key(Section(Limits), "what a run may take", Limits)
    stream: Stream | None = key(Section(Stream), "unbounded input (Beam engine)", None, "none")
    output: Output = key(Section(Output), "what is written, and where", Output)
    engine: str = key(Choice(("local", "beam")), "what runs it", "local")
    simulate: Simulate | None = key(Section(Simulate), "draw the input if it does not exist", None, "none")

    def __post_init__(self) -> None:
        if self.version != 1:
            raise InputError(f"version {self.version} is not known; this release reads version 1")
        if self.lags > 2:
            raise InputError(f"lags must be 1 or 2; got {self.lags}")
        if isinstance(self.states, str) and self.states != FROM_DATA:
            raise InputError(f"states must be a list of names or {FROM_DATA}; got {self.states!r}")
        self._check_columns()
        self._check_pooling()
        if self.input.files is None and self.states == FROM_DATA:
            raise InputError(
                "states must be listed where rows come from Pub/Sub or BigQuery; from-data needs files"
            )
        if self.input.watch is not None and self.states == FROM_DATA:
            raise InputError("states must be listed for a stream; from-data needs files that are complete")
        if self.population is not None and self.input.columns.population is not None:
            raise InputError("population and input.columns.population are both given; keep one")
        given = isinstance(self.population, float | int) or self.input.columns.population is not None
        if self.input.values != "counts" and not given:
            raise InputError(
                f"input.values: {self.input.values} needs the number that they are shares of, known or assumed: "
                "give population, or input.columns.population"
            )
        if self.constraints is not None and self.known_states is not None:
            check_estimator(self.estimator, self.constraints.constraints().cells(self.known_states))
        if self.structure is not None and self.estimator != "auto":
            raise InputError(f"structure is for estimator: auto; got {self.estimator}")
        if self.structure is not None and self.known_states is not None:
            self.structure.structure().on(self.known_states)
        if isinstance(self.states, tuple) and self.noise.is_known:
            try:
                self.noise.at(0).matrix(len(self.states))
            except InputError as error:
                raise InputError(f"noise does not fit the {len(self.states)} states: {error}") from None

    def _check_pooling(self) -> None:
        if self.pooling != GROUPS:
            return
        if not self.group_by:
            raise InputError(
                "pooling: groups draws groups to each other; name the columns that tell them, group_by"
            )
        if self.input.endless or self.stream is not None:
            raise InputError(
                "pooling: groups needs the sums of all groups at once, which a stream does not have; leave it out "
                "here, and use it in a run over the records that were kept"
            )
        if self.constraints is not None:
            refuse_tied_rows(self.constraints.constraints())

    def _check_columns(self) -> None:
        columns = self.input.columns
        times = [columns.time] if isinstance(columns.time, str) else list(columns.time)
        used = {"input.columns.realization": columns.realization or REALIZATION}
        used |= {f"input.columns.time{f'[{i}]' if len(times) > 1 else ''}": c for i, c in enumerate(times)}
        used |= {f"group_by[{i}]": name for i, name in enumerate(self.group_by)}
        if columns.population is not None:
            used["input.columns.population"] = columns.population
        seen: dict[str, str] = {}
        for path, column in used.items():
            if column in seen:
                raise InputError(f"{path} is column {column!r}, which {seen[column]} uses already")
            seen[column] = path
        given, states = columns.counts, self.known_states
        if isinstance(given, tuple) and states and len(given) != len(states):
            raise InputError(f"input.columns.counts names {len(given)} columns for {len(states)} states")

    @property
    def checked(self) -> Config:
        """With the usual limit of rejections, if none is given and the input ends."""
        loud = self.max_rejected is None and not self.input.endless and self.stream is None
        return replace(self, max_rejected=USUAL) if loud else self

    @property
    def known_states(self) -> tuple[str, ...] | None:
        return None if isinstance(self.states, str) else self.states
