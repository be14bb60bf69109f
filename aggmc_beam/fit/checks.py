"""Do the counts fit what is said of them? Checks of totals, of the noise's memory, and of plain mistakes.

In a closed population the total of the true counts does not change, so what the observed totals do is the
noise alone: their mean tests alpha and N, their variance the size of the noise, and their covariance from
step to step whether the noise is fresh at each step. Each check is a t test over jackknife groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from aggmc_beam.estimators.inference import student_quantile
from aggmc_beam.estimators.latent import Latent
from aggmc_beam.estimators.spread import scattered
from aggmc_beam.fit.resolve import Resolved
from aggmc_beam.noise import Exact

#: Chance of a false alarm of each check.
LEVEL = 0.003
#: Groups that a check needs.
FEW_GROUPS = 5
#: Differences that are too small to matter: of mean totals, of their variance, of their autocorrelation.
SMALL_MEAN, SMALL_VARIANCE, SMALL_MEMORY = 0.005, 0.05, 0.03
#: Rounded percentages add up to 100 but for less than this.
PERCENT = 0.5
#: Totals that vary by less than this part are constant up to rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Check:
    """What was `found` against what was `expected`, how surely they differ (t, and its limit), and a
    `sentence` that says so; `passed` if they do not."""

    name: str
    found: float
    expected: float
    t: float
    limit: float
    passed: bool
    sentence: str


def check_totals(whole: Latent, parts: Sequence[Latent], resolved: Resolved) -> Iterator[Check]:
    """The checks that these sums allow."""
    yield from _plain(whole)
    parts = [x for x in parts if x.pairs > 0]
    if len(parts) < FEW_GROUPS:
        return
    limit = student_quantile(1 - LEVEL, len(parts) - 1)
    given = str(resolved.note.get("method", "")).startswith("given")
    if given:
        yield _mean(whole, parts, resolved, limit)
    varies = float(whole.c0.sum()) > ROUNDING * whole.total**2 * resolved_size(whole)
    if whole.V is not None:
        yield _variance(whole, parts, resolved, limit, varies)
    if varies and not isinstance(resolved.noise, Exact):
        yield _memory(whole, parts, limit)


def resolved_size(x: Latent) -> float:
    """Individuals per record: what turns a squared share into a variance per individual."""
    return x.individuals / x.records


def _plain(x: Latent) -> Iterator[Check]:
    total, spread = x.observed_total
    if total < 2:
        text = f"the counts of a step add up to {total:.4g}: these look like shares, but counts are needed"
        yield Check("shares", total, np.nan, np.inf, 0.0, False, text)
    elif abs(total - 100) < PERCENT and spread < PERCENT and x.has_fractions:
        text = "the counts of a step add up to 100 and are no whole numbers: these look like percentages"
        yield Check("percentages", total, np.nan, np.inf, 0.0, False, text)


def _t(values: np.ndarray, share: np.ndarray) -> float:
    """The sum of contributions over its error; infinite where nothing scatters."""
    total, error = float(values.sum()), float(np.sqrt((scattered(values, share) ** 2).sum()))
    if error > 0:
        return total / error
    return float(np.copysign(np.inf, total)) if abs(total) > ROUNDING else 0.0


def _shares(parts: Sequence[Latent]) -> np.ndarray:
    number = np.array([x.records for x in parts], float)
    return np.asarray(number / number.sum())


def _mean(x: Latent, parts: Sequence[Latent], resolved: Resolved, limit: float) -> Check:
    share = _shares(parts)
    t = _t(share * (np.array([p.total for p in parts]) - 1), share)
    found, N = x.total * resolved.population, resolved.population
    passed = abs(t) <= limit or abs(x.total - 1) <= SMALL_MEAN
    text = (
        f"the counts, with the noise undone, add up to {found:,.6g} individuals on average, but the population "
        f"is said to be {N:,.6g}: check the population, and the noise model's detection probability"
    )
    return Check("mean of totals", found, N, t, limit, passed, text)


def _variance(x: Latent, parts: Sequence[Latent], resolved: Resolved, limit: float, varies: bool) -> Check:
    assert x.V is not None
    share, expected = _shares(parts), float(x.V.sum())
    found = float(x.c0.sum())
    t = _t(share * (np.array([p.lag0_about(x).sum() for p in parts]) - expected), share)
    name = "variance of totals"
    if isinstance(resolved.noise, Exact):
        text = (
            "the totals of the counts change from record to record, so they are not exact counts of a closed "
            "population: name the noise model, or say open_population"
        )
        return Check(name, found, 0.0, t, limit, not varies, text)
    passed = abs(t) <= limit or abs(found - expected) <= SMALL_VARIANCE * expected
    ratio = found / expected if expected > 0 else np.inf
    text = f"the totals of the counts vary {ratio:.2g} times as much as the noise model says"
    if ratio < 0.5:
        text += (
            "; if the same individuals are seen at every step, they are a panel: use Panel() noise, with the "
            "size of the panel as population"
        )
    elif ratio < 1:
        text += ": the noise is smaller than stated"
    else:
        text += ": the noise is larger than stated, or the population changes or differs between realizations"
    return Check(name, ratio, 1.0, t, limit, passed, text)


def _memory(x: Latent, parts: Sequence[Latent], limit: float) -> Check:
    number = np.array([p.pairs for p in parts], float)
    share = number / number.sum()
    each = np.array([p.lag1_about(x).sum() for p in parts])
    found = float(share @ each) / float(x.c0.sum())
    t = _t(share * each, share)
    text = (
        f"the totals remember from step to step (autocorrelation {found:.2f}): the noise is not fresh at each "
        "step, or the population changes or differs between realizations; moves cannot be told from that memory"
    )
    return Check(
        "memory in the noise", found, 0.0, t, limit, abs(t) <= limit or abs(found) <= SMALL_MEMORY, text
    )
