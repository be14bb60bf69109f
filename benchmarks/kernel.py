"""The cost of pairing and summing one block, as ratios: `make bench`.

Contestants see 100,000 in-order records of one realization at S = 10. The sums of each are compared
with the product's before it is timed. Best of 7, interleaved.
"""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np

import aggmc_beam as am

ROWS, S, ROUNDS = 100_000, 10, 7


def one_gemm(y):
    return y[:-1].T @ y[1:]


def loop(y):
    """The record-by-record form that a first attempt would have."""
    total = np.zeros((S, S))
    for a, b in pairwise(y):
        total += np.outer(a, b)
    return total


def extend(y):
    return am.Track(S).extend(np.arange(len(y)), y)


def shuffled_blocks(y, order):
    """The same records in random order, in blocks of 1,000."""
    track, total = am.Track(S), am.Moments.zero(S)
    for at in np.array_split(order, len(order) // 1000):
        total += track.extend(at, y[at])
    return total


def main() -> None:
    rng = np.random.default_rng(0)
    y = rng.poisson(20, (ROWS, S)).astype(float)
    small, order = y[:10_000], rng.permutation(10_000)
    contestants = {
        "one GEMM, 100,000 rows": lambda: one_gemm(y),
        "Track.extend, 100,000 rows": lambda: extend(y),
        "loop of outer products, 100,000 rows": lambda: loop(y),
        "Track.extend, 10,000 rows in order": lambda: extend(small),
        "Track.extend, 10,000 rows shuffled in blocks of 1,000": lambda: shuffled_blocks(small, order),
        "Track.extend, 100,000 rows shuffled in blocks of 1,000": lambda: shuffled_blocks(
            y, np.random.default_rng(1).permutation(ROWS)
        ),
    }
    m = extend(y).lag1
    reference = m.product + m.weight * np.outer(m.left, m.right)
    np.testing.assert_allclose(one_gemm(y), reference, rtol=1e-9)
    np.testing.assert_allclose(loop(y), reference, rtol=1e-9)
    shuffled = shuffled_blocks(small, order).lag1
    np.testing.assert_allclose(shuffled.product, extend(small).lag1.product, rtol=1e-9)
    best = dict.fromkeys(contestants, np.inf)
    for _ in range(ROUNDS):
        for name, run in contestants.items():
            started = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - started)
    unit = best["one GEMM, 100,000 rows"]
    print("| what | time / one GEMM | ms |\n| --- | --- | --- |")
    for name, seconds in best.items():
        print(f"| {name} | {seconds / unit:.1f} | {seconds * 1e3:.2f} |")


if __name__ == "__main__":
    main()
