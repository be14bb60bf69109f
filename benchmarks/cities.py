"""Many states: what an estimate is worth with and without `am.Structure`.

    python benchmarks/cities.py                 simulated cities, moves by distance and not
    python benchmarks/cities.py --data DIR      and the bicycle stations of San Francisco, if DIR/bikes is there
    python benchmarks/cities.py --large         and 200 states, and 1,000 with few allowed moves

Errors are those of `real.py` over that of "nobody moves"; of chains by hour, the mean over hours. Zones lie anywhere
in a square of 10, their sizes are log-normal (.7), rates of leaving 7% log-normal (.4); of those who leave zone i a
part goes to j in proportion to size_j exp(-d_ij / 2), or by a draw from Dirichlet(.1) that knows no distance. By
hour, rates have a morning and an evening peak about 2%, and homes and works exchange people.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import polars as pl
from realsets import bikes

import aggmc_beam as am

HEAD = [
    "set",
    "noise",
    "identity",
    "without",
    "with",
    "coverage",
    "own",
    "borrowed",
    "decay",
    "not told",
    "CPU s",
]
N = 100_000


@dataclass
class City:
    """Counts [K, T, S] with the true matrices [hours, S, S], shares [hours, S] and how the states lie."""

    name: str
    counts: np.ndarray
    truth: np.ndarray
    shares: np.ndarray
    structure: am.Structure
    population: int = N

    def error(self, P: np.ndarray) -> float:
        return float(np.sqrt((self.shares[:, :, None] * (P - self.truth) ** 2).sum((1, 2))).mean())


def zones(
    S: int, seed: int, gravity: bool = True, leaving: float = 0.07, radius: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """A matrix, and where its states lie."""
    rng = np.random.default_rng([seed, S])
    at = rng.uniform(0, 10, (S, 2))
    d = np.sqrt(((at[:, None] - at) ** 2).sum(2))
    sizes, rates = np.exp(rng.normal(0, 0.7, S)), leaving * np.exp(rng.normal(0, 0.4, S) - 0.08)
    K = sizes * np.exp(-d / 2) if gravity else rng.dirichlet(np.full(S, 0.1), S)
    K = K * (1 - np.eye(S)) * (1 if radius is None else d <= radius)
    rates = np.where(K.sum(1) > 0, rates, 0.0)
    P = rates[:, None] * K / np.maximum(K.sum(1, keepdims=True), 1e-300)
    return P + np.diag(1 - rates), at


def by_hour(S: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Matrices [24, S, S], and where their states lie."""
    P, at = zones(S, seed, leaving=0.02)
    rng, hour = np.random.default_rng([seed, S, 9]), np.arange(24)
    morning, evening = np.exp(-(((hour - 8) / 2) ** 2)), np.exp(-(((hour - 17.5) / 2.5) ** 2))
    busy = 0.3 + 1.4 * (morning + evening)
    works, rates = rng.normal(0, 0.6, S), 1 - np.diag(P)
    found = []
    for tilt, much in zip(morning - evening, busy / busy.mean(), strict=True):
        K = (P - np.diag(np.diag(P))) * np.exp(tilt * works)
        leaving = np.minimum(rates * much * np.exp(-tilt * works / 2), 0.9)
        found.append(leaving[:, None] * K / K.sum(1, keepdims=True) + np.diag(1 - leaving))
    return np.array(found), at


def walk(P: np.ndarray, K: int, T: int, seed: int) -> np.ndarray:
    """Counts [K, T, S] of N individuals who move by P[t mod hours], from settled shares."""
    rng, S = np.random.default_rng(seed), P.shape[1]
    day, shares = np.linalg.multi_dot(P) if len(P) > 1 else P[0], np.full(S, 1 / S)
    for _ in range(10):
        shares, day = shares @ day, day @ day
    y = np.empty((K, T, S))
    for k in range(K):
        n = rng.multinomial(N, shares / shares.sum())
        for t in range(T):
            y[k, t] = n
            n = rng.multinomial(n, P[t % len(P)]).sum(0)
    return y


def simulated(name: str, P: np.ndarray, at: np.ndarray, K: int, T: int, seed: int, **options: Any) -> City:
    n = walk(P, K, T, seed)
    shares = np.stack([n[:, h :: len(P)].mean((0, 1)) for h in range(len(P))])
    structure = am.Structure(coordinates=at, **options)
    return City(name, n, P, shares / shares.sum(1, keepdims=True), structure)


def stations(folder: Path) -> Iterator[City]:
    """The stations of San Francisco and one state for the rest, which has no place."""
    table = pl.read_csv(folder / "stations.csv").sort("station")
    there = table.filter(pl.col("town") == "San Francisco")
    at, every = bikes(folder, "station")
    place = {s: i for i, s in enumerate(there["station"].to_list())}
    number = np.array([place.get(s, len(place)) for s in table["station"].to_list()])
    at, S = number[at], len(place) + 1
    assert len(every) == len(number)
    moves = np.zeros((24, S, S))
    for hour in range(24):
        np.add.at(moves[hour], (at[:, hour:-1:24].ravel(), at[:, hour + 1 :: 24].ravel()), 1)
    n = np.stack([(at[:, :-1] == s).sum(0) for s in range(S)], 1).astype(float)
    points = {str(i): (a, b) for i, (a, b) in enumerate(zip(there["lat"], there["long"], strict=True))}
    structure = am.Structure(coordinates=points, geographic=True)
    for name, M in (("one matrix", moves.sum(0, keepdims=True)), ("by hour", moves)):
        truth = M / np.maximum(M.sum(2, keepdims=True), 1)
        shares = M.sum(2) / M.sum((1, 2))[:, None]
        for form, counts in (("days", n.reshape(-1, 24, S)), ("one series", n[None])):
            if name == "one matrix" or form == "one series":  # the last hour of a day has no pair in it
                title = f"bicycle stations, {form}, {name}"
                yield City(title, counts, truth, shares, structure, len(at))


def cities(data: Path | None, large: bool, seeds: int) -> Iterator[tuple[City, am.Noise]]:
    for gravity in (True, False):
        name = "city, 50 zones" + ("" if gravity else ", no gravity")
        for K in (1, 52):
            for noise in (am.Exact(), am.Binomial(0.3)):
                for seed in range(seeds):
                    P, at = zones(50, seed, gravity)
                    title = f"{name}, {K} week" + ("s" if K > 1 else "")
                    yield simulated(title, P[None], at, K, 168, seed), noise
    for seed in range(seeds):
        matrices, at = by_hour(40, seed)
        found = simulated("city, 40 zones, by hour, 8 weeks", matrices, at, 1, 24 * 56, seed)
        yield found, am.Binomial(0.3)
    if data is not None and (data / "bikes").exists():
        yield from ((city, am.Exact()) for city in stations(data / "bikes"))
    if large:
        P, at = zones(200, 0)
        yield simulated("city, 200 zones, 6 weeks", P[None], at, 1, 1008, 0), am.Binomial(0.3)
        P, at = zones(1000, 0, radius=0.8)
        yield (
            simulated("city, 1,000 zones, radius .8, 200 hours", P[None], at, 1, 200, 0, radius=0.8),
            am.Binomial(0.3),
        )


def estimated(city: City, y: np.ndarray, noise: am.Noise, structure: am.Structure | None) -> Any:
    chain = am.Cycle(len(city.truth)) if len(city.truth) > 1 else "stationary"
    return am.estimate(y, noise=noise, population=city.population, chain=chain, structure=structure)


def table(named: Iterator[tuple[City, am.Noise]]) -> None:
    print("| " + " | ".join(HEAD) + " |\n|" + " --- |" * len(HEAD))
    for row, cases in itertools.groupby(named, lambda one: (one[0].name, str(one[1]))):
        values, told, note = list[list[float]](), 0, dict[str, Any]()
        for city, noise in cases:
            numbers, note = judged(city, noise)
            values.append(numbers)
            told += note["follows_distance"]
        identity, plain, error, covered, own, share, seconds = np.mean(values, 0)
        cells = [*row, f"{identity:.4f}", *(f"{v:.2f}" for v in (plain, error, covered, own, share))]
        decay = note["decay"]
        scale = "" if decay["scale"] is None else f" {decay['scale']:.2g}"
        flagged = f"{len(values) - told} of {len(values)}"
        print(
            "| " + " | ".join([*cells, decay["form"] + scale, flagged, f"{seconds:.1f}"]) + " |", flush=True
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nAt most {peak:,.0f} MB.")


def judged(city: City, noise: am.Noise) -> tuple[list[float], dict[str, Any]]:
    """The numbers of a line, and what the estimate notes of the structure."""
    y = noise.sample(city.counts, np.random.default_rng(len(city.counts)))
    S = city.truth.shape[1]
    identity = city.error(np.eye(S)[None])
    plain = np.nan
    if S <= 100:
        plain = (
            city.error(np.reshape(estimated(city, y, noise, None).transition_matrix, (-1, S, S))) / identity
        )
    started = time.process_time()
    found = estimated(city, y, noise, city.structure)
    seconds = time.process_time() - started
    P = np.reshape(found.transition_matrix, (-1, S, S))
    lower, upper = (np.reshape(bound, (-1, S, S)) for bound in found.interval())
    known = np.isfinite(lower)
    held = [float(((Q >= lower - 1e-9) & (Q <= upper + 1e-9))[known].mean()) for Q in (city.truth, P)]
    one = found if isinstance(found, am.Estimate) else found.pooled
    note, share = one.diagnostics["structure"], one.diagnostics["borrowed"]["share"]
    return [identity, plain, city.error(P) / identity, *held, share, seconds], note


def show(data: Path | None, quick: bool, large: bool = False) -> None:
    """The table, for `real.py`."""
    print("\nMany states, errors over that of identity; `with` is with am.Structure:\n")
    table(cities(data, large, 1 if quick else 3))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of published data")
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--large", action="store_true")
    given = parser.parse_args()
    show(given.data, given.quick, given.large)
