"""SumSpec: all that sums depend on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from aggmc_beam.budget import MEMORY, check_memory, size_of_fit, size_of_sums
from aggmc_beam.chain import Chain, Cycle, LocalChain, Parametric, Window
from aggmc_beam.clock import Clock
from aggmc_beam.config.special import chain_to_plain
from aggmc_beam.errors import InputError
from aggmc_beam.noise import Exact, Layer, Noise, Suppressed
from aggmc_beam.records import REALIZATION

#: How a realization's population is known: not at all or one for all, from a column, or by its total.
ONE, COLUMN, TOTALS = POPULATIONS = "one", "column", "totals"
#: What becomes of entries that are missing: their records are refused, or they are 0 in the sums, since they were
#: suppressed, or there are marks of them in the sums.
REFUSED, HIDDEN, MARKED = GAPS = "refused", "hidden", "marked"
MISSING = "a count is missing; input.missing: pairwise uses the others, noise suppressed may tell why it is"


@dataclass(frozen=True)
class SumSpec:
    """All that sums depend on; what a running job, or a run that goes on from saved sums, may not change.

    `populations` tells how those of realizations are known. `undo` tells whether the mean of `noise` is undone
    on each record. `population` is the one of all realizations, if it is known. `gaps` tells what becomes of
    entries that are missing.
    """

    states: tuple[str, ...]
    chain: Chain
    noise: Noise = field(default_factory=Exact)
    populations: str = ONE
    undo: bool = False
    population: float | None = None
    clock: Clock = field(default_factory=Clock)
    group_by: tuple[str, ...] = ()
    replicates: int | None = None
    block: int | None = None
    realization: str = REALIZATION
    """The column that names realizations: under another name the same record would be met as a new one."""
    gaps: str = REFUSED
    memory: int = field(default=MEMORY, compare=False)
    """How many bytes the sums may take, which does not change them."""

    def __post_init__(self) -> None:
        S = len(self.states)
        needed = size_of_sums(S, 1) + size_of_fit(S, 1)
        check_memory(needed, self.memory, f"an estimate of {S:,} states", "take fewer states")
        if self.replicates is not None:
            change = "lower uncertainty.replicates"
            check_memory(self.replicates * S * S * 8, self.memory, f"{self.replicates:,} replicates", change)
        if isinstance(self.chain, Window):
            windows = self.chain.size // (self.chain.every or self.chain.size)
            what = f"the {windows:,} windows that each step is in"
            check_memory(windows * S * S * 8 * 4, self.memory, what, "raise chain.window.every")

    @classmethod
    def plan(
        cls,
        states: tuple[str, ...],
        chain: Chain,
        noise: Noise,
        population: float | str | None = None,
        has_populations: bool = False,
        is_open: bool = False,
        clock: Clock | None = None,
        group_by: tuple[str, ...] = (),
        replicates: int | None = None,
        block: int | None = None,
        realization: str = REALIZATION,
        pairwise: bool = False,
        memory: int = MEMORY,
    ) -> SumSpec:
        """The spec of a run: `population` is N of every realization, unless it is "estimate" or records have
        their own (`has_populations`). The totals of exact counts tell it, unless individuals enter and leave
        (`is_open`). `pairwise`: entries may be missing at random."""
        gaps = gaps_of(noise, pairwise)
        N = float(population) if isinstance(population, int | float) else None
        populations = ONE
        if has_populations:
            populations = COLUMN
        elif gaps == REFUSED and N is None and isinstance(noise, Exact) and not is_open:
            populations = TOTALS
        if noise.is_known:
            noise.at(0).matrix(len(states))  # raises if the model does not fit the number of states
        undo = noise.varies
        if populations != ONE and noise.is_known and not noise.varies:  # shares would distort an offset
            undo = bool((noise.offset(len(states)) != 0).any())
        if gaps == MARKED and (undo or populations != ONE):
            what = "noise that differs by time step" if undo else "a population for each realization"
            raise InputError(f"missing: pairwise does not go with {what}; drop one of them")
        return cls(states, chain, noise, populations, undo, None if is_open else N, clock or Clock(), group_by,
                   replicates, block, realization, gaps, memory)  # fmt: skip

    @property
    def columns(self) -> int:
        """How many numbers of a record are summed: its counts, and marks of what is missing if these are kept."""
        return len(self.states) * (2 if self.gaps == MARKED else 1)

    def summed(self, counts: np.ndarray) -> np.ndarray:
        """What is summed of counts [n, S], in which NaN is missing."""
        if self.gaps == REFUSED:
            return counts
        gone = np.isnan(counts)
        if self.gaps == HIDDEN:
            return np.where(gone, 0.0, counts) if gone.any() else counts
        if self.population is not None and isinstance(self.noise, Exact):  # the total tells a single one
            rest = self.population - np.nansum(counts, 1)
            alone = (gone.sum(1) == 1) & (rest >= 0)
            counts = np.where(gone & alone[:, None], rest[:, None], counts)
            gone = gone & ~alone[:, None]
        return np.column_stack([np.where(gone, 0.0, counts), gone])

    @property
    def undone(self) -> Noise | None:
        """The noise whose mean was undone on each record, if any."""
        return self.noise if self.undo else None

    @property
    def cells(self) -> Chain:
        """The chain, with the phases of cycles and windows as local clocks show them."""
        by_phase = isinstance(self.chain, Window | Cycle | Parametric)
        return (
            LocalChain(self.chain, self.clock.local)
            if by_phase and not self.clock.zone.is_utc
            else self.chain
        )

    def check_joins(self, other: SumSpec, what: str) -> None:
        """`InputError` unless sums of the other can be added to these."""
        differences = {
            "states": (list(self.states), list(other.states)),
            "columns of groups": (list(self.group_by), list(other.group_by)),
            "columns of realizations": (self.realization, other.realization),
            "chains": (chain_to_plain(self.chain), chain_to_plain(other.chain)),
            "time steps": (str(self.clock), str(other.clock)),
            "rules of populations": (self.populations, other.populations),
            "noises that change with time": (self.undone, other.undone),
            "rules for missing entries": (self.gaps, other.gaps),
        }
        for name, (a, b) in differences.items():
            if a != b:
                raise InputError(f"{what} cannot be joined: {name} differ ({a} and {b})")


def check_gaps(gaps: str, noise: Noise) -> None:
    """`InputError` if sums in which missing entries became this cannot be those of the noise."""
    hides = isinstance(noise, Layer) and any(isinstance(layer, Suppressed) for layer in noise.layers)
    if gaps == HIDDEN and not hides:
        raise InputError(
            "missing entries are 0 in these sums, since they were suppressed; name that as noise, or run over the "
            "data again"
        )
    if gaps == MARKED:
        gaps_of(noise, True)


def gaps_of(noise: Noise, pairwise: bool) -> str:
    """What becomes of entries that are missing."""
    if isinstance(noise, Layer) and noise.leaves_gaps:
        if pairwise:
            raise InputError(
                "missing: pairwise is for entries that are missing at random, but by the noise model they are "
                "suppressed; drop one of them"
            )
        return HIDDEN
    return MARKED if pairwise else REFUSED
