"""What follows from P, each with its standard error and interval."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.estimators.inference import student_quantile
from aggmc_beam.printing import WIDTH, aligned, clipped, width
from aggmc_beam.result import Estimate
from aggmc_beam.simulation import stationary_distribution
from aggmc_beam.tables import Columns, Tabular
from aggmc_beam.uses.covariance import matrix_covariance

#: What the dimensions of a quantity are, with the names of their places.
Axes = tuple[tuple[str, Sequence[Any]], ...]
#: How far a row is moved towards one state to find a derivative.
STEP = 1e-6
#: Distance to the stationary distribution at which a chain counts as mixed, and steps that are tried.
MIXED, MAX_MIXING = 0.25, 2**40
#: Rates of a generator below this are rounding.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Quantity(Tabular):
    """A number or array with its standard error and interval, all of one shape. `note` says what a user must
    know before using it, if anything; `axes` what its dimensions are, with their names.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=2000, realizations=10, seed=1)
    >>> print(am.follows(am.estimate(y, ["home", "away"])).mean_stay())
    home 10.13 ± 0.10
    away  3.36 ± 0.03
    """

    value: np.ndarray
    standard_error: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    note: str = ""
    axes: Axes = ()

    forms = ("tidy",)

    def columns(self, form: str = "tidy") -> Columns:
        if form != "tidy":
            raise InputError(f"a quantity has no table {form!r}, only 'tidy'")
        found: Columns = {}
        places = np.indices(np.shape(self.value)).reshape(np.ndim(self.value), -1)
        for n, place in enumerate(places):
            name, labels = self.axes[n] if n < len(self.axes) else (f"index_{n}", range(int(place.max()) + 1))
            found[name] = [labels[i] for i in place]
        names = {"value": "value", "error": "standard_error", "lower": "lower", "upper": "upper"}
        return found | {name: np.ravel(getattr(self, of)).tolist() for name, of in names.items()}

    def __str__(self) -> str:
        value, error = np.atleast_1d(self.value), np.atleast_1d(self.standard_error)
        cells = with_errors(value.ravel(), error.ravel())
        text = "[" + ", ".join(cells) + "]"
        if np.ndim(self.value) == 0:
            text = cells[0]
        elif len(self.axes) == np.ndim(self.value) and self.axes[-1][0] in ("state", "to"):
            labels = [[clipped(str(s)) for s in names] for _, names in self.axes]
            if np.ndim(self.value) == 1:
                text = aligned(list(zip(labels[0], cells, strict=True)))
            else:
                rows = np.reshape(cells, value.shape).tolist()
                wide = aligned(
                    [["", *labels[1]], *([n, *row] for n, row in zip(labels[0], rows, strict=True))]
                )
                text = wide if width(wide.partition("\n")[0]) <= WIDTH else text
        return f"{text}\nnote: {self.note}" if self.note else text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from aggmc_beam.report.notebook import table_html

        return f"<div>{table_html(self.columns())}<p>{html.escape(self.note)}</p></div>"


def with_errors(values: np.ndarray, errors: np.ndarray) -> list[str]:
    """Numbers with their errors, all to two digits behind the point, or to two digits of the largest error.

    >>> with_errors([10.127, 3.4], [0.1, 0.034]), with_errors([0.0521], [0.00034])
    (['10.13 ± 0.10', '3.40 ± 0.03'], ['0.05210 ± 0.00034'])
    """
    known = [e for e in errors if 0 < e < np.inf]
    digits = int(np.clip(1 - np.floor(np.log10(max(known))), 2, 6)) if known else 2
    return [f"{v:.{digits}f} ± {e:.{digits}f}" for v, e in zip(values, errors, strict=True)]


@dataclass(frozen=True, eq=False)
class Follows(Tabular):
    """What follows from an estimate; made by `am.follows`. Times are numbers of steps. Printed, and as a table, it is
    the share, stay and return of each state.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=2000, realizations=10, seed=1)
    >>> found = am.follows(am.estimate(y))
    >>> found.return_times().value.round(1).tolist(), found.power(2).value.round(2).tolist()
    ([1.3, 4.0], [[0.84, 0.16], [0.48, 0.52]])
    """

    estimate: Estimate
    covariance: np.ndarray
    level: float

    forms = ("tidy",)

    def columns(self, form: str = "tidy") -> Columns:
        if form != "tidy":
            raise InputError(f"there is no table {form!r} of what follows, only 'tidy'")
        found: Columns = {"state": list(self.estimate.states)}
        for name, quantity in self._main().items():
            for part in ("value", "standard_error", "lower", "upper"):
                short = {"value": "", "standard_error": "_error"}.get(part, f"_{part}")
                found[name + short] = getattr(quantity, part).tolist()
        return found

    def _main(self) -> dict[str, Quantity]:
        return {"share": self.stationary(), "stay": self.mean_stay(), "return": self.return_times()}

    def __str__(self) -> str:
        columns = [with_errors(q.value, q.standard_error) for q in self._main().values()]
        rows = zip([clipped(s) for s in self.estimate.states], *columns, strict=True)
        table = aligned([["state", "settled share", "mean stay", "return"], *map(list, rows)])
        mixed = f"Shares settle in {self.mixing_time()} steps, to a quarter"
        return f"{table}\nStays and returns are steps. {mixed}.\n± is one standard error"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from aggmc_beam.report.notebook import table_html

        return str(table_html(self.columns()))

    @property
    def P(self) -> np.ndarray:
        return self.estimate.transition_matrix

    def stationary(self) -> Quantity:
        """Shares [S] that P leaves as they are."""
        return self.of(stationary_distribution, "share")

    def power(self, steps: int) -> Quantity:
        """P^steps [S, S]: where members are after so many steps."""
        _whole("steps", steps)
        return self.of(lambda P: np.linalg.matrix_power(P, steps), "share")

    def mean_stay(self) -> Quantity:
        """Expected number of steps [S] in a state, the first included."""
        return self.of(lambda P: 1 / np.maximum(1 - np.diag(P), 1e-300), "positive")

    def stay(self, steps: int) -> Quantity:
        """Chance [steps, S] that a stay lasts exactly 1, 2, ... steps."""
        _whole("steps", steps)
        h = np.arange(steps)[:, None]
        found = self.of(lambda P: np.diag(P) ** h * (1 - np.diag(P)), "share")
        states = self.estimate.states
        return replace(found, axes=(("steps", range(1, steps + 1)), ("state", states)))

    def hitting_times(self, target: Any) -> Quantity:
        """Expected steps [S] until a state (or one of several) is first reached; 0 in it."""
        chosen = self._indices(target)
        return self.of(lambda P: hitting_times(P, chosen), "positive")

    def return_times(self) -> Quantity:
        """Expected steps [S] between two visits of a state."""
        return self.of(lambda P: 1 / np.maximum(stationary_distribution(P), 1e-300), "positive")

    def mixing_time(self) -> Quantity:
        """Steps until, from the worst start, shares are within a quarter (total variation) of the stationary
        ones; between whole steps by interpolation."""
        return self.of(lambda P: np.array(mixing_time(P)), "positive")

    def flux(self) -> Quantity:
        """Members [S, S] who move from i to j in a step when shares have settled."""
        N = self.estimate.population
        return self.of(lambda P: N * stationary_distribution(P)[:, None] * P, "positive")

    def generator(self) -> Quantity:
        """Rates Q [S, S] per step of a chain in continuous time with exp(Q) = P.

        Not every P has one: then the nearest is given, and `note` says so.
        """
        Q, missing = generator(self.P)
        if Q is None:
            nothing = np.full(self.P.shape, np.nan)
            return Quantity(nothing, nothing, nothing, nothing, missing)
        found = self.of(_rates, "real")
        off = ~np.eye(len(Q), dtype=bool)
        lower = np.where(off, np.maximum(found.lower, 0.0), found.lower)
        upper = np.where(off, found.upper, np.minimum(found.upper, 0.0))
        return replace(found, lower=np.minimum(lower, found.value), upper=upper, note=missing)

    def of(self, function: Callable[[np.ndarray], np.ndarray], kind: str = "real") -> Quantity:
        """Any smooth function of P by the delta method. kind: "share" (in [0, 1]), "positive" or "real" says
        on which scale the interval is made."""
        if kind not in SCALES:
            raise InputError(f"kind must be one of {', '.join(SCALES)}; got {kind!r}")
        P = self.P
        if not np.isfinite(P).all():
            lost = [s for s, row in zip(self.estimate.states, P, strict=True) if not np.isfinite(row).all()]
            raise InputError(f"state {lost[0]!r} was never seen, so nothing follows from its row")
        P = np.maximum(P, 0.0) / np.maximum(P, 0.0).sum(1, keepdims=True)
        value = np.asarray(function(P), float)
        slope = _slopes(function, P, value)
        S = len(P)
        variance = np.einsum("...a,ab,...b->...", slope, self.covariance.reshape(S * S, S * S), slope)
        error = np.sqrt(np.maximum(variance, 0.0))
        lower, upper = SCALES[kind](value, student_quantile(self.level, self.estimate.degrees), error)
        states = self.estimate.states
        axes = {(S,): (("state", states),), (S, S): (("from", states), ("to", states))}.get(value.shape, ())
        return Quantity(value, error, np.minimum(lower, value), np.maximum(upper, value), axes=axes)

    def _indices(self, target: Any) -> list[int]:
        many = target if isinstance(target, Sequence) and not isinstance(target, str) else [target]
        names = {name: i for i, name in enumerate(self.estimate.states)}
        found = []
        for one in many:
            if isinstance(one, str) and one in names:
                found.append(names[one])
            elif isinstance(one, int | np.integer) and 0 <= one < len(names):
                found.append(int(one))
            else:
                raise InputError(f"target {one!r} is not a state; the states are {list(names)}")
        if not found:
            raise InputError("hitting times need at least one target state")
        return found


def follows(estimate: Any, *, covariance: np.ndarray | None = None, level: float | None = None) -> Follows:
    """Stationary shares, powers, stays, hitting and return times, mixing time, flux and generator of an
    estimate, each with standard error and interval.

    covariance: of the entries of P, [S, S, S, S]; by default `matrix_covariance` of the estimate: rows sum to 1,
    and make up for each other as far as mean shares are known.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=2000, realizations=10, seed=1)
    >>> found = am.follows(am.estimate(y, states=["in", "out"]))
    >>> time = found.hitting_times("out")
    >>> time.value.round(1).tolist(), bool(time.lower[0] < 10 < time.upper[0])
    ([10.1, 0.0], True)
    """
    if not isinstance(estimate, Estimate):
        raise InputError(
            f"an Estimate is needed, not {type(estimate).__name__}; of Estimates take one cell or .pooled"
        )
    level = estimate.level if level is None else level
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
    S = len(estimate.states)
    if covariance is None:
        covariance = matrix_covariance(estimate)
    covariance = np.asarray(covariance, float)
    if covariance.size != S**4:
        raise InputError(f"covariance must have shape [{S}, {S}, {S}, {S}]; got {covariance.shape}")
    return Follows(estimate, covariance.reshape(S, S, S, S), level)


def _slopes(function: Callable[[np.ndarray], np.ndarray], P: np.ndarray, value: np.ndarray) -> np.ndarray:
    """[..., S * S]: derivatives as row i moves towards state j, which never leaves the simplex."""
    S = len(P)
    slopes = np.empty((S * S, *value.shape))
    for i in range(S):
        for j in range(S):
            moved = P.copy()
            moved[i] *= 1 - STEP
            moved[i, j] += STEP
            slopes[i * S + j] = (np.asarray(function(moved), float) - value) / STEP
    return np.moveaxis(slopes, 0, -1)


def _share(value: np.ndarray, q: float, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Between 0 and 1: on the scale of log odds, plain where the value is on the border."""
    inside = (value > 1e-12) & (value < 1 - 1e-12)
    p = np.where(inside, value, 0.5)
    # Beyond a few odds either way the scale says nothing any more.
    half = np.minimum(q * error / (p * (1 - p)), 500.0)
    odds = p / (1 - p)
    lower = np.where(inside, odds / (odds + np.exp(half)), np.maximum(value - q * error, 0.0))
    upper = np.where(inside, odds / (odds + np.exp(-half)), np.minimum(value + q * error, 1.0))
    return lower, upper


def _positive(value: np.ndarray, q: float, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    above = value > 0
    v = np.where(above, value, 1.0)
    half = np.minimum(q * error / v, 500.0)
    return np.where(above, v * np.exp(-half), 0.0), np.where(above, v * np.exp(half), value + q * error)


def _real(value: np.ndarray, q: float, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return value - q * error, value + q * error


SCALES = {"share": _share, "positive": _positive, "real": _real}


def hitting_times(P: np.ndarray, target: list[int]) -> np.ndarray:
    """Expected steps [S] to the target; infinite where it may never be reached.

    >>> hitting_times(np.array([[0.5, 0.5], [0.0, 1.0]]), [1]).tolist()
    [2.0, 0.0]
    """
    S = len(P)
    rest = np.setdiff1d(np.arange(S), target)
    found = np.zeros(S)
    if len(rest):
        inner = P[np.ix_(rest, rest)]
        reach = np.linalg.matrix_power(np.eye(S) + (P > 0), S)[:, target].sum(1) > 0
        if not reach[rest].all():
            # Whoever may end where no way leads to the target has no finite expectation.
            lost = ~reach
            lost |= (
                np.linalg.matrix_power(np.eye(S) + (P * ~np.isin(np.arange(S), target)[:, None] > 0), S)[
                    :, lost
                ].sum(1)
                > 0
            )
            found[rest] = np.inf
            rest = rest[~lost[rest]]
            inner = P[np.ix_(rest, rest)]
        found[rest] = np.linalg.solve(np.eye(len(rest)) - inner, np.ones(len(rest)))
    return found


def mixing_time(P: np.ndarray) -> float:
    """Steps until the worst start is within `MIXED` of the stationary shares; infinite if never.

    >>> mixing_time(np.array([[0.75, 0.25], [0.25, 0.75]]))      # half of half a step: 1/2, then 1/4
    1.0
    """
    pi = stationary_distribution(P)

    def distance(M: np.ndarray) -> float:
        return float(0.5 * np.abs(M - pi).sum(1).max())

    powers = [P]
    while distance(powers[-1]) > MIXED:
        if 2 ** len(powers) > MAX_MIXING:
            return np.inf
        powers.append(powers[-1] @ powers[-1])
    # The last power before, by bisection over the doublings; then between two whole steps.
    steps, M = 0, np.eye(len(P))
    for k in reversed(range(len(powers))):
        ahead = M @ powers[k]
        if distance(ahead) > MIXED:
            steps, M = steps + 2**k, ahead
    a, b = distance(M), distance(M @ P)
    if a <= MIXED or a <= b:
        return float(steps)
    part = np.log(a / MIXED) / np.log(a / b) if b > 0 else (a - MIXED) / (a - b)
    return float(steps + part)


def generator(P: np.ndarray) -> tuple[np.ndarray | None, str]:
    """(Q with exp(Q) = P, or the nearest one, or None; what a user must know).

    The principal logarithm is the generator if its rates are not negative (Israel, Rosenthal & Wei 2001);
    else negative rates are set to 0 and taken from the row's others.

    >>> Q, note = generator(np.array([[0.9, 0.1], [0.3, 0.7]]))
    >>> Q.round(3).tolist(), note
    ([[-0.128, 0.128], [0.383, -0.383]], '')
    """
    values = np.linalg.eigvals(P)
    if (np.abs(values) < ROUNDING).any():
        return None, "P is singular, so no generator exists: some starts cannot be told apart after a step"
    if ((values.real < 0) & (np.abs(values.imag) < ROUNDING)).any():
        return (
            None,
            "P has a negative eigenvalue, so no generator with distinct rates exists: members alternate",
        )
    raw = _logarithm(P)
    off = ~np.eye(len(P), dtype=bool)
    if raw[off].min(initial=0.0) >= -ROUNDING:
        return _rates(P), ""
    gap = float(np.abs(_exponential(_rates(P)) - P).max())
    return _rates(P), (
        f"no generator has exactly this P: a rate would be {raw[off].min():.3g}; the nearest one gives P "
        f"within {gap:.3g}"
    )


def _rates(P: np.ndarray) -> np.ndarray:
    Q = _logarithm(P)
    off = np.maximum(Q * (1 - np.eye(len(P))), 0.0)
    return np.asarray(off - np.diag(off.sum(1)))


def _logarithm(P: np.ndarray) -> np.ndarray:
    from scipy.linalg import logm

    return np.asarray(np.real(logm(P)))


def _exponential(Q: np.ndarray) -> np.ndarray:
    from scipy.linalg import expm

    return np.asarray(expm(Q))


def _whole(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{what} must be a whole number of at least 1; got {value!r}")
