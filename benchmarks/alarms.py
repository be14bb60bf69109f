"""How often checks cry wolf on counts that are right, and how often they see what is wrong.

    python benchmarks/alarms.py                    400 right runs of all sizes, then each violation
    python benchmarks/alarms.py --runs 100 --first 200     the runs 200 to 299 only: in pieces

A right run has a chain, states, individuals, realizations, steps, start and noise drawn at random. Alarms are
by name what `Estimate` and `Diagnosis` say: the checks of totals, a ground that is not the first, movement of the
means where there is none, a period, sources that contradict each other, rows that contradict themselves, and a
score below that of identity or naive. `warned`: any sentence in `Estimate.warnings`, but that of rows
of which there are only too few data.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterable

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from violations import BROKEN, NOISES, VIOLATED, Case, case, settled, sticky, walk

import aggmc_beam as am
from aggmc_beam.simulation import random_chain

RIGHT_NOISES: tuple[am.Noise, ...] = (
    am.Exact(),
    am.Binomial(0.5),
    am.Binomial(0.2),
    am.Poisson(0.7),
    am.Gaussian(3.0),
    am.Laplace(2.0),
)
#: Pairs that a run has at most, so that all of them end in minutes.
MOST_PAIRS = 20_000


def right_run(seed: int) -> Case:
    """Independent movers, alike realizations and noise as stated, of a size drawn at random."""
    rng = np.random.default_rng([seed, 99])
    S, N = int(rng.integers(2, 11)), int(10 ** rng.uniform(1.7, 3.7))
    K = int(rng.choice([1, 2, 5, 10, 30, 100, 300]))
    T = int(rng.choice([t for t in (2, 5, 12, 24, 60, 200, 1000, 5000) if 100 <= K * t <= MOST_PAIRS]))
    P = random_chain(rng, S, 0.5, "regular") if rng.random() < 0.3 and S > 2 else sticky(S, rng)
    start = settled(rng, P, N, K)
    if rng.random() < 0.25:  # all realizations begin from other shares, the same for each
        start = rng.multinomial(N, rng.dirichlet(np.ones(S)), K)
    noise = RIGHT_NOISES[int(rng.integers(len(RIGHT_NOISES)))]
    return case("right", walk(rng, P, start, T), noise, N, P, rng)


def alarms(run: Case) -> list[str]:
    """The names of all that was raised."""
    found = am.estimate(run.y, noise=run.noise, population=run.population)
    notes = found.diagnostics
    raised = [check["name"] for check in notes["checks"] if not check["passed"]]
    raised += [f"contradiction: {name}" for name, size in notes["interval"]["tests"].items() if size > 1]
    if notes["ground"]["name"] != "independent":
        raised.append(f"ground: {notes['ground']['name']}")
    if "period" in notes:
        raised.append("period")
    if any(row.get("contradicted") for row in notes["rows"]):
        raised.append("rows contradict themselves")
    if any(row["flag"] == "not-determined" for row in notes["rows"]):
        raised.append("rows not determined")
    aloud = [w for w in found.warnings if "hardly determined by these counts" not in w]
    if any("on data left out" in w for w in aloud):
        raised.append("score")
    return [*raised, *(["warned"] if aloud else [])]


def rates(cases: Iterable[Case]) -> tuple[int, Counter[str]]:
    number, raised = 0, Counter[str]()
    for one in cases:
        number += 1
        raised.update(alarms(one))
    return number, raised


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10, help="of each violation; 0 for right runs only")
    options = parser.parse_args()

    number, raised = rates(right_run(seed) for seed in range(options.first, options.first + options.runs))
    print(f"{number} right runs\n\n| alarm | runs |\n| --- | --- |")
    for name, times in raised.most_common():
        print(f"| {name} | {times} |")
    if not options.seeds:
        return
    print(f"\n{options.seeds} seeds of each violation\n\n| set | noise | raised |\n| --- | --- | --- |")
    for name, make in (VIOLATED | BROKEN).items():
        for noise, model in {"its own": am.Exact()}.items() if name in BROKEN else NOISES.items():
            _, raised = rates(make(model, seed) for seed in range(options.seeds))
            words = ", ".join(f"{what} {times}" for what, times in raised.most_common())
            print(f"| {name} | {noise} | {words or 'nothing'} |", flush=True)


if __name__ == "__main__":
    main()
