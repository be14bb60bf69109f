"""Which form of which estimator fits the data at hand, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from aggmc_beam.estimators.constraints import Rules
from aggmc_beam.estimators.drift import Blocks, drift_fit, pseudo_inverse
from aggmc_beam.estimators.fast import fast
from aggmc_beam.estimators.gmm import Lag0, gmm, varying_basis
from aggmc_beam.estimators.noise_test import noise_test
from aggmc_beam.estimators.stationarity import DriftAlarm
from aggmc_beam.inference import jackknife, student_quantile
from aggmc_beam.latent import Latent
from aggmc_beam.stepwise import StepSums, step_mom, step_mom_without_each

#: gmm keeps S^4 numbers; without an assumption on lag 0 it gains nothing over fast beyond 30 states.
MANY_STATES, MANY_STATES_ANY = 60, 30
#: With fewer steps an unsettled start cannot be told from noise, and costs too much if missed.
FEW_STEPS = 50
#: Realizations from which step means are worth taking out.
FEW_REALIZATIONS = 5
#: A bias of rows below this, and below this many standard errors, is worth the smaller variance of
#: the stationary form: then the mean of both forms is taken.
SMALL_BIAS, SMALL_BIAS_ERRORS = 0.15, 1.2
#: Level at which memory is called longer than a chain's, as in mixtures of movers and stayers.
LONG_MEMORY = 0.998


@dataclass(frozen=True)
class Choice:
    """An estimate with the form it was made by and the numbers behind the choice."""

    P: np.ndarray
    estimator: str
    form: str
    why: str
    numbers: dict[str, Any] = field(default_factory=dict)

    def note(self) -> dict[str, Any]:
        return {"estimator": self.estimator, "form": self.form, "why": self.why, **self.numbers}


def stationary_choice(x: Latent, rules: Rules | None = None) -> Choice:
    """gmm with the strongest assumption on lag 0 that the data do not contradict; fast if S is large."""
    P = fast(x, rules)
    if x.states == 1:
        return Choice(P, "fast", "stationary", "there is only one state")
    if x.states > MANY_STATES:
        why = f"{x.states} states are many: the transport projection is used"
        return Choice(P, "fast", "stationary", why)
    closed = varying_basis(x).shape[1] < x.states
    ladder: list[Lag0] = ["known"] if x.V is not None else []
    ladder += [] if closed else ["diagonal"]
    tests: dict[str, Any] = {}
    for lag0 in ladder:
        test = noise_test(x, P, lag0)
        tests[lag0] = {**asdict(test), "accepted": test.accepted}
        if test.accepted:
            why = _LAG0_WORDS[lag0] + f" (J = {test.J:.0f}, limit {test.limit:.0f})"
            return Choice(
                gmm(x, rules, lag0, P), "gmm", "stationary", why, {"lag0": lag0, "noise_test": tests}
            )
    numbers = {"lag0": "any", "noise_test": tests}
    if x.states > MANY_STATES_ANY:
        why = "lag 0 does not fit the noise model, and states are many: transport projection"
        return Choice(P, "fast", "stationary", why, numbers)
    why = "lag 0 does not fit the noise model, so only lags 1 and 2 are used"
    return Choice(gmm(x, rules, "any", P), "gmm", "stationary", why, numbers)


_LAG0_WORDS = {
    "known": "lag 0 agrees with the noise as stated, so all of it is used",
    "diagonal": "lag 0 agrees with noise that is independent between states, of unknown size",
}


def auto_choice(
    x: Latent,
    detrended: Latent | None,
    sums: StepSums | None,
    alarm: DriftAlarm | None,
    rules: Rules | None = None,
) -> Choice:
    """Stationary, detrended or step by step, as the means of the steps demand.

    `detrended` and `sums` are the same data with a trend per state, or each step's mean, taken out;
    None where that cannot be done.
    """
    if x.states == 1:
        return stationary_choice(x, rules)
    drifts = alarm is not None and alarm.raised
    said = "" if alarm is None else f" ({alarm.words()})"
    realizations = 0.0 if sums is None else sums.pairs / sums.steps
    if sums is not None and realizations >= FEW_REALIZATIONS:
        if sums.steps < FEW_STEPS:
            why = f"{sums.steps} steps are too few to rely on stationarity; each step has its own mean"
            return _by_steps(x, sums, alarm, rules, why)
        if drifts:
            return _by_steps(x, sums, alarm, rules, f"the mean shares change with time{said}")
        memory = memory_statistic(sums, drift_fit(sums, rules).P)
        if memory > student_quantile(2 * LONG_MEMORY - 1, sums.groups - 1):
            why = f"lag 2 remembers more than a chain of one matrix would (t = {memory:.1f})"
            return _by_steps(x, sums, alarm, rules, why)
    elif drifts and detrended is not None:
        chosen = stationary_choice(detrended, rules)
        why = f"the mean shares change with time{said}; a trend per state is taken out. {chosen.why}"
        return Choice(chosen.P, chosen.estimator, "detrended", why, chosen.numbers)
    chosen = stationary_choice(x, rules)
    why = f"no drift was found{said}. {chosen.why}" if alarm is not None else chosen.why
    return Choice(chosen.P, chosen.estimator, chosen.form, why, chosen.numbers)


def _by_steps(x: Latent, sums: StepSums, alarm: DriftAlarm | None, rules: Rules | None, why: str) -> Choice:
    """Moments about step means; with the stationary form averaged in where its bias is small."""
    fit = drift_fit(sums, rules)
    note = fit.note()
    if alarm is None or (rules is not None and rules.reversible):
        return Choice(fit.P, "drift", "steps", why, note)
    bias, error = alarm.implied_bias * np.sqrt(x.states), row_error(sums)
    note |= {"row_bias": float(bias), "row_error": float(error)}
    if bias > min(SMALL_BIAS, SMALL_BIAS_ERRORS * error):
        return Choice(fit.P, "drift", "steps", why, note)
    other = stationary_choice(x, rules)
    if x.V is not None and other.numbers.get("lag0") != "known":  # moving shares add to lag 0
        return Choice(fit.P, "drift", "steps", why, {**note, **other.numbers})
    why += (
        f"; that would bias rows of a stationary estimate by {bias:.2g} only, against an error of "
        f"{error:.2g}, so the mean of both forms is taken"
    )
    name = f"drift and {other.estimator}"
    return Choice((fit.P + other.P) / 2, name, "steps", why, {**note, **other.numbers})


def row_error(sums: StepSums) -> float:
    """Root mean squared jackknife error of a row of `step_mom`, states weighed by their shares."""
    full = step_mom(sums)
    if sums.groups < 2:
        return np.inf
    weight = sums.weight.sum(1)
    error = jackknife(full, step_mom_without_each(sums), weight / weight.sum())
    mu = np.maximum(sums.mean_left.mean(0), 0.0)
    return float(np.sqrt(np.nansum(mu[:, None] * error**2)))


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
