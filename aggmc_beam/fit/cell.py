"""The data of one cell, and what can be asked of it: an estimate, its errors, its predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.estimators.auto import (
    FEW_REALIZATIONS,
    MANY_STATES,
    Choice,
    View,
    auto_choice,
    stationary_choice,
)
from aggmc_beam.estimators.conditional import FEW_GROUPS, PairSums, Step
from aggmc_beam.estimators.constraints import Rules
from aggmc_beam.estimators.curvature import CURVATURE_STATES, gmm_error
from aggmc_beam.estimators.dispersion import (
    Dispersion,
    cells_dispersion,
    dispersion,
    in_units,
    steps_in_units,
)
from aggmc_beam.estimators.drift import drift_fit
from aggmc_beam.estimators.fast import fast
from aggmc_beam.estimators.ground import (
    INDEPENDENT,
    Ground,
    conditional,
    independent,
    regression,
    untested,
    varying,
)
from aggmc_beam.estimators.inference import jackknife, leave_each_out, leave_one_out
from aggmc_beam.estimators.latent import Latent
from aggmc_beam.estimators.periods import Period, find_period
from aggmc_beam.estimators.registry import SMOOTH, apply
from aggmc_beam.estimators.simplex import project_rows
from aggmc_beam.estimators.stationarity import Trend, drift_alarm
from aggmc_beam.estimators.stepwise import StepSums, one_step, step_sums
from aggmc_beam.fit.intervals import Parts, Sources, Uncertainty, disagreeing, uncertainty
from aggmc_beam.fit.scores import held_out, predicts_as_well, scores_of
from aggmc_beam.fit.structured import structured
from aggmc_beam.simulation import stationary_distribution
from aggmc_beam.sums.moments import Moments, add_moments
from aggmc_beam.sums.profile import LEFT1, Profile, add_profiles

if TYPE_CHECKING:
    from aggmc_beam.fit.fit import Fit

#: Trends that are tried, as degrees of polynomials in time. A line leaves curvature behind, which a
#: sticky chain explains as well; higher degrees cost next to nothing.
DEGREES = (3, 5, 8)
#: First steps that are left out where the rest has settled.
SETTLING = (4, 8, 16, 32, 64, 128)
#: Groups from which some are left out for scores.
FOLDS = 5
#: Parts of which each is left out of an estimate that is made anew: of fewer, it would be made of too few data.
REFITS = 5
#: Weight of the means in an estimate about steps below which it stands on the movement about them alone.
UNUSED = 0.1
#: Dispersion of a few series from which they must predict better than identity, and last for so many times of
#: relaxation, to tell anything: fewer show but a handful of independent states of affairs.
SHOCKED, LASTING = 3.0, 30.0
#: Dispersion of a few series that is not that of households or trucks, but of what moves all.
BEYOND_GROUPS = 10.0
#: Up to this many states the conditional mean is looked at, whose cost is that of S^4.
STEP_STATES = 150
#: Estimators that are fitted anew for few groups only.
COSTLY, COSTLY_GROUPS = frozenset({"limle"}), 10
LEAST_SQUARES = frozenset({"cls", "corrected-cls"})
_OTHERS = {"limle": "limle", "naive": "naive"}


@dataclass(frozen=True, eq=False)
class Point:
    """A point estimate [S, S]. `of` names what its sampling error is of.

    `choice` is how `auto` or gmm came to it, `trend` what was taken out before. `sampling` [S, S]: its
    sampling error, if it is known already.
    """

    P: np.ndarray
    of: str
    choice: Choice | None = None
    trend: Trend | None = None
    view: View | None = None
    sums: StepSums | None = None
    ground: Ground | None = None
    sampling: np.ndarray | None = None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Seen:
    """Which states [S] were ever there, `anywhere` or as the `left` end of a pair.

    Estimates are made over the states that were somewhere; a row needs left ends.
    """

    anywhere: np.ndarray
    left: np.ndarray

    @classmethod
    def of(cls, moments: Moments) -> Seen:
        left = (moments.ends.left != 0) | (np.diag(moments.ends.product) > 0)
        anywhere = left | (moments.lag0.left != 0) | (moments.lag1.right != 0)
        return cls(anywhere, left)

    @classmethod
    def all(cls, S: int) -> Seen:
        return cls(np.ones(S, bool), np.ones(S, bool))

    def embed(self, P: np.ndarray) -> np.ndarray:
        """A matrix over the states seen anywhere among all states: rows without left ends NaN."""
        if self.left.all():
            return P
        full = np.zeros((len(self.left), len(self.left)))
        full[np.ix_(self.anywhere, self.anywhere)] = P
        full[~self.left] = np.nan
        return full


class CellFit:
    """Moments and profiles of a cell by replicate, under the settings of a fit; `total` if it is known."""

    def __init__(
        self,
        fit: Fit,
        parts: dict[int, Moments],
        profiles: dict[int, Profile],
        total: Moments | None = None,
    ) -> None:
        self.fit, self.parts = fit, parts
        self.profiles = {r: profiles[r] for r in parts if r in profiles}
        self.groups = len(parts)
        self.total = add_moments(fit.S, parts.values()) if total is None else total
        complete, S = self.profiles if len(self.profiles) == len(parts) else None, fit.S
        # Found when asked for, since few estimators do.
        self._profile = cache(lambda: None if complete is None else add_profiles(complete.values(), S))
        self.x = fit.latent(self.total, self._profile)
        self.seen = fit.seen(self.total)
        self.rules = None if fit.rules is None else fit.rules.restricted(self.seen.anywhere)

    @property
    def profile(self) -> Profile | None:
        """The step means of all replicates, if all have them."""
        return self._profile()

    @cached_property
    def latents(self) -> list[Latent]:
        """The replicates, each by itself; a cell of few realizations has but one pair in each."""
        return [self.fit.latent(m, centred=False) for m in self.parts.values() if m.pairs > 0]

    def point(self) -> Point:
        """The estimate by the estimator of the settings."""
        name, x = self.fit.settings.estimator, self.x.restricted(self.seen.anywhere)
        view = self._view(list(self.parts.values()), x)
        if name == "auto" and not self.fit.chain.centred:
            states = self.fit.state_map
            return self.automatic(view, self.rules) if states is None else structured(self, view, states)
        if name == "auto":
            return self._cell(view)
        if name == "gmm":
            choice = stationary_choice(replace(view, pooled=None), self.rules)
            return self._chosen(choice, Point(self.seen.embed(choice.P), "gmm", choice))
        P = self.seen.embed(apply(name, x, self.rules))
        ground = regression() if name in LEAST_SQUARES else ground_of(view.dispersion)
        return Point(P, name if name in SMOOTH else _OTHERS.get(name, "mom"), None, ground=ground)

    def _view(self, parts: list[Moments], x: Latent, form: str = "stationary") -> View:
        """About one mean, or what is left of it by a trend."""
        keep, resolved = self.seen.anywhere, self.fit.resolved
        own = self.latents if form == "stationary" else [self.fit.latent(m) for m in parts if m.pairs > 0]
        pooled = None
        closed = not self.fit.settings.open_population
        if x.V is not None and len(own) >= FEW_GROUPS and closed and x.states <= MANY_STATES:
            pooled = one_step(parts, resolved.noise, resolved.scale)
        return View(
            x,
            dispersion(x, own, keep) if len(own) >= FEW_GROUPS and self.total.pairs > len(own) else None,
            None if pooled is None else pooled.restricted(keep),
            form,
        )

    def _cell(self, view: View) -> Point:
        """Pairs of a step or phase have margins of their own, which fast can keep."""
        found = view.dispersion
        if found is not None and found.significant and view.pooled is not None:
            fit = drift_fit(steps_in_units(view.pooled, found.factor), self.rules, conditional=True)
            why = f"the counts vary {found.factor:.2f} times as much as those of independent movers"
            choice = Choice(fit.P, "conditional", "cell", why, conditional(found.factor), {}, found.factor)
        else:
            P = fast(view.x, self.rules)
            choice = Choice(P, "fast", "cell", "each cell has margins of its own", ground_of(view.dispersion))
        return Point(self.seen.embed(choice.P), "conditional mean", choice, ground=choice.ground)

    def automatic(self, view: View, rules: Rules | None) -> Point:
        """By `auto`, under these rules."""
        x, sums = view.x, self._step_sums()
        alarm, flat, trend = None, None, None
        if self.profile is not None:
            alarm = drift_alarm(x, fast(x, rules), self.profile, sums)
            few = sums is None or sums.pairs < FEW_REALIZATIONS * sums.steps
            period = self.period if few else None
            if few and (period is not None or (alarm is not None and alarm.raised)):
                flat, trend = self.about_trend(None if period is None else period.steps)
        choice = auto_choice(view, flat, sums, alarm, rules)
        of = {"steps": "step means", "stationary": "one mean"}.get(choice.form)
        of = f"{choice.estimator} about {of or (trend.words if trend is not None else 'a trend')}"
        diagnostics: dict[str, Any] = {}
        if alarm is not None:
            diagnostics["drift"] = {**asdict(alarm), "raised": alarm.raised}
        if trend is not None and trend.period is not None:
            diagnostics["period"] = {
                "steps": trend.period,
                "excess": self.period.excess if self.period else None,
            }
        if flat is None or choice.form != flat.form:
            flat, trend = None, None
        point = Point(self.seen.embed(choice.P), of, choice, trend, flat or view, sums)
        return self._chosen(choice, replace(point, diagnostics=diagnostics))

    def _chosen(self, choice: Choice, point: Point) -> Point:
        diagnostics = {"choice": choice.note(), **point.diagnostics}
        return replace(point, choice=choice, ground=choice.ground, diagnostics=diagnostics)

    @cached_property
    def period(self) -> Period | None:
        """Of the mean shares, if they come back."""
        path, profile = self.x.trajectory, self.profile
        if path is None or profile is None:
            return None
        return find_period(path, profile.width)

    def about_trend(self, period: int | None) -> tuple[View, Trend]:
        """What is left if the first steps, or else a period and a polynomial per state are taken out: as much
        as leaves no drift."""
        assert self.profile is not None
        for trend in self._trends(self.profile, period):
            parts = {r: trend.taken_out(m, self.profiles[r]) for r, m in self.parts.items()}
            moments = add_moments(self.fit.S, [m for m, _ in parts.values()])
            profile = add_profiles([p for _, p in parts.values()], self.fit.S)
            x = self.fit.latent(moments, partial(_itself, profile)).restricted(self.seen.anywhere)
            left = drift_alarm(x, fast(x, self.rules), profile, None)
            if left is None or not left.raised:
                break
        return self._view([m for m, _ in parts.values()], x, trend.form), trend

    @staticmethod
    def _trends(profile: Profile, period: int | None) -> Iterator[Trend]:
        if period is None and profile.width == 1:
            for skipped in SETTLING:
                if 4 * skipped <= len(profile.bins):
                    yield Trend.of(profile, 0, None, skipped)
        for degree in DEGREES if period is None else (0, *DEGREES):
            yield Trend.of(profile, degree, period)

    def _without(self, trend: Trend) -> list[Moments]:
        """The replicates about a trend."""
        return [trend.taken_out(m, self.profiles[r])[0] for r, m in self.parts.items()]

    def _step_sums(self) -> StepSums | None:
        if self.profile is None or self.fit.settings.open_population:
            return None
        resolved = self.fit.resolved
        sums = step_sums(self.parts, self.profiles, resolved.noise, resolved.scale, self.profile)
        return None if sums is None else sums.restricted(self.seen.anywhere)

    def sources(self, point: Point) -> Sources | None:
        """The pairs as the conditional mean sees them, whole and apart."""
        keep = self.seen.anywhere
        if self.fit.settings.open_population or keep.sum() > STEP_STATES:
            return None
        whole = PairSums.of(self.latents, self.x, keep)
        if whole is None:
            return None
        within = None
        if point.trend is not None and point.trend.form != "settled":
            parts = [self.fit.latent(m) for m in self._without(point.trend) if m.pairs > 0]
            within = PairSums.of(parts, self.x, keep)
        elif point.choice is not None and point.choice.form == "steps" and point.sums is not None:
            within = whole.within(point.sums)
        means = None if within is None else whole.without(within)
        if means is None or not means.moves_beside(whole):
            within, means = None, None
        elif self._comes_back(point) and within is not None:
            whole, within, means = within, None, None
        return Sources(whole, within, means, self._starts(), self._middles())

    @staticmethod
    def _comes_back(point: Point) -> bool:
        """Whether the means say nothing of the mean matrix: a series whose means come back for good has a matrix
        that does so, unless the movement about them is not that of individuals, so that neither can be trusted."""
        if point.trend is None or point.trend.period is None:
            return False
        return point.ground is not None and point.ground.name == INDEPENDENT

    @staticmethod
    def _hardly_uses_means(point: Point) -> bool:
        """Whether an estimate stands on the movement of independent individuals about the means of steps alone."""
        if point.choice is None or point.ground is None or point.ground.name != INDEPENDENT:
            return False
        return float(point.choice.numbers.get("means_weight", 1.0)) < UNUSED

    def _starts(self) -> np.ndarray | None:
        """[G, S]: mean shares at the first step of each group, if groups are made of whole realizations."""
        if not self.profiles or not all(m.counts.realizations > 0 for m in self.parts.values()):
            return None
        found = [self.profiles[r].kind(LEFT1)[self.profiles[r].number[:, 1] > 0] for r in self._paired()]
        starts = np.stack([self.fit.undo.means(left[0]) for left in found])[:, self.seen.anywhere]
        return np.asarray(starts / np.maximum(starts.sum(1, keepdims=True), 1e-300))

    def _middles(self) -> np.ndarray | None:
        """[G]: mean time of each group."""
        if not self.profiles:
            return None
        profiles = [self.profiles[r] for r in self._paired()]
        return np.array([float(p.weight[:, 1] @ p.bins) * p.width / p.weight[:, 1].sum() for p in profiles])

    def _paired(self) -> list[int]:
        return [r for r, m in self.parts.items() if m.pairs > 0 and r in self.profiles]

    def uncertainty(self, point: Point) -> Uncertainty:
        """What the estimate's intervals are made of, over all states."""
        S, seen = self.fit.S, self.seen
        unknown = np.full((S, S), np.nan)
        keep = np.ix_(seen.anywhere, seen.anywhere)
        if self.groups < 2:
            return Uncertainty(Parts.of_sampling(unknown))
        own, sources = self._own_error(point), self.sources(point)
        P = np.nan_to_num(point.P[keep])
        held = None if self.rules is None else ~self.rules.free
        if sources is None:
            return Uncertainty(Parts.of_sampling(unknown if own is None else seen.embed(own)))
        try:
            if point.choice is None:
                found = disagreeing(P, own, sources, held)
            else:
                found = uncertainty(P, own, sources, point.choice.units, held)
                contradicted = max(found.tests.get(name, 0.0) for name in ("conditional mean", "means")) > 1
                if contradicted and sources.within is not None and self._hardly_uses_means(point):
                    # The means contradict the movement about them, so the matrix changes from step to step. What
                    # the mean matrix is, the movement about them still tells.
                    alone = replace(sources, whole=sources.within, within=None, means=None)
                    means = {"means": found.tests["means"]}
                    found = uncertainty(P, own, alone, point.choice.units, held)
                    found = replace(found, tests={**found.tests, **means})
        except np.linalg.LinAlgError:  # of numbers that no longer tell their differences
            return Uncertainty(Parts.of_sampling(seen.embed(self.jackknifed("mom"))))
        parts = Parts(*(seen.embed(part) for part in vars(found.parts).values()))
        lost = np.zeros(S, bool)
        if found.contradicted is not None:
            lost[seen.anywhere] = found.contradicted
        return replace(found, parts=parts, contradicted=lost)

    def _own_error(self, point: Point) -> np.ndarray | None:
        """The estimator's own sampling error, over the states that were seen; None if it is as that of the
        conditional mean."""
        choice, x, rules = point.choice, self.x.restricted(self.seen.anywhere), self.rules
        if point.sampling is not None:
            return np.asarray(point.sampling[np.ix_(self.seen.anywhere, self.seen.anywhere)])
        if choice is None:
            return self.jackknifed(point.of)
        curved = x.states <= CURVATURE_STATES or x.V is None
        if choice.lag0 is not None and choice.ground.name == INDEPENDENT and curved:
            view = point.view or View(x)
            try:
                return gmm_error(in_units(view.x, choice.units), choice.P, choice.lag0, rules)
            except np.linalg.LinAlgError:  # a chain that is next to periodic has no curvature to speak of
                return self.jackknifed("mom") if x.V is None or x.states > STEP_STATES else None
        return self.jackknifed("mom") if x.V is None else None

    def is_shocked(self, point: Point, scores: Mapping[str, Any]) -> bool:
        """Whether a few series move far more than independent movers, and no matrix surely predicts how.

        Then what moves many at once (a recession, a season) cannot be told from moves of individuals: there
        are no other realizations that it did not move.
        """
        view, sums = point.view, point.sums
        if view is None or view.dispersion is None or view.dispersion.factor < SHOCKED:
            return False
        if sums is not None and sums.pairs >= FEW_REALIZATIONS * sums.steps:
            return False
        lasts = self.total.pairs * (1 - second_eigenvalue(np.nan_to_num(point.P)))
        return view.dispersion.factor >= BEYOND_GROUPS or lasts < LASTING or predicts_as_well(scores)

    def jackknifed(self, name: str) -> np.ndarray:
        """The jackknife of an estimator without constraints."""
        parts, keep = list(self.parts.values()), self.seen.anywhere
        if name in COSTLY:
            parts = [add_moments(self.fit.S, parts[g::COSTLY_GROUPS]) for g in range(COSTLY_GROUPS)]
            names = list(self.parts)
        weight = np.array([m.lag0.weight for m in parts])
        unknown = np.full((int(keep.sum()),) * 2, np.nan)
        if np.count_nonzero(weight) < 2:
            return unknown
        try:
            reduced = [self.fit.latent(m).restricted(keep) for m in leave_one_out(parts)]
            if name in COSTLY:
                kept = [set(names) - set(names[g::COSTLY_GROUPS]) for g in range(COSTLY_GROUPS)]
                profiles = [
                    add_profiles([self.profiles[r] for r in k if r in self.profiles], self.fit.S)
                    for k in kept
                ]
                reduced = [
                    self.fit.latent(m, partial(_itself, p)).restricted(keep)
                    for m, p in zip(leave_one_out(parts), profiles, strict=True)
                ]
            full = apply(name, self.x.restricted(keep))
            found = [apply(name, y) for y in reduced]
            return np.asarray(jackknife(full, found, weight / weight.sum()))
        except InputError:  # without one of the groups, too little is left
            return unknown

    def share_error(self) -> np.ndarray:
        """[S]: jackknife errors of the mean shares."""
        weight = np.array([m.lag0.weight for m in self.parts.values()])
        if np.count_nonzero(weight) < 2:
            return np.full(self.fit.S, np.nan)
        parts, undo = [m.lag0 for m in self.parts.values()], self.fit.undo
        pairs = np.array([m.pairs for m in self.parts.values()])
        if (self.total.pairs - pairs).min() < (2 if self.fit.chain.centred else 1):
            return np.full(self.fit.S, np.nan)
        left = np.stack([part.left for part in parts])
        middle = weight @ left / weight.sum()
        rest = leave_each_out(weight[:, None] * (left - middle)) / leave_each_out(weight)[:, None] + middle
        shares = (rest - undo.offset) @ undo.inverse.T
        total = shares.sum(1, keepdims=True)
        if not (total > 0).all():
            return np.full(self.fit.S, np.nan)
        return jackknife(self.x.mu, shares / total, weight / weight.sum())

    def scores(self, P: np.ndarray, found: Uncertainty, freedom: float = 1.0) -> dict[str, Any]:
        """Squared error of predicting the next step on data left out, per individual.

        What is left out is taken out of the estimate to first order, times `freedom`. The noise is taken
        out of the error, so 0 would be a perfect prediction of true counts. `worse`: how surely identity
        or naive predicts better, in standard errors.
        """
        if self.x.V is None:
            return {"why": "without the noise covariance a prediction error cannot be corrected for noise"}
        step = found.step
        if self.fit.S > STEP_STATES:
            return {"why": f"{self.fit.S} states are too many to predict data that are left out"}
        if step is None or step.sums.groups < FOLDS:
            return {"why": f"{self.groups} groups are too few to leave some out"}
        found_scores = held_out(
            step, np.nan_to_num(P[np.ix_(self.seen.anywhere, self.seen.anywhere)]), freedom
        )
        if "worse" in found_scores and not self.fit.chain.centred:
            # That would be said aloud, so it is made sure by estimates that are made anew.
            return {name: v for name, v in found_scores.items() if name != "worse"} | self._refitted(step)
        return found_scores

    def _refitted(self, step: Step) -> dict[str, Any]:
        """Scores of estimates from some groups on the others."""
        used = [r for r, m in self.parts.items() if m.pairs > 0]
        keep = np.ix_(self.seen.anywhere, self.seen.anywhere)

        def without(fold: np.ndarray) -> np.ndarray:
            names = {r for r, out in zip(used, fold, strict=True) if out}
            kept = {r: m for r, m in self.parts.items() if r not in names}
            return np.asarray(np.nan_to_num(CellFit(self.fit, kept, self.profiles).point().P[keep]))

        try:
            return scores_of(step.sums, without, REFITS)
        except InputError as error:
            return {"why": str(error)}

    def guarded(self, P: np.ndarray, rare: np.ndarray) -> np.ndarray:
        """The simplex estimate with naive rows for states too rare to have one of their own.

        Their shares are never floored; mom stays as it is, and the others have their ridge.
        """
        if self.fit.settings.estimator != "simplex" or not rare.any():
            return P
        P = P.copy()
        for i in np.flatnonzero(rare & ~np.isnan(P).any(1)):
            if self.fit.rules is None or self.fit.rules.free[i].all():
                positive = np.maximum(self.x.right, 0.0)
                P[i] = positive / positive.sum()
        return P


def common_ground(cells: Sequence[CellFit]) -> Ground:
    """Of estimates from several cells of a chain: what all of them say of independent movers."""
    closed = [cell for cell in cells if cell.x.pairs > 1 and not cell.fit.settings.open_population]
    by_replicate = [
        (cell.x, {r: cell.fit.latent(m) for r, m in cell.parts.items() if m.pairs > 1}) for cell in closed
    ]
    return ground_of(cells_dispersion(by_replicate))


def ground_of(found: Dispersion | None) -> Ground:
    """What a dispersion factor says of independent movers; None if there is none."""
    if found is None:
        return untested()
    if found.significant:
        return varying(found.factor)
    return independent(found.factor, found.error if np.isfinite(found.error) else None)


def second_eigenvalue(P: np.ndarray) -> float:
    """The size of P's second eigenvalue: what a step leaves of the memory that lasts longest."""
    return float(np.sort(np.abs(np.linalg.eigvals(P)))[-2]) if len(P) > 1 else 0.0


def settled(P: np.ndarray) -> np.ndarray:
    """The stationary distribution of the nearest stochastic matrix; 0 for states never seen."""
    known = ~np.isnan(P).any(1)
    pi = np.zeros(len(P))
    if known.any():
        pi[known] = stationary_distribution(project_rows(P[np.ix_(known, known)]))
    return pi


def _itself(profile: Profile) -> Profile:
    return profile


def prediction_error(P: np.ndarray, x: Latent) -> float:
    """E |n_t+1 - P'n_t|^2 / N over the pairs behind x, with the noise of both ends taken out."""
    assert x.V is not None
    expected = x.arrivals - float(np.trace(x.V))
    return expected - 2 * float((P * x.cross).sum()) + float((P * ((x.gram - x.V) @ P)).sum())
