"""From sums to estimates: the part that is the same for every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from aggmc_beam.blas import blas_for
from aggmc_beam.chain import Chain, Cycle, Parametric, Window, as_chain
from aggmc_beam.errors import InputError, nearest
from aggmc_beam.estimators import nonstationary
from aggmc_beam.estimators.constraints import Constraints, Rules
from aggmc_beam.estimators.inference import jackknife, jackknife_cells, student_quantile
from aggmc_beam.estimators.latent import Latent, Undo, closed, latent
from aggmc_beam.estimators.registry import CELLS, POOLINGS, SMOOTH, check_estimator
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.estimators.structure import StateMap, Structure
from aggmc_beam.fit.cell import CellFit, Point, Seen, common_ground, settled
from aggmc_beam.fit.checks import Check, check_totals
from aggmc_beam.fit.drawing import draw_windows
from aggmc_beam.fit.intervals import Parts, Uncertainty
from aggmc_beam.fit.resolve import resolve
from aggmc_beam.fit.restored import Restored
from aggmc_beam.fit.scores import doubt
from aggmc_beam.fit.shared import SharedCells, borrows, can_share
from aggmc_beam.noise import Exact, Noise
from aggmc_beam.progress import ProgressHook, no_progress
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.sums.moments import Moments, add_moments
from aggmc_beam.sums.profile import Profile
from aggmc_beam.sums.sums import Sums

#: A state whose mean share is below this many standard errors is rare: its row is a guess.
RARE = 4.0
#: A row with an interval that reaches so far to each side is not determined.
OPEN = 0.5
#: A row of which more than this is not of its own data is said to be borrowed.
BORROWED = 0.5


@dataclass(frozen=True)
class Settings:
    """What an estimate assumes and how it is made; the same for every engine.

    `population` is N, or "estimate". With `weighted`, sums are of shares weighted by known
    populations, which then need no N. `lags` 1 leaves lag 2 out. `open_population`: individuals may
    enter and leave, so that totals vary. `pooling`: see `am.estimate`.
    """

    noise: Noise = field(default_factory=Exact)
    population: float | str = "estimate"
    estimator: str = "auto"
    chain: Chain | str = "stationary"
    level: float = 0.95
    states: tuple[str, ...] | None = None
    weighted: bool = False
    lags: int = 2
    constraints: Constraints | None = None
    open_population: bool = False
    pooling: str = CELLS
    structure: Structure | None = None

    def __post_init__(self) -> None:
        check_estimator(self.estimator, None)
        if not 0 < self.level < 1:
            raise InputError(f"level must lie between 0 and 1, such as 0.95; got {self.level!r}")
        if self.structure is not None and self.estimator != "auto":
            raise InputError(f"a structure is for estimator auto; got {self.estimator!r}")
        if self.lags not in (1, 2):
            raise InputError(f"lags must be 1 or 2; got {self.lags!r}")
        if self.pooling not in POOLINGS:
            raise InputError(f"pooling {self.pooling!r} is not known; {nearest(self.pooling, POOLINGS)}")
        object.__setattr__(self, "chain", as_chain(self.chain))


def estimate_sums(
    sums: Sums, settings: Settings, progress: ProgressHook = no_progress
) -> Estimate | Estimates:
    """The estimate, or one per cell, from sums whose cells are those of `settings.chain`.

    What overflows, or cannot be divided, becomes a NaN row with a flag, not a warning.
    """
    try:
        with np.errstate(all="ignore"), blas_for(sums.states):
            return _estimate(sums, settings, progress)
    except InputError:
        raise
    except (ValueError, OverflowError) as error:  # of solvers that met what is not finite
        raise InputError(
            f"the sums cannot be solved for moves ({error}); check that counts are of a sensible size"
        ) from error


#: Why there is no estimate without pairs.
NO_PAIRS = (
    "no two records are one step apart, so there is nothing to learn moves from; check the "
    "time column and its step"
)


def _estimate(sums: Sums, settings: Settings, progress: ProgressHook) -> Estimate | Estimates:
    if sums.total.pairs == 0:
        raise InputError(NO_PAIRS)
    fit = Fit(sums, settings)
    chain = fit.chain
    groups = chain.groups(sums.cells)
    progress("estimating", 0, len(groups))
    if chain.name == "stationary":
        return fit.cell(groups[0][1], None)
    if can_share(fit):
        shared = SharedCells(fit, groups).estimates()
        if shared is not None:
            return shared
    items, skipped = [], {}
    for done, (cell, members) in enumerate(groups):
        progress("estimating", done, len(groups))
        try:
            items.append(fit.cell(members, cell, errors=not isinstance(chain, Parametric)))
        except InputError as error:
            skipped[cell] = str(error)
    if not items:
        raise InputError(f"no cell has enough data; the first one: {next(iter(skipped.values()))}")
    if not chain.centred:
        return Estimates(tuple(draw_windows(fit, items) if borrows(fit) else items), skipped=skipped)
    cells = [e.cell for e in items if e.cell is not None]
    if isinstance(chain, Parametric):
        return fit.parametric(chain, cells, items, skipped)
    return fit.combined(cells, items, skipped)


class Fit:
    """Sums under one set of settings."""

    def __init__(self, sums: Sums, settings: Settings) -> None:
        assert not isinstance(settings.chain, str)
        self.sums, self.settings, self.chain = sums, settings, settings.chain
        self.S = sums.states
        self.names = settings.states or tuple(str(i) for i in range(self.S))
        self.resolved = resolve(settings.noise, settings.population, settings.weighted, sums.total)
        self.undo = Undo.of(self.resolved.noise, self.S, self.resolved.scale)
        self.rules = None if settings.constraints is None else settings.constraints.cells(self.names)
        self.state_map = None if settings.structure is None else self._mapped(settings.structure)
        check_estimator(settings.estimator, self.rules)

    def _mapped(self, structure: Structure) -> StateMap:
        """The structure for these states, whose moves that cannot happen become rules."""
        found, rules = structure.on(self.names), self.rules
        if rules is not None and rules.prior is not None:
            raise InputError(
                "a structure and constraints.prior both say what P is drawn to; give one of them"
            )
        fixed = found.fixed(None if rules is None else rules.fixed, self.names)
        if fixed is not None:
            self.rules = Rules(fixed) if rules is None else replace(rules, fixed=fixed)
        return found

    def cell(self, members: list[int], cell: int | None, errors: bool = True) -> Estimate:
        """The estimate of the pooled cells `members`, which is to be called `cell`."""
        total = self.sums.total if members == self.sums.cells else None
        data = CellFit(self, self.sums.by_replicate(members), self._profiles(cell), total)
        point = data.point()
        found, share_error = (
            Uncertainty(Parts.of_sampling(np.full((self.S, self.S), np.nan))),
            np.full(self.S, np.nan),
        )
        diagnostics: dict[str, Any] = dict(point.diagnostics)
        if errors:
            found, share_error = data.uncertainty(point), data.share_error()
            freedom = 1.0 - diagnostics.get("borrowed", {}).get("share", 0.0)
            diagnostics["scores"] = scores = data.scores(point.P, found, freedom)
            if data.is_shocked(point, scores):
                found = found.nothing_known()
            found = found.rows_unknown(self.lost)
        P = data.guarded(point.P, data.x.mu < RARE * share_error)
        return self.assemble(data, P, found, share_error, point, cell, diagnostics)

    def combined(self, cells: list[int], items: Sequence[Estimate], skipped: dict[int, str]) -> Estimates:
        """The cells' estimates, with the one matrix that fits them all."""
        parts = self._parts(cells)
        _, seen = self._whole(parts)

        def statistic(cells: Sequence[Moments]) -> np.ndarray:
            return seen.embed(nonstationary.pooled(self._latents(cells, seen)))

        wholes = [add_moments(self.S, p) for p in parts]
        centre = statistic(wholes)
        fixed = None if self.rules is None else self.rules.fixed
        P = centre if self.settings.estimator in SMOOTH else project_rows(centre, fixed)
        error = Uncertainty(Parts.of_sampling(self._pooled_error(parts, centre, seen)))
        unknown = np.full(self.S, np.nan)
        whole = CellFit(self, self.sums.by_replicate(cells), {})
        ground = common_ground([CellFit(self, self.sums.by_replicate([cell]), {}) for cell in cells])
        point = Point(P, "mom pooled over cells", ground=ground)
        pooled = self.assemble(whole, P, error, unknown, point, None, {})
        return Estimates(tuple(items), pooled, self.average(cells), skipped=skipped)

    def average(self, cells: list[int]) -> np.ndarray:
        """The plain average of the cells' mom matrices."""
        parts = self._parts(cells)
        _, seen = self._whole(parts)
        wholes = [add_moments(self.S, p) for p in parts]
        return seen.embed(nonstationary.average(self._latents(wholes, seen)))

    def _pooled_error(self, parts: list[list[Moments]], centre: np.ndarray, seen: Seen) -> np.ndarray:
        weight = np.array([[m.lag0.weight for m in cell] for cell in parts]).sum(0)
        if np.count_nonzero(weight) < 2:
            return np.full_like(centre, np.nan)
        used, keep = np.flatnonzero(weight), np.ix_(seen.anywhere, seen.anywhere)
        cells = [[cell[g] for g in used] for cell in parts]
        try:
            rest = nonstationary.pooled_without_each(cells, self.undo, self.settings.open_population)
        except InputError:  # without one of the groups, too little is left
            return np.full_like(centre, np.nan)
        return jackknife(centre, [seen.embed(P[keep]) for P in rest], weight[used] / weight.sum())

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
        freedom = min(1.0, Z.shape[1] / len(cells))  # of the parameters of each cell by itself
        fitted, data_of = [], [CellFit(self, self.sums.by_replicate([cell]), {}) for cell in cells]
        ground = common_ground(data_of)
        for data, item, P, error in zip(data_of, items, matrices, errors, strict=True):
            P, error = seen.embed(P), seen.embed(error)
            point = Point(P, "parametric", sampling=error, ground=ground)
            found = data.uncertainty(point)
            scores = data.scores(P, found, freedom)
            unknown_shares = np.full(self.S, np.nan)
            made = self.assemble(data, P, found, unknown_shares, point, item.cell, {"scores": scores})
            fitted.append(replace(made, estimator="parametric"))
        combined = self.combined(cells, fitted, skipped)
        return replace(combined, coefficients=theta)

    @property
    def lost(self) -> np.ndarray:
        """[S]: states of whose counts too little was published."""
        noise = self.resolved.noise
        return noise.lost if isinstance(noise, Restored) else np.zeros(self.S, bool)

    def latent(
        self,
        moments: Moments,
        profile: Callable[[], Profile | None] | None = None,
        centred: bool | None = None,
    ) -> Latent:
        """`centred`: whether ends of pairs are, at their own means, as the chain asks for unless it is said."""
        x = latent(
            moments,
            self.resolved.noise,
            self.resolved.scale,
            centred=self.chain.centred if centred is None else centred,
            profile=profile,
            undo=self.undo,
        )
        if self.settings.lags == 1:
            x = x.replaced(numbers=(*x.numbers[:2], 0))
        return closed(x) if self.settings.open_population else x

    def _latents(self, cells: Sequence[Moments], seen: Seen) -> list[Latent]:
        return [self.latent(m).restricted(seen.anywhere) for m in cells]

    def _parts(self, cells: list[int]) -> list[list[Moments]]:
        """[cell][replicate], with zeros where a replicate has nothing in a cell."""
        zero = Moments.zero(self.S)
        return [[self.sums.parts.get((c, r), zero) for r in self.sums.replicates] for c in cells]

    def _whole(self, parts: list[list[Moments]]) -> tuple[Moments, Seen]:
        total = add_moments(self.S, [m for cell in parts for m in cell])
        return total, self.seen(total)

    def seen(self, moments: Moments) -> Seen:
        """Which states were ever counted, as far as the noise lets that be told."""
        A = self.resolved.noise.matrix(self.S)
        return Seen.all(self.S) if np.any(np.diag(np.diag(A)) != A) else Seen.of(moments)

    def _profiles(self, cell: int | None) -> dict[int, Any]:
        """The step means that belong to the cell: all of them, those of a window, or none."""
        if self.chain.centred:
            return {}
        profiles = dict(self.sums.profiles)
        if cell is None or not isinstance(self.chain, Window):
            return profiles
        stop = cell + self.chain.size
        return {r: p.between_steps(cell, stop) for r, p in profiles.items()}

    def assemble(
        self,
        data: CellFit,
        P: np.ndarray,
        found: Uncertainty,
        share_error: np.ndarray,
        point: Point,
        cell: int | None,
        diagnostics: dict[str, Any],
    ) -> Estimate:
        S, settings, resolved = self.S, self.settings, self.resolved
        total, x, groups = data.total, data.x, data.groups
        cut = settings.estimator not in SMOOTH
        P = np.where(np.isfinite(P).all(1, keepdims=True), P, np.nan)
        # The scale of the lagged covariance may itself be an estimate.
        offset = np.abs(P - x.right) * resolved.relative_error
        parts = replace(found.parts, sampling=np.hypot(found.parts.sampling, offset))
        parts = parts.known(~np.isnan(P) if self.rules is None else ~np.isnan(P) & self.rules.free)
        window = None
        if isinstance(self.chain, Window) and cell is not None:
            window = {"start": cell, "end": cell + self.chain.size}
        ground, checks = point.ground, self.checks(data)
        cycle = self.chain.note() if isinstance(self.chain, Cycle) else None
        if isinstance(self.chain, Parametric) and self.chain.period is not None:
            cycle = {"period": self.chain.period}
        estimate = Estimate(
            states=self.names,
            transition_matrix=P,
            standard_error=parts.error,
            sampling=parts.sampling,
            differences=parts.differences,
            disagreement=parts.disagreement,
            degrees=groups - 1,
            level=settings.level,
            stationary=settled(P),
            population=resolved.population,
            noise=resolved.noise,
            estimator=settings.estimator,
            baselines={"identity": np.eye(S), "naive": np.tile(x.right, (S, 1))},
            counts=_counts(total, self.sums.total),
            diagnostics={
                "rows": self.row_flags(data, P, share_error, found, diagnostics),
                **({} if ground is None else {"ground": ground.note()}),
                **({} if cycle is None else {"cycle": cycle}),
                "interval": {
                    "of": point.of,
                    "groups": groups,
                    "cut": cut,
                    "tests": dict(found.tests),
                    "unknown": int((~np.isfinite(parts.error))[~np.isnan(P)].sum()),
                },
                "checks": [asdict(check) for check in checks],
                "population": resolved.note,
                **({"published": resolved.noise.note()} if isinstance(resolved.noise, Restored) else {}),
                "outside": int(((P < 0) | (P > 1)).sum()),
                "condition": _condition(x.gram),
                **diagnostics,
            },
            cell=cell,
            window=window,
        )
        return replace(estimate, warnings=tuple(self.warnings(estimate, data, checks)))

    def checks(self, data: CellFit) -> list[Check]:
        """Those of the totals, over all times: of a population that is closed these do not depend on the chain."""
        if self.settings.open_population:
            return []
        if data.total is self.sums.total and not self.chain.centred:
            return list(check_totals(data.x, data.latents, self.resolved))
        return self._checks_of_all

    @cached_property
    def _checks_of_all(self) -> list[Check]:
        """Found once for all cells."""
        whole, *parts = (
            latent(m, self.resolved.noise, self.resolved.scale, undo=self.undo)
            for m in (self.sums.total, *self.sums.by_replicate(self.sums.cells).values())
            if m.pairs > 0
        )
        return list(check_totals(whole, parts, self.resolved))

    def warnings(self, estimate: Estimate, data: CellFit, checks: Sequence[Check]) -> Iterator[str]:
        """What a user must read before the estimate."""
        notes = estimate.diagnostics
        if isinstance(self.resolved.noise, Restored):
            yield from self.resolved.noise.sentences(self.names)
        if estimate.counts["overlaps"]:
            yield (
                f"{estimate.counts['overlaps']:,} records were in several of the sums that were merged, and count "
                "twice here"
            )
        yield from (check.sentence for check in checks if not check.passed)
        ignored = notes.get("ground", {}).get("statistics", {}).get("ignored_dispersion")
        if ignored is not None and estimate.estimator != "naive":
            yield (
                f"the counts vary {ignored:.3g} times as much as those of independent movers, for which "
                f"{estimate.estimator} does not allow; auto does"
            )
        open_rows = [row for row in notes["rows"] if row["flag"] == "not-determined"]
        for contradicted, words in (
            (True, "cannot be told from these counts, which contradict themselves there"),
            (False, "are hardly determined by these counts"),
        ):
            states = [row["state"] for row in open_rows if row["contradicted"] is contradicted]
            if states:
                yield f"moves from {listed(states)} {words}; see the notes"
        scores = notes.get("scores", {})
        P, error, mu = estimate.transition_matrix, estimate.standard_error, np.maximum(data.x.mu, 0.0)
        better = doubt(scores, P, error, estimate.baselines, mu)
        if better is not None:
            words = {"identity": "nobody moves", "naive": "all are like the mean"}[better]
            how = "better than" if scores["estimate"] > scores[better] else "about as well as"
            errors = scores[better], scores["estimate"]
            # The noise is taken out of both, which may leave less than nothing.
            told = ", with an error of {:.4g} against {:.4g}".format(*errors) if min(errors) > 0 else ""
            yield f'on data left out, "{words}" predicts the next step {how} this estimate{told}'
        steps = notes.get("choice", {}).get("form") == "steps"
        if steps and notes["interval"]["tests"].get("means", 0.0) > 1:
            yield (
                "the mean shares move otherwise than a matrix that explains the movement about them would let them: "
                'it may change with time, and chain="per-step" or a Window gives one for each'
            )
        yield from notes.get("structure", {}).get("sentences", ())
        period = notes.get("period")
        if period is not None:
            yield (
                f"the mean shares come back every {period['steps']} steps, which was taken out; the matrix may do "
                f"so too: chain=Cycle({period['steps']}) gives one for each"
            )

    def row_flags(
        self,
        data: CellFit,
        P: np.ndarray,
        share_error: np.ndarray,
        found: Uncertainty,
        diagnostics: Mapping[str, Any],
    ) -> list[dict[str, Any]]:
        """What a user must know of single rows: that they are unknown, hardly known, or borrowed."""
        x, flags = data.x, list[dict[str, Any]]()
        lost = np.zeros(self.S, bool) if found.contradicted is None else found.contradicted
        half = student_quantile(self.settings.level, data.groups - 1) * found.parts.error
        source = diagnostics.get("borrowed", {})
        borrowed = source.get("rows", [0.0] * self.S)
        for i, name in enumerate(self.names):
            if np.isnan(P[i]).all() and data.seen.left[i]:
                why = f"moves from state {name!r} cannot be told from numbers of this size"
                flags.append({"state": name, "flag": "undetermined", "why": why})
            elif np.isnan(P[i]).all():
                why = f"state {name!r} was never seen before a move, so nothing is known of moves from it"
                flags.append({"state": name, "flag": "never-seen", "why": why})
            elif lost[i]:
                why = (
                    f"what the counts say of moves from state {name!r} contradicts itself, as when something "
                    "moves many individuals at once again and again; so nothing is known of them"
                )
                flags.append({"state": name, "flag": "not-determined", "why": why, "contradicted": True})
            elif np.nanmax(half[i], initial=0.0) >= OPEN:
                why = (
                    f"moves from state {name!r} are not determined: an interval reaches "
                    f"{np.nanmax(half[i]):.2g} to each side; more data are needed, or constraints"
                )
                flags.append({"state": name, "flag": "not-determined", "why": why, "contradicted": False})
            elif borrowed[i] > BORROWED:
                why = (
                    f"{100 * borrowed[i]:.0f}% of what is said of moves from state {name!r} is borrowed from "
                    f"{source['from']}"
                )
                flags.append({"state": name, "flag": "borrowed", "why": why})
            elif x.mu[i] < RARE * share_error[i]:
                why = (
                    f"state {name!r} has a mean share of {x.mu[i]:.2g} ± {share_error[i]:.2g}; "
                    "moves from it are hardly determined"
                )
                flags.append({"state": name, "flag": "rare", "why": why})
        return flags


def listed(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(repr(n) for n in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more states"


def _condition(gram: np.ndarray) -> float:
    """The ratio of the extreme singular values of a symmetric matrix: the sizes of its eigenvalues."""
    if not np.isfinite(gram).all():
        return np.inf
    sizes = np.abs(np.linalg.eigvalsh(gram))
    return float(sizes.max() / sizes.min()) if sizes.min() > 0 else np.inf


def _counts(cell: Moments, run: Moments) -> dict[str, int]:
    """Records and pairs of the cell; the rest is of the whole run, since it belongs to no cell."""
    return {
        "records": cell.records,
        "pairs": cell.pairs,
        "realizations": run.counts.realizations,
        "duplicates": run.counts.duplicates,
        "overlaps": run.counts.overlaps,
        "gaps": run.gaps,
        "rejected": run.counts.rejected,
        "late": run.counts.late,
    }
