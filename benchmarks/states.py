"""How long estimates take as the number of states grows: `make bench`.

Seconds of processor time on one core, best of 3, from latent moments of simulated counts; the
transport projection with the ratio to one S x S eigenvalue decomposition beside it.
"""

from __future__ import annotations

import time

import numpy as np

import aggmc_beam as am
from aggmc_beam.estimators.fast import fast
from aggmc_beam.estimators.gmm import gmm
from aggmc_beam.latent import latent

NOISE = am.Binomial(0.5)


def best(run, rounds: int = 3) -> float:
    times = []
    for _ in range(rounds):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times)


def main() -> None:
    print("| S | fast | fast / eigh | gmm, V known | gmm, diagonal V | gmm, any V |")
    print("| --- | --- | --- | --- | --- | --- |")
    for S in (5, 10, 20, 50, 200, 1000):
        y, _ = am.simulate(2.0, states=S, population=1000, steps=300, realizations=4, noise=NOISE, seed=S)
        x = latent(am.Sums.of(y).total, NOISE, 1000)
        square = np.cov(y.reshape(-1, S).T)
        seconds = best(lambda x=x: fast(x))
        row = [f"{seconds:.4f} s", f"{seconds / best(lambda square=square: np.linalg.eigh(square)):.1f}"]
        for lag0 in ("known", "diagonal", "any"):
            slow = best(lambda x=x, lag0=lag0: gmm(x, lag0=lag0), 1 if S > 20 else 3) if S <= 50 else None
            row.append("-" if slow is None else f"{slow:.3f} s")
        print("|", " | ".join([str(S), *row]), "|", flush=True)


if __name__ == "__main__":
    main()
