"""Estimate: what a user gets. Frozen; prints itself, makes tables, and saves to and loads from JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.errors import InputError, nearest
from aggmc_beam.estimators.inference import student_quantile
from aggmc_beam.noise import Noise, noise_from_dict
from aggmc_beam.printing import aligned, cell_warnings, clipped, estimate_text, number, warning_lines, wrapped
from aggmc_beam.tables import Columns, Tabular, columns_of, summary_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from aggmc_beam.uses.follows import Follows
    from aggmc_beam.uses.forecast import Forecast
    from aggmc_beam.uses.rows import EstimateRow


#: What a standard error is made of: see `Estimate`.
PARTS = ("sampling", "differences", "disagreement")


@dataclass(frozen=True, eq=False)
class Estimate(Tabular):
    """An estimated transition matrix with its uncertainty and what is known about its making.

    `transition_matrix` [S, S]: row i holds the probabilities of moving from state i. A state that
    was never seen has a NaN row. `standard_error` [S, S] is that of the estimate that is shown, with
    `degrees` of freedom. Its square is the sum of the squares of three parts: `sampling` (another sample of
    this size), `differences` (between halves of the data) and `disagreement` (with what the conditional
    mean alone says); the last two are zero where the model holds. `warnings` are sentences to be read
    first. `counts` tells what was used and what was not; `baselines` holds what identity and naive would say.
    `cell` is the step, phase or window
    start that the matrix belongs to, None for all times. `est["home", "work"]` is one probability,
    `np.asarray(est)` the matrix; tables have the columns that docs/tables.md lists.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=500, realizations=4, seed=1)
    >>> est = am.estimate(y, states=["in", "out"])
    >>> est.transition_matrix.round(2).tolist(), est.stationary.round(2).tolist()
    ([[0.9, 0.1], [0.31, 0.69]], [0.75, 0.25])
    >>> am.Estimate.from_json(est.to_json()).counts["pairs"]
    1996
    """

    states: tuple[str, ...]
    transition_matrix: np.ndarray
    standard_error: np.ndarray
    sampling: np.ndarray
    differences: np.ndarray
    disagreement: np.ndarray
    degrees: int
    level: float
    stationary: np.ndarray
    population: float
    noise: Noise
    estimator: str
    baselines: Mapping[str, np.ndarray]
    counts: Mapping[str, int]
    diagnostics: Mapping[str, Any]
    cell: int | None = None
    window: Mapping[str, int] | None = None
    group: Mapping[str, Any] | None = None
    refresh: int = 0
    warnings: tuple[str, ...] = ()

    def interval(self, level: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds [S, S] that hold each entry with probability `level`.

        The estimate -+ Student's quantile times `standard_error`, cut to [0, 1] for estimates that are
        probabilities, so that an entry on the border has an interval to one side. NaN for cells that
        constraints fix, and for rows of which nothing is known.
        """
        level = self.level if level is None else level
        if not 0 < level < 1:
            raise InputError(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
        half = student_quantile(level, self.degrees) * self.standard_error
        lower, upper = self.transition_matrix - half, self.transition_matrix + half
        if self.diagnostics["interval"]["cut"]:
            lower, upper = np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)
        return lower, upper

    def forecast(
        self, counts: Any, steps: int, time: Any = None, *, level: float | None = None, **table: Any
    ) -> Forecast:
        """Counts of the next steps with their bands; see `aggmc_beam.uses.forecast.forecast`."""
        from aggmc_beam.uses.forecast import forecast

        return forecast(self, counts, steps, time, level=level, **table)

    def follows(self) -> Follows:
        """Stays, hitting times, P^h and what else follows, each with its error; see `am.follows`."""
        from aggmc_beam.uses.follows import follows

        return follows(self)

    @property
    def own(self) -> Estimate:
        """Without what is borrowed from other groups or windows: that which tests of differences compare."""
        note = self.diagnostics.get("borrowed", {}).get("apart")
        if note is None:
            return self
        P, error = (
            _array(note[name], *self.transition_matrix.shape)
            for name in ("transition_matrix", "standard_error")
        )
        return replace(self, transition_matrix=P, standard_error=error)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; NaN becomes None."""
        lower, upper = self.interval()
        return {
            "group": self.group,
            "window": self.window,
            "cell": self.cell,
            "states": list(self.states),
            "estimator": self.estimator,
            "warnings": list(self.warnings),
            "transition_matrix": _plain(self.transition_matrix),
            "standard_error": _plain(self.standard_error),
            "parts": {name: _plain(getattr(self, name)) for name in PARTS},
            "lower": _plain(lower),
            "upper": _plain(upper),
            "level": self.level,
            "degrees": self.degrees,
            "stationary": _plain(self.stationary),
            "population": _plain(self.population),
            "noise": self.noise.to_dict(),
            "baselines": _plain(dict(self.baselines)),
            "counts": dict(self.counts),
            "diagnostics": _plain(dict(self.diagnostics)),
            "refresh": self.refresh,
        }

    def to_json(self) -> str:
        """One line of JSON, which `from_json` reads back."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_row(self) -> EstimateRow:
        """A row of a table, whose type is a schema for Beam; see `aggmc_beam.uses.rows`."""
        from aggmc_beam.uses.rows import to_row

        return to_row(self)

    @classmethod
    def from_json(cls, line: str) -> Estimate:
        """The estimate that `to_json` wrote."""
        try:
            d = json.loads(line)
            S = len(d["states"])
            interval = d["diagnostics"]["interval"]
            if not (isinstance(interval["cut"], bool) and type(d["degrees"]) is int and 0 < d["level"] < 1):
                raise TypeError("its interval cannot be made")
            return cls(
                states=tuple(str(s) for s in d["states"]),
                transition_matrix=_array(d["transition_matrix"], S, S),
                standard_error=_array(d["standard_error"], S, S),
                **{name: _array(d["parts"][name], S, S) for name in PARTS},
                degrees=d["degrees"],
                level=d["level"],
                stationary=_array(d["stationary"], S),
                population=float(_array(d["population"])),
                noise=noise_from_dict(d["noise"]),
                estimator=str(d["estimator"]),
                baselines={k: _array(v, S, S) for k, v in d["baselines"].items()},
                counts=d["counts"],
                diagnostics=d["diagnostics"],
                cell=d["cell"],
                window=d["window"],
                group=d["group"],
                refresh=d["refresh"],
                warnings=tuple(str(w) for w in d["warnings"]),
            )
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(f"this is not an estimate as written by to_json: {error!r}") from error

    def __getitem__(self, key: Any) -> Any:
        """The probability of a move, by the names of two states; of all moves from one, by its name."""
        if isinstance(key, tuple) and len(key) == 2:
            return float(self.transition_matrix[self.index_of(key[0]), self.index_of(key[1])])
        row = self.transition_matrix[self.index_of(key)]
        return dict(zip(self.states, row.tolist(), strict=True))

    def index_of(self, state: Any) -> int:
        """The row of a state; `InputError` if there is none of that name."""
        if str(state) not in self.states:
            raise InputError(f"there is no state {state!r}; {nearest(state, self.states)}")
        return self.states.index(str(state))

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            "an estimate is not a sequence; np.asarray(est) is its matrix, est.to_frame() its table"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return _as_array(self.transition_matrix, dtype, copy)

    def columns(self, form: str = "tidy") -> Columns:
        return columns_of([self], form)

    def plot(self, kind: Any = "matrix", *, ax: Axes | None = None, coordinates: Any = None) -> Figure:
        """A picture, in `ax` if given; needs matplotlib (the extra `report`).

        kind: "matrix" (a heat map), "flows" (people per step from state to state), "network" (states in a
        circle), or "map", where `coordinates` maps each state to its (x, y), such as longitude and latitude.
        """
        from aggmc_beam.report.plot import plot_estimate

        return plot_estimate(self, kind, ax, coordinates)

    def to_text(self, whole: bool = False) -> str:
        """What `print` shows; the `whole` matrix also where it is wider than 100 columns."""
        return estimate_text(self, whole)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        from aggmc_beam.report.notebook import estimate_html

        return estimate_html(self)


@dataclass(frozen=True, eq=False)
class Estimates(Sequence[Estimate], Tabular):
    """The estimates of a chain that changes with time, one per step, phase or window.

    `transition_matrix` stacks them [C, S, S]. For per-step, cycle and parametric chains `pooled`
    is the one matrix that fits all cells best (expected moves over expected visits), and
    `average` the plain average of the cells' mom matrices. `coefficients` [S, S, q + 1] are
    those of a parametric chain. `windows[0]` is the first of them, `windows.cell(250)` that of a cell, and
    `windows["home", "work"]` one entry over all cells.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=500, realizations=4, seed=1)
    >>> windows = am.estimate(y, chain=am.Window(250))
    >>> windows.cells, windows.transition_matrix.shape
    ([0, 250], (2, 2, 2))
    """

    items: tuple[Estimate, ...]
    pooled: Estimate | None = None
    average: np.ndarray | None = None
    coefficients: np.ndarray | None = None
    skipped: Mapping[int, str] = field(default_factory=dict)
    """Cells with too little data for an estimate, and why."""

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, tuple):
            return np.array([e[index] for e in self.items])
        if isinstance(index, str):
            raise InputError(f"give two states, such as [{index!r}, {index!r}], or the number of an estimate")
        return self.items[index]

    def cell(self, cell: Any) -> Estimate:
        """The estimate of a cell: a step, a phase, or the start of a window as it is shown."""
        for e in self.items:
            if cell == e.cell or (e.window is not None and cell == e.window.get("start")):
                return e
        if cell in self.skipped:
            raise InputError(f"there is no estimate for cell {cell!r}: {self.skipped[cell]}")
        known = ", ".join(str(c) for c in self.cells[:6]) + (" ..." if len(self) > 6 else "")
        raise InputError(f"there is no cell {cell!r}; there are {known}")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return _as_array(self.transition_matrix, dtype, copy)

    def columns(self, form: str = "tidy") -> Columns:
        return columns_of(self.items, form)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.items)

    @property
    def cells(self) -> list[int | None]:
        return [e.cell for e in self.items]

    @property
    def transition_matrix(self) -> np.ndarray:
        return np.stack([e.transition_matrix for e in self.items])

    @property
    def standard_error(self) -> np.ndarray:
        return np.stack([e.standard_error for e in self.items])

    def forecast(
        self, counts: Any, steps: int, time: Any = None, *, level: float | None = None, **table: Any
    ) -> Forecast:
        """Counts of the next steps, each by the matrix of its time; `time` is the step of the last record."""
        from aggmc_beam.uses.forecast import forecast

        return forecast(self, counts, steps, time, level=level, **table)

    def interval(self, level: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        bounds = [e.interval(level) for e in self.items]
        return np.stack([b[0] for b in bounds]), np.stack([b[1] for b in bounds])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of all cells, each once."""
        return tuple(
            dict.fromkeys(w for e in (*self.items, *filter(None, [self.pooled])) for w in e.warnings)
        )

    def warnings_by_kind(self) -> list[str]:
        """The warnings as they are shown: what many cells have in common once, with their number."""
        own = [] if self.pooled is None else list(self.pooled.warnings)
        return [*own, *cell_warnings([(_cell_name(e), e.warnings) for e in self.items])]

    def to_json(self) -> str:
        """One line of JSON per estimate."""
        return "\n".join(e.to_json() for e in self.items)

    def plot(self, entries: Any = None, *, kind: str = "cells", **options: Any) -> Figure:
        """A picture; needs matplotlib (the extra `report`).

        kind: "cells" draws `entries` (pairs of states, by name or number) over the cells with intervals, by
        default the six that change most; every other kind is that of the pooled matrix, see `Estimate.plot`.
        """
        from aggmc_beam.report.plot import plot_estimates

        return plot_estimates(self, entries, kind, options)

    def __str__(self) -> str:
        head = f"{len(self)} transition matrices, cells {self.items[0].cell} to {self.items[-1].cell}"
        warned = warning_lines(self.warnings_by_kind())
        if self.pooled is not None:
            pooled = str(replace(self.pooled, warnings=()))
            return "\n".join([*warned, head, *self._least_and_most(), "pooled over cells:", pooled])
        return "\n".join([*warned, head, summary_text(self.items, "cell")])

    def _least_and_most(self) -> list[str]:
        """In which cell fewest stay where they are, and in which most."""
        stays = np.array([summary_of(e)["stay"] for e in self.items])
        if not np.isfinite(stays).any():
            return []
        low, high = (int(k) for k in (np.nanargmin(stays), np.nanargmax(stays)))
        cells = [f"{number(stays[k])} in cell {_cell_name(self.items[k])}" for k in (low, high)]
        return [f"Share that stays from one step to the next: {cells[0]} to {cells[1]}"]

    def _repr_html_(self) -> str:
        from aggmc_beam.report.notebook import estimates_html

        return estimates_html(self)


class Groups(dict[tuple[str, ...], Any], Tabular):
    """The results of several groups by the values of their columns: `found["north"]` or
    `found["north", "night"]`, each an `Estimate` or `Estimates`; `found["north", 8]` is that of a cell.
    `skipped` tells which groups have too little data, and why; `advice` that groups look alike and could share.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=50, seed=1)
    >>> table = {"region": ["north"] * 50, "realization": [0] * 50, "time": range(50),
    ...          "in": y[0, :, 0], "out": y[0, :, 1]}
    >>> found = am.estimate(table, ["in", "out"], group_by="region")
    >>> found["north"].states, found.to_frame().columns[:3]
    (('in', 'out'), ['group', 'from', 'to'])
    """

    def __init__(
        self,
        results: Mapping[Any, Any] = {},
        skipped: Mapping[str, str] | None = None,
        advice: str | None = None,
    ) -> None:
        super().__init__(results)
        self.skipped = dict(skipped or {})
        self.advice = advice

    def __missing__(self, key: Any) -> Any:
        name = key if isinstance(key, tuple) else (key,)
        texts = tuple(str(part) for part in name)
        if texts in self:
            return self[texts]
        if texts[:-1] in self and len(name) > 1:
            found = self[texts[:-1]]
            return found.cell(name[-1]) if isinstance(found, Estimates) else found[name[-1]]
        said = ", ".join(texts)
        if said in self.skipped:
            raise InputError(f"there is no estimate for {said}: {self.skipped[said]}")
        raise InputError(f"there is no group {said!r}; {nearest(said, (', '.join(k) for k in self))}")

    @property
    def estimates(self) -> list[Estimate]:
        """All of them, group by group and cell by cell."""
        return [e for found in self.values() for e in ([found] if isinstance(found, Estimate) else found)]

    def columns(self, form: str = "tidy") -> Columns:
        return columns_of(self.estimates, form)

    def to_json(self) -> str:
        """One line of JSON per estimate."""
        return "\n".join(e.to_json() for e in self.estimates)

    def plot(self, entry: Any = None) -> Figure:
        """One entry of each group's matrix with its interval, by default that in which they differ most."""
        from aggmc_beam.report.plot import plot_groups

        return plot_groups(self, entry)

    def __str__(self) -> str:
        return groups_text(self)

    __repr__ = object.__repr__

    def _repr_html_(self) -> str:
        from aggmc_beam.report.notebook import groups_html

        return groups_html(self)


#: Rows of a summary that is printed.
SUMMARY = 30


def groups_text(found: Groups) -> str:
    """A line for each group, and why some have none."""
    lines = [f"{len(found)} groups", summary_text([_whole(result) for result in found.values()], "group")]
    lines += [wrapped(f"No estimate for {clipped(name)}: {why}") for name, why in found.skipped.items()]
    return "\n".join([*lines, *([wrapped(found.advice)] if found.advice else [])])


def summary_text(estimates: Sequence[Estimate], place: str) -> str:
    """A table with a line for each estimate; in the middle some are left out where there are many."""
    head = [place, "pairs", "population", "stay", "largest move", "probability", "warnings"]
    rows = []
    for e in estimates:
        row = summary_of(e)
        group = ", ".join(str(v) for v in (e.group or {}).values())
        move = (
            "" if row["largest_to"] is None else f"{_name(row['largest_from'])} → {_name(row['largest_to'])}"
        )
        rows.append(
            [
                clipped(group if place == "group" else _cell_name(e), 20), f"{row['pairs']:,}",
                f"{row['population']:,.5g}", number(row["stay"]), move,
                number(row["probability"], row["error"]) if move else "", str(row["warnings"]),
            ]
        )  # fmt: skip
    half = SUMMARY // 2
    if len(rows) > SUMMARY:
        rows = [*rows[:half], ["...", *[""] * (len(head) - 1)], *rows[-half:]]
    return aligned([head, *rows])


def _cell_name(e: Estimate) -> str:
    return str(e.cell if e.window is None else e.window.get("start"))


def _name(state: str) -> str:
    return clipped(state, 11)


def _whole(result: Any) -> Estimate:
    """The one estimate that stands for a result in a summary."""
    if isinstance(result, Estimate):
        return result
    found: Estimate = (
        result.pooled if result.pooled is not None else max(result, key=lambda e: e.counts["pairs"])
    )
    return found


def read_estimates(path: str | os.PathLike[str]) -> Estimate | Estimates | Groups:
    """What a run wrote: `estimates.jsonl`, or the directory that it lies in.

    One estimate, `Estimates` by cell, or `Groups` of these. Of estimates that were refreshed, the newest.

    >>> import aggmc_beam as am, os, tempfile
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=50, seed=1)
    >>> path = os.path.join(tempfile.mkdtemp(), "estimates.jsonl")
    >>> with open(path, "w") as stream:
    ...     _ = stream.write(am.estimate(y, ["in", "out"]).to_json())
    >>> am.read_estimates(path).states
    ('in', 'out')
    """
    source = os.path.join(path, "estimates.jsonl") if os.path.isdir(path) else path
    try:
        with open(source, encoding="utf-8") as stream:
            found = [Estimate.from_json(line) for line in stream if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {os.fspath(source)!r}: {getattr(error, 'strerror', error)}") from None
    except InputError as error:
        raise InputError(f"{os.fspath(source)}: {error}") from None
    if not found:
        raise InputError(f"{os.fspath(source)} holds no estimates")
    groups: dict[tuple[str, ...], dict[Any, Estimate]] = {}
    for e in sorted(found, key=lambda e: e.refresh):
        cells = groups.setdefault(tuple(str(v) for v in (e.group or {}).values()), {})
        cells[e.cell if e.window is None else json.dumps(e.window)] = e
    order = dict.fromkeys(tuple(str(v) for v in (e.group or {}).values()) for e in found)
    results = {name: _joined(list(groups[name].values())) for name in order}
    return results[()] if list(results) == [()] else Groups(results)


def _joined(found: list[Estimate]) -> Estimate | Estimates:
    if len(found) == 1 and found[0].cell is None:
        return found[0]
    return Estimates(tuple(sorted(found, key=lambda e: -1 if e.cell is None else e.cell)))


def _as_array(values: np.ndarray, dtype: Any, copy: bool | None) -> np.ndarray:
    found = np.asarray(values, dtype)
    return found.copy() if copy and found is values else found


def _plain(value: Any) -> Any:
    """Arrays and numpy numbers as lists and numbers, with None for NaN and infinities."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def _array(value: Any, *shape: int) -> np.ndarray:
    found = np.array(value, np.float64)
    if found.shape != shape:
        raise TypeError(f"an array has shape {found.shape}, not {shape}")
    return found
