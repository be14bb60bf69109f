"""Which form of which estimator fits the data at hand, on which ground, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from aggmc_beam.estimators.constraints import Rules
from aggmc_beam.estimators.curvature import CURVATURE_STATES, gmm_error
from aggmc_beam.estimators.dispersion import (
    Dispersion,
    dispersion,
    in_units,
    independent_steps,
    step_dispersion,
    steps_in_units,
)
from aggmc_beam.estimators.drift import Blocks, DriftFit, drift_fit, pseudo_inverse
from aggmc_beam.estimators.fast import fast
from aggmc_beam.estimators.gmm import Lag0, gmm, varying_basis
from aggmc_beam.estimators.ground import (
    CONDITIONAL,
    INDEPENDENT,
    Ground,
    conditional,
    dispersed,
    independent,
    untested,
)
from aggmc_beam.estimators.inference import student_quantile
from aggmc_beam.estimators.latent import Latent
from aggmc_beam.estimators.noise_test import NoiseTest, noise_test
from aggmc_beam.estimators.shrinkage import positive_shares
from aggmc_beam.estimators.stationarity import DriftAlarm
from aggmc_beam.estimators.stepwise import StepSums

#: gmm keeps S^4 numbers; without an assumption on lag 0 it gains nothing over fast beyond 30 states.
MANY_STATES, MANY_STATES_ANY = 60, 30
#: With fewer steps an unsettled start cannot be told from noise, and costs too much if missed.
FEW_STEPS = 50
#: Realizations from which step means are worth taking out.
FEW_REALIZATIONS = 5
#: A bias of rows below this may be worth the smaller variance of the stationary form: then a mean of both
#: forms is taken.
SMALL_BIAS = 0.15
#: Level at which memory is called longer than a chain's, as in mixtures of movers and stayers.
LONG_MEMORY = 0.998


@dataclass(frozen=True)
class Choice:
    """An estimate with the form it was made by, its ground and the numbers behind the choice.

    `units`: individuals who count as one mover. `lag0` says how far gmm used lag 0, if it was used.
    """

    P: np.ndarray
    estimator: str
    form: str
    why: str
    ground: Ground
    numbers: dict[str, Any] = field(default_factory=dict)
    units: float = 1.0
    lag0: Lag0 | None = None

    def note(self) -> dict[str, Any]:
        return {"estimator": self.estimator, "form": self.form, "why": self.why, **self.numbers}


@dataclass(frozen=True, eq=False)
class View:
    """The data of a cell about one mean, or about a trend: what a stationary form is made from.

    `pooled`: the same as sums of a single step, for the conditional mean; None where they are too few or
    their noise is unknown.
    """

    x: Latent
    dispersion: Dispersion | None = None
    pooled: StepSums | None = None
    form: str = "stationary"


def stationary_choice(view: View, rules: Rules | None = None) -> Choice:
    """gmm on the strongest ground that lag 0 does not contradict, fast if S is large, or drift on the
    conditional mean alone."""
    x, found = view.x, view.dispersion or dispersion(view.x)
    surely = found is not None and found.significant
    units = found.usable if found is not None else 1.0
    own = independent() if found is None else independent(found.factor, _finite(found.error))
    P = fast(x, rules)
    if x.states == 1:
        return Choice(P, "fast", view.form, "there is only one state", own)
    if x.states > MANY_STATES:
        why = f"{x.states} states are many: the transport projection is used"
        if surely:
            return Choice(
                fast(in_units(x, units), rules), "fast", view.form, why, dispersed(units), {}, units
            )
        return Choice(P, "fast", view.form, why, own if x.V is not None else untested())
    closed = varying_basis(x).shape[1] < x.states
    tests: dict[str, Any] = {}

    def accepted(name: str, x: Latent, P: np.ndarray, lag0: Lag0) -> NoiseTest | None:
        test = noise_test(x, P, lag0)
        tests[name] = {**asdict(test), "accepted": test.accepted}
        return test if test.accepted else None

    def by_gmm(x: Latent, P: np.ndarray, lag0: Lag0, test: NoiseTest, ground: Ground, units: float) -> Choice:
        why = f"{_LAG0_WORDS[lag0 if units == 1 else 'dispersed']} (J = {test.J:.0f}, limit {test.limit:.0f})"
        numbers = {"lag0": lag0, "noise_test": tests}
        return Choice(gmm(x, rules, lag0, P), "gmm", view.form, why, ground, numbers, units, lag0)

    if x.V is not None:
        if not surely and (test := accepted("known", x, P, "known")):
            return by_gmm(x, P, "known", test, own, 1.0)
        if units != 1.0:
            scaled = in_units(x, units)
            start = fast(scaled, rules)
            if test := accepted("dispersed", scaled, start, "known"):
                return by_gmm(scaled, start, "known", test, dispersed(units), units)
    still = surely and units == 1.0  # counts that hardly move: their covariance is nobody's
    if not closed and not still and (test := accepted("diagonal", x, P, "diagonal")):
        ground = own if x.V is None else _other_noise()
        return by_gmm(x, P, "diagonal", test, ground, 1.0)
    numbers = {"lag0": "any", "noise_test": tests}
    if view.pooled is not None:
        fit = drift_fit(steps_in_units(view.pooled, units), rules, conditional=True)
        why = "lag 0 fits neither independent nor dispersed movers, so only the conditional mean is used"
        ground = conditional(None if found is None else found.factor)
        return Choice(fit.P, "conditional", view.form, why, ground, {**numbers, **fit.note()}, units)
    ground = untested() if x.V is None else conditional(units)
    if x.states > MANY_STATES_ANY:
        why = "lag 0 does not fit the noise model, and states are many: transport projection"
        return Choice(P, "fast", view.form, why, ground, numbers)
    why = "lag 0 does not fit the noise model, so only lags 1 and 2 are used"
    return Choice(gmm(x, rules, "any", P), "gmm", view.form, why, ground, numbers, 1.0, "any")


_LAG0_WORDS = {
    "known": "lag 0 agrees with the noise as stated, so all of it is used",
    "dispersed": "lag 0 agrees with groups of individuals who move together, and the noise as stated",
    "diagonal": "lag 0 agrees with noise that is independent between states, of unknown size",
}


def _other_noise() -> Ground:
    return Ground(INDEPENDENT, "independent movers, with noise of another size than stated")


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def auto_choice(
    view: View,
    flat: View | None,
    sums: StepSums | None,
    alarm: DriftAlarm | None,
    rules: Rules | None = None,
) -> Choice:
    """Stationary, about a trend or step by step, as the means of the steps demand.

    `flat` and `sums` are the same data with a trend per state, or each step's mean, taken out; None where
    that cannot or need not be done.
    """
    x = view.x
    if x.states == 1:
        return stationary_choice(view, rules)
    drifts = alarm is not None and alarm.raised
    said = "" if alarm is None else f" ({alarm.words()})"
    realizations = 0.0 if sums is None else sums.pairs / sums.steps
    if sums is not None and realizations >= FEW_REALIZATIONS:
        if sums.steps < FEW_STEPS:
            why = f"{sums.steps} steps are too few to rely on stationarity; each step has its own mean"
            return _by_steps(view, sums, alarm, rules, why)
        if drifts:
            return _by_steps(view, sums, alarm, rules, f"the mean shares change with time{said}")
        memory = memory_statistic(sums, drift_fit(sums, rules).P)
        if memory > student_quantile(2 * LONG_MEMORY - 1, sums.groups - 1):
            why = f"lag 2 remembers more than a chain of one matrix would (t = {memory:.1f})"
            return _by_steps(view, sums, alarm, rules, why)
    elif flat is not None:
        chosen = stationary_choice(flat, rules)
        if chosen.estimator == "conditional" and flat.form == "detrended" and view.pooled is not None:
            # The conditional mean explains a drift by itself, and learns from it; not so a period, with
            # which P itself may come back.
            chosen = stationary_choice(view, rules)
        return replace(chosen, why=f"the mean shares change with time{said}; {chosen.why}")
    chosen = stationary_choice(view, rules)
    if alarm is None:
        return chosen
    return replace(chosen, why=f"no drift was found{said}. {chosen.why}")


def steps_ground(sums: StepSums, found: Dispersion | None, P: np.ndarray, x: Latent) -> Ground:
    """The ground of an estimate about step means, by lag 0 about them."""
    if found is None:
        return untested()
    V = sums.share_noise + sums.fixed_noise * sums.inverse  # type: ignore[operator]
    freedom = sums.pairs - sums.steps
    mu = positive_shares(x.mu, x.individuals)
    # The test takes shares that stand still; what moves with the steps is put in their place.
    c0 = sums.ends.sum(0) / freedom - independent_steps(sums) + np.diag(mu) - np.outer(mu, mu)
    still = x.replaced(c0=c0, V=V, numbers=(freedom, *x.numbers[1:]))
    statistics: dict[str, Any] = {"dispersion": found.factor, "dispersion_error": _finite(found.error)}
    if not found.significant:
        test = noise_test(still, P, "known")
        statistics["noise_test"] = {**asdict(test), "accepted": test.accepted}
        if test.accepted:
            return replace(independent(found.factor, _finite(found.error)), statistics=statistics)
    units = found.usable
    if units != 1.0:
        c0 = (sums.ends.sum(0) / freedom) / units - independent_steps(sums) + np.diag(mu) - np.outer(mu, mu)
        test = noise_test(still.replaced(c0=c0, V=V / units), P, "known")
        statistics["dispersed_test"] = {**asdict(test), "accepted": test.accepted}
        if test.accepted:
            return replace(dispersed(units), statistics=statistics)
    return replace(conditional(units), statistics=statistics)


def _by_steps(view: View, sums: StepSums, alarm: DriftAlarm | None, rules: Rules | None, why: str) -> Choice:
    """Moments about step means; with the stationary form averaged in where its bias is small."""
    x, found = view.x, step_dispersion(sums)
    units = found.usable if found is not None and found.significant else 1.0
    fit = drift_fit(steps_in_units(sums, units), rules)
    ground = steps_ground(sums, found, fit.P, x)
    if ground.name == CONDITIONAL:
        fit = drift_fit(steps_in_units(sums, units), rules, conditional=True)
    note = fit.note()
    if alarm is None or (rules is not None and rules.reversible):
        return Choice(fit.P, "drift", "steps", why, ground, note, units)
    bias = alarm.implied_bias * np.sqrt(x.states)
    note |= {"row_bias": float(bias)}
    if bias > SMALL_BIAS:
        return Choice(fit.P, "drift", "steps", why, ground, note, units)
    other = stationary_choice(view, rules)
    note |= other.numbers
    # Moving shares add to lag 0, and so do realizations of different composition.
    if x.V is not None and other.lag0 != "known":
        return Choice(fit.P, "drift", "steps", why, ground, note, units)
    weight = stationary_weight(fit, other, x, rules)
    why += (
        f"; that would bias rows of a stationary estimate by {bias:.2g} only, so a mean of both forms is taken, "
        f"with weight {weight:.2f} for the stationary one"
    )
    note["stationary_weight"] = weight
    P = (1 - weight) * fit.P + weight * other.P
    return Choice(P, f"drift and {other.estimator}", "steps", why, ground, note, units)


def stationary_weight(fit: DriftFit, other: Choice, x: Latent, rules: Rules | None) -> float:
    """v_steps / max(v_steps + v_stationary, d^2), with v the variances of both estimates and d their distance.

    That is the weight of least error for independent errors, where what they differ by beyond these is the
    stationary one's bias.
    """

    def size(error: np.ndarray) -> float:
        return float(positive_shares(x.mu, x.individuals) @ (error**2).sum(1))

    known = other.lag0 is not None and x.states <= CURVATURE_STATES
    error = gmm_error(x, other.P, other.lag0, rules) if known else fit.error  # type: ignore[arg-type]
    steps, stationary = size(fit.error), size(error)
    return steps / max(steps + stationary, size(fit.P - other.P), 1e-300)


def memory_statistic(sums: StepSums, P: np.ndarray) -> float:
    """Replicate t of tr sigma^-1 (C2 - C1 P), with co-moments about step means: 0 for one chain.

    Above 0 memory is longer than Markov, as when some individuals hardly ever move.
    """
    blocks = Blocks(sums)
    if blocks.G < FEW_REALIZATIONS or sums.pairs2 == 0:
        return 0.0
    C2 = blocks.project @ sums.lag2 @ blocks.project.T * (sums.pairs / sums.pairs2)
    u = np.einsum("ij,gij->g", pseudo_inverse(blocks.sigma, 1e-6), C2 - blocks.h @ P)
    spread = float(np.sqrt((blocks.spread(u[:, None, None]) ** 2).sum()))
    return float(u.sum()) / spread if spread > 0 else 0.0
