"""Estimate: what a user gets. Frozen; prints itself, and saves to and loads from JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.estimators.inference import student_quantile
from aggmc_beam.noise import Noise, noise_from_dict
from aggmc_beam.text import escape_controls

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from aggmc_beam.uses.follows import Follows
    from aggmc_beam.uses.forecast import Forecast


#: What a standard error is made of: see `Estimate`.
PARTS = ("sampling", "differences", "disagreement")


@dataclass(frozen=True, eq=False)
class Estimate:
    """An estimated transition matrix with its uncertainty and what is known about its making.

    `transition_matrix` [S, S]: row i holds the probabilities of moving from state i. A state that
    was never seen has a NaN row. `standard_error` [S, S] is that of the estimate that is shown, with
    `degrees` of freedom. Its square is the sum of the squares of three parts: `sampling` (another sample of
    this size), `differences` (between halves of the data) and `disagreement` (with what the conditional
    mean alone says); the last two are zero where the model holds. `warnings` are sentences to be read
    first. `counts` tells what was used and what was not; `baselines` holds what identity and naive would say.
    `cell` is the step, phase or window
    start that the matrix belongs to, None for all times.

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
        self, counts: Any, steps: int, time: int | None = None, *, level: float | None = None
    ) -> Forecast:
        """Counts of the next steps with their bands; see `aggmc_beam.uses.forecast.forecast`."""
        from aggmc_beam.uses.forecast import forecast

        return forecast(self, counts, steps, time, level=self.level if level is None else level)

    def follows(self) -> Follows:
        """Stays, hitting times, P^h and what else follows, each with its error; see `am.follows`."""
        from aggmc_beam.uses.follows import follows

        return follows(self)

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

    def plot(self, ax: Axes | None = None) -> Figure:
        """The matrix as a heat map, in `ax` if given; needs matplotlib (the extra `report`)."""
        from aggmc_beam.report.plot import plot_matrix

        return plot_matrix(self, ax)

    def __str__(self) -> str:
        where = "" if self.cell is None else f", cell {self.cell}"
        head = (
            f"Transition matrix by {self.estimator}{where} from {self.counts['pairs']:,} pairs of "
            f"{self.counts['records']:,} records, population {self.population:,.6g}\n"
        )
        warned = "".join(f"Warning: {escape_controls(w)}\n" for w in self.warnings)
        notes = "".join(
            f"\n  note: {escape_controls(flag['why'])}" for flag in self.diagnostics.get("rows", [])
        )
        if np.isfinite(self.standard_error).any():
            notes = f"\n± is one standard error; interval() gives {100 * self.level:g}% bounds{notes}"
        borrowed = self.diagnostics.get("borrowed")
        if borrowed is not None:
            notes += f"\n{borrowed_words(borrowed)}"
        ground = self.diagnostics.get("ground")
        if ground is not None:
            notes += f"\nIt stands on {escape_controls(str(ground['sentence']))}."
        return warned + head + matrix_table(self.states, self.transition_matrix, self.standard_error) + notes


@dataclass(frozen=True, eq=False)
class Estimates(Sequence[Estimate]):
    """The estimates of a chain that changes with time, one per step, phase or window.

    `transition_matrix` stacks them [C, S, S]. For per-step, cycle and parametric chains `pooled`
    is the one matrix that fits all cells best (expected moves over expected visits), and
    `average` the plain average of the cells' mom matrices. `coefficients` [S, S, q + 1] are
    those of a parametric chain.

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
        return self.items[index]

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
        self, counts: Any, steps: int, time: int | None = None, *, level: float | None = None
    ) -> Forecast:
        """Counts of the next steps, each by the matrix of its time; `time` is the step of the last record."""
        from aggmc_beam.uses.forecast import forecast

        return forecast(self, counts, steps, time, level=self.items[0].level if level is None else level)

    def interval(self, level: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        bounds = [e.interval(level) for e in self.items]
        return np.stack([b[0] for b in bounds]), np.stack([b[1] for b in bounds])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of all cells, each once."""
        return tuple(
            dict.fromkeys(w for e in (*self.items, *filter(None, [self.pooled])) for w in e.warnings)
        )

    def to_json(self) -> str:
        """One line of JSON per estimate."""
        return "\n".join(e.to_json() for e in self.items)

    def plot(self, entries: Sequence[tuple[int, int]] | None = None) -> Figure:
        """Entries (i, j) over the cells with intervals, by default the six that change most."""
        from aggmc_beam.report.plot import plot_series

        return plot_series(self, entries)

    def __str__(self) -> str:
        lines = [f"{len(self)} transition matrices, cells {self.items[0].cell} to {self.items[-1].cell}"]
        if self.pooled is not None:
            lines += ["pooled over cells:", str(self.pooled)]
        return "\n".join(lines)


def borrowed_words(borrowed: Mapping[str, Any]) -> str:
    """How much of an estimate is not seen in its own data, as a sentence.

    >>> borrowed_words({"share": 0.75, "from": "the other cells"})
    '75% of it is borrowed from the other cells, the rest is seen in its own data.'
    """
    source = escape_controls(str(borrowed["from"]))
    return (
        f"{100 * borrowed['share']:.0f}% of it is borrowed from {source}, the rest is seen in its own data."
    )


def matrix_table(states: Sequence[str], matrix: np.ndarray, error: np.ndarray | None = None) -> str:
    """A matrix as aligned text, with ± where errors are given.

    >>> print(matrix_table(["a", "b"], np.array([[0.9, 0.1], [0.25, 0.75]])))
         a     b
    a 0.900 0.100
    b 0.250 0.750
    """

    def entry(i: int, j: int) -> str:
        text = f"{matrix[i, j]:.3f}"
        if error is not None and np.isfinite(error[i, j]):
            text += f" ± {error[i, j]:.3f}"
        return text

    states = [escape_controls(s) for s in states]
    S = len(states)
    body = [[entry(i, j) for j in range(S)] for i in range(S)]
    wide = max(len(text) for row in [list(states), *body] for text in row)
    margin = max(len(s) for s in states)
    lines = [" ".join([" " * margin, *(f"{s:>{wide}}" for s in states)])]
    lines += [" ".join([f"{states[i]:<{margin}}", *(f"{x:>{wide}}" for x in body[i])]) for i in range(S)]
    return "\n".join(lines)


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
