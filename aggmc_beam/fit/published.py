"""The moments of counts as they were before publishers changed them: suppressed, rounded, cut at zero.

Sums are kept of what is shown, a suppressed entry that is missing being 0, and nothing else: so they merge, and
serve any noise. From their mean and variance the distribution of each state's count is fitted
(`estimators/marginal.py`), and from their covariances those of the counts (`estimators/copula.py`). Each shown count
z is then taken as m + b (z - mean z), and covariances get what they lack.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.estimators.copula import OTHERS, Own, lacking
from aggmc_beam.estimators.marginal import Marginal, fit_marginal, fit_mean
from aggmc_beam.fit.gaps import fill_gaps
from aggmc_beam.fit.restored import Mapping, Restored, completed
from aggmc_beam.noise import Layer, Noise, Rounded
from aggmc_beam.sums.moments import Moments
from aggmc_beam.sums.profile import Profile
from aggmc_beam.sums.sums import Sums

#: Counts of a state that change less than this often are taken as they are.
UNTOUCHED = 1e-6
#: Of a state of which more are suppressed, only the mean is used. Up to here, moments restored from what is left
#: were better than that in simulations (20 to 60 individuals, 2,400 records).
MOST = 0.97
#: Counts that vary less than this part of what they are rounded to do not show how much: they are between two
#: multiples, or at one of them, and their variance follows from their mean.
COARSE = 0.3
#: Records of which nothing is shown are taken as steps that are missing. Where that is likelier than this, those
#: that are left are no fair sample.
NOTHING_SHOWN = 0.01
#: Where more than this part of the variance is that of the means of steps, and each has so many records, one
#: distribution for all steps does not tell how many counts are touched, but one for each does.
MOVING, EACH = 0.5, 5
#: Counts of which fewer are touched then stay as they are.
STEADY = 1e-3
#: Standard deviations at which the distribution of a step is looked at.
GRID = np.linspace(-6.0, 6.0, 121)
#: What they show may differ by this factor from what independent movers would, for them to be taken as such.
UNLIKE = 2.0


def as_published(
    sums: Sums,
    noise: Noise,
    weighted: bool = False,
    population: float | str = "estimate",
    gaps: bool = False,
    closed: bool = True,
) -> tuple[Sums, Noise]:
    """Sums of the counts behind published ones, with their noise. `weighted`: sums are of shares of populations,
    which are taken as if all were the mean one. `gaps`: sums are of counts and of marks where they are missing.

    >>> import aggmc_beam as am
    >>> noise = am.Suppressed(10)
    >>> y, truth = am.simulate([[0.9, 0.1], [0.3, 0.7]], population=60, steps=5000, noise=noise, seed=1)
    >>> found, _ = as_published(Sums.of(y), noise)
    >>> for counts in (y, truth.counts):
    ...     print(counts.mean((0, 1)).round(1))
    [44.9 14.8]
    [44.9 15.1]
    >>> print(found.total.lag0.left.round(1))
    [44.9 15.1]
    """
    if not gaps and not isinstance(noise, Layer):
        return sums, noise
    made = Restored.of(noise, sums.states // 2 if gaps else sums.states)
    if not sums.total.records:
        return Sums.zero(len(made.extra)), made
    if gaps:
        sums, made = fill_gaps(sums, made)
    if not isinstance(noise, Layer):
        return sums, made
    if weighted and noise.offset(sums.states).any():
        raise InputError(f"{noise.name} noise over an offset does not go with populations that differ")
    if not weighted:
        N = float(sums.total.lag0.left.sum()) if isinstance(population, str) else float(population)
        mapping, made = _mapping(sums, noise, N, made)
        return _completed(mapping.applied(sums), made, population if closed else "estimate")
    N = float(sums.total.lag0.weight / sums.total.records)
    counts = sums.as_counts(N)
    mapping, made = _mapping(counts, noise, N, made)
    return _as_shares(mapping.applied(counts), sums, N), replace(made, approximate=True)


def _completed(sums: Sums, made: Restored, population: float | str) -> tuple[Sums, Noise]:
    """A single state that tells nothing is what the others leave of a population that is given, if all are seen with
    the same probability."""
    if isinstance(population, str) or made.lost.sum() != 1 or not made.is_known:
        return sums, made
    A = made.matrix(sums.states)
    if (A - A[0, 0] * np.eye(len(A))).any() or made.offset(sums.states).any():
        return sums, made
    state = int(np.flatnonzero(made.lost)[0])
    total = float(A[0, 0]) * float(population)
    return completed(sums, state, total), replace(made, lost=np.zeros_like(made.lost), rest=state)


def _as_shares(counts: Sums, like: Sums, N: float) -> Sums:
    """Sums of counts of populations of N as those of shares, with the weights of others."""
    return replace(
        counts,
        centre=counts.centre / N,
        product=counts.product / N,
        weight=like.weight,
        inverse_weight=like.inverse_weight,
        steps=replace(counts.steps, weight=like.steps.weight),
    )


@dataclass(frozen=True, eq=False)
class _State:
    """The distribution of a state's count, and what is known of it."""

    marginal: Marginal
    lost: bool
    assumed: bool


def _state(layer: Layer, mean: float, variance: float, N: float) -> _State:
    found, lost, assumed = fit_marginal(layer, mean, variance), False, False
    if not (found.fitted and found.touched <= MOST and found.variance > (COARSE * _period(layer)) ** 2):
        found, assumed = fit_mean(layer, mean, variance, N), True
        lost = not found.fitted or not variance / UNLIKE < found.seen()[1] < variance * UNLIKE
    return _State(found, lost or found.touched > MOST, assumed)


def _mapping(sums: Sums, layer: Layer, N: float, made: Restored) -> tuple[Mapping, Restored]:
    total = sums.total
    S, z = total.states, total.lag0.left
    covariances = np.stack([_covariance(total, lag) for lag in range(3)])
    variance = np.diagonal(covariances[0]) - made.extra
    states = [_state(layer, float(z[i]), float(variance[i]), N) for i in range(S)]
    touched = np.array([s.marginal.touched for s in states])
    lost, assumed = np.array([s.lost for s in states]), np.array([s.assumed for s in states])
    by_steps = _touched_by_steps(sums.steps.profile(), layer, variance)
    steady = by_steps < STEADY
    touched, lost, assumed = np.where(steady, by_steps, touched), lost & ~steady, assumed & ~steady
    if layer.leaves_gaps and touched.prod() > NOTHING_SHOWN:
        lost[:] = True
    rounds = any(isinstance(x, Rounded) for x in layer.layers)
    mean, slope, extra, more = z.copy(), np.ones(S), made.extra.copy(), np.zeros((3, S, S))
    hidden, shown = np.zeros((S, OTHERS)), np.zeros((S, OTHERS))
    hidden[:, 0] = shown[:, 0] = np.sqrt(np.maximum(variance, 1e-300))
    changed = np.zeros(S, bool)
    for i, state in enumerate(states):
        found = state.marginal
        if lost[i]:  # of which only the mean is used
            mean[i] = found.mean if found.fitted and touched[i] > MOST else z[i]
            slope[i] = extra[i] = 0.0
        elif rounds or (touched[i] > UNTOUCHED and not steady[i]):
            changed[i], own = True, Own(found, _period(layer))
            hidden[i], shown[i] = own.hidden[:OTHERS], own.shown[:OTHERS]
            mean[i], slope[i] = found.mean, own.slope
            worse = slope[i] ** 2 * variance[i] - found.variance
            extra[i] = max(worse, 0.0) + slope[i] ** 2 * made.extra[i]
            more[0, i, i] = max(-worse, 0.0)
            for lag in (1, 2):
                more[lag, i, i] = own.lacking(float(covariances[lag, i, i]))
    others = (changed[:, None] | changed) & ~(lost[:, None] | lost) & ~np.eye(S, dtype=bool)
    if others.any():
        for lag in range(3):
            more[lag][others] = lacking(covariances[lag], shown, hidden)[others]
    made = replace(made, extra=extra, touched=touched, lost=lost, assumed=assumed)
    return Mapping(mean - slope * z, slope, more), made


def _touched_by_steps(profile: Profile, layer: Layer, variance: np.ndarray) -> np.ndarray:
    """[S]: the probability that a count is suppressed or cut where means move, as where all individuals begin in one
    state: with the mean of each step and one variance about it. 1 where they do not move, or steps hold too few
    records."""
    number, weight = profile.number[:, 0], profile.weight[:, 0]
    if not len(number) or number.min() < EACH:
        return np.ones(len(variance))
    between = np.diag(profile.between(0)) / weight.sum()
    n = len(number) / np.sum(1.0 / number)
    within = np.maximum(variance - between, 0.0) * n / (n - 1)
    values = profile.records + np.sqrt(within) * GRID[:, None, None]
    _, _, hidden = layer.seen_through(values)
    density = np.exp(-(GRID**2) / 2)
    found = np.einsum("g,gbs,b->s", density / density.sum(), hidden, weight / weight.sum())
    return np.where(between > MOVING * variance, found, 1.0)


def _covariance(total: Moments, lag: int) -> np.ndarray:
    """About the mean of all records, as the paper has it."""
    co = (total.lag0, total.lag1, total.lag2)[lag]
    if not co.pairs:
        return np.zeros((total.states, total.states))
    return co.product_about(total.lag0.left, total.lag0.left) / co.weight


def _period(layer: Layer) -> float:
    """The largest base to which counts are rounded to the nearest; 0 if they are not."""
    return max((x.base for x in layer.layers if isinstance(x, Rounded) and not x.random), default=0.0)
