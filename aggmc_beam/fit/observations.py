"""Checks on arrays of counts and populations, before any of it reaches the sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.noise import Binomial, Detection, Exact, Noise, Panel, Poisson
from aggmc_beam.records import MAX_COUNT


def check_counts(data: Any, gaps: bool = False) -> np.ndarray:
    """An array [K, T, S] of finite numbers, with NaN rows for missing steps; [T, S] means K = 1. With `gaps`,
    single entries may be NaN too."""
    try:
        counts = np.asarray(data, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"counts must be numbers in an array [K, T, S]: {error}") from error
    if counts.ndim == 2:
        counts = counts[None]
    if counts.ndim != 3 or 0 in counts.shape:
        raise InputError(
            f"counts must be an array [realizations, steps, states], none of them 0; got shape {counts.shape}"
        )
    if counts.shape[1] < 2:
        raise InputError("there is only one time step; transitions need at least two (T >= 2)")
    if np.isinf(counts).any():
        k, t, i = np.argwhere(np.isinf(counts))[0]
        raise InputError(
            f"the count of realization {k}, step {t}, state {i} is infinite; give NaN for the whole "
            "step if it was not observed"
        )
    if (np.abs(counts) >= MAX_COUNT).any():
        raise InputError(f"a count is beyond {MAX_COUNT:g}, too large to be one")
    missing = np.isnan(counts)
    partial = missing.any(2) & ~missing.all(2)
    if partial.any() and not gaps:
        k, t = np.argwhere(partial)[0]
        raise InputError(
            f"realization {k}, step {t} has NaN for some states only; give missing='pairwise' if entries are missing "
            "at random, or Suppressed noise if they were left out because they are small"
        )
    if missing.all():
        raise InputError("all counts are NaN; there is nothing to estimate from")
    return counts


def counts_of_shares(values: np.ndarray, what: str, population: Any) -> np.ndarray:
    """The counts [K, T, S] that values are: themselves, or shares or percentages of the population."""
    units = {"counts": 1.0, "shares": 1.0, "percent": 0.01}
    if what not in units:
        raise InputError(f"values must be one of {', '.join(units)}; got {what!r}")
    if what == "counts":
        return values
    if isinstance(population, str):
        raise InputError(f"values={what!r} needs the population that they are shares of, known or assumed")
    return np.asarray(values * units[what] * check_populations(population, len(values))[:, None, None])


def check_states(states: Sequence[Any] | None, S: int) -> tuple[str, ...]:
    """State names; 0 .. S - 1 where none are given."""
    names = tuple(str(s) for s in (range(S) if states is None else states))
    if len(names) != S:
        raise InputError(f"{len(names)} state names were given for counts of {S} states")
    if len(set(names)) != S:
        twice = next(n for n in names if names.count(n) > 1)
        raise InputError(f"state {twice!r} is named twice; names must differ")
    return names


def check_populations(population: Any, K: int) -> np.ndarray:
    """[K] positive finite populations from a number or an array [K]."""
    try:
        N = np.asarray(population, np.float64)
    except (TypeError, ValueError):
        N = np.asarray(np.nan)
    if N.ndim > 1 or (N.ndim == 1 and len(N) != K):
        raise InputError(f"population must be one number or {K}, one per realization; got shape {N.shape}")
    if not ((N > 0).all() and (N < MAX_COUNT).all()):
        raise InputError(
            f"population must be positive and finite, one number or one per realization, "
            f"or 'estimate'; got {population!r}"
        )
    return np.broadcast_to(N, (K,))


def check_exact_totals(counts: np.ndarray, N: np.ndarray, noise: Noise) -> None:
    """Counts without noise, or of those who were seen, cannot exceed the population."""
    if not isinstance(noise, Exact | Binomial | Detection):
        return
    totals = counts.sum(2)
    excess = np.nan_to_num(totals, nan=-np.inf) > N[:, None] * (1 + 1e-9)
    if excess.any():
        k, t = np.argwhere(excess)[0]
        raise InputError(
            f"realization {k}, step {t} counts {totals[k, t]:g} individuals, more than the population "
            f"{N[k]:g}; correct the population, or name the noise model if the counts are noisy"
        )


def check_sightings(counts: np.ndarray, noise: Noise) -> None:
    """Individuals, seen or all of them, are never fewer than none."""
    if isinstance(noise, Exact | Panel | Binomial | Detection | Poisson) and (counts < 0).any():
        k, t, i = np.argwhere(counts < 0)[0]
        raise InputError(
            f"realization {k}, step {t} counts {counts[k, t, i]:g} in state {i}, but counts with {noise.name} noise "
            "are never below 0; for counts with noise added to them use Gaussian, Laplace or a privacy model"
        )
