"""Latent: the moments of the true counts, recovered from those of the observed ones.

Proposition 3 of the paper: means and lagged covariances of n follow from those of y through A and
b alone; only lag 0 needs the noise variance. Everything is put on the scale of one individual, so
that estimators see shares and never the population.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.moments import CoMoment, Moments
from aggmc_beam.noise import Noise
from aggmc_beam.profile import Profile


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Mean shares of the true counts step by step: `shares` [B, S] at `time` [B], with the number
    of individual observations behind each, `weight` [B]."""

    time: np.ndarray
    weight: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True, eq=False)
class Latent:
    """Moments of the true counts, per individual.

    mu [S]: shares over all records. left, right [S]: shares at the two ends of lag-1 pairs; both
    equal mu where the chain is taken as stationary. c: for lag l, c[l] [S, S] estimates
    Cov(n_t, n_t+l) / N, of which c[0] still carries the noise. gram, cross [S, S]: second moments
    of the pairs' left ends, and of left with right ends, not centred, over N; `arrivals` is the trace
    of that of right ends. V [S, S]: the noise
    covariance over N on the scale of n, or None where it is not known. `individuals` is the number
    of individual observations behind mu, sum of N over records; `numbers` the pairs at each lag.
    """

    mu: np.ndarray
    left: np.ndarray
    right: np.ndarray
    c: tuple[np.ndarray, np.ndarray, np.ndarray]
    gram: np.ndarray
    cross: np.ndarray
    arrivals: float
    V: np.ndarray | None
    population: float
    individuals: float
    numbers: tuple[int, int, int]
    trajectory: Trajectory | None = None

    @property
    def states(self) -> int:
        return len(self.mu)

    @property
    def records(self) -> int:
        return self.numbers[0]

    @property
    def pairs(self) -> int:
        return self.numbers[1]

    def restricted(self, keep: np.ndarray) -> Latent:
        """Only the states marked in `keep` [S]; meant for dropping states that nobody visits."""
        square = np.ix_(keep, keep)
        path = self.trajectory
        return replace(
            self,
            mu=self.mu[keep],
            left=self.left[keep],
            right=self.right[keep],
            c=tuple(x[square] for x in self.c),
            gram=self.gram[square],
            cross=self.cross[square],
            V=None if self.V is None else self.V[square],
            trajectory=None if path is None else replace(path, shares=path.shares[:, keep]),
        )


def latent(
    moments: Moments,
    noise: Noise,
    population: float,
    *,
    centred: bool = False,
    profile: Profile | None = None,
) -> Latent:
    """Undo the noise model.

    `population` is N for sums of counts, and 1 for sums of shares weighted by N_k: then
    E[sum_k N_k (p - mu)(q - mu)'] is K times Cov(n, n')/N whatever the N_k.
    With `centred`, the two ends of pairs keep their own means and one degree of freedom is taken
    off; otherwise all are centred at the mean of all records, as in Algorithm 1.
    """
    if moments.pairs < (2 if centred else 1):
        need = "two pairs" if centred else "one pair"
        raise InputError(
            f"at least {need} of records one step apart are needed; there are {moments.pairs}. "
            "Give more steps, or more realizations"
        )
    S = moments.states
    A, b = noise.matrix(S), noise.offset(S)
    diagonal = A.diagonal()
    each_alone = bool(diagonal.all()) and np.count_nonzero(A) == S
    inverse = np.diag(1 / diagonal) if each_alone else np.linalg.inv(A)
    scale = np.outer(inverse.diagonal(), inverse.diagonal()) / population

    def unmix(covariance: np.ndarray) -> np.ndarray:
        if each_alone:  # as most noise is, and much quicker than the products
            return covariance * scale
        return np.asarray(inverse @ covariance @ inverse.T) / population

    def means(y: np.ndarray) -> np.ndarray:
        return np.asarray(inverse @ (y - b))

    def lagged(lag: CoMoment) -> np.ndarray:
        if lag.pairs <= int(centred):
            return np.full((S, S), np.nan)
        if centred:
            return unmix(lag.product / (lag.pairs - 1))
        centre = moments.lag0.left
        return unmix(lag.product_about(centre, centre) / lag.pairs)

    mean = means(moments.lag0.left)
    left, right = means(moments.lag1.left), means(moments.lag1.right)
    mass = moments.lag1.weight / moments.pairs / population
    return Latent(
        mu=_shares(mean),
        left=_shares(left) if centred else _shares(mean),
        right=_shares(right) if centred else _shares(mean),
        c=(lagged(moments.lag0), lagged(moments.lag1), lagged(moments.lag2)),
        gram=unmix(moments.ends.product / moments.pairs) + mass * np.outer(left, left),
        cross=unmix(moments.lag1.product / moments.pairs) + mass * np.outer(left, right),
        arrivals=float(np.trace(unmix(moments.lag0.product / moments.records)) + mass * right @ right),
        V=_noise(moments, noise, mean, unmix),
        population=population,
        individuals=moments.lag0.weight * population,
        numbers=(moments.records, moments.pairs, moments.lag2.pairs),
        trajectory=None if profile is None else _trajectory(profile, inverse, b),
    )


def _noise(
    moments: Moments, noise: Noise, mean: np.ndarray, unmix: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray | None:
    """The noise covariance of the latent scale; additive noise on shares shrinks with 1/N_k."""
    fixed = noise.covariance(np.zeros_like(mean))
    at_mean = noise.covariance(mean)
    if fixed is None or at_mean is None:
        return None
    return unmix(fixed * (moments.inverse_weight / moments.records) + (at_mean - fixed))


def _trajectory(profile: Profile, inverse: np.ndarray, b: np.ndarray) -> Trajectory:
    counts = (profile.records - b) @ inverse.T
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
    return replace(x, c=(c0, c1, c2))
