"""Latent: the moments of the true counts, recovered from those of the observed ones.

Proposition 3 of the paper: means and lagged covariances of n follow from those of y through A and
b alone; only lag 0 needs the noise variance. Everything is put on the scale of one individual, so
that estimators see shares and never the population.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.noise import Noise
from aggmc_beam.sums.moments import CoMoment, Moments
from aggmc_beam.sums.profile import Profile


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Mean shares of the true counts step by step: `shares` [B, S] at `time` [B], with the number
    of individual observations behind each, `weight` [B]."""

    time: np.ndarray
    weight: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True, eq=False)
class Undo:
    """The way back from observed counts to true ones, y -> A^-1 (y - b), on the scale of one individual."""

    inverse: np.ndarray
    offset: np.ndarray
    population: float
    each_alone: bool
    """Whether A is diagonal, as most noise is: then two products of matrices are saved."""

    @classmethod
    def of(cls, noise: Noise, S: int, population: float) -> Undo:
        A = noise.matrix(S)
        diagonal = A.diagonal()
        each_alone = bool(diagonal.all()) and np.count_nonzero(A) == S
        inverse = np.diag(1 / diagonal) if each_alone else np.linalg.inv(A)
        return cls(inverse, noise.offset(S), population, each_alone)

    @cached_property
    def scale(self) -> np.ndarray:
        factor = self.inverse.diagonal()
        return np.asarray(np.outer(factor, factor) / self.population)

    def covariance(self, observed: np.ndarray) -> np.ndarray:
        if self.each_alone:
            return np.asarray(observed * self.scale)
        return np.asarray(self.inverse @ observed @ self.inverse.T) / self.population

    def means(self, y: np.ndarray) -> np.ndarray:
        centred = y - self.offset
        return np.asarray(self.inverse.diagonal() * centred if self.each_alone else self.inverse @ centred)


class Latent:
    """Moments of the true counts, per individual. Each is found when it is first asked for: an estimate
    needs a few of them, and its jackknife the same few many times.

    mu [S]: shares over all records. left, right [S]: shares at the two ends of lag-1 pairs; both
    equal mu where the chain is taken as stationary. c0, c1, c2 [S, S] estimate
    Cov(n_t, n_t+l) / N at lag l, of which c0 still carries the noise. gram, cross [S, S]: second moments
    of the pairs' left ends, and of left with right ends, not centred, over N; `arrivals` is the trace
    of that of right ends. V [S, S]: the noise
    covariance over N on the scale of n, or None where it is not known. `individuals` is the number
    of individual observations behind mu, sum of N over records; `numbers` the pairs at each lag.
    """

    def __init__(
        self,
        moments: Moments,
        noise: Noise,
        undo: Undo,
        centred: bool = False,
        profile: Callable[[], Profile | None] | None = None,
    ) -> None:
        self._moments, self._noise, self._undo = moments, noise, undo
        self._centred, self._profile = centred, profile
        self.population = undo.population
        self.individuals = moments.lag0.weight * undo.population
        self.numbers = moments.records, moments.pairs, moments.lag2.pairs
        self._mean = undo.means(moments.lag0.left)

    @cached_property
    def mu(self) -> np.ndarray:
        return _shares(self._mean)

    @cached_property
    def left(self) -> np.ndarray:
        return _shares(self._undo.means(self._moments.lag1.left)) if self._centred else self.mu

    @cached_property
    def right(self) -> np.ndarray:
        return _shares(self._undo.means(self._moments.lag1.right)) if self._centred else self.mu

    @property
    def states(self) -> int:
        return len(self.mu)

    @property
    def records(self) -> int:
        return self.numbers[0]

    @property
    def pairs(self) -> int:
        return self.numbers[1]

    @property
    def c(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.c0, self.c1, self.c2

    @cached_property
    def c0(self) -> np.ndarray:
        return self._lagged(self._moments.lag0)

    @cached_property
    def c1(self) -> np.ndarray:
        return self._lagged(self._moments.lag1)

    @cached_property
    def c2(self) -> np.ndarray:
        return self._lagged(self._moments.lag2)

    def _lagged(self, lag: CoMoment) -> np.ndarray:
        if lag.pairs <= int(self._centred):
            return np.full((self.states, self.states), np.nan)
        if self._centred:
            return self._undo.covariance(lag.product / (lag.pairs - 1))
        centre = self._moments.lag0.left
        products = lag.product_about(centre, centre)
        products /= lag.pairs
        return self._undo.covariance(products)

    @cached_property
    def gram(self) -> np.ndarray:
        m, left = self._moments, self._undo.means(self._moments.lag1.left)
        return self._undo.covariance(m.ends.product / m.pairs) + self._mass * np.outer(left, left)

    @cached_property
    def cross(self) -> np.ndarray:
        m, undo = self._moments, self._undo
        means = np.outer(undo.means(m.lag1.left), undo.means(m.lag1.right))
        return undo.covariance(m.lag1.product / m.pairs) + self._mass * means

    @cached_property
    def arrivals(self) -> float:
        m, right = self._moments, self._undo.means(self._moments.lag1.right)
        return float(np.trace(self._undo.covariance(m.lag0.product / m.records)) + self._mass * right @ right)

    @property
    def _mass(self) -> float:
        """The mean weight of a pair, on the scale of products of latent means."""
        return self._moments.lag1.weight / self._moments.pairs / self.population

    @cached_property
    def V(self) -> np.ndarray | None:
        return self._noise_at(self._mean)

    @cached_property
    def left_mean(self) -> np.ndarray:
        """[S]: mean true counts (or shares, where sums are of shares) at the left ends of lag-1 pairs."""
        return self._undo.means(self._moments.lag1.left)

    @cached_property
    def left_V(self) -> np.ndarray | None:
        """V at the left ends of pairs."""
        return self._noise_at(self.left_mean)

    def lag0_about(self, whole: Latent) -> np.ndarray:
        """As c0, about the mean of the whole that this is a part of."""
        centre = whole._moments.lag0.left
        return self._undo.covariance(self._moments.lag0.product_about(centre, centre) / self.records)

    def lag1_about(self, whole: Latent) -> np.ndarray:
        """As c1, about the mean of the whole that this is a part of."""
        centre = whole._moments.lag0.left
        return self._undo.covariance(self._moments.lag1.product_about(centre, centre) / self.pairs)

    @property
    def total(self) -> float:
        """The mean total of the true counts over the population."""
        return float(self._mean.sum()) / self._undo.population

    @property
    def observed_total(self) -> tuple[float, float]:
        """Mean and standard deviation of the totals as they were observed."""
        lag0, size = self._moments.lag0, self.individuals / self.records / self._undo.population
        spread = max(float(lag0.product.sum()), 0.0) / self.records * size
        return float(lag0.left.sum()) * size, float(np.sqrt(spread))

    @property
    def has_fractions(self) -> bool:
        """Whether some sum of the observed counts is no whole number."""
        lag0 = self._moments.lag0
        sums = lag0.left * lag0.weight
        return bool((np.abs(sums - np.round(sums)) > 1e-6 * np.maximum(1.0, np.abs(sums) ** 0.5)).any())

    @property
    def pair_individuals(self) -> float:
        """Individual observations behind the pairs."""
        return self._moments.lag1.weight * self._undo.population

    def _noise_at(self, mean: np.ndarray) -> np.ndarray | None:
        # Additive noise on shares shrinks with 1/N_k.
        fixed = self._noise.covariance(np.zeros_like(mean))
        at_mean = self._noise.covariance(mean)
        if fixed is None or at_mean is None:
            return None
        shrunk = fixed * (self._moments.inverse_weight / self.records)
        return self._undo.covariance(shrunk + (at_mean - fixed))

    @cached_property
    def trajectory(self) -> Trajectory | None:
        profile = None if self._profile is None else self._profile()
        return None if profile is None else _trajectory(profile, self._undo)

    def replaced(self, **values: Any) -> Latent:
        """The same with some of its moments replaced."""
        other = copy(self)
        vars(other).update(values)
        return other

    def restricted(self, keep: np.ndarray) -> Latent:
        """Only the states marked in `keep` [S]; meant for dropping states that nobody visits."""
        if keep.all():
            return self
        square, path = np.ix_(keep, keep), self.trajectory
        vectors = {name: getattr(self, name)[keep] for name in ("mu", "left", "right")}
        matrices = {name: getattr(self, name)[square] for name in ("c0", "c1", "c2", "gram", "cross")}
        return self.replaced(
            **vectors,
            **matrices,
            arrivals=self.arrivals,
            V=None if self.V is None else self.V[square],
            trajectory=None if path is None else replace(path, shares=path.shares[:, keep]),
        )


def latent(
    moments: Moments,
    noise: Noise,
    population: float,
    *,
    centred: bool = False,
    profile: Callable[[], Profile | None] | None = None,
    undo: Undo | None = None,
) -> Latent:
    """Undo the noise model.

    `population` is N for sums of counts, and 1 for sums of shares weighted by N_k: then
    E[sum_k N_k (p - mu)(q - mu)'] is K times Cov(n, n')/N whatever the N_k.
    With `centred`, the two ends of pairs keep their own means and one degree of freedom is taken
    off; otherwise all are centred at the mean of all records, as in Algorithm 1.
    `profile` is called for the step means where a trajectory is wanted. `undo` is that of the noise and
    the population, if it was made already.
    """
    if moments.pairs < (2 if centred else 1):
        need = "two pairs" if centred else "one pair"
        raise InputError(
            f"at least {need} of records one step apart are needed; there are {moments.pairs}. "
            "Give more steps, or more realizations"
        )
    undo = Undo.of(noise, moments.states, population) if undo is None else undo
    return Latent(moments, noise, undo, centred, profile)


def _trajectory(profile: Profile, undo: Undo) -> Trajectory:
    counts = (profile.records - undo.offset) @ undo.inverse.T
    totals = counts.sum(1)
    seen = (profile.number[:, 0] > 0) & (totals > 0)  # a step at which nobody was counted has no shares
    weight, shares = profile.weight[seen, 0] * totals[seen], counts[seen] / totals[seen, None]
    return Trajectory(profile.bins[seen] * profile.width, weight, shares)


def _shares(mean: np.ndarray) -> np.ndarray:
    total = mean.sum()
    if not total > 0:
        raise InputError(
            f"the mean total of the true counts is {total:g}, but must be positive; check the "
            "counts and the noise model"
        )
    return np.asarray(mean / total)


def closed(x: Latent) -> Latent:
    """An open population as if it were closed: the variation of its total taken out.

    With individuals entering and leaving, Cov(n_t, n_t+l)/N = D P^l - (1 - f_l) mu mu', where
    f_l = 1' c_l 1 is 0 for a closed population and 1 for a Poisson one.
    """
    totals = [float(c.sum()) for c in x.c]
    if x.V is not None:
        totals[0] -= float(x.V.sum())
    else:
        totals[0] = totals[1]  # lag 0 carries noise of unknown size
    both = np.outer(x.left, x.right)
    c0, c1, c2 = (c - f * both for c, f in zip(x.c, totals, strict=True))
    return x.replaced(c0=c0, c1=c1, c2=c2)
