"""How do two matrices differ? Of groups, runs or periods, from their estimates alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.estimators.inference import student_quantile
from aggmc_beam.printing import WIDTH, aligned, clipped, matrix_table, number, width, wrapped
from aggmc_beam.result import PARTS, Estimate, Estimates, Groups, read_estimates
from aggmc_beam.tables import Columns, Tabular
from aggmc_beam.text import escape_controls
from aggmc_beam.uses.change import change

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Differences that are listed where there is no room for all of them; comparisons that are printed.
LISTED, PRINTED = 10, 40
#: With more states than this the covariance of a matrix is too large to be made use of.
MOST_LISTED = 20
ASSUMED = "errors of the two are taken to be independent, and each estimate's standard errors to be right"


@dataclass(frozen=True, eq=False)
class Comparison(Tabular):
    """Two estimates and their difference.

    `difference` [S, S] is b - a, with its `standard_error` and `degrees` of freedom (Welch's). `p_value` is that of
    the hypothesis that both have one matrix; `p_values` [S, S] those of single entries, corrected for their number
    by Holm's method: below 0.05 one may say that this entry differs. Both take the errors of a and b to be
    independent, as those of other people or other days are.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=200, realizations=20, seed=1)
    >>> z, _ = am.simulate([[0.8, 0.2], [0.3, 0.7]], steps=200, realizations=20, seed=2)
    >>> found = am.compare(am.estimate(y, ["in", "out"]), am.estimate(z, ["in", "out"]))
    >>> print(found)
    Difference, second minus first: p = 0.00025 that both have one matrix
                    in            out
    in  -0.099 ± 0.005  0.099 ± 0.005
    out -0.006 ± 0.010  0.006 ± 0.010
    2 of 4 entries differ at 5%, corrected for their number
    """

    a: Estimate
    b: Estimate
    difference: np.ndarray
    standard_error: np.ndarray
    degrees: np.ndarray
    p_value: float
    p_values: np.ndarray
    level: float

    @property
    def states(self) -> tuple[str, ...]:
        return self.a.states

    forms = ("tidy",)

    def interval(self, level: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds [S, S] of each difference."""
        level = self.level if level is None else level
        if not 0 < level < 1:
            raise InputError(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
        quantiles = [student_quantile(level, d) if np.isfinite(d) else np.nan for d in self.degrees.ravel()]
        half = np.reshape(quantiles, self.degrees.shape) * self.standard_error
        return np.maximum(self.difference - half, -1.0), np.minimum(self.difference + half, 1.0)

    def columns(self, form: str = "tidy") -> Columns:
        if form != "tidy":
            raise InputError(f"a comparison has no table {form!r}, only 'tidy'")
        S = len(self.states)
        lower, upper = self.interval()
        arrays = {
            "first": self.a.transition_matrix,
            "second": self.b.transition_matrix,
            "difference": self.difference,
            "error": self.standard_error,
            "lower": lower,
            "upper": upper,
            "p_value": self.p_values,
        }
        names: Columns = {"from": [s for s in self.states for _ in range(S)], "to": list(self.states) * S}
        return names | {name: values.ravel().tolist() for name, values in arrays.items()}

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        rows = zip(*self.columns().values(), strict=True)
        names = list(self.columns())
        plain = [{k: None if v != v else v for k, v in zip(names, row, strict=True)} for row in rows]
        return {"p_value": _or_none(self.p_value), "level": self.level, "assumed": ASSUMED, "entries": plain}

    def plot(self, ax: Axes | None = None) -> Figure:
        """The differences as a heat map of two colours; needs matplotlib (the extra `report`)."""
        from aggmc_beam.report.differences import plot_comparison

        return plot_comparison(self, ax)

    def _repr_html_(self) -> str:
        from aggmc_beam.report.notebook import table_html

        head = f"<p>{_head(self.p_value)}</p>"
        return f"<div>{head}{table_html(self.columns())}</div>"

    def __str__(self) -> str:
        table = matrix_table(self.states, self.difference, self.standard_error)
        if width(table.partition("\n")[0]) > WIDTH:
            table = self._largest()
        known = int(np.isfinite(self.p_values).sum())
        differ = int((self.p_values < 0.05).sum())
        told = f"{differ} of {known} entries differ at 5%, corrected for their number"
        return "\n".join([_head(self.p_value), table, told])

    def _largest(self) -> str:
        order = np.argsort(np.nan_to_num(self.p_values, nan=2.0), axis=None, kind="stable")[:LISTED]
        rows = []
        for i, j in (divmod(int(k), len(self.states)) for k in order):
            name = f"  {clipped(self.states[i])} → {clipped(self.states[j])}"
            value = number(self.difference[i, j], self.standard_error[i, j])
            rows.append([name, value, f"{self.p_values[i, j]:.2g}"])
        return aligned([["  from → to", "difference", "p"], *rows])


@dataclass(frozen=True, eq=False)
class Comparisons(Tabular):
    """Comparisons of the groups and cells that two results share, by name; `unmatched` are those of one only.

    `p_values` are the comparisons' own, corrected for their number by Holm's method.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=400, realizations=20, seed=1)
    >>> first = am.estimate(y[:10], chain=am.Window(200))
    >>> found = am.compare(first, am.estimate(y[10:], chain=am.Window(200)))
    >>> list(found.items), min(found.p_values.values()) > 0.05
    (['0', '200'], True)
    """

    items: Mapping[str, Comparison]
    unmatched: tuple[str, ...] = field(default=())

    forms = ("tidy",)

    @property
    def p_values(self) -> dict[str, float]:
        corrected = holm(np.array([c.p_value for c in self.items.values()]))
        return dict(zip(self.items, corrected.tolist(), strict=True))

    def __getitem__(self, name: Any) -> Comparison:
        if str(name) not in self.items:
            raise InputError(f"there is no comparison {name!r}; there are {', '.join(list(self.items)[:6])}")
        return self.items[str(name)]

    def __len__(self) -> int:
        return len(self.items)

    def columns(self, form: str = "tidy") -> Columns:
        found: Columns = {"of": []}
        for name, comparison in self.items.items():
            for column, values in comparison.columns(form).items():
                found.setdefault(column, []).extend(values)
            found["of"] += [name] * (len(found["from"]) - len(found["of"]))
        return found

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        p_values = {name: _or_none(p) for name, p in self.p_values.items()}
        parts = {name: {"corrected": p_values[name], **c.to_dict()} for name, c in self.items.items()}
        return {"comparisons": parts, "unmatched": list(self.unmatched)}

    def plot(self, ax: Axes | None = None) -> Figure:
        """The comparison with the smallest p-value."""
        return min(self.items.values(), key=lambda c: c.p_value if np.isfinite(c.p_value) else 2.0).plot(ax)

    def _repr_html_(self) -> str:
        from aggmc_beam.report.notebook import table_html

        names = list(self.items)
        return str(table_html({"of": names, "p (corrected)": list(self.p_values.values())}))

    def __str__(self) -> str:
        p_values = self.p_values
        shown = sorted(self.items, key=lambda name: p_values[name])[:PRINTED]
        lines = [f"{len(self.items)} comparisons, second minus first; p is corrected for their number"]
        rows = [["", "p", "largest change", ""]]
        for name in shown:
            c = self.items[name]
            k = int(np.nanargmax(np.abs(c.difference))) if np.isfinite(c.difference).any() else 0
            i, j = divmod(k, len(c.states))
            move = f"{clipped(c.states[i], 16)} → {clipped(c.states[j], 16)}"
            rows.append(
                [
                    clipped(name, 30),
                    f"{p_values[name]:.2g}",
                    move,
                    number(c.difference[i, j], c.standard_error[i, j]),
                ]
            )
        lines.append(aligned(rows))
        if len(self.items) > len(shown):
            lines.append(f"... and {len(self.items) - len(shown)} more")
        if self.unmatched:
            some = ", ".join(escape_controls(u) for u in self.unmatched[:10])
            more = ", ..." if len(self.unmatched) > 10 else ""
            lines.append(wrapped(f"In one of the two only: {some}{more}"))
        return "\n".join(lines)


def compare(a: Any, b: Any, *, level: float | None = None) -> Comparison | Comparisons:
    """How b differs from a: two estimates, or two results of which groups and cells are matched by name.

    a, b: `Estimate`, `Estimates` or `Groups`, or the path of what a run wrote (`estimates.jsonl` or its
    directory). level: of the intervals, by default that of the estimates. Where the data are at hand,
    `am.equality` tests the same with more power, and knows pairs of periods.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=200, realizations=20, seed=1)
    >>> am.compare(am.estimate(y[:10]), am.estimate(y[10:])).p_value > 0.05
    True
    """
    first, second = _result(a), _result(b)
    if isinstance(first, Estimate) and isinstance(second, Estimate):
        return _compare(first, second, level)
    left, right = _by_name(first), _by_name(second)
    shared = [name for name in left if name in right]
    if not shared:
        raise InputError(
            f"the two share no group or cell: the first has {_some(left)}, the second {_some(right)}"
        )
    alone = [name for name in [*left, *right] if (name in left) != (name in right)]
    return Comparisons({name: _compare(left[name], right[name], level) for name in shared}, tuple(alone))


def _compare(a: Estimate, b: Estimate, level: float | None) -> Comparison:
    a, b = a.own, b.own
    if a.states != b.states:
        if set(a.states) != set(b.states):
            raise InputError(
                f"the two have other states, {_some(a.states)} and {_some(b.states)}, so they cannot be compared"
            )
        b = _ordered(b, a.states)
    variances = np.stack([a.standard_error**2, b.standard_error**2])
    total = variances.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = variances**2 / np.array([max(a.degrees, 1), max(b.degrees, 1)])[:, None, None]
        degrees = np.where(total > 0, total**2 / parts.sum(0), np.nan)
    difference = b.transition_matrix - a.transition_matrix
    error = np.sqrt(total)
    p_values = holm(_two_sided(difference, error, degrees))
    overall = _overall(a, b, p_values)
    chosen = a.level if level is None else level
    return Comparison(a, b, difference, error, degrees, overall, p_values, chosen)


def _ordered(e: Estimate, states: tuple[str, ...]) -> Estimate:
    """The same estimate with its states in another order."""
    k = np.array([e.states.index(s) for s in states])
    squares = ("transition_matrix", "standard_error", *PARTS)
    return replace(
        e,
        states=states,
        stationary=e.stationary[k],
        baselines={name: B[np.ix_(k, k)] for name, B in e.baselines.items()},
        **{name: getattr(e, name)[np.ix_(k, k)] for name in squares},
    )


def _two_sided(difference: np.ndarray, error: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    """Student's p-values; NaN where there is no error to compare with."""
    from scipy.special import stdtr

    known = np.isfinite(error) & (error > 0) & np.isfinite(difference)
    t = np.where(known, np.abs(difference) / np.where(known, error, 1.0), np.nan)
    return np.asarray(2 * stdtr(np.where(known, degrees, 1.0), -t))


def holm(p: np.ndarray) -> np.ndarray:
    """p-values corrected for their number (Holm 1979): valid however they depend on each other.

    >>> holm(np.array([0.01, 0.04, np.nan])).tolist()
    [0.02, 0.04, nan]
    """
    flat = p.ravel()
    known = np.flatnonzero(np.isfinite(flat))
    order = known[np.argsort(flat[known], kind="stable")]
    steps = flat[order] * np.arange(len(order), 0, -1)
    found = np.full(len(flat), np.nan)
    found[order] = np.minimum(np.maximum.accumulate(steps), 1.0) if len(order) else steps
    return found.reshape(p.shape)


def _overall(a: Estimate, b: Estimate, p_values: np.ndarray) -> float:
    """That of one change between two estimates, whose windows may be the same as they are of other people; of many
    states the smallest of the corrected `p_values`. NaN where nothing can be compared."""
    if len(a.states) > MOST_LISTED:
        return float(np.nanmin(p_values)) if np.isfinite(p_values).any() else float("nan")
    try:
        return change([replace(a, window=None), replace(b, window=None)]).p_value
    except InputError:
        return float("nan")


def _result(given: Any) -> Estimate | Estimates | Groups:
    if isinstance(given, str | os.PathLike):
        return read_estimates(given)
    if isinstance(given, Estimate | Estimates | Groups):
        return given
    raise InputError(
        "compare takes estimates, or the path of what a run wrote; am.equality compares counts. "
        f"Got {type(given).__name__}"
    )


def _by_name(found: Estimate | Estimates | Groups) -> dict[str, Estimate]:
    if isinstance(found, Estimate):
        return {_name(found): found}
    return {_name(e): e for e in (found.estimates if isinstance(found, Groups) else found)}


def _name(e: Estimate) -> str:
    start = e.cell if e.window is None else e.window["start"]
    parts = [*(str(v) for v in (e.group or {}).values()), *([] if start is None else [str(start)])]
    return ", ".join(parts) or "all"


def _some(names: Any) -> str:
    listed = list(names)
    return ", ".join(map(str, listed[:6])) + (" ..." if len(listed) > 6 else "")


def _head(p: float) -> str:
    told = "nothing can be compared" if np.isnan(p) else f"p = {p:.2g} that both have one matrix"
    return f"Difference, second minus first: {told}"


def _or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None
