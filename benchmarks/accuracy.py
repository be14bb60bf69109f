"""Mean squared errors on simulated chains, against Algorithm 1 and against the information bound.

    python benchmarks/accuracy.py [--chains 20] [--quick]

S = 10 states, N = 100 individuals, K = 10 realizations. Regular chains are draws of the paper's ensemble
(rows Dirichlet of precision .5) that are neither nearly periodic nor have very rare states. Most of
their entries are next to 0, so constraints help, and an estimate may beat the bound, which knows of
none. Dense chains (precision 20) have no such entries.

Figures are "geometric / arithmetic": the geometric mean over chains of the ratio, and the ratio of the
arithmetic means. The bound is that of `bound.py`, with the noise known.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import Pool

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from bound import information_bound

import aggmc_beam as am
from aggmc_beam.estimators.gmm import gmm
from aggmc_beam.estimators.latent import latent
from aggmc_beam.estimators.registry import apply
from aggmc_beam.simulation import random_chain

S, N, K = 10, 100, 10
NOISES: dict[str, am.Noise] = {
    "exact": am.Exact(),
    "alpha .5": am.Binomial(0.5),
    "sigma² 1": am.Gaussian(1.0),
    "sigma² 5": am.Gaussian(math.sqrt(5.0)),
}
PRECISION = {"regular": 0.5, "dense": 20.0}
PLAIN = ("mom", "simplex", "cls", "corrected-cls", "naive", "fast")
GMM = ("any", "diagonal", "known")
CONTESTANTS = (*PLAIN, *(f"gmm {lag0}" for lag0 in GMM), "auto")
REFERENCES = ("mom", "cls", "naive")
NEAR_BOUND, NEAR_BEST = 1.10, 1.06
PROCESSES = 2


@dataclass(frozen=True)
class Task:
    """One chain under one noise, for T steps; T = 0 asks for the bound."""

    ensemble: str
    noise: str
    chain: int
    T: int


def run(task: Task) -> tuple[Task, dict[str, float], str]:
    """Mean squared errors by contestant, and what `auto` chose."""
    rng = np.random.default_rng([task.chain, *task.ensemble.encode()])
    P = random_chain(rng, S, PRECISION[task.ensemble], "regular")
    noise = NOISES[task.noise]
    if not task.T:
        return task, {"bound": information_bound(P, noise, N)}, ""
    rng = np.random.default_rng([task.chain, task.T, *task.noise.encode()])
    y, _ = am.simulate(P, population=N, steps=task.T, realizations=K, noise=noise, seed=rng)
    digest = am.Sums.of(y)
    x = latent(digest.total, noise, N)
    found = {name: apply(name, x) for name in PLAIN}
    for lag0 in GMM:
        # With exact counts there is no noise whose size could be unknown.
        if lag0 != "diagonal" or task.noise != "exact":
            found[f"gmm {lag0}"] = gmm(x, lag0=lag0)
    auto = am.estimate(digest, noise=noise, population=N, estimator="auto")
    found["auto"] = auto.transition_matrix
    choice = auto.diagnostics.get("choice", {})
    chosen = " ".join(str(choice[k]) for k in ("estimator", "form", "lag0") if k in choice)
    return task, {name: float(np.mean((e - P) ** 2)) for name, e in found.items()}, chosen


@dataclass
class Cell:
    """Errors [chains] by contestant, for one ensemble, noise and number of records."""

    ensemble: str
    noise: str
    T: int
    error: dict[str, np.ndarray] = field(default_factory=dict)
    choices: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        return f"{self.ensemble}, {self.noise}, TK = {self.T * K:,}"

    def ratio(self, name: str, to: str) -> tuple[float, float]:
        """Geometric and arithmetic, as in the module's text."""
        a, b = self.error[name], self.error[to]
        return float(np.exp(np.mean(np.log(a / b)))), float(a.mean() / b.mean())

    def uncertainty(self, name: str, to: str) -> float:
        """Standard error over chains of the arithmetic ratio."""
        a, b = self.error[name], self.error[to]
        n = len(a)
        off = a - self.ratio(name, to)[1] * b
        return math.sqrt(n / (n - 1) * float(off @ off)) / float(b.sum()) if n > 1 else math.nan

    def figures(self, name: str, to: str) -> str:
        if name not in self.error:
            return "–"
        return " / ".join(short(v) for v in self.ratio(name, to))


def short(value: float) -> str:
    return f"{value:.2f}" if value < 99.5 else f"{value:.0f}"


def measure(tasks: list[Task]) -> list[Cell]:
    """Run all tasks; the longest first, so that the processes end together."""
    tasks = sorted(tasks, key=lambda t: -t.T)
    results: dict[Task, dict[str, float]] = {}
    choices: dict[Task, str] = {}
    started = time.perf_counter()
    with Pool(PROCESSES) as pool:
        for task, errors, chosen in pool.imap_unordered(run, tasks, 1):
            results[task], choices[task] = errors, chosen
            seconds = time.perf_counter() - started
            print(f"\r{len(results)}/{len(tasks)}, {seconds:.0f} s", end="", file=sys.stderr)
    print(file=sys.stderr)
    cells: dict[tuple[str, str, int], list[Task]] = {}
    for task in tasks:
        if task.T:
            cells.setdefault((task.ensemble, task.noise, task.T), []).append(task)
    return [_cell(members, results, choices) for _, members in sorted(cells.items(), key=_order)]


def _order(item: tuple[tuple[str, str, int], list[Task]]) -> tuple[int, int, int]:
    ensemble, noise, T = item[0]
    return list(PRECISION).index(ensemble), T, list(NOISES).index(noise)


def _cell(members: list[Task], results: dict[Task, dict[str, float]], choices: dict[Task, str]) -> Cell:
    first = members[0]
    bounds = [results[Task(t.ensemble, t.noise, t.chain, 0)]["bound"] / (t.T * K) for t in members]
    error = {name: np.array([results[t][name] for t in members]) for name in results[first]}
    return Cell(
        first.ensemble,
        first.noise,
        first.T,
        {**error, "bound": np.array(bounds)},
        Counter(choices[t] for t in members),
    )


def table(cells: list[Cell], to: str) -> str:
    names = [name for name in CONTESTANTS if name != to]
    head = ["", f"{to} × TK", *names]
    if to == "mom":
        head.append("auto chose")
    rows = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for cell in cells:
        unit = cell.error[to] * cell.T * K
        absolute = f"{np.exp(np.log(unit).mean()):.2f} / {unit.mean():.2f}"
        row = [cell.name, absolute, *(cell.figures(name, to) for name in names)]
        if to == "mom":
            row.append(", ".join(f"{name} ×{n}" for name, n in cell.choices.most_common()))
        rows.append("| " + " | ".join(row) + " |")
    return "\n".join(rows)


def goals(cells: list[Cell]) -> list[str]:
    """One line per goal and cell, by arithmetic means over chains, ± their standard error."""
    lines = []
    largest = max(cell.T for cell in cells)
    for cell in cells:
        if cell.T == largest:
            geometric, ratio = cell.ratio("auto", "bound")
            verdict = "pass" if ratio <= NEAR_BOUND else "FAIL"
            lines.append(
                f"{verdict}: auto / bound {ratio:.3f} ± {cell.uncertainty('auto', 'bound'):.3f} "
                f"(geometric {geometric:.3f}), goal {NEAR_BOUND:.2f}: {cell.name}"
            )
    for cell in cells:
        best = min(REFERENCES, key=lambda name: cell.error[name].mean())
        ratio = cell.ratio("auto", best)[1]
        verdict = "pass" if ratio <= NEAR_BEST else "FAIL"
        error = cell.uncertainty("auto", best)
        lines.append(f"{verdict}: auto / {best} {ratio:.3f} ± {error:.3f}, goal {NEAR_BEST:.2f}: {cell.name}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chains", type=int, default=20, help="regular chains; half as many dense ones")
    parser.add_argument("--quick", action="store_true", help="2 chains, up to 10,000 records, in a minute")
    options = parser.parse_args()
    chains, steps = (2, (100, 1000)) if options.quick else (options.chains, (100, 1000, 10_000))
    number = {"regular": chains, "dense": max(1, chains // 2)}
    lengths = {"regular": (0, *steps), "dense": (0, steps[-1])}
    tasks = [
        Task(ensemble, noise, chain, T)
        for ensemble in PRECISION
        for noise in NOISES
        for chain in range(number[ensemble])
        for T in lengths[ensemble]
    ]
    cells = measure(tasks)
    counted = ", ".join(f"{n} {ensemble}" for ensemble, n in number.items())
    print(f"Chains: {counted}. Geometric / arithmetic means.\n")
    for to in ("mom", "bound"):
        print(f"## Mean squared error over that of {to}\n\n{table(cells, to)}\n")
    print("## Goals\n\n" + "\n".join(f"- {line}" for line in goals(cells)))


if __name__ == "__main__":
    main()
