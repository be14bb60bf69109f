"""The product's contestants.

Whole runs go through its public doors. Sums without an estimate are no product of their own, so that two
functions, `sums` here and `sums` of `beam_contestants`, know how a run begins.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import aggmc_beam as am
from benchmarks.speed.sums import Sums

# Names are imported when they are first used; this is not to be timed.
_ = am.estimate


def sums(config: dict[str, Any], save: str | None = None) -> Callable[[], Sums]:
    """Files in, all sums out that estimates with standard errors need, of every label; saved if wanted."""
    from aggmc_beam.config import read_config
    from aggmc_beam.local.engine import Summing
    from aggmc_beam.local.plan import Plan
    from aggmc_beam.sums.run_file import save_run

    plan = Plan.open(read_config(config))
    state = plan.state()
    Summing(plan, state).sum()
    if save is not None:
        save_run(state, save)
    return lambda: by_label([state])


def by_label(states: Iterable[Any]) -> Sums:
    """Sums over jackknife groups and about zero, as contestants are compared by; not timed."""
    parts = [(state.sums, [str(group) for group in state.groups]) for state in states]
    names = sorted({name for _, groups in parts for name in groups})
    group = np.concatenate([np.searchsorted(names, groups)[sums.label[:, 0]] for sums, groups in parts])
    cell, number, weight, centre, ends, product = (
        np.concatenate([field(sums) for sums, _ in parts])
        for field in (
            lambda sums: sums.label[:, 1],
            lambda sums: sums.number[:, 1],
            lambda sums: sums.weight[:, 1],
            lambda sums: sums.centre,
            lambda sums: sums.ends,
            lambda sums: sums.product,
        )
    )
    order = np.lexsort((cell, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1) | np.diff(cell[order], prepend=-1))
    pairs = np.add.reduceat(number[order], starts)

    def total(which: int, end: int) -> np.ndarray:
        """About zero: lefts are row 1 of the ends, rights row 2."""
        found = product[:, which] + _outer(ends[:, 1], centre) + _outer(centre, ends[:, end])
        found += weight[:, None, None] * _outer(centre, centre)
        return np.add.reduceat(found[order], starts)[pairs > 0]

    return Sums(pairs[pairs > 0], total(3, 1), total(1, 2))


def _outer(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[:, :, None] * b[:, None, :]


def whole_run(config: dict[str, Any]) -> int:
    """Files in, estimates with intervals out; how many."""
    from aggmc_beam.config import read_config
    from aggmc_beam.local import run

    return len(run(read_config(config)).estimates)


def estimate(counts: str, **options: Any) -> dict[str, Any]:
    """An estimate from an array [K, T, S]; what `auto` chose."""
    found = am.estimate(np.load(counts), noise=am.Binomial(0.5), **options)
    choice = found.diagnostics.get("choice", {})
    return {k: str(choice[k]) for k in ("form", "lag0") if k in choice}


def command(arguments: list[str]) -> None:
    """A Python process from start to end."""
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
