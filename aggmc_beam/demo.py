"""A first look: simulate a noisy mobility feed, estimate its moves, compare with the truth."""

from __future__ import annotations

import numpy as np

import aggmc_beam as am
from aggmc_beam.result import matrix_table

STATES = ["home", "work", "transit", "other"]
MOVES = np.array(
    [
        [0.85, 0.04, 0.08, 0.03],
        [0.03, 0.85, 0.09, 0.03],
        [0.30, 0.25, 0.30, 0.15],
        [0.10, 0.05, 0.15, 0.70],
    ]
)
DEVICES, HOURS, ZONES, SEEN = 500, 24 * 60, 4, 0.5


def main() -> None:
    noise = am.Binomial(SEEN)
    counts, truth = am.simulate(
        MOVES, states=STATES, population=DEVICES, steps=HOURS, realizations=ZONES, noise=noise, seed=7
    )
    print(
        f"Simulated {ZONES} zones of {DEVICES} devices over {HOURS:,} hours; each device is seen with "
        f"probability {SEEN}.\n\nTruth\n{matrix_table(STATES, truth.transition_matrix)}"
    )
    for name in ("auto", "mom", "cls"):
        est = am.estimate(counts, states=STATES, noise=noise, population=DEVICES, estimator=name)
        error = np.sqrt(np.mean((est.transition_matrix - MOVES) ** 2))
        print(f"\n{est}\nroot mean square error against the truth: {error:.4f}")
    print("\ncls, least squares on consecutive counts, stays wrong however much data there is.")


if __name__ == "__main__":
    main()
