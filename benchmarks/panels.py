"""Paths of individuals, counted in random groups: of a CSV with individual,time,state, or made up."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from violations import Case

import aggmc_beam as am
from aggmc_beam.chain import as_chain
from aggmc_beam.estimators import nonstationary
from aggmc_beam.estimators.latent import latent
from aggmc_beam.estimators.registry import apply
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.simulation import stationary_distribution
from aggmc_beam.sums.moments import add_moments

PLAIN = ("mom", "simplex", "cls", "corrected-cls", "naive", "fast", "gmm")
SINGLES = (*PLAIN, "cls+simplex", "corrected-cls+simplex", "per-step")


@dataclass(frozen=True, eq=False)
class Paths:
    """States [individuals, steps] as numbers, with the states' names; `note` says what was left out."""

    name: str
    states: tuple[str, ...]
    at: np.ndarray
    note: str

    @property
    def moves(self) -> np.ndarray:
        """[S, S]: how often anyone went from i to j."""
        S = len(self.states)
        return np.bincount((self.at[:, :-1] * S + self.at[:, 1:]).ravel(), minlength=S * S).reshape(S, S)


# Reading paths


def read_paths(file: Path) -> Paths:
    """Paths of a CSV file; see `complete` for individuals who were not there at all steps."""
    with file.open(newline="", encoding="utf-8-sig") as lines:
        rows = [(r["individual"], r["time"], r["state"]) for r in csv.DictReader(lines)]
    rows = [row for row in rows if row[2] not in ("", "NA", "NaN", "nan")]
    if not rows:
        raise ValueError("there are no rows")
    people, who = _numbered([r[0] for r in rows])
    times, when = _numbered([r[1] for r in rows])
    states, what = _numbered([r[2] for r in rows])
    at = np.full((len(people), len(times)), -1)
    at[who, when] = what
    twice = len(rows) - int((at >= 0).sum())
    paths = complete(file.stem, states, at)
    if not twice:
        return paths
    return Paths(
        paths.name, paths.states, paths.at, f"{paths.note}; {twice} rows for a step twice, last one used"
    )


def complete(name: str, states: tuple[str, ...], at: np.ndarray) -> Paths:
    """Individuals who are there throughout, in the stretch of steps where they make most moves in all.

    Counts of a closed population need the same individuals at all steps. `at` is -1 where absent.
    """
    people, T = at.shape
    run = np.zeros((people, T + 1), int)  # steps present from here on without a break
    for t in reversed(range(T)):
        run[:, t] = np.where(at[:, t] >= 0, run[:, t + 1] + 1, 0)
    best, first, length = 0, 0, T
    for t in range(T - 1):
        longest = -np.sort(-run[:, t])  # number of people with a run of at least longest[n - 1] is n
        moves = (longest - 1) * np.arange(1, people + 1)
        n = int(moves.argmax())
        if moves[n] > best:
            best, first, length = int(moves[n]), t, int(longest[n])
    kept = at[run[:, first] >= length, first : first + length]
    used, number = np.unique(kept, return_inverse=True)
    note = f"{len(kept)} individuals, {length} steps, {len(used)} states"
    if length < T:
        note += f"; steps {first + 1} to {first + length} of {T}"
    if len(kept) < people:
        note += f"; {people - len(kept)} individuals left out, not there at all steps"
    return Paths(name, tuple(states[s] for s in used), number.reshape(kept.shape), note)


def _numbered(values: list[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """The different values in order, as numbers if they are, and the place of each."""
    distinct = set(values)
    try:
        order = sorted(distinct, key=float)
    except ValueError:
        order = sorted(distinct)
    place = {value: i for i, value in enumerate(order)}
    return tuple(order), np.array([place[v] for v in values])


# Paths that are made up


def synthetic_paths(seed: int = 0) -> Iterator[Paths]:
    """A few sets of paths as they are met in practice; only the first follows the model."""
    rng = np.random.default_rng(seed)
    yield _made("commuters: one chain, settled", rng, _commuters(), people=1000, steps=60)
    yield _made("careers: sticky, ageing", rng, _careers(72), people=800, steps=72, start=0)
    yield _epidemic(rng)
    yield _made("credit: ratings with default", rng, _credit(), people=1000, steps=20)
    yield _mover_stayer(rng)
    panel = _walk(rng, _panel(), 700, 6, np.full(4, 0.25))
    panel[rng.random(panel.shape) < 0.03] = -1
    yield complete("panel: 6 waves, some missed", tuple("abcd"), panel)


def _made(
    name: str, rng: np.random.Generator, P: np.ndarray, people: int, steps: int, start: int | None = None
) -> Paths:
    """Paths by P [S, S], or [steps - 1, S, S]; from one state, or settled (or, failing that, spread)."""
    S = P.shape[-1]
    first = stationary_distribution(P) if P.ndim == 2 else np.full(S, 1 / S)
    if start is not None:
        first = np.eye(S)[start]
    elif first.max() > 0.99:  # absorbing
        first = np.r_[np.full(S - 1, 1 / (S - 1)), 0.0]
    return complete(name, tuple(map(str, range(S))), _walk(rng, P, people, steps, first))


def _walk(rng: np.random.Generator, P: np.ndarray, people: int, steps: int, first: np.ndarray) -> np.ndarray:
    at = np.empty((people, steps), int)
    at[:, 0] = rng.choice(len(first), people, p=first)
    for t in range(steps - 1):
        at[:, t + 1] = _moved(rng, at[:, t], P if P.ndim == 2 else P[t])
    return at


def _moved(rng: np.random.Generator, at: np.ndarray, P: np.ndarray) -> np.ndarray:
    below = np.cumsum(P, 1)[at]
    return np.minimum((rng.random((len(at), 1)) > below).sum(1), len(P) - 1)


def _commuters() -> np.ndarray:
    return np.array(
        [
            [0.80, 0.12, 0.05, 0.03],
            [0.20, 0.70, 0.06, 0.04],
            [0.40, 0.20, 0.35, 0.05],
            [0.30, 0.10, 0.10, 0.50],
        ]
    )


def _careers(steps: int) -> np.ndarray:
    """School, training, job, out of work, retired: rates that change with age, from the first state."""
    age = np.linspace(0, 1, steps - 1)
    P = np.zeros((steps - 1, 5, 5))
    P[:, 0, 1], P[:, 0, 2], P[:, 0, 3] = 0.02 + 0.05 * age, 0.02 + 0.04 * age, 0.01
    P[:, 1, 2], P[:, 1, 3], P[:, 1, 0] = 0.04 + 0.04 * age, 0.01, 0.005
    P[:, 2, 3], P[:, 2, 1], P[:, 2, 4] = 0.015 - 0.01 * age, 0.004, 0.02 * age**3
    P[:, 3, 2], P[:, 3, 1], P[:, 3, 4] = 0.08 - 0.04 * age, 0.02, 0.01 * age
    return P + (1 - P.sum(2))[..., None] * np.eye(5)


def _epidemic(rng: np.random.Generator) -> Paths:
    """Susceptible, infected, recovered; infection depends on who is infected, immunity wanes slowly."""
    people, steps = 1500, 60
    at = np.zeros((people, steps), int)
    at[: people // 50, 0] = 1
    for t in range(steps - 1):
        catch = 0.45 * float((at[:, t] == 1).mean())
        P = np.array([[1 - catch, catch, 0.0], [0.0, 0.85, 0.15], [0.01, 0.0, 0.99]])
        at[:, t + 1] = _moved(rng, at[:, t], P)
    return complete("epidemic: SIRS", ("susceptible", "infected", "recovered"), at)


def _credit() -> np.ndarray:
    """Seven grades and default, which is never left: one grade down or up, rarely two."""
    S = 8
    P = np.zeros((S, S))
    for i in range(S - 1):
        down = 0.05 + 0.01 * i
        P[i, i + 1] += down
        P[i, min(i + 2, S - 1)] += down / 8
        if i:
            P[i, i - 1] += 0.03 + 0.01 * i
        P[i, S - 1] += 0.0002 * 3.0**i
    return P + np.diag(1 - P.sum(1))


def _mover_stayer(rng: np.random.Generator) -> Paths:
    """Two kinds of people, of whom one hardly ever moves: memory that no single chain has."""
    move = np.array([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2], [0.25, 0.25, 0.5]])
    stay = 0.995 * np.eye(3) + 0.005 / 3
    settled = stationary_distribution(move)
    at = np.vstack([_walk(rng, P, 500, 40, settled) for P in (move, stay)])
    return complete("mixture: movers and stayers", ("a", "b", "c"), at)


def _panel() -> np.ndarray:
    return np.array(
        [
            [0.88, 0.07, 0.03, 0.02],
            [0.10, 0.80, 0.08, 0.02],
            [0.04, 0.12, 0.76, 0.08],
            [0.02, 0.03, 0.10, 0.85],
        ]
    )


# Counting and estimating


def count(paths: Paths, groups: int, rng: np.random.Generator) -> np.ndarray:
    """Counts [groups, steps, states] of random groups whose sizes differ by one at most."""
    people, T = paths.at.shape
    S = len(paths.states)
    group = rng.permutation(people) % groups
    place = (group[:, None] * T + np.arange(T)) * S + paths.at
    return np.bincount(place.ravel(), minlength=groups * T * S).reshape(groups, T, S)


def singles(y: np.ndarray, noise: am.Noise, N: np.ndarray) -> dict[str, np.ndarray]:
    """P by every single estimator; a row without an estimate, of a state never seen, is the mean shares."""
    S = y.shape[2]
    shares, weight = y / N[:, None, None], N.astype(float)
    seen = (y[:, :-1] != 0).any((0, 1))
    x = latent(am.Sums.of(shares, weight=weight).total, noise, 1.0).restricted(seen)
    found = {name: apply(name, x) for name in PLAIN}
    for name in ("cls", "corrected-cls"):
        found[f"{name}+simplex"] = project_rows(found[name])
    if len(y) > 1:
        found["per-step"] = project_rows(per_step(shares, noise, weight, seen))
    naive = found["naive"][0]
    for name, P in found.items():
        full = np.zeros((S, S))
        full[:, seen] = naive
        full[np.ix_(seen, seen)] = np.where(np.isnan(P), naive, P)
        found[name] = full
    return found


def per_step(shares: np.ndarray, noise: am.Noise, weight: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """mom at each step about its own means, pooled: expected moves over expected visits."""
    sums = am.Sums.of(shares, as_chain("per-step"), weight, replicates=2)
    steps = []
    for cell in sums.cells:
        moments = add_moments(sums.states, sums.by_replicate([cell]).values())
        if moments.pairs > 1:
            steps.append(latent(moments, noise, 1.0, centred=True).restricted(seen))
    return nonstationary.pooled(steps)


def panel_case(paths: Paths, noise: am.Noise, groups: int, seed: int) -> Case:
    """A panel counted in random groups under one noise; the truth is the matrix of all its moves."""
    rng = np.random.default_rng([seed, *paths.name.encode()])
    n = count(paths, groups, rng)
    visits = paths.moves.sum(1)
    truth = paths.moves / np.maximum(visits, 1)[:, None]
    judged = np.tile((visits > 0)[:, None], (1, len(visits)))
    y, population = noise.sample(n, rng), n[:, 0].sum(1)
    return Case(paths.name, y, noise, population, truth, visits / visits.sum(), judged)
