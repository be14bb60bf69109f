"""The data of one cell, and what can be asked of it: an estimate, its errors, its predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.estimators.choice import auto_choice
from aggmc_beam.estimators.fast import fast
from aggmc_beam.estimators.paper import mom
from aggmc_beam.estimators.registry import SMOOTH, apply
from aggmc_beam.estimators.stationarity import detrend, drift_alarm
from aggmc_beam.inference import jackknife, leave_one_out
from aggmc_beam.latent import Latent
from aggmc_beam.moments import Moments, add_moments
from aggmc_beam.profile import Profile, add_profiles
from aggmc_beam.stepwise import StepSums, step_mom, step_mom_without_each, step_sums

if TYPE_CHECKING:
    from aggmc_beam.fitting import Fit

#: Trends that are tried, as degrees of polynomials in time. A line leaves curvature behind, which a
#: sticky chain explains as well; higher degrees cost next to nothing.
DEGREES = (3, 5, 8)
#: Parts that are predicted from the others in turn; fewer where estimates are costly.
FOLDS, FOLDS_LARGE, LARGE = 5, 2, 20


@dataclass(frozen=True, eq=False)
class Point:
    """A point estimate [S, S], and the smooth one, `centre`, that intervals belong to."""

    P: np.ndarray
    centre: np.ndarray
    smooth: str
    form: str = "stationary"
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    degree: int = 0


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


class Data:
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

    def point(self) -> Point:
        """The estimate by the estimator of the settings."""
        name, x = self.fit.settings.estimator, self.x.restricted(self.seen.anywhere)
        if name == "auto" and not self.fit.chain.centred:
            return self._auto(x)
        smooth = name if name in SMOOTH else "mom"
        # Pairs of a step or phase have margins of their own, which fast can keep.
        P = apply("fast" if name == "auto" else name, x, self.rules)
        centre = P if name == smooth else mom(x)
        return Point(self.seen.embed(P), self.seen.embed(centre), smooth)

    def _auto(self, x: Latent) -> Point:
        sums = self._step_sums()
        alarm, detrended, degree = None, None, 0
        if self.profile is not None:
            alarm = drift_alarm(x, fast(x, self.rules), self.profile, sums)
            if alarm is not None and alarm.raised:
                detrended, degree = self._detrended()
        choice = auto_choice(x, detrended, sums, alarm, self.rules)
        centre, smooth = mom(x), "mom"
        if choice.form == "steps" and sums is not None:
            centre, smooth = step_mom(sums), "mom about step means"
        elif choice.form == "detrended" and detrended is not None:
            centre, smooth = mom(detrended), f"mom about a trend of degree {degree}"
        diagnostics: dict[str, Any] = {"choice": choice.note()}
        if alarm is not None:
            diagnostics["drift"] = {**asdict(alarm), "raised": alarm.raised}
        P, centre = self.seen.embed(choice.P), self.seen.embed(centre)
        return Point(P, centre, smooth, choice.form, diagnostics, degree)

    def _detrended(self) -> tuple[Latent, int]:
        """With a polynomial per state taken out, of the least degree that leaves no drift."""
        assert self.profile is not None
        for degree in DEGREES:
            moments, profile = detrend(self.total, self.profile, degree)
            x = self.fit.latent(moments, partial(_itself, profile)).restricted(self.seen.anywhere)
            left = drift_alarm(x, fast(x, self.rules), profile, None)
            if left is None or not left.raised:
                break
        return x, degree

    def _step_sums(self) -> StepSums | None:
        if self.profile is None or self.fit.settings.open_population:
            return None
        resolved = self.fit.resolved
        sums = step_sums(self.parts, self.profiles, resolved.noise, resolved.scale)
        return None if sums is None else sums.restricted(self.seen.anywhere)

    def errors(self, point: Point) -> tuple[np.ndarray, np.ndarray]:
        """Jackknife errors of the smooth estimate [S, S] and of the mean shares [S]."""
        unknown = np.full_like(point.centre, np.nan), np.full(self.fit.S, np.nan)
        if self.groups < 2:
            return unknown
        weight = np.array([m.lag0.weight for m in self.parts.values()])
        try:
            reduced = [self.fit.latent(m) for m in leave_one_out(list(self.parts.values()))]
            matrices = self._without_each(point, reduced)
        except InputError:  # without one of the groups, too little is left
            return unknown
        share = weight / weight.sum()
        shares = [x.mu for x in reduced]
        return jackknife(point.centre, matrices, share), jackknife(self.x.mu, shares, share)

    def _without_each(self, point: Point, reduced: list[Latent]) -> list[np.ndarray]:
        """The smooth estimate without each group, in the form that was chosen."""
        seen = self.seen
        if point.form == "steps":
            sums = self._step_sums()
            assert sums is not None
            return [seen.embed(P) for P in step_mom_without_each(sums)]
        if point.form == "detrended":
            rest = leave_one_out(list(self.parts.values()))
            profiles = list(self.profiles.values())
            reduced = []
            for g, moments in enumerate(rest):
                profile = add_profiles(profiles[:g] + profiles[g + 1 :], self.fit.S)
                reduced.append(self.fit.latent(detrend(moments, profile, point.degree)[0]))
        smooth = point.smooth if point.smooth in SMOOTH else "mom"
        return [seen.embed(apply(smooth, x.restricted(seen.anywhere))) for x in reduced]

    def scores(self, point: Point) -> dict[str, Any]:
        """Squared error of predicting the next step on data left out, per individual.

        The noise is taken out of the error, so 0 would be a perfect prediction of true counts.
        """
        if self.x.V is None:
            return {"why": "without the noise covariance a prediction error cannot be corrected for noise"}
        if self.groups < FOLDS:
            return {"why": f"{self.groups} groups are too few to leave some out"}
        costly = self.fit.S > LARGE or self.fit.settings.estimator == "limle"
        folds = FOLDS_LARGE if costly else FOLDS
        names = list(self.parts)
        losses: dict[str, list[float]] = {"estimate": [], "identity": [], "naive": []}
        sums = [add_moments(self.fit.S, (self.parts[r] for r in names[k::folds])) for k in range(folds)]
        for fold, rest in enumerate(leave_one_out(sums)):
            out = {r: self.parts[r] for r in names[fold::folds]}
            kept = {r: self.parts[r] for r in names if r not in out}
            try:
                train = Data(self.fit, kept, self.profiles, rest)
                test = Data(self.fit, out, {}, sums[fold])
                found = train.point().P
            except InputError as error:
                return {"why": str(error)}
            naive = np.tile(train.x.right, (self.fit.S, 1))
            found = np.where(np.isnan(found), naive, found)
            for name, P in (("estimate", found), ("identity", np.eye(self.fit.S)), ("naive", naive)):
                losses[name].append(prediction_error(P, test.x) * test.total.pairs / self.total.pairs)
        return {name: float(np.sum(values)) for name, values in losses.items()}

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


def _itself(profile: Profile) -> Profile:
    return profile


def prediction_error(P: np.ndarray, x: Latent) -> float:
    """E |n_t+1 - P'n_t|^2 / N over the pairs behind x, with the noise of both ends taken out."""
    assert x.V is not None
    expected = x.arrivals - float(np.trace(x.V))
    return expected - 2 * float((P * x.cross).sum()) + float((P * ((x.gram - x.V) @ P)).sum())
