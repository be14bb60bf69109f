"""Rates of leaving, state by state: by how soon a state's count forgets what it was.

Of individuals who move alone, the count of one state, on the scale of one individual, has covariances
mu (1 - mu) beta^l at lag l, beta = 1 - lambda / (1 - mu), and its noise at lag 0. That asks nothing of where they
go to, so it tells lambda long before single moves can be told. Rates of all states are log-normal, with a centre and
a spread that are weighed by their evidence (empirical Bayes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aggmc_beam.estimators.latent import Latent

#: Rates of leaving that are weighed, 3% apart.
RATES = np.geomspace(1e-5, 1.0, 400)
#: Spreads of the logarithm of rates over states.
SPREADS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
FREQUENCIES = 256
#: Up to this many times its 99.9% point, a sum of squares is chance.
TOLERATED = 1.1
#: Variation that is not that of the rates, in standard errors and beside that, where it says something.
SURELY, NEGLIGIBLE = 3.3, 0.05


@dataclass(frozen=True, eq=False)
class Rates:
    """Rates of leaving [S] with their standard errors, their centre and the spread of their logarithms.
    `by`: the lags of each state's own counts, or an estimate."""

    value: np.ndarray
    error: np.ndarray
    centre: float
    spread: float
    by: str


def weigh_rates(loglik: np.ndarray, by: str = "lags") -> Rates:
    """From the logarithm of each state's likelihood [S, rates]: empirical Bayes with log-normal rates."""
    top = loglik.max(1, keepdims=True)
    likelihood, x = np.exp(loglik - top), np.log(RATES)
    centres = x[::8]
    prior = np.exp(-(((x[:, None, None] - centres[:, None]) / np.array(SPREADS)) ** 2) / 2)
    prior = (prior / prior.sum(0)).reshape(len(x), -1)  # [rates, centre and spread]
    each = np.maximum(likelihood @ prior, 1e-300)
    weight = weights_of(np.log(each).sum(0))
    posterior = likelihood * ((weight / each) @ prior.T)
    posterior = posterior / np.maximum(posterior.sum(1, keepdims=True), 1e-300)
    mean = posterior @ RATES
    variance = np.maximum(posterior @ RATES**2 - mean**2, 0.0)
    where = weight.reshape(len(centres), -1)
    centre, spread = float(np.exp(where.sum(1) @ centres)), float(where.sum(0) @ np.array(SPREADS))
    return Rates(mean, np.sqrt(variance), centre, spread, by)


def own_rates(x: Latent) -> Rates | None:
    """By each state's own covariances at lags 0, 1 and 2, with their sampling errors by Bartlett's
    formula; None if these are not those of individuals who leave at some rate."""
    from scipy import special

    if x.V is None:
        return None
    lags = 3 if x.numbers[2] > 0 else 2
    mu = np.clip(x.mu, 0.5 / x.individuals, 1 - 1e-9)
    signal = mu * (1 - mu)
    v = np.maximum(np.diag(x.V) / signal, 0.0)
    found = np.stack([np.diag(c) / signal for c in x.c[:lags]], 1)
    beta = np.clip(1 - RATES[None] / (1 - mu)[:, None], -0.99, 1 - 1e-9)  # [S, rates]
    angle = np.pi * (np.arange(FREQUENCIES) + 0.5) / FREQUENCIES
    cosines = np.cos(np.outer(np.arange(2 * lags - 1), angle))
    loglik, squares = np.empty_like(beta), np.empty_like(beta)
    for i in range(len(mu)):
        b = beta[i][:, None]
        density = v[i] + (1 - b**2) / (1 - 2 * b * cosines[1] + b**2)
        bands = density**2 @ cosines.T / FREQUENCIES
        level = (1 + beta[i]) / (1 - beta[i]) + v[i]
        model = np.stack([beta[i] ** lag for lag in range(lags)], 1)
        model[:, 0] += v[i]
        # About the sample's mean, covariances are smaller.
        r = found[i] - model + np.minimum(level / x.records, 1.0)[:, None]
        cov = np.empty((len(RATES), lags, lags))
        for p in range(lags):
            for q in range(lags):
                cov[:, p, q] = (bands[:, abs(p - q)] + bands[:, p + q]) / x.pairs
        cov[:, range(lags), range(lags)] *= 1 + 1e-9
        inverse = np.linalg.inv(cov)
        squares[i] = np.einsum("ra,rab,rb->r", r, inverse, r)
        loglik[i] = -(squares[i] + np.linalg.slogdet(cov)[1]) / 2
    rates = weigh_rates(loglik)
    at = np.abs(RATES - rates.value[:, None]).argmin(1)
    misfit = float(squares[np.arange(len(mu)), at].sum())
    limit = TOLERATED * float(special.chdtri((lags - 1) * len(mu), 0.001))
    return rates if misfit <= limit else None


def series_rates(
    shares: np.ndarray, individuals: float, V: np.ndarray, mu: np.ndarray, period: int | None = None
) -> Rates | None:
    """As `own_rates`, of one series of shares [T, S] by the likelihood of its periodogram (Whittle's), which sees
    lags of any length. It is taken of the changes, whose spectrum is flat: else slow movement leaks into high
    frequencies. What comes back with a `period` is left out."""
    changes = np.diff(shares, axis=0)
    used = np.arange(1, (len(changes) - 1) // 2 + 1)
    if period is not None:
        changes = changes[: len(changes) // period * period]
        days = changes.reshape(-1, period, shares.shape[1])
        changes = (days - days.mean(0)).reshape(changes.shape)
        used = np.arange(1, (len(changes) - 1) // 2 + 1)
        used = used[used % (len(changes) // period) != 0]
    T = len(changes)
    if not len(used):
        return None
    angle = 2 * np.pi * used / T
    signal = mu * (1 - mu)
    periodogram = np.abs(np.fft.fft(changes, axis=0)[used]) ** 2 * individuals / T / signal
    noise = np.maximum(np.diag(V) / signal, 0.0)
    loglik, ratio = np.empty((len(mu), len(RATES))), np.empty((len(mu), len(RATES)))
    for i in range(len(mu)):
        b = np.clip(1 - RATES / (1 - mu[i]), -0.99, 1 - 1e-9)[:, None]
        density = noise[i] + (1 - b**2) / (1 - 2 * b * np.cos(angle) + b**2)
        density = density * (2 - 2 * np.cos(angle))
        each = periodogram[:, i] / density
        loglik[i], ratio[i] = -(np.log(density) + each).sum(1), each.mean(1)
    rates = weigh_rates(loglik)
    at = np.abs(RATES - rates.value[:, None]).argmin(1)
    away = float(ratio[np.arange(len(mu)), at].mean()) - 1
    return rates if abs(away) <= SURELY / np.sqrt(periodogram.size) + NEGLIGIBLE else None


def rates_of(x: Latent, P: np.ndarray) -> Rates:
    """Of an estimate P [S, S], as sure as the conditional mean tells them."""
    error = np.sqrt(np.diag(cell_variance(x, P, np.maximum(x.mu, 0.5 / x.individuals))))
    away = (1 - np.diag(P))[:, None] - RATES
    return weigh_rates(-((away / np.maximum(error, 1e-9)[:, None]) ** 2) / 2, "estimate")


def weights_of(evidence: Sequence[float]) -> np.ndarray:
    """Of hypotheses that are as likely beforehand, from the logarithms of their evidence."""
    found = np.exp(np.array(evidence) - max(evidence))
    return np.asarray(found / found.sum())


def cell_variance(x: Latent, P: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """[S, S]: variance of what the conditional mean says of each cell by itself."""
    assert x.V is not None
    noise = np.diag(x.V) + np.maximum((P * (x.V @ P)).sum(0), 0.0)
    moving = np.maximum(mu @ (P * (1 - P)), 0.5 / x.individuals)
    signal = np.maximum(np.diag(x.c0 - x.V), mu * (1 - mu))
    both = np.maximum(np.diag(x.c0), signal)
    return np.asarray(np.outer(both / signal**2, moving + noise) / x.pairs)
