"""Can these counts tell? What they let be learned, and what breaks the model, before any matrix is believed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from aggmc_beam.chain import Cycle
from aggmc_beam.config.special import chain_to_plain
from aggmc_beam.errors import InputError
from aggmc_beam.estimation import sums_of
from aggmc_beam.estimators.dispersion import step_dispersion
from aggmc_beam.estimators.fast import fast
from aggmc_beam.estimators.inference import student_quantile
from aggmc_beam.estimators.periods import Period
from aggmc_beam.estimators.stationarity import drift_alarm
from aggmc_beam.fit.cell import CellFit
from aggmc_beam.fit.checks import Check, check_totals
from aggmc_beam.fit.fit import OPEN, Fit, Settings, listed
from aggmc_beam.fit.intervals import Uncertainty
from aggmc_beam.noise import Exact, Noise
from aggmc_beam.result import _plain
from aggmc_beam.sums.sums import Sums
from aggmc_beam.text import escape_controls

#: Half width of an interval at which a row counts as told, unless another is asked for.
PRECISION = 0.05


@dataclass(frozen=True)
class RowDiagnosis:
    """What can be told of moves from `state`, with its mean `share`.

    `verdict` is "told", "roughly" or "not-determined". `identified`: how much of the state's own direction is made
    up of those that carry more signal than noise, 1 for a row of full rank. `half_width`: the widest interval to
    expect; `times`: how many times as much data it takes to reach the wanted precision. `dispersion`: how much its
    count varies against independent movers.
    """

    state: str
    share: float
    verdict: str
    identified: float
    half_width: float
    times: float
    dispersion: float


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found. `str` prints it; `to_dict` is JSON-able.

    `rank`: how many directions of the counts carry more signal than noise, of `directions`. `dispersion`:
    variance against that of independent movers, who would be `effective_movers` in number. `tests` are
    statistics over their limits: above 1, sources of the data contradict each other. `recommended` are
    settings as in a config.
    """

    states: tuple[str, ...]
    records: int
    realizations: int
    population: float
    noise: Noise
    ground: dict[str, Any] | None
    rank: int
    directions: int
    rows: tuple[RowDiagnosis, ...]
    dispersion: float | None
    effective_movers: float | None
    checks: tuple[Check, ...]
    drift: dict[str, Any] | None
    period: int | None
    composition: float | None
    tests: dict[str, float]
    precision: float
    recommended: dict[str, Any] = field(default_factory=dict)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The sentences of checks that failed, and the rows that cannot be told."""
        failed = [check.sentence for check in self.checks if not check.passed]
        lost = [row.state for row in self.rows if row.verdict == "not-determined"]
        if lost:
            failed.append(f"moves from {listed(lost)} cannot be told from these counts")
        return tuple(failed)

    @property
    def can_tell(self) -> bool:
        """Whether every row can be told at least roughly, and nothing contradicts what is said of the counts."""
        return not self.warnings

    def yaml(self) -> str:
        """The recommended settings as a fragment of a config."""
        return "".join(f"{key}: {json.dumps(value)}\n" for key, value in self.recommended.items())

    def to_dict(self) -> dict[str, Any]:
        return {
            **{name: _plain(value) for name, value in vars(self).items() if name not in _OWN},
            "noise": self.noise.to_dict(),
            "rows": [_plain(asdict(row)) for row in self.rows],
            "checks": [_plain(asdict(check)) for check in self.checks],
            "warnings": list(self.warnings),
            "can_tell": self.can_tell,
        }

    def __str__(self) -> str:
        return "\n".join(_lines(self))


_OWN = ("noise", "rows", "checks")


def diagnose(
    data: Any,
    noise: Noise | None = None,
    population: Any = "estimate",
    *,
    states: Sequence[Any] | None = None,
    precision: float = PRECISION,
    replicates: int | None = None,
    open_population: bool = False,
    **table: Any,
) -> Diagnosis:
    """What these counts can tell of moves, and which settings suit them.

    Data, noise and population are as in `am.estimate`, and so are the options that name the columns of a table
    or of files. `precision`: the half width of intervals that is
    wanted, for what it takes to reach it.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], population=100, steps=300, realizations=20,
    ...                    noise=am.Binomial(0.5), seed=1)
    >>> found = am.diagnose(y, am.Binomial(0.5), 100, states=["in", "out"])
    >>> found.can_tell, found.rank, [row.verdict for row in found.rows]
    (True, 2, ['told', 'told'])
    >>> am.diagnose(y, am.Binomial(0.5), 120).warnings[0][:60]
    'the counts, with the noise undone, add up to 99.993 individu'
    """
    if not 0 < precision < 1:
        raise InputError(f"precision must lie between 0 and 1, such as 0.05; got {precision!r}")
    settings = Settings(Exact() if noise is None else noise, population, open_population=open_population)
    sums, settings = sums_of(data, settings, replicates, {"states": states, **table})
    return diagnose_sums(sums, settings, precision)


def diagnose_sums(sums: Sums, settings: Settings, precision: float = PRECISION) -> Diagnosis:
    """As `diagnose`, of sums with the settings that belong to them."""
    with np.errstate(all="ignore"):
        return _diagnosis(Fit(sums, replace(settings, estimator="auto", chain="stationary")), precision)


def _diagnosis(fit: Fit, precision: float) -> Diagnosis:
    sums = fit.sums
    if sums.total.pairs == 0:
        raise InputError("no two records are one step apart, so there is nothing to learn moves from")
    data = CellFit(fit, sums.by_replicate(sums.cells), fit._profiles(None), sums.total)
    point = data.point()
    found, seen = data.uncertainty(point), data.seen
    if data.is_shocked(point, data.scores(point.P, found)):
        found = found.nothing_known()
    x = data.x.restricted(seen.anywhere)
    steps = point.choice is not None and point.choice.form == "steps" and point.sums is not None
    dispersed = step_dispersion(point.sums) if steps and point.sums is not None else None
    if dispersed is None and point.view is not None:
        dispersed = point.view.dispersion
    by_state = np.full(fit.S, np.nan)
    if dispersed is not None:
        by_state[seen.anywhere] = dispersed.by_state
    alarm = None
    if data.profile is not None and fit.S > 1:
        alarm = drift_alarm(x, fast(x, data.rules), data.profile, data._step_sums())
    step = found.step
    rank = 0 if step is None else step.rank
    period = data.period
    checks = () if fit.settings.open_population else tuple(check_totals(data.x, data.latents, fit.resolved))
    N = fit.resolved.population
    return Diagnosis(
        states=fit.names,
        records=sums.total.records,
        realizations=sums.total.counts.realizations,
        population=N,
        noise=fit.resolved.noise,
        ground=None if point.ground is None else point.ground.note(),
        rank=rank,
        directions=int(seen.anywhere.sum()),
        rows=tuple(_rows(data, found, by_state, precision)),
        dispersion=None if dispersed is None else dispersed.factor,
        effective_movers=None if dispersed is None else N / max(dispersed.factor, 1e-12),
        checks=checks,
        drift=None if alarm is None else {**asdict(alarm), "raised": alarm.raised},
        period=None if period is None else period.steps,
        composition=_composition(data),
        tests=dict(found.tests),
        precision=precision,
        recommended=_recommended(fit, checks, _chain(None if steps else period, steps, found)),
    )


def _rows(data: CellFit, found: Uncertainty, by_state: np.ndarray, precision: float) -> list[RowDiagnosis]:
    half = student_quantile(data.fit.settings.level, data.groups - 1) * found.parts.error
    lost = np.zeros(data.fit.S, bool) if found.contradicted is None else found.contradicted
    identified = np.zeros(data.fit.S)
    if found.step is not None:
        identified[data.seen.anywhere] = found.step.identified
    rows = []
    for i, name in enumerate(data.fit.names):
        known = half[i][np.isfinite(half[i])]
        widest = float(known.max()) if len(known) else np.inf
        verdict = "told" if widest <= precision else "roughly" if widest < OPEN else "not-determined"
        verdict = "not-determined" if lost[i] else verdict
        times = np.inf if lost[i] else max((widest / precision) ** 2, 1.0)
        share = float(data.x.mu[i])
        half_width, spread = min(widest, 1.0), float(by_state[i])
        rows.append(RowDiagnosis(name, share, verdict, identified[i], half_width, float(times), spread))
    return rows


def _composition(data: CellFit) -> float | None:
    """How much more realizations differ in their first shares than draws from one urn would."""
    starts, x = data._starts(), data.x.restricted(data.seen.anywhere)
    if starts is None or x.V is None:
        return None
    sizes = np.array([data.parts[r].counts.realizations for r in data._paired()], float)
    n = sizes * x.individuals / x.records
    share = sizes / sizes.sum()
    mean = share @ starts
    within = np.diag(mean) - np.outer(mean, mean) + x.V
    moved = (starts - mean) * np.sqrt(n)[:, None]
    among = moved.T @ moved / max(len(n) - 1, 1)
    W = np.linalg.pinv(within, rcond=1e-9, hermitian=True)
    rank = int(np.linalg.matrix_rank(within, 1e-9, hermitian=True))
    return float(np.trace(W @ among)) / max(rank, 1)


def _chain(period: Period | None, steps: bool, found: Uncertainty) -> Any:
    """One matrix, unless means come back, or move as those of a matrix that changes from step to step."""
    if period is not None:
        return chain_to_plain(Cycle(period.steps))
    changes = steps and found.tests.get("means", 0.0) > 1
    return "per-step" if changes else "stationary"


def _recommended(fit: Fit, checks: Sequence[Check], chain: Any) -> dict[str, Any]:
    """What the checks leave of the settings as they were given."""
    noise: dict[str, Any] = fit.resolved.noise.to_dict()
    N = float(f"{fit.resolved.population:.6g}")
    population: Any = int(N) if N.is_integer() else N
    failed = {check.name: check for check in checks if not check.passed}
    if "mean of totals" in failed:
        population = "estimate"
    if "variance of totals" in failed and failed["variance of totals"].found < 0.5:
        noise, population = {"model": "panel"}, "estimate"
    return {"noise": noise, "population": population, "estimator": "auto", "chain": chain}


def _lines(d: Diagnosis) -> list[str]:
    lines = [f"Warning: {escape_controls(w)}" for w in d.warnings]
    lines.append(
        f"{d.records:,} records of {d.realizations:,} realizations, {len(d.states)} states, population "
        f"{d.population:,.6g}; {d.rank} of {d.directions} directions of the counts carry signal."
    )
    if d.ground is not None:
        lines.append(f"An estimate would stand on {d.ground['sentence']}.")
    if d.dispersion is not None and d.effective_movers is not None:
        lines.append(
            f"Counts vary {d.dispersion:.3g} times as much as independent movers would let them: "
            f"{d.population:,.6g} individuals tell as much as {d.effective_movers:,.4g}."
        )
    if d.composition is not None:
        lines.append(
            f"Realizations begin {d.composition:.3g} times as different as draws from one population."
        )
    if d.drift is not None:
        words = "change with time" if d.drift["raised"] else "stand still as far as can be seen"
        lines.append(
            f"The mean shares {words} (largest t {d.drift['statistic']:.1f}, limit {d.drift['limit']:.1f})."
        )
    if d.period is not None:
        lines.append(f"They come back every {d.period} steps.")
    wrong = [f"{name} ({value:.1f})" for name, value in d.tests.items() if value > 1]
    if wrong:
        lines.append(f"Parts of the data contradict each other (above 1): {', '.join(wrong)}.")
    lines.append(f"Rows, for intervals of ± {d.precision:g}:")
    width = max(len(escape_controls(row.state)) for row in d.rows)
    for row in d.rows:
        need = "enough data" if row.times <= 1 else f"{row.times:,.3g} times as much data needed"
        need = "more data of this kind do not help" if np.isinf(row.times) else need
        spread = "" if np.isnan(row.dispersion) else f", varies {row.dispersion:.3g} times"
        lines.append(
            f"  {escape_controls(row.state):<{width}}  {row.verdict:<14} ± {row.half_width:.3f}, share "
            f"{row.share:.3f}, signal in {100 * row.identified:.0f}% of its direction{spread}, {need}"
        )
    return [*lines, "Recommended settings:", *(f"  {line}" for line in d.yaml().splitlines())]
