"""Tables by unit from their margins: who moved from which row to which column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggmc_beam.errors import InputError, nearest
from aggmc_beam.estimation import is_table, table_margins
from aggmc_beam.fit.observations import check_states
from aggmc_beam.printing import LISTED, WIDTH, aligned, clipped, number, width
from aggmc_beam.progress import Progress
from aggmc_beam.tables import Columns, Tabular
from aggmc_beam.uses.ecological import posterior
from aggmc_beam.uses.margins import fit_margins

#: Totals before and after may differ by this part: rounding of shares, not people.
TOTALS_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class CrossTable(Tabular):
    """How members of `rows` are distributed over `columns`, in all units together and in each.

    >>> import aggmc_beam as am
    >>> table = am.cross_table([[9, 1], [1, 9], [5, 5], [8, 2]], [[8, 2], [2, 8], [5, 5], [8, 2]])
    >>> table.units.sum((1, 2)).round().tolist(), table.total.shape
    ([10.0, 10.0, 10.0, 10.0], (2, 2))

    `transition_matrix` [R, C]: the part of row i that went to column c; NaN for a row without members.
    `units` [U, R, C]: expected numbers, which add up to both margins of every unit, and over units to
    the matrix. `unit_names` are theirs if a table told them. `draws` [D, R, C] of the posterior give
    `standard_error` and `interval`.
    `spread` is the part of the variance between units (of mean size) that chance does not explain,
    and `context` how much a row's behaviour depends on who else is in its unit: the variance per
    standard deviation of composition, in units of the noise.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    transition_matrix: np.ndarray
    units: np.ndarray
    draws: np.ndarray
    spread: float
    context: float
    level: float = 0.95
    unit_names: tuple[str, ...] | None = None

    forms = ("tidy", "units")

    def _columns(self, form: str) -> Columns:
        """ "tidy" has a row for each entry of the matrix, "units" one for each entry of every unit's table."""
        U, R, C = self.units.shape
        pairs: Columns = {"from": [r for r in self.rows for _ in range(C)], "to": list(self.columns) * R}
        if form == "units":
            names = [u for u in self.unit_names or range(U) for _ in range(R * C)]
            both = {name: values * U for name, values in pairs.items()}
            return {"unit": names, **both, "members": self.units.ravel().tolist()}
        if form != "tidy":
            raise InputError(f"there is no table {form!r}; {nearest(form, self.forms)}")
        lower, upper = self.interval()
        arrays = {"probability": self.transition_matrix, "error": self.standard_error, "lower": lower,
                  "upper": upper, "members": self.total}  # fmt: skip
        return pairs | {name: values.ravel().tolist() for name, values in arrays.items()}

    @property
    def standard_error(self) -> np.ndarray:
        """Posterior standard deviation [R, C]."""
        return np.asarray(self.draws.std(0))

    @property
    def total(self) -> np.ndarray:
        """Expected numbers [R, C] of all units together."""
        return np.asarray(self.units.sum(0))

    def interval(self, level: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds [R, C] that hold each entry with probability `level`."""
        level = self.level if level is None else level
        if not 0 < level < 1:
            raise InputError(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
        P = self.transition_matrix
        lower, upper = np.quantile(self.draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        shift = P - self.draws.mean(0)
        return np.clip(np.minimum(lower + shift, P), 0, 1), np.clip(np.maximum(upper + shift, P), 0, 1)

    def _head(self) -> str:
        return f"Cross table of {len(self.units):,} units, {self.total.sum():,.0f} members"

    def __str__(self) -> str:
        P, error = self.transition_matrix, self.standard_error
        cells = [[number(p, e) for p, e in zip(*row, strict=True)] for row in zip(P, error, strict=True)]
        rows = [[clipped(name), *row] for name, row in zip(self.rows, cells, strict=True)]
        table = aligned([["", *map(clipped, self.columns)], *rows], even=True)
        if width(table.partition("\n")[0]) > WIDTH:
            largest = [divmod(int(k), P.shape[1]) for k in np.argsort(-self.total, axis=None)[:LISTED]]
            moves = [
                [
                    f"  {clipped(self.rows[i])} → {clipped(self.columns[j])}",
                    cells[i][j],
                    f"{self.total[i, j]:,.0f}",
                ]
                for i, j in largest
            ]
            table = aligned([["  from → to", "probability", "members"], *moves])
        return f"{self._head()}\n{table}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from aggmc_beam.report.notebook import table_html

        return f"<div><p>{self._head()}</p>{table_html(self._columns('tidy'))}</div>"


def cross_table(
    before: Any,
    after: Any,
    *,
    rows: Sequence[Any] | None = None,
    columns: Sequence[Any] | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> CrossTable:
    """How the members of each row moved to the columns, when only margins are known (ecological inference).

    before: [U, R], members of unit u in row i. after: [U, C], the same members by column: votes by
    party in two elections, jobs before and after, shops first and next. Totals of a unit must agree;
    where members enter or leave, give them a row or a column of their own. Tables of any library will do: all
    their columns of numbers are counts and name rows and columns, one of text (or the index) names the units.

    Units whose members vary together, and rows that behave differently in different company, are part
    of the model (docs/ecological.md); the intervals carry what margins cannot tell. Units should be many
    more than rows, and differ in composition: alike units tell nothing.

    >>> import aggmc_beam as am
    >>> rng = np.random.default_rng(1)
    >>> before = rng.multinomial(500, rng.dirichlet([2, 2, 1], 200)[:, None, :])[:, 0]
    >>> P = np.array([[0.8, 0.2], [0.3, 0.7], [0.5, 0.5]])
    >>> after = rng.multinomial(before, P).sum(1)
    >>> table = am.cross_table(before, after, rows="abc", columns=["left", "right"])
    >>> table.transition_matrix.round(1).tolist()
    [[0.8, 0.2], [0.3, 0.7], [0.5, 0.5]]
    >>> bool(np.allclose(table.units.sum(1), after))                  # tables add up to both margins
    True
    """
    before, rows, units_before = _margins(before, rows, "before")
    after, columns, units_after = _margins(after, columns, "after")
    if None not in (units_before, units_after) and units_before != units_after:
        raise InputError(
            "before and after name different units, or the same in another order; sort both by unit"
        )
    a, b = _counts(before, "before"), _counts(after, "after")
    names = check_states(rows, a.shape[1]), check_states(columns, b.shape[1])
    _check(a, b)
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
    held, seen, met = a.sum(1) > 0, a.sum(0) > 0, b.sum(0) > 0
    R = seen.sum()
    if met.sum() < 2:
        raise InputError("all members are in one column, so there is nothing to learn")
    if held.sum() < R + 2:
        raise InputError(
            f"{held.sum()} units with members are too few for {R} rows; there must be at least {R + 2}, "
            "and for useful intervals several times as many: merge rows or give smaller units"
        )
    progress = Progress(unit="units")
    progress("regression", 0, len(a))
    found = posterior(a[np.ix_(held, seen)], b[np.ix_(held, met)], seed)
    draws = np.zeros((len(found.draws), a.shape[1], b.shape[1]))
    draws[np.ix_(range(len(draws)), seen, met)] = found.draws
    # Totals may differ by rounding; the tables take those of before.
    scale = np.divide(a.sum(1), b.sum(1), out=np.ones(len(b)), where=held)
    first = a[:, :, None] * draws.mean(0)
    units = fit_margins(first, a, b * scale[:, None], lambda done: progress("tables", done, len(a)))
    progress.clear()
    draws[:, ~seen] = np.nan
    with np.errstate(invalid="ignore"):
        P = units.sum(0) / a.sum(0)[:, None]
    told = units_before or units_after
    return CrossTable(*names, P, units, draws, found.spread, found.context, level, told)


def _margins(data: Any, names: Any, what: str) -> tuple[Any, Any, tuple[str, ...] | None]:
    """Counts, their names, and those of the units if data are a table."""
    if not is_table(data):
        return data, names, None
    counts, found, units = table_margins(data, what)
    return counts, found if names is None else names, units


def _counts(data: Any, name: str) -> np.ndarray:
    try:
        counts = np.asarray(data, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers in an array [units, states]: {error}") from error
    if counts.ndim != 2 or 0 in counts.shape:
        raise InputError(f"{name} must be an array [units, states], none of them 0; got shape {counts.shape}")
    bad = ~(np.isfinite(counts) & (counts >= 0))
    if bad.any():
        u, i = np.argwhere(bad)[0]
        raise InputError(f"{name}: unit {u}, state {i} is {counts[u, i]:g}; counts must be 0 or more")
    return counts


def _check(a: np.ndarray, b: np.ndarray) -> None:
    if len(a) != len(b):
        raise InputError(f"before has {len(a)} units and after {len(b)}; each unit needs a row in both")
    totals = a.sum(1), b.sum(1)
    off = np.abs(totals[0] - totals[1]) > TOTALS_TOLERANCE * np.maximum(*totals)
    if off.any():
        u = int(np.argmax(off))
        raise InputError(
            f"unit {u} has {totals[0][u]:,.6g} members before and {totals[1][u]:,.6g} after"
            + (f" (and {off.sum() - 1} more such units)" if off.sum() > 1 else "")
            + "; totals must agree: give those who left a column, and those who came a row"
        )
