"""An experiment as a config gives it, and its cells: one trial each, with a key and a seed of its own."""

# ruff: noqa: RUF009 - `key` makes a dataclass field

from __future__ import annotations

import hashlib
import itertools
import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aggmc_beam.config.kinds import Choice, Section, Several, integer, key, number, text
from aggmc_beam.config.reader import read_yaml_file
from aggmc_beam.config.special import NoiseKind
from aggmc_beam.errors import InputError
from aggmc_beam.estimators.registry import FREE
from aggmc_beam.noise import Noise

PACKAGE = Path(__file__).parent.parent
#: Sources that results depend on; kept cells are of no use once one of them has changed.
SOURCES = ("*.py", "estimators/*.py", "noise/*.py", "paper/trial.py")
#: Those among them that they do not depend on.
SHELL = ("cli.py", "commands.py", "progress.py", "saved.py", "result.py", "__init__.py")

WHOLE = Several(integer(1), unique=True)
METHODS = Several(Choice((*FREE, "auto")), unique=True)


@dataclass(frozen=True)
class Observation:
    """A noise model by its name in figures, with the estimators that see its counts."""

    name: str = key(text(), "name in figures")
    noise: Noise = key(NoiseKind(), "noise model")
    estimators: tuple[str, ...] | None = key(METHODS, "estimators, instead of the experiment's", None)


@dataclass(frozen=True)
class Design:
    """How much data there are: N individuals, T steps, K realizations."""

    population: int = key(integer(1), "N")
    steps: int = key(integer(2), "T")
    realizations: int = key(integer(1), "K")


@dataclass(frozen=True)
class Experiment:
    """A grid of trials. Sizes are all combinations of N, T and K, or the `designs` listed."""

    name: str = key(text(), "name in the table of trials")
    observations: tuple[Observation, ...] = key(Several(Section(Observation)), "noise models")
    estimators: tuple[str, ...] = key(METHODS, "estimators")
    trials: int = key(integer(1), "trials of each size")
    population: tuple[int, ...] = key(WHOLE, "N", ())
    steps: tuple[int, ...] = key(WHOLE, "T", ())
    realizations: tuple[int, ...] = key(WHOLE, "K", ())
    designs: tuple[Design, ...] = key(Several(Section(Design)), "sizes, instead of all combinations", ())
    ensembles: tuple[str, ...] = key(
        Several(Choice(("paper", "regular")), unique=True),
        "where chains are drawn from",
        ("paper", "regular"),
    )
    states: int = key(integer(2), "S", 10)
    precision: float = key(number(), "D, of the Dirichlet rows", 0.5)
    chains: str = key(Choice(("fresh", "shared")), "of each trial, or of a trial's number", "fresh")
    seed: int = key(integer(0), "other seeds give other draws", 1)

    def sizes(self) -> list[tuple[int, int, int]]:
        """(N, T, K), in the order of the config."""
        if self.designs:
            return [(d.population, d.steps, d.realizations) for d in self.designs]
        return list(itertools.product(self.population, self.steps, self.realizations))


@dataclass(frozen=True)
class Cell:
    """One trial: a chain, its true counts, and what estimators make of them under each noise model.

    Everything a worker needs, as plain values.
    """

    experiment: str
    ensemble: str
    trial: int
    N: int
    T: int
    K: int
    S: int
    precision: float
    shared: bool
    seed: int
    observations: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...]
    """(name, noise, estimators)"""

    def key(self) -> str:
        """Changes with the cell, and with the code that results depend on."""
        plain = json.dumps([asdict(self), code()], sort_keys=True)
        return hashlib.sha256(plain.encode()).hexdigest()[:24]

    def entropy(self, *, chain: bool) -> list[int]:
        """Seed of the chain, or of the counts: a function of the cell, whatever runs before it."""
        names = [chain, self.experiment, self.ensemble, self.trial]
        if not (chain and self.shared):
            names += [self.N, self.T, self.K]
        mixed = hashlib.sha256(json.dumps(names).encode()).digest()
        return [self.seed, int.from_bytes(mixed[:8], "big")]


def load_experiment(path: str | os.PathLike[str]) -> Experiment:
    """From a YAML file; `InputError` names a key that is wrong."""
    try:
        found: Experiment = Section(Experiment).read(read_yaml_file(path), "")
    except InputError as error:
        raise InputError(f"{os.fspath(path)}: {error}") from None
    if not found.sizes():
        raise InputError(f"{os.fspath(path)}: give population, steps and realizations, or designs")
    return found


def cells(experiment: Experiment) -> list[Cell]:
    """All trials, the first of every size before the second: a part of a run shows the whole picture."""
    seen = tuple(
        (o.name, o.noise.to_dict(), o.estimators or experiment.estimators) for o in experiment.observations
    )
    return [
        Cell(
            experiment.name,
            ensemble,
            trial,
            N,
            T,
            K,
            experiment.states,
            experiment.precision,
            experiment.chains == "shared",
            experiment.seed,
            seen,
        )
        for trial in range(experiment.trials)
        for ensemble in experiment.ensembles
        for N, T, K in experiment.sizes()
    ]


@cache
def code() -> str:
    """A hash of the sources that results depend on."""
    found = hashlib.sha256()
    for pattern in SOURCES:
        for path in sorted(PACKAGE.glob(pattern)):
            if path.name not in SHELL:
                found.update(path.read_bytes())
    return found.hexdigest()
