"""What estimates are worth from counts as publishers show them, against those from all counts.

    python benchmarks/published.py                 simulated counts
    python benchmarks/published.py --data DIR      and the bicycles in DIR/bikes, see realsets.py
    python benchmarks/published.py --quick         two seeds
    python benchmarks/published.py --write FILE    puts the table and its summary into a page, docs/published.md

The error is that of `real.py`. `plain` is the error from counts before they were changed, `as they are` that of an
estimate which takes what is shown for counts (zero where nothing is), `told` that of one which is told what
publishers did. Coverage is of intervals at 95%; `plain` beside it is that of the counts before. `touched`: the part
of counts that are suppressed, cut or missing. A warned run says before the estimate that it rests on what is not
shown, or which states' moves cannot be told.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from realsets import bike_cases
from violations import Case, composition, households, one_series, right, settling

import aggmc_beam as am

HALF = am.Binomial(0.5)
SHARE, SCALE = 0.1, 3.0
Named = tuple[str, str, Case]


class Drawn(am.Exact):
    """Counts that were drawn already."""

    def sample(self, n: object, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(n, float)


#: What publishers do to counts, as a layer over their noise.
LAYERS: dict[str, Callable[[am.Noise], am.Noise]] = {
    "below 5 zero": lambda noise: am.Suppressed(5, noise=noise),
    "below 5 missing": lambda noise: am.Suppressed(5, "missing", noise),
    "below 16 zero": lambda noise: am.Suppressed(16, noise=noise),
    "below 16 missing": lambda noise: am.Suppressed(16, "missing", noise),
    "rounded to 5": lambda noise: am.Rounded(5, noise=noise),
    "rounded to 10": lambda noise: am.Rounded(10, noise=noise),
    "rounded to 5 at random": lambda noise: am.Rounded(5, True, noise),
}
MISSING, CLIPPED = f"{SHARE:.0%} missing", f"Laplace {SCALE:g} clipped"
KINDS = [*LAYERS, MISSING, CLIPPED]


@dataclass
class Row:
    """All cases of a set, published in one way."""

    touched: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    blind: list[float] = field(default_factory=list)
    told: list[float] = field(default_factory=list)
    coverage: list[float] = field(default_factory=list)
    plain_coverage: list[float] = field(default_factory=list)
    warned: int = 0

    def add(self, case: Case, kind: str, rng: np.random.Generator) -> None:
        y, noise, shown, said, options = published(case, kind, rng)
        plain = am.estimate(y, noise=noise, population=case.population)
        told = am.estimate(shown, noise=said, population=case.population, **options)
        unlike_exact = am.Gaussian(1e-3) if isinstance(noise, am.Exact) else noise
        try:
            blind = case.error(
                am.estimate(
                    np.nan_to_num(shown), noise=unlike_exact, population=case.population
                ).transition_matrix
            )
        except am.InputError:  # refused, say because totals of exact counts change
            blind = np.nan
        notes = told.diagnostics["published"]
        self.touched.append(float(np.mean(notes["suppressed"]) + np.mean(notes["missing"])))
        self.plain.append(case.error(plain.transition_matrix))
        self.blind.append(blind)
        self.told.append(case.error(told.transition_matrix))
        self.coverage.append(held(case, told))
        self.plain_coverage.append(held(case, plain))
        self.warned += any("hardly" in line or "suppressed or cut" in line for line in told.warnings)

    @property
    def is_worse(self) -> bool:
        return bool(np.mean(self.told) > WORSE * np.mean(self.plain))

    @property
    def covers(self) -> bool:
        """Whether intervals hold the truth as often as they say, or no less often than before publishing."""
        return bool(np.mean(self.coverage) >= min(LEAST, float(np.mean(self.plain_coverage))))

    def cells(self) -> list[str]:
        plain, told = np.mean(self.plain), np.mean(self.told)
        return [
            f"{np.mean(self.touched):.2f}",
            *(f"{value:.4f}" for value in (plain, np.mean(self.blind), told)),
            f"{told / plain:.2f}",
            f"{np.mean(self.coverage):.2f}",
            f"{np.mean(self.plain_coverage):.2f}",
            f"{self.warned} of {len(self.told)}",
        ]


def published(
    case: Case, kind: str, rng: np.random.Generator
) -> tuple[np.ndarray, am.Noise, np.ndarray, am.Noise, dict[str, str]]:
    """Counts and their noise before and after publishing, and the options of an estimate."""
    y, noise = case.y, case.noise
    if kind == MISSING:
        shown = np.where(rng.random(y.shape) < SHARE, np.nan, y)
        return y, noise, shown, noise, {"missing": "pairwise"}
    if kind == CLIPPED:  # noise that protects privacy, instead of the set's own
        y, noise = y + rng.laplace(0.0, SCALE, y.shape), am.Laplace(SCALE)
        return y, noise, np.maximum(y, 0.0), am.Clipped(0, noise), {}
    made = LAYERS[kind](noise)
    return y, noise, LAYERS[kind](Drawn()).sample(y, rng), made, {}


def held(case: Case, found: am.Estimate) -> float:
    lower, upper = found.interval()
    known = case.judged & np.isfinite(lower)
    return float(((case.truth >= lower - 1e-9) & (case.truth <= upper + 1e-9))[known].mean())


#: Where fewer than so many counts are touched, the error is to be at most `WORSE` times that of all counts.
FEW, WORSE = 0.2, 1.5
#: What intervals at 95% are to hold of the truth in simulation, where nothing is warned of.
LEAST = 0.90
BEGIN, END = "<!-- figures: written by benchmarks/published.py -->", "<!-- end of the figures -->"

HEAD = ["set", "noise", "published", "touched", "plain", "as they are", "told", "told / plain", "coverage"]
HEAD += ["coverage, plain", "warned"]


def simulated(seeds: int) -> Iterator[Named]:
    makers: dict[str, Callable[[am.Noise, int], Case]] = {
        "200 individuals": lambda noise, seed: right(noise, seed),
        "60 individuals": lambda noise, seed: right(noise, seed, N=60),
        "one series of 500": one_series,
        "from a corner, 200": settling,
        "households of 4": lambda noise, seed: households(noise, seed, N=400),
        "composition 8": lambda noise, seed: composition(noise, seed, 8),
    }
    for name, make in makers.items():
        for label, noise in (("exact", am.Exact()), ("alpha .5", HALF)):
            yield from ((name, label, make(noise, seed)) for seed in range(seeds))


def bicycles(folder: Path) -> Iterator[Named]:
    """By area only: between towns hardly any bicycle moves."""
    for name, noise, case in bike_cases(folder, {"exact": am.Exact(), "alpha .5": HALF}):
        if "by area" in name:
            yield name, noise, case


def summary(rows: dict[tuple[str, str, str], Row]) -> str:
    """How many rows reach what is promised, and which do not."""
    few = {name: row for name, row in rows.items() if np.mean(row.touched) < FEW}
    worse = [", ".join(name) for name, row in few.items() if row.is_worse]
    quiet = {name: row for name, row in rows.items() if 2 * row.warned < len(row.told)}
    short = [f"{', '.join(n)} ({np.mean(r.coverage):.2f})" for n, r in quiet.items() if not r.covers]
    held = np.concatenate([row.coverage for row in quiet.values()])
    before = np.concatenate([row.plain_coverage for row in quiet.values()])
    blind = np.nanmean([np.mean(r.blind) / np.mean(r.plain) for r in few.values()])
    told = np.mean([np.mean(r.told) / np.mean(r.plain) for r in few.values()])
    lines = [
        f"- Of {len(few)} rows in which fewer than {FEW:.0%} of counts are touched, {len(few) - len(worse)} have at "
        f"most {WORSE:g} times the error from all counts; on average {told:.2f} times, and {blind:.1f} times where "
        "what is shown is taken for counts.",
        *(f"- More: {one}." for one in worse),
        f"- Intervals of runs that are not warned of hold {np.mean(held):.2f} of the truth, those from all counts "
        f"{np.mean(before):.2f}. Below {LEAST:g}, and below that from all counts, are {len(short)} of "
        f"{len(quiet)} rows{': ' + '; '.join(short) if short else ''}.",
    ]  # fmt: skip
    return "\n".join(lines)


def table(named: Iterable[Named], kinds: Iterable[str] = KINDS) -> str:
    """All rows, printed as they come, and their summary; the same as text."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    print("\n".join(lines), flush=True)
    rows: dict[tuple[str, str], dict[str, Row]] = {}
    all_rows: dict[tuple[str, str, str], Row] = {}
    kinds = list(kinds)

    def done() -> None:
        for (name, noise), found in rows.items():
            for kind, row in found.items():
                all_rows[name, noise, kind] = row
                lines.append("| " + " | ".join([name, noise, kind, *row.cells()]) + " |")
                print(lines[-1], flush=True)
        rows.clear()

    for number, (name, noise, case) in enumerate(named):
        if (name, noise) not in rows:
            done()
            rows[name, noise] = {kind: Row() for kind in kinds if kind != CLIPPED or noise == "exact"}
        for at, (kind, row) in enumerate(rows[name, noise].items()):
            row.add(case, kind, np.random.default_rng([number, at]))
    done()
    lines += ["", summary(all_rows)]
    print(f"\n{lines[-1]}", flush=True)
    return "\n".join(lines)


def write(text: str, page: Path) -> None:
    """Put figures into a page, in the place of those it has."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


def cases(data: Path | None, seeds: int) -> Iterator[Named]:
    yield from simulated(seeds)
    if data is not None and (data / "bikes").exists():
        yield from bicycles(data / "bikes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of published data")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="only sets whose name holds this")
    parser.add_argument("--write", type=Path, help="page to put the figures into")
    options = parser.parse_args()
    found = cases(options.data, 2 if options.quick else options.seeds)
    text = table(one for one in found if options.only in one[0])
    if options.write is not None:
        write(text, options.write)


if __name__ == "__main__":
    main()
