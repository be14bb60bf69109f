"""What estimates and their intervals are worth on counts that break the model, and on real ones.

    python benchmarks/real.py                 simulated counts: the model as it is, and its violations
    python benchmarks/real.py --data DIR      and published data whose moves are known, as found in DIR
    python benchmarks/real.py --quick         two seeds, few districts: in a minute
    python benchmarks/real.py --write docs/real.md     and put the table there
    python benchmarks/real.py --published     instead, counts as publishers show them: published.py

DIR holds CSV files of individual,time,state (panels, counted in random groups) and what
`realsets.py` names. The error is

    sqrt( sum_i pi_i sum_j (estimate_ij - truth_ij)^2 ),    pi = shares of visits,

`best` the least error of a single estimator, picked with hindsight; identity is "nobody moves". Coverage
is of intervals at 95%, `own` how often they hold the estimate itself, `width` their mean half width over
1.96 times the root mean square error of the estimate, `made of` the parts of their squares in percent: sampling,
differences, disagreement. A warned run is one whose first line warns.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import borrowed
import cities
import numpy as np
import published as suppressed_and_rounded
import uses
from page import put
from panels import panel_case, read_paths, singles, synthetic_paths
from realsets import bike_cases, elections, labour
from violations import BROKEN, NOISES, RIGHT, VIOLATED, Case

import aggmc_beam as am
from aggmc_beam.result import PARTS

#: Districts of an election that one is taken of.
EVERY, EVERY_QUICK = 6, 24
GROUPS = 50

Named = tuple[str, str, Case]


@dataclass
class Row:
    """One line of the table: all cases of a set under one noise."""

    cases: int = 0
    error: dict[str, list[float]] = field(default_factory=dict)
    coverage: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    half: list[float] = field(default_factory=list)
    miss: list[float] = field(default_factory=list)
    squares: list[list[float]] = field(default_factory=list)
    grounds: Counter[str] = field(default_factory=Counter)
    warned: int = 0
    undetermined: int = 0
    seconds: float = 0.0

    def add(self, case: Case) -> None:
        population = np.broadcast_to(np.asarray(case.population, float), (len(case.y),))
        started = time.perf_counter()
        found = am.estimate(case.y, noise=case.noise, population=population)
        self.seconds += time.perf_counter() - started
        P, (lower, upper), judged = found.transition_matrix, found.interval(), case.judged
        errors = {name: case.error(Q) for name, Q in singles(case.y, case.noise, population).items()}
        errors |= {"auto": case.error(P), "identity": case.error(np.eye(len(P)))}
        for name, value in errors.items():
            self.error.setdefault(name, []).append(value)
        known = judged & np.isfinite(lower)
        for values, point in ((self.coverage, case.truth), (self.own, P)):
            values.append(float(((point >= lower - 1e-9) & (point <= upper + 1e-9))[known].mean()))
        self.half.append(float((upper - lower)[known].mean() / 2))
        self.miss.append(float(((P - case.truth)[known] ** 2).mean()))
        self.squares.append([float((getattr(found, part)[known] ** 2).mean()) for part in PARTS])
        self.cases += 1
        self.grounds[found.diagnostics["ground"]["name"]] += 1
        self.warned += bool(found.warnings)
        self.undetermined += any(row["flag"] == "not-determined" for row in found.diagnostics["rows"])

    def mean(self, name: str) -> float:
        return float(np.mean(self.error[name]))

    @property
    def best(self) -> str:
        fitted = [n for n in self.error if n not in ("auto", "identity")]
        return min(fitted, key=self.mean)

    @property
    def width(self) -> float:
        return float(np.mean(self.half)) / (1.96 * max(float(np.sqrt(np.mean(self.miss))), 1e-12))

    def cells(self) -> list[str]:
        errors = [f"{self.mean(name):.4f}" for name in ("auto", "identity", "naive")]
        over = self.mean("auto") / max(self.mean(self.best), 1e-12)
        warned = f"{self.warned} of {self.cases}" if self.cases > 1 else ("yes" if self.warned else "no")
        if self.undetermined:
            warned += f" (not determined: {self.undetermined})"
        squares = np.mean(self.squares, 0)
        grounds = ", ".join(f"{n} {c}" if len(self.grounds) > 1 else n for n, c in self.grounds.most_common())
        return [
            *errors,
            f"{self.mean(self.best):.4f} {self.best}",
            f"{over:.2f}",
            f"{np.mean(self.coverage):.2f}",
            f"{np.mean(self.own):.2f}",
            f"{self.width:.2f}",
            "/".join(f"{100 * share:.0f}" for share in squares / max(squares.sum(), 1e-300)),
            grounds,
            warned,
        ]


HEAD = ["set", "noise", "auto", "identity", "naive", "best single", "auto / best", "coverage", "own", "width"]
HEAD += ["made of", "ground", "warned"]


def simulated(seeds: int) -> Iterator[Named]:
    for makers in (RIGHT, VIOLATED):
        for name, make in makers.items():
            for noise, model in NOISES.items():
                yield from ((name, noise, make(model, seed)) for seed in range(seeds))
    for name, make in BROKEN.items():
        yield from ((name, "its own", make(am.Exact(), seed)) for seed in range(seeds))


def panels(files: Iterable[Path], seeds: int, synthetic: bool) -> Iterator[Named]:
    sources = list(synthetic_paths()) if synthetic else []
    for file in files:
        try:
            sources.append(read_paths(file))
        except (KeyError, ValueError) as error:
            print(f"{file.name} left out: not individual,time,state ({error})", file=sys.stderr)
    for paths in sources:
        people, T = paths.at.shape
        if people < 2 * GROUPS or T < 2 or len(paths.states) < 2:
            print(f"{paths.name} left out: too little for {GROUPS} groups", file=sys.stderr)
            continue
        for noise, model in NOISES.items():
            yield from ((paths.name, noise, panel_case(paths, model, GROUPS, s)) for s in range(seeds))


def published(folder: Path, quick: bool) -> Iterator[Named]:
    if (folder / "bikes").exists():
        yield from bike_cases(folder / "bikes", NOISES)
    if (folder / "elections").exists():
        for case in elections(folder / "elections", EVERY_QUICK if quick else EVERY):
            yield "elections", "exact", case
    for file in sorted((folder / "labour").glob("flows*.csv")):
        yield "labour force", "exact", labour(file)


def table(named: Iterable[Named], wanted: Callable[[str], bool] = lambda name: True) -> str:
    """All rows, printed as they come; the same as text."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    print("\n".join(lines), flush=True)
    current, row = ("", ""), Row()

    def done() -> None:
        if row.cases:
            lines.append("| " + " | ".join([*current, *row.cells()]) + " |")
            print(lines[-1], flush=True)

    for name, noise, case in named:
        if not wanted(name):
            continue
        if (name, noise) != current:
            done()
            current, row = (name, noise), Row()
        row.add(case)
    done()
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of published data")
    parser.add_argument("--synthetic", action="store_true", help="panels that are made up, too")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--published", action="store_true", help="suppressed, rounded, missing, clipped counts"
    )
    parser.add_argument("--write", type=Path, help="a page to put the table into")
    parser.add_argument("--only", default="", help="only sets whose name holds this")
    options = parser.parse_args()
    seeds = 2 if options.quick else options.seeds
    if options.published:
        found = suppressed_and_rounded.cases(options.data, seeds)
        suppressed_and_rounded.table(one for one in found if options.only in one[0])
        return

    def all_cases() -> Iterator[Named]:
        yield from simulated(seeds)
        files = [] if options.data is None else sorted(options.data.glob("*.csv"))
        yield from panels(files, seeds, options.synthetic)
        if options.data is not None:
            yield from published(options.data, options.quick)

    lines = table(all_cases(), lambda name: options.only in name)
    if options.write and not options.only:
        put(options.write, "table", lines)
    if not options.only:
        borrowed.show(options.data, options.quick)
        uses.show(options.data, options.quick)
        cities.show(options.data, options.quick)


if __name__ == "__main__":
    main()
