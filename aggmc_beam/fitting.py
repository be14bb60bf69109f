"""From a digest to estimates: the part that is the same for every engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from aggmc_beam.chain import Chain, Parametric, Window, as_chain
from aggmc_beam.digest import Digest, add_moments
from aggmc_beam.errors import InputError
from aggmc_beam.estimators import nonstationary
from aggmc_beam.estimators.registry import ESTIMATORS, SMOOTH, check_estimator
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.inference import jackknife, leave_one_out
from aggmc_beam.latent import Latent, latent
from aggmc_beam.moments import Moments
from aggmc_beam.noise import Exact, Noise
from aggmc_beam.profile import Profile
from aggmc_beam.resolve import resolve
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.simulate import stationary_distribution

#: A state whose mean share is below this many standard errors is rare: its row is a guess.
RARE = 4.0


@dataclass(frozen=True)
class Settings:
    """What an estimate assumes and how it is made; the same for every engine.

    `population` is N, or "estimate". With `weighted`, sums are of shares weighted by known
    populations, which then need no N.
    """

    noise: Noise = field(default_factory=Exact)
    population: float | str = "estimate"
    estimator: str = "auto"
    chain: Chain | str = "stationary"
    level: float = 0.95
    states: tuple[str, ...] | None = None
    weighted: bool = False

    def __post_init__(self) -> None:
        check_estimator(self.estimator)
        if not 0 < self.level < 1:
            raise InputError(f"level must lie between 0 and 1, such as 0.95; got {self.level!r}")
        object.__setattr__(self, "chain", as_chain(self.chain))


def estimate_digest(digest: Digest, settings: Settings) -> Estimate | Estimates:
    """The estimate, or one per cell, from a digest whose cells are those of `settings.chain`."""
    if digest.total.pairs == 0:
        raise InputError(
            "no two records are one step apart, so there is nothing to learn moves from; check the "
            "time column and its step"
        )
    fit = Fit(digest, settings)
    chain = fit.chain
    groups = chain.groups(digest.cells)
    if chain.name == "stationary":
        return fit.cell(groups[0][1], None)
    items, skipped = [], {}
    for cell, members in groups:
        try:
            items.append(fit.cell(members, cell, errors=not isinstance(chain, Parametric)))
        except InputError as error:
            skipped[cell] = str(error)
    if not items:
        raise InputError(f"no cell has enough data; the first one: {next(iter(skipped.values()))}")
    if not chain.centred:
        return Estimates(tuple(items), skipped=skipped)
    cells = [e.cell for e in items if e.cell is not None]
    if isinstance(chain, Parametric):
        return fit.parametric(chain, cells, items, skipped)
    return fit.combined(cells, items, skipped)


class Fit:
    """One digest under one set of settings."""

    def __init__(self, digest: Digest, settings: Settings) -> None:
        assert not isinstance(settings.chain, str)
        self.digest, self.settings, self.chain = digest, settings, settings.chain
        self.S = digest.states
        self.names = settings.states or tuple(str(i) for i in range(self.S))
        self.resolved = resolve(settings.noise, settings.population, settings.weighted, digest.total)

    def cell(self, members: list[int], cell: int | None, errors: bool = True) -> Estimate:
        """The estimate of the pooled cells `members`, which is to be called `cell`."""
        parts = list(self.digest.by_replicate(members).values())
        total = add_moments(self.S, parts)
        x = self.latent(total, self._profile(cell))
        seen = self._seen(total)
        name = self.settings.estimator
        smooth = name if name in SMOOTH else "mom"

        def statistic(cells: Sequence[Moments]) -> np.ndarray:
            """The smooth estimate, with the mean shares as one more row."""
            reduced = self.latent(cells[0])
            return np.vstack([self._apply(smooth, reduced, seen), reduced.mu])

        error = np.full((self.S + 1, self.S), np.nan)
        if errors:
            error = jackknife_cells([parts], statistic)
        centre = self._apply(smooth, x, seen)
        P = centre if name == smooth else self._apply(name, x, seen)
        return self._assemble(total, x, P, centre, error, smooth, len(parts), cell)

    def combined(self, cells: list[int], items: Sequence[Estimate], skipped: dict[int, str]) -> Estimates:
        """The cells' estimates, with the one matrix that fits them all."""
        parts = self._parts(cells)
        total, seen = self._whole(parts)

        def statistic(cells: Sequence[Moments]) -> np.ndarray:
            return _embed(nonstationary.pooled(self._latents(cells, seen)), seen)

        wholes = [add_moments(self.S, p) for p in parts]
        centre = statistic(wholes)
        P = centre if self.settings.estimator in SMOOTH else project_rows(centre)
        error = jackknife_cells(parts, statistic)
        pooled = self._assemble(total, self.latent(total), P, centre, error, "mom", len(parts[0]), None)
        average = _embed(nonstationary.average(self._latents(wholes, seen)), seen)
        return Estimates(tuple(items), pooled, average, skipped=skipped)

    def parametric(
        self,
        chain: Parametric,
        cells: list[int],
        items: Sequence[Estimate],
        skipped: dict[int, str],
    ) -> Estimates:
        """The cells' matrices as P_t(theta), theta fitted to all of them."""
        if cells[-1] >= len(chain.design) or cells[0] < 0:
            raise InputError(
                f"covariates are given for steps 0 to {len(chain.design) - 1}, but the data run from "
                f"step {cells[0]} to {cells[-1]}"
            )
        parts = self._parts(cells)
        _, seen = self._whole(parts)
        wholes = [add_moments(self.S, p) for p in parts]
        Z = chain.design[cells]
        model = nonstationary.ParametricFit(Z, chain.weighting)
        theta = model.fit(self._latents(wholes, seen))

        def statistic(reduced: Sequence[Moments]) -> np.ndarray:
            return model.response(self._latents(reduced, seen), theta)

        errors = jackknife_cells(parts, statistic)
        matrices = nonstationary.transition_matrices(theta, Z)
        label = {"of": "parametric", "groups": len(parts[0]), "cut": True, "centre": None}
        fitted = []
        for item, P, error in zip(items, matrices, errors, strict=True):
            P, error = _embed(P, seen), _embed(error, seen)
            diagnostics = {**item.diagnostics, "interval": label}
            fitted.append(
                replace(
                    item,
                    transition_matrix=P,
                    standard_error=error,
                    stationary=_stationary(P),
                    estimator="parametric",
                    diagnostics=diagnostics,
                )
            )
        combined = self.combined(cells, fitted, skipped)
        return replace(combined, coefficients=theta)

    def latent(self, moments: Moments, profile: Profile | None = None) -> Latent:
        return latent(
            moments,
            self.resolved.noise,
            self.resolved.scale,
            centred=self.chain.centred,
            profile=profile,
        )

    def _latents(self, cells: Sequence[Moments], seen: np.ndarray) -> list[Latent]:
        return [self.latent(m).restricted(seen) for m in cells]

    def _apply(self, name: str, x: Latent, seen: np.ndarray) -> np.ndarray:
        return _embed(ESTIMATORS[name](x.restricted(seen)), seen)

    def _parts(self, cells: list[int]) -> list[list[Moments]]:
        """[cell][replicate], with zeros where a replicate has nothing in a cell."""
        zero = Moments.zero(self.S)
        return [[self.digest.parts.get((c, r), zero) for r in self.digest.replicates] for c in cells]

    def _whole(self, parts: list[list[Moments]]) -> tuple[Moments, np.ndarray]:
        total = add_moments(self.S, [m for cell in parts for m in cell])
        return total, self._seen(total)

    def _seen(self, moments: Moments) -> np.ndarray:
        """Which states ever had a count that is not zero, as far as the noise lets that be told."""
        A = self.resolved.noise.matrix(self.S)
        if np.any(np.diag(np.diag(A)) != A):
            return np.ones(self.S, bool)
        # The left ends must have been there, or there is no move from the state to be seen.
        return np.asarray((moments.ends.left != 0) | (np.diag(moments.ends.product) > 0))

    def _profile(self, cell: int | None) -> Profile | None:
        """The step means that belong to the cell: all of them, or those of a window."""
        if not self.digest.profiles or self.chain.centred:
            return None
        profile = self.digest.profile
        if cell is None or not isinstance(self.chain, Window):
            return profile
        return profile.between_steps(cell, cell + self.chain.size)

    def _assemble(
        self,
        total: Moments,
        x: Latent,
        P: np.ndarray,
        centre: np.ndarray,
        error: np.ndarray,
        smooth: str,
        groups: int,
        cell: int | None,
    ) -> Estimate:
        S, settings, resolved = self.S, self.settings, self.resolved
        own = centre is P
        # The scale of the lagged covariance may itself be an estimate.
        offset = np.abs(centre - x.right) * resolved.relative_error
        standard_error = np.hypot(error[:S], offset)
        share_error = error[S] if len(error) > S else np.full(S, np.nan)
        window = None
        if isinstance(self.chain, Window) and cell is not None:
            window = {"start": cell, "end": cell + self.chain.size}
        return Estimate(
            states=self.names,
            transition_matrix=P,
            standard_error=standard_error,
            degrees=groups - 1,
            level=settings.level,
            stationary=_stationary(P),
            population=resolved.population,
            noise=resolved.noise,
            estimator=settings.estimator,
            baselines={"identity": np.eye(S), "naive": np.tile(x.right, (S, 1))},
            counts=_counts(total),
            diagnostics={
                "rows": self._row_flags(x, P, share_error),
                "interval": {
                    "of": smooth,
                    "groups": groups,
                    "cut": not own,
                    "centre": None if own else centre,
                },
                "population": resolved.note,
                "outside": int(((P < 0) | (P > 1)).sum()),
                "condition": float(np.linalg.cond(x.gram)),
            },
            cell=cell,
            window=window,
        )

    def _row_flags(self, x: Latent, P: np.ndarray, share_error: np.ndarray) -> list[dict[str, Any]]:
        flags = []
        for i, name in enumerate(self.names):
            if np.isnan(P[i]).all():
                why = f"state {name!r} was never seen, so nothing is known of moves from it"
                flags.append({"state": name, "flag": "never-seen", "why": why})
            elif x.mu[i] < RARE * share_error[i]:
                why = (
                    f"state {name!r} has a mean share of {x.mu[i]:.2g} ± {share_error[i]:.2g}; "
                    "moves from it are hardly determined"
                )
                flags.append({"state": name, "flag": "rare", "why": why})
        return flags


def jackknife_cells(
    parts: Sequence[Sequence[Moments]], statistic: Callable[[Sequence[Moments]], np.ndarray]
) -> np.ndarray:
    """Standard errors of a statistic of the cells' moments, given as [cell][replicate]."""
    S = parts[0][0].states
    full = statistic([add_moments(S, cell) for cell in parts])
    weight = np.array([sum(cell[g].lag0.weight for cell in parts) for g in range(len(parts[0]))])
    if len(weight) < 2 or np.count_nonzero(weight) < 2:
        return np.full(full.shape, np.nan)
    without = [leave_one_out(cell) for cell in parts]
    try:
        reduced = np.stack([statistic([cell[g] for cell in without]) for g in np.flatnonzero(weight)])
    except InputError:  # without one of the groups, too little is left
        return np.full(full.shape, np.nan)
    share = weight[weight > 0] / weight.sum()
    return jackknife(full, reduced, share)


def _embed(P: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """A matrix over the seen states among all states: other rows NaN, other columns zero."""
    if seen.all():
        return P
    full = np.zeros((len(seen), len(seen)))
    full[np.ix_(seen, seen)] = P
    full[~seen] = np.nan
    return full


def _stationary(P: np.ndarray) -> np.ndarray:
    """The stationary distribution of the nearest stochastic matrix; 0 for states never seen."""
    known = ~np.isnan(P).any(1)
    pi = np.zeros(len(P))
    if known.any():
        pi[known] = stationary_distribution(project_rows(P[np.ix_(known, known)]))
    return pi


def _counts(total: Moments) -> dict[str, int]:
    return {
        "records": total.records,
        "pairs": total.pairs,
        "realizations": total.counts.realizations,
        "duplicates": total.counts.duplicates,
        "overlaps": total.counts.overlaps,
        "gaps": total.gaps,
        "rejected": total.counts.rejected,
        "late": total.counts.late,
    }
