"""How often checks cry wolf on counts that are right, and how often they see what is wrong.

    python benchmarks/alarms.py                    400 right runs of all sizes, then each violation
    python benchmarks/alarms.py --runs 100 --first 200     the runs 200 to 299 only: in pieces
    python benchmarks/alarms.py --write docs/real.md       and put both tables there

A right run has a chain, states, individuals, realizations, steps, start and noise drawn at random. Alarms are
by name what `Estimate` says: the checks of totals, a ground that is not the first, a period, sources that
contradict each other, rows that contradict themselves, and a score that puts identity or naive ahead. That last
one is false only where the estimate is in truth nearer than the baseline, by more than 5%, and all its rows can be
told. "Warned": any false alarm that is among `Estimate.warnings`. Rows of which there are too few data are
not counted: their intervals are that wide.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from page import put
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
#: A baseline is worse whose error is beyond this part of it.
NEARER = 0.95
#: A score that rightly puts a baseline ahead is no false alarm.
RIGHTLY, WARNED = "score, rightly", "warned in all"
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
    notes, rows = found.diagnostics, found.diagnostics["rows"]
    tests = notes["interval"]["tests"]
    aloud = [check["name"] for check in notes["checks"] if not check["passed"]]
    if "period" in notes:
        aloud.append("a period in the means")
    if any(row.get("contradicted") for row in rows):
        aloud.append("rows contradict themselves")
    if any("it may change with time" in warning for warning in found.warnings):
        aloud.append("means contradict what is about them")
    aloud += [_score(run, found, warning) for warning in found.warnings if "on data left out" in warning]
    quiet = [f"contradiction, {name}" for name, size in tests.items() if size > 1]
    if notes["ground"]["name"] != "independent":
        quiet.append(f"ground: {notes['ground']['name']}")
    told = [name for name in aloud if name != RIGHTLY]
    return [*aloud, *quiet, *([WARNED] if told else [])]


def _score(run: Case, found: am.Estimate, warning: str) -> str:
    name = "identity" if "nobody moves" in warning else "naive"
    better = run.error(found.transition_matrix) < NEARER * run.error(found.baselines[name])
    told = not any(row["flag"] == "not-determined" for row in found.diagnostics["rows"])
    return "score" if better and told else RIGHTLY


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
    parser.add_argument("--write", type=Path, help="a page to put the tables into")
    options = parser.parse_args()

    number, raised = rates(right_run(seed) for seed in range(options.first, options.first + options.runs))
    lines = [f"| alarm | of {number} right runs |", "| --- | --- |"]
    lines += [f"| {name} | {times} |" for name, times in raised.most_common()]
    print("\n".join(lines), flush=True)
    if options.write:
        put(options.write, "alarms", "\n".join(lines))
    if not options.seeds:
        return
    lines = [f"| set | noise | what was raised in {options.seeds} runs |", "| --- | --- | --- |"]
    print("\n" + "\n".join(lines), flush=True)
    for name, make in (VIOLATED | BROKEN).items():
        for noise, model in {"its own": am.Exact()}.items() if name in BROKEN else NOISES.items():
            _, raised = rates(make(model, seed) for seed in range(options.seeds))
            words = ", ".join(f"{what} {times}" for what, times in raised.most_common())
            lines.append(f"| {name} | {noise} | {words or 'nothing'} |")
            print(lines[-1], flush=True)
    if options.write:
        put(options.write, "power", "\n".join(lines))


if __name__ == "__main__":
    main()
