"""Simulated aggregate data: N individuals walk a Markov chain, only noisy counts are seen.

Individuals move independently (Bernstein & Sheldon 2016, section 2), so given the counts n_t those
who leave state i are Multinomial(n_t[i], P[i]). Drawing those flows costs the same for a
population of a hundred and of a billion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aggmc_beam.errors import InputError
from aggmc_beam.noise import Exact, Noise

__all__ = ["Simulation", "Truth", "random_chain", "simulate", "stationary_distribution"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Ensemble = Literal["paper", "regular"]

_MAX_DRAWS = 20_000


@dataclass(frozen=True, eq=False)
class Truth:
    """What the simulator knew.

    transition_matrix: [S, S], or [T-1, S, S] when it was given per step
    stationary: [S], stationary distribution (of the first matrix, when given per step)
    counts: [K, T, S] true integer counts n
    states: S names
    population: [K] individuals per realization
    noise: the observation model

    >>> simulate(seed=1).truth.counts.sum(axis=-1).max()
    np.int64(100)
    """

    transition_matrix: FloatArray
    stationary: FloatArray
    counts: IntArray
    states: tuple[str, ...]
    population: IntArray
    noise: Noise


class Simulation(NamedTuple):
    """Observed counts [K, T, S] and the truth behind them.

    >>> counts, truth = simulate(steps=50, realizations=3, seed=1)
    >>> counts.shape
    (3, 50, 10)
    """

    counts: FloatArray
    truth: Truth


def simulate(
    P: ArrayLike | None = None,
    *,
    precision: float = 0.5,
    states: int | Sequence[str] | None = None,
    population: ArrayLike = 100,
    steps: int | None = None,
    realizations: int | None = None,
    noise: Noise = Exact(),  # noqa: B008 - frozen
    seed: int | np.random.Generator = 0,
    start: ArrayLike | Literal["stationary"] = "stationary",
    ensemble: Ensemble = "paper",
) -> Simulation:
    """Draw noisy aggregate counts of a Markov chain. The same seed gives the same bytes.

    P: transition matrix [S, S]; a stack [T-1, S, S] whose entry t leads from step t to t + 1; or
        a number, which stands for `precision`; by default a chain is drawn by `random_chain`
    precision, ensemble: of the drawn chain, see `random_chain`
    states: how many, or their names; by default as many as P has, or 10
    population: individuals per realization, one number or [K]
    steps: T; by default 100, or what a stack of matrices implies
    realizations: K, independent of each other; by default 1, or the length of `population`
    start: distribution of the first step [S]; "stationary" is that of P (of P[0] for a stack)

    >>> counts, truth = simulate([[0.9, 0.1], [0.3, 0.7]], steps=10_000, seed=0)
    >>> counts.mean(axis=(0, 1)), truth.stationary
    (array([75.0153, 24.9847]), array([0.75, 0.25]))
    """
    rng = _generator(seed)
    names = None if states is None else _names(states)
    if P is None or np.ndim(P) == 0:
        drawn = precision if P is None else P
        size = 10 if names is None else len(names)
        chain = random_chain(rng, size, drawn, ensemble)  # type: ignore[arg-type]
    else:
        chain = _stochastic(P, stack=True)
    S = chain.shape[-1]
    names = _names(S) if names is None else names
    if len(names) != S:
        raise InputError(f"{len(names)} states are named but the transition matrix has {S}")

    N = _population(population, realizations)
    T = _steps(steps, chain)
    if not isinstance(noise, Noise):
        raise InputError(f"noise must be a noise model such as Binomial(0.5), got {noise!r}")
    stationary = stationary_distribution(chain if chain.ndim == 2 else chain[0])
    first = stationary if _is_word(start, "stationary") else _distribution(start, S)

    n = _walk(rng, chain, first, N, T)
    observed = noise.sample(n, rng)
    return Simulation(observed, Truth(chain, stationary, n, names, N, noise))


def random_chain(
    rng: np.random.Generator, S: int, precision: float = 0.5, ensemble: Ensemble = "paper"
) -> FloatArray:
    """A random transition matrix [S, S]; rows are Dirichlet with mean 1/S and this precision.

    The precision D is the total concentration (each parameter is D / S): small values give rows
    close to a single state. ensemble "paper" takes the draw as it comes (at S = 10, D = 0.5 often
    with states that are hardly ever visited); "regular" draws again until every state has
    stationary share >= 0.01 and |lambda_2| <= 0.95.

    >>> P = random_chain(np.random.default_rng(0), 10, ensemble="regular")
    >>> round(stationary_distribution(P).min(), 4)
    np.float64(0.0126)
    """
    S = _count("states", S)
    if isinstance(precision, str | bool) or not (np.isreal(precision) and 0 < precision < np.inf):
        raise InputError(f"precision must be a finite number above 0, got {precision!r}")
    if ensemble not in ("paper", "regular"):
        raise InputError(f"ensemble must be 'paper' or 'regular', got {ensemble!r}")
    if ensemble == "paper":
        return _dirichlet_rows(rng, S, precision)
    for _ in range(_MAX_DRAWS if S <= 100 else 0):
        P = _dirichlet_rows(rng, S, precision)
        if stationary_distribution(P).min() >= 0.01 and _second_eigenvalue(P) <= 0.95:
            return P
    raise InputError(
        f"no regular chain found for {S} states at precision {precision:g}; "
        "use fewer states, a higher precision, or ensemble='paper'"
    )


def stationary_distribution(P: ArrayLike) -> FloatArray:
    """The distribution pi [S] with pi P = pi, by GTH elimination: small entries keep their digits.

    Transient states get 0. When the chain falls apart into several recurrent classes, pi is not
    unique; returned is the long-run average of a chain that starts in each state equally often.

    >>> stationary_distribution([[0.9, 0.1], [0.3, 0.7]])
    array([0.75, 0.25])
    """
    matrix = _stochastic(P)
    classes = _recurrent_classes(matrix)
    pi = np.zeros(len(matrix))
    for members, share in zip(classes, _absorption_shares(matrix, classes), strict=True):
        pi[members] = share * _gth(matrix[np.ix_(members, members)])
    return pi


def _gth(P: FloatArray) -> FloatArray:
    """Stationary distribution of an irreducible P (Grassmann, Taksar & Heyman 1985)."""
    A = P.copy()
    S = len(A)
    leaving = np.ones(S)
    for k in range(S - 1, 0, -1):
        # Censor state k: no subtraction, hence no cancellation.
        leaving[k] = A[k, :k].sum()
        if leaving[k] > 0:
            A[:k, :k] += np.outer(A[:k, k], A[k, :k] / leaving[k])
    pi = np.zeros(S)
    pi[0] = 1.0
    for k in range(1, S):
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            pi[k] = pi[:k] @ A[:k, k] / leaving[k]
        if not np.isfinite(pi[k]):
            # State k is left so rarely that nothing else is visible beside it.
            pi[:k], pi[k] = 0.0, 1.0
        pi[: k + 1] /= pi[: k + 1].max()
    return np.asarray(pi / pi.sum())


def _recurrent_classes(P: FloatArray) -> list[IntArray]:
    reaches = (P > 0) | np.eye(len(P), dtype=bool)
    for _ in range(max(1, int(np.ceil(np.log2(len(P)))))):
        if reaches.all():
            return [np.arange(len(P))]
        reaches = (reaches.astype(np.float32) @ reaches.astype(np.float32)) > 0
    # Recurrent: everything that i reaches leads back to i.
    recurrent = (reaches <= reaches.T).all(axis=1)
    return [np.flatnonzero(reach) for reach in np.unique(reaches[recurrent], axis=0)]


def _absorption_shares(P: FloatArray, classes: list[IntArray]) -> FloatArray:
    """Probability of ending in each class when every state is an equally likely start."""
    if len(classes) == 1:
        return np.ones(1)
    S = len(P)
    transient = np.setdiff1d(np.arange(S), np.concatenate(classes))
    into = np.column_stack([P[np.ix_(transient, members)].sum(axis=1) for members in classes])
    # By least squares: a state that is left with probability 1e-17 makes the equations singular.
    staying = np.eye(len(transient)) - P[np.ix_(transient, transient)]
    absorbed = np.linalg.lstsq(staying, into, rcond=None)[0]
    weight = np.array([len(members) for members in classes]) + absorbed.sum(axis=0)
    return np.asarray(weight / weight.sum())


def _second_eigenvalue(P: FloatArray) -> float:
    return float(np.sort(np.abs(np.linalg.eigvals(P)))[-2]) if len(P) > 1 else 0.0


def _dirichlet_rows(rng: np.random.Generator, S: int, precision: float) -> FloatArray:
    concentration = max(precision / S, np.finfo(float).tiny)
    P = rng.dirichlet(np.full(S, concentration), size=S)
    # At tiny concentrations all of a row can underflow; the limit of such a row is one state.
    lost = ~(np.isfinite(P).all(axis=1) & (P.sum(axis=1) > 0.5))
    P[lost] = np.eye(S)[rng.integers(S, size=lost.sum())]
    return np.asarray(P / P.sum(axis=1, keepdims=True))


def _walk(rng: np.random.Generator, chain: FloatArray, first: FloatArray, N: IntArray, T: int) -> IntArray:
    """True counts [K, T, S]."""
    K, S = len(N), chain.shape[-1]
    # numpy gives the last category what rounding left over, and stops early once everybody is
    # placed. Impossible targets first, then falling probabilities: nobody lands where P is 0, and
    # most rows are done after a few draws.
    order = np.argsort(np.where(chain > 0, -chain, -np.inf), axis=-1, kind="stable")
    rows = np.take_along_axis(chain, order, axis=-1)
    back = np.argsort(order, axis=-1) + S * np.arange(S)[:, None]
    rank = np.argsort(np.where(first > 0, -first, -np.inf), kind="stable")
    n = np.empty((K, T, S), dtype=np.int64)
    n[:, 0, rank] = rng.multinomial(N, first[rank])
    for t in range(T - 1):
        p, targets = (rows, back) if chain.ndim == 2 else (rows[t], back[t])
        flows = rng.multinomial(n[:, t], p).reshape(K, S * S)
        n[:, t + 1] = flows[:, targets.ravel()].reshape(K, S, S).sum(axis=1)
    return n


def _stochastic(P: ArrayLike, stack: bool = False) -> FloatArray:
    """P as an array whose rows sum to 1 to the last digit, or an error that names the row."""
    try:
        matrix = np.array(P, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"the transition matrix must be an array of numbers ({error})") from None
    shapes = "[S, S] or [T-1, S, S]" if stack else "[S, S]"
    if matrix.ndim not in ((2, 3) if stack else (2,)) or matrix.shape[-1] != matrix.shape[-2]:
        raise InputError(f"the transition matrix must have shape {shapes}, got {list(matrix.shape)}")
    if matrix.size == 0:
        raise InputError("the transition matrix is empty")
    sums = matrix.sum(axis=-1)
    bad = ~np.isfinite(matrix).all(axis=-1) | (matrix < 0).any(axis=-1) | ~(abs(sums - 1) < 1e-6)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"row {where if stack and len(where) > 1 else where[-1]} of the transition matrix must "
            f"be probabilities that sum to 1, got {matrix[where].tolist()} (sum {sums[where]:.6g})"
        )
    return np.asarray(matrix / sums[..., None])


def _distribution(start: ArrayLike, S: int) -> FloatArray:
    try:
        first = np.array(start, dtype=float)
    except (TypeError, ValueError):
        raise InputError(
            f"start must be 'stationary' or a distribution over {S} states, got {start!r}"
        ) from None
    if first.shape != (S,):
        raise InputError(f"start must have shape [{S}], got {list(first.shape)}")
    if not np.isfinite(first).all() or (first < 0).any() or abs(first.sum() - 1) > 1e-6:
        raise InputError(f"start must be probabilities that sum to 1, got {first.tolist()}")
    return np.asarray(first / first.sum())


def _names(states: int | Sequence[str]) -> tuple[str, ...]:
    if isinstance(states, int | np.integer):
        return tuple(str(i) for i in range(_count("states", states)))
    if isinstance(states, str) or not isinstance(states, Sequence):
        raise InputError(f"states must be a number or a list of names, got {states!r}")
    names = tuple(states)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"states must be a number or a list of names, got {states!r}")
    if len(set(names)) != len(names):
        raise InputError(f"states must have different names, got {list(names)}")
    return names


def _population(population: ArrayLike, realizations: int | None) -> IntArray:
    given = np.asarray(population)
    whole = given.dtype.kind in "iu" or (given.dtype.kind == "f" and bool((given == np.floor(given)).all()))
    # Up to 2^53 a count is exact as a float.
    if given.ndim > 1 or given.size == 0 or not whole or not _within(given, 1, 2**53):
        raise InputError(
            "population must be whole numbers from 1 to 2^53, one for all realizations or one for "
            f"each, got {population!r}"
        )
    if realizations is None:
        return np.atleast_1d(given).astype(np.int64)
    K = _count("realizations", realizations)
    if given.ndim == 1 and len(given) != K:
        raise InputError(f"population has {len(given)} entries for {K} realizations")
    return np.array(np.broadcast_to(given, K), dtype=np.int64)


def _within(values: NDArray[np.generic], low: int, high: int) -> bool:
    return bool((values >= low).all() and (values <= high).all())  # type: ignore[operator]


def _steps(steps: int | None, chain: FloatArray) -> int:
    if chain.ndim == 2:
        return 100 if steps is None else _count("steps", steps)
    implied = len(chain) + 1
    if steps is not None and _count("steps", steps) != implied:
        raise InputError(
            f"{len(chain)} transition matrices make {implied} steps, but steps={steps} was given"
        )
    return implied


def _count(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{what} must be a whole number of at least 1, got {value!r}")
    return int(value)


def _generator(seed: int | np.random.Generator) -> np.random.Generator:
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be a whole number of at least 0, got {seed!r}")
    return np.random.default_rng(seed)


def _is_word(value: object, word: str) -> bool:
    return isinstance(value, str) and value == word
