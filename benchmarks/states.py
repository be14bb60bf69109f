"""How long estimates take, and what they hold at once, as the number of states grows: `make bench`.

Seconds of processor time on one core and peak memory. First single estimators, from latent moments of
simulated counts, best of 3; the transport projection with the ratio to one S x S eigenvalue decomposition
beside it. Then whole estimates by `auto` from arrays, with mean shares that stay and that move. Last the
quadratic program of moving shares, by columns and as one of S^2 variables.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np

import aggmc_beam as am
from aggmc_beam.blas import one_blas_thread
from aggmc_beam.estimators.fast import fast
from aggmc_beam.estimators.gmm import gmm
from aggmc_beam.estimators.latent import latent
from aggmc_beam.estimators.quadratic import ColumnQuadratic, nonnegative_qp

NOISE, N = am.Binomial(0.5), 1000


def best(run: Callable[[], object], rounds: int = 3) -> float:
    times = []
    for _ in range(rounds):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times)


def peak(run: Callable[[], object]) -> float:
    """Mebibytes that are held at once."""
    tracemalloc.start()
    run()
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return held / 2**20


def row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def head(*cells: str) -> None:
    row(*cells)
    row(*["---"] * len(cells))


def estimators() -> None:
    head("S", "fast", "fast / eigh", "gmm, V known", "gmm, diagonal V", "gmm, any V")
    for S in (5, 10, 20, 50, 200, 1000):
        y, _ = am.simulate(2.0, states=S, population=N, steps=300, realizations=4, noise=NOISE, seed=S)
        x = latent(am.Sums.of(y).total, NOISE, N)
        square = np.cov(y.reshape(-1, S).T)
        seconds = best(lambda x=x: fast(x))
        found = [f"{seconds:.4f} s", f"{seconds / best(lambda square=square: np.linalg.eigh(square)):.1f}"]
        for lag0 in ("known", "diagonal", "any"):
            slow = best(lambda x=x, lag0=lag0: gmm(x, lag0=lag0), 1 if S > 20 else 3) if S <= 50 else None
            found.append("-" if slow is None else f"{slow:.3f} s")
        row(S, *found)


def counts(S: int, shares: str) -> np.ndarray:
    """[8, 300, S] of a sticky chain: from the start in its stationary distribution, or all in one state, or
    moving up a ladder of ages."""
    rng = np.random.default_rng(S)
    P = 0.9 * np.eye(S) + 0.1 * rng.dirichlet(np.full(S, 0.3), S)
    start = np.eye(S)[0] if shares == "corner" else "stationary"
    if shares == "ageing":
        P = 0.99 * (0.97 * np.eye(S) + 0.03 * np.eye(S, k=1) + 0.03 * np.outer(np.eye(S)[-1], np.eye(S)[-1]))
        P += 0.01 / S
        start = np.where(np.arange(S) < S // 2, 1 / (S // 2), 0.0)
    setting = {"population": N, "steps": 300, "realizations": 8, "noise": NOISE, "seed": S}
    return am.simulate(P, start=start, **setting).counts


def whole() -> None:
    head("S", "mean shares", "form", "auto", "peak memory")
    for S in (10, 50, 100, 200):
        for shares in ("stationary", "corner", "ageing"):
            y = counts(S, shares)

            def run(y: np.ndarray = y) -> am.Estimate:
                return am.estimate(y, noise=NOISE, population=N)

            seconds = best(run, 3 if S < 100 else 1)
            form = run().diagnostics["choice"]["form"] if S < 200 else "-"
            row(S, shares, form, f"{seconds:.2f} s", f"{peak(run):.0f} MiB")


def programs() -> None:
    head("S", "by columns", "as one", "ratio", "peak memory", "as one")
    for S in (5, 10, 20, 40):
        rng = np.random.default_rng(S)
        A, c = rng.normal(size=(S, S)), rng.random((S, 1))
        matrices, weights = np.stack([A @ A.T, c @ c.T]), np.exp(rng.normal(size=(2, S)))
        quadratic = ColumnQuadratic(matrices, weights, np.ones((S, S)), 3 * rng.normal(size=(S, S)))
        everywhere, E = np.ones((S, S), bool), np.kron(np.eye(S), np.ones((1, S)))

        def columns(q: ColumnQuadratic = quadratic, free: np.ndarray = everywhere) -> np.ndarray:
            return q.minimum(np.ones(len(free)), free, free)[0]

        def one(
            q: ColumnQuadratic = quadratic, free: np.ndarray = everywhere, E: np.ndarray = E
        ) -> np.ndarray:
            return nonnegative_qp(q.dense(), q.F.ravel(), E, np.ones(len(free)), free.ravel())[0]

        assert np.abs(columns().ravel() - one()).max() < 1e-8
        fast_, slow = best(columns), best(one)
        memory = (f"{peak(run):.1f} MiB" for run in (columns, one))
        row(S, f"{1e3 * fast_:.1f} ms", f"{1e3 * slow:.1f} ms", f"{fast_ / slow:.2f}", *memory)


def main() -> None:
    with one_blas_thread():
        for table in (estimators, whole, programs):
            table()
            print()


if __name__ == "__main__":
    main()
