"""Counts as users have them, simulated: the model as it is, and each way in which real counts break it.

Each function makes one `Case`: noisy counts, what the user would say of them, and the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import aggmc_beam as am
from aggmc_beam.simulation import random_chain, stationary_distribution

#: The noises of the table.
NOISES: dict[str, am.Noise] = {
    "exact": am.Exact(),
    "alpha .5": am.Binomial(0.5),
    "sigma 3": am.Gaussian(3.0),
}


@dataclass(frozen=True, eq=False)
class Case:
    """Counts `y` [K, T, S] with what is said of them (`noise`, `population`), and the `truth` [S, S].

    Errors weigh row i by `shares` [S]; `judged` [S, S] are the cells that have a truth. `broken`: what is
    said of the counts is not true, so that a warning is the right answer.
    """

    name: str
    y: np.ndarray
    noise: am.Noise
    population: Any
    truth: np.ndarray
    shares: np.ndarray
    judged: np.ndarray
    broken: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def error(self, P: np.ndarray) -> float:
        """sqrt( sum_i share_i sum_j (P_ij - truth_ij)^2 ), NaN rows counted as the mean shares."""
        P = np.where(np.isnan(P), self.shares, P)
        miss = np.where(self.judged, P - self.truth, 0.0)
        return math.sqrt(float(self.shares @ (miss**2).sum(1)))


def case(
    name: str,
    n: np.ndarray,
    noise: am.Noise,
    population: Any,
    P: np.ndarray,
    rng: np.random.Generator,
    stated: am.Noise | None = None,
    broken: bool = False,
) -> Case:
    """Of true counts n [K, T, S]: noise is added, and `stated` as what it was (by default as it was)."""
    shares = n.mean((0, 1)) / n.mean((0, 1)).sum()
    y = noise.sample(n, rng)
    return Case(name, y, stated or noise, population, P, shares, np.ones(P.shape, bool), broken)


def sticky(S: int, rng: np.random.Generator) -> np.ndarray:
    """A chain of S states, most of which stays where it is, with every move possible."""
    leave = rng.uniform(0.1, 0.5, S)
    moves = rng.dirichlet(np.ones(S), S) * (1 - np.eye(S))
    return np.diag(1 - leave) + leave[:, None] * moves / moves.sum(1, keepdims=True)


def walk(rng: np.random.Generator, P: np.ndarray, start: np.ndarray, steps: int) -> np.ndarray:
    """Counts [K, T, S] of individuals who move independently from `start` [K, S]; P may change with t."""
    n = [np.asarray(start)]
    for t in range(steps - 1):
        n.append(rng.multinomial(n[-1], P if P.ndim == 2 else P[t]).sum(1))
    return np.stack(n, 1)


def settled(rng: np.random.Generator, P: np.ndarray, N: int, K: int) -> np.ndarray:
    return rng.multinomial(N, stationary_distribution(P), K)


# The model as it is


def right(noise: am.Noise, seed: int, S: int = 4, N: int = 200, K: int = 40, T: int = 60) -> Case:
    rng = np.random.default_rng([seed, 1, S])
    P = random_chain(rng, S, 0.5, "regular") if S > 5 else sticky(S, rng)
    return case(f"right, S = {S}", walk(rng, P, settled(rng, P, N, K), T), noise, N, P, rng)


def one_series(noise: am.Noise, seed: int, T: int = 3000) -> Case:
    rng = np.random.default_rng([seed, 2])
    P = sticky(4, rng)
    return case("right, one series", walk(rng, P, settled(rng, P, 500, 1), T), noise, 500, P, rng)


def settling(noise: am.Noise, seed: int) -> Case:
    """All start in the first state."""
    rng = np.random.default_rng([seed, 3])
    P = sticky(4, rng)
    start = np.tile([200, 0, 0, 0], (40, 1))
    return case("right, from a corner", walk(rng, P, start, 30), noise, 200, P, rng)


# Individuals who are not independent, realizations that are not alike


def households(noise: am.Noise, seed: int, size: int = 4, N: int = 1000, K: int = 40, T: int = 60) -> Case:
    """Individuals who move together, `size` at a time."""
    rng = np.random.default_rng([seed, 4, size])
    P = sticky(4, rng)
    n = size * walk(rng, P, settled(rng, P, N // size, K), T)
    return case(f"households of {size}", n, noise, N, P, rng)


def composition(
    noise: am.Noise, seed: int, precision: float = 56, N: int = 1000, K: int = 200, T: int = 12
) -> Case:
    """Realizations whose first shares differ: Dirichlet about those of a settled chain."""
    rng = np.random.default_rng([seed, 5, int(precision)])
    P = sticky(4, rng)
    shares = rng.dirichlet(precision * stationary_distribution(P), K)
    start = np.array([rng.multinomial(N, p) for p in shares])
    return case(f"composition {precision:g}", walk(rng, P, start, T), noise, N, P, rng)


def movers_and_stayers(noise: am.Noise, seed: int) -> Case:
    """Half of the individuals hardly ever move; the truth is the matrix of all moves."""
    rng = np.random.default_rng([seed, 6])
    P = sticky(4, rng)
    pi, still = stationary_distribution(P), 0.98 * np.eye(4) + 0.02 * P
    n = walk(rng, P, settled(rng, P, 250, 40), 40)
    n = n + walk(rng, still, rng.multinomial(250, pi, 40), 40)
    return case("movers and stayers", n, noise, 500, (P + still) / 2, rng)


def daily_cycle(noise: am.Noise, seed: int, days: int = 60) -> Case:
    """One series whose matrix has the hour of the day; the truth is their mean by visits."""
    rng = np.random.default_rng([seed, 7])
    base, S, N = sticky(4, rng), 4, 1000
    toward = np.stack([np.tile(rng.dirichlet(np.ones(S)), (S, 1)) for _ in range(2)])
    wave = 0.5 + 0.5 * np.cos(2 * np.pi * np.arange(24 * days) / 24)
    P = 0.8 * base + 0.2 * (wave[:, None, None] * toward[0] + (1 - wave)[:, None, None] * toward[1])
    n = walk(rng, P, settled(rng, P.mean(0), N, 1), 24 * days)
    visits = n[0, :-1, :, None] * P[: n.shape[1] - 1]
    truth = visits.sum(0) / n[0, :-1].sum(0)[:, None]
    return case("daily cycle, one series", n, noise, N, truth, rng)


# What is said of the counts is not true


def noise_with_memory(noise: am.Noise, seed: int, memory: float = 0.7) -> Case:
    """Gaussian noise that is an autoregression over time, said to be fresh at each step."""
    rng = np.random.default_rng([seed, 8, int(100 * memory)])
    P, sigma = sticky(4, rng), 5.0
    n = walk(rng, P, settled(rng, P, 200, 20), 200)
    e = rng.normal(0, sigma, n.shape)
    for t in range(1, n.shape[1]):
        e[:, t] = memory * e[:, t - 1] + math.sqrt(1 - memory**2) * e[:, t]
    found = case(f"noise with memory {memory:g}", n, am.Exact(), 200, P, rng, am.Gaussian(sigma), True)
    return Case(**{**vars(found), "y": n + e})


def fixed_panel(noise: am.Noise, seed: int) -> Case:
    """The same half of the individuals is seen at every step, said to be Binomial(.5)."""
    rng = np.random.default_rng([seed, 9])
    P = sticky(4, rng)
    n = walk(rng, P, settled(rng, P, 500, 40), 60)
    return case("fixed panel", n, am.Exact(), 1000, P, rng, am.Binomial(0.5), True)


def alpha_off(noise: am.Noise, seed: int) -> Case:
    """Seen with probability .45, said to be .5."""
    rng = np.random.default_rng([seed, 10])
    P = sticky(4, rng)
    n = walk(rng, P, settled(rng, P, 1000, 40), 60)
    return case("alpha off 10%", n, am.Binomial(0.45), 1000, P, rng, am.Binomial(0.5), True)


def population_off(noise: am.Noise, seed: int) -> Case:
    """1,000 individuals, said to be 1,200."""
    rng = np.random.default_rng([seed, 11])
    P = sticky(4, rng)
    n = walk(rng, P, settled(rng, P, 1000, 40), 60)
    return case("N off 20%", n, am.Binomial(0.5), 1200, P, rng, broken=True)


Maker = Callable[[am.Noise, int], Case]
RIGHT: dict[str, Maker] = {
    "right, S = 3": lambda noise, seed: right(noise, seed, 3),
    "right, S = 5": lambda noise, seed: right(noise, seed, 5),
    "right, S = 10": lambda noise, seed: right(noise, seed, 10, K=10, T=300),
    "right, one series": one_series,
    "right, from a corner": settling,
}
VIOLATED: dict[str, Maker] = {
    "households of 2": lambda noise, seed: households(noise, seed, 2),
    "households of 4": lambda noise, seed: households(noise, seed, 4),
    "composition 2000": lambda noise, seed: composition(noise, seed, 2000),
    "composition 56": lambda noise, seed: composition(noise, seed, 56),
    "composition 8": lambda noise, seed: composition(noise, seed, 8),
    "movers and stayers": movers_and_stayers,
    "daily cycle, one series": daily_cycle,
}
#: These have noise of their own, so the noise of the table is not added.
BROKEN: dict[str, Maker] = {
    "noise with memory .3": lambda noise, seed: noise_with_memory(noise, seed, 0.3),
    "noise with memory .7": lambda noise, seed: noise_with_memory(noise, seed, 0.7),
    "fixed panel": fixed_panel,
    "alpha off 10%": alpha_off,
    "N off 20%": population_off,
}
