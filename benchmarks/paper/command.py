"""The command behind `pipelines/paper.py`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from aggmc_beam.cli import end_like_interrupt
from aggmc_beam.durable import write_atomically
from aggmc_beam.errors import InputError
from aggmc_beam.progress import Progress
from benchmarks.paper import figures
from benchmarks.paper.claims import Finding, findings
from benchmarks.paper.grid import Cell, cells, load_experiment
from benchmarks.paper.page import page
from benchmarks.paper.runner import run_cells, write_csv
from benchmarks.paper.trials import Trials

CONFIGS = Path(__file__).parent.parent.parent / "configs" / "paper"

#: Runs cells somewhere and keeps them in a directory, given the rest of the command line.
Elsewhere = Callable[[Sequence[Cell], Path, Sequence[str]], None]


def main(arguments: Sequence[str] | None = None, elsewhere: Elsewhere | None = None) -> int:
    """Run, write and draw; 1 if `--quick` finds a claim that does not hold."""
    options, rest = _parser().parse_known_args(arguments)
    if rest and not options.beam:
        _parser().error(f"unknown arguments: {' '.join(rest)}")
    end_like_interrupt()
    try:
        return _run(options, rest, elsewhere)
    except InputError as error:
        print(f"paper: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\npaper: interrupted; run it again and it goes on from here", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="The figures and claims of Bernstein & Sheldon (2016).")
    made.add_argument("--quick", action="store_true", help="a small grid, with its claims checked")
    made.add_argument("--configs", type=Path, help="directory of experiments (configs/paper)")
    made.add_argument("--output", type=Path, help="trials.csv, figures and kept cells (out/paper)")
    made.add_argument("--docs", type=Path, help="directory to write the page paper.md to, with its figures")
    made.add_argument("--trials", type=int, help="only so many of each size, for a first look")
    made.add_argument("--processes", type=int, default=2, help="(2)")
    made.add_argument("--beam", action="store_true", help="run on Apache Beam; other options are Beam's")
    return made


def _run(options: argparse.Namespace, rest: Sequence[str], elsewhere: Elsewhere | None) -> int:
    configs = options.configs or (CONFIGS / "quick" if options.quick else CONFIGS)
    output = options.output or Path("out/paper-quick" if options.quick else "out/paper")
    files = sorted(configs.glob("*.yaml"))
    if not files:
        raise InputError(f"there are no experiments (*.yaml) in {str(configs)!r}")
    grid = [cell for file in files for cell in cells(load_experiment(file))]
    if options.trials is not None:
        grid = [cell for cell in grid if cell.trial < options.trials]
        if not grid:
            raise InputError(f"--trials must be at least 1; got {options.trials}")
    directory = output / "cells"
    if options.beam:
        if elsewhere is None:
            raise InputError("--beam needs Apache Beam: pip install apache-beam")
        directory.mkdir(parents=True, exist_ok=True)
        elsewhere(grid, directory, rest)
    progress = Progress(unit="trials")
    rows, seconds = run_cells(grid, directory, options.processes, progress)
    progress.clear()
    write_csv(rows, output / "trials.csv")
    trials = Trials.of(rows)
    found = findings(trials)
    drawn = figures.draw(trials, output)
    if options.docs:
        images = options.docs / "paper"
        images.mkdir(parents=True, exist_ok=True)
        for name in drawn:
            write_atomically(images / f"{name}.png", (output / f"{name}.png").read_bytes())
        write_atomically(options.docs / "paper.md", page(trials, found, drawn, options.trials).encode())
    print(f"{len(grid):,} trials, {seconds:,.0f} s of processor time, written to {output}")
    return _checked(found) if options.quick else _told(found)


def _told(found: Sequence[Finding]) -> int:
    for finding in found:
        print(f"{finding.verdict:>10}  {finding.claim.title}")
    return 0


def _checked(found: Sequence[Finding]) -> int:
    """Each claim by medians over regular chains, where few trials are enough."""
    failed = 0
    for finding in found:
        answer = finding.answers.get(("regular", "median"))
        if answer is not None and finding.claim.regular is not None:
            words, holds = answer
            right = holds == finding.claim.regular
            failed += not right
            print(f"{'ok' if right else 'FAIL':>4}  {finding.claim.title}: {words}")
    return int(failed > 0)
