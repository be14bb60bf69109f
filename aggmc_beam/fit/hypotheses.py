"""Tests from aggregate data alone: is there memory, do shares move, do two sources share one P?

All three compare a vector z of contrasts, zero under the hypothesis, with its covariance V from the
jackknife. There are up to S(S - 1) contrasts and some 50 groups, so V cannot be inverted, and
Hotelling's T^2 does not exist. The statistic is z'z / tr V instead, on coordinates in which V would
be near the identity (counts whitened by their lag-0 covariance, which has many more degrees of
freedom), referred to Box's approximation F(h, f): h = (tr V)^2 / tr V^2 contrasts that count, f the
degrees of freedom of tr V, the traces being free of bias (Box 1954; Brunner, Dette & Munk 1997).
For one contrast this is Student's t; for V = I and normal z it is exact, whatever the number of
groups. No direction is chosen by looking at z. Contrasts over time are at most S - 1 at once, of
very unequal variance, and read at a stricter level, where Box's tail is too light: for them it is
Hotelling's T^2 where groups are three times as many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.estimation import sums_of
from aggmc_beam.estimators.inference import jackknife, leave_one_out
from aggmc_beam.estimators.latent import Latent, Trajectory, latent
from aggmc_beam.estimators.moment_methods import corrected_cls, mom
from aggmc_beam.estimators.spread import Spread, box_test, hotelling_test, jackknife_spread
from aggmc_beam.fit.fit import RARE, Settings
from aggmc_beam.fit.resolve import Resolved, resolve
from aggmc_beam.noise import Exact, Noise
from aggmc_beam.sums.moments import Moments
from aggmc_beam.sums.profile import Profile
from aggmc_beam.sums.sums import Sums

#: Fewer groups than this tell too little of a covariance.
MIN_GROUPS = 5
#: Steps that a test over time needs, and each realization with it.
MIN_STEPS = 4
#: Directions with less than this part of a state's variance are rounding.
RANK_TOLERANCE = 1e-9
#: Waves that serve as the long-run variance of few realizations: one for so many steps, within bounds.
STEPS_PER_WAVE = 50
WAVES = (6, 30)
AGAINST = ("any", "staying")
#: Degrees of freedom for each contrast from which a covariance is inverted.
HOTELLING = 3


@dataclass(frozen=True)
class TestResult:
    """A test of one hypothesis: small `p_value`s speak against it.

    `reference` is the distribution of `statistic` under the hypothesis and `degrees` its degrees of
    freedom. `contrasts` are the p-values of the parts of a test that has several, before they are
    corrected for being several; statistic and degrees are those of the smallest. `assumption` says
    what must hold for the p-value to mean what it says.
    """

    statistic: float
    p_value: float
    degrees: tuple[float, ...]
    reference: str
    assumption: str
    contrasts: Mapping[str, float] = field(default_factory=dict)

    __test__: ClassVar[bool] = False  # not a test case, whatever its name makes pytest think

    def __str__(self) -> str:
        degrees = ", ".join(f"{d:.1f}" for d in self.degrees)
        return f"{self.reference}({degrees}) = {self.statistic:.3g}, p = {self.p_value:.2g}"


def zero_order(
    data: Any,
    noise: Noise | None = None,
    population: Any = "estimate",
    *,
    against: str = "any",
    replicates: int | None = None,
    **table: Any,
) -> TestResult:
    """Is there no memory: is every row of P equal to the mean shares?

    Tests that the lag-1 covariance of shares is zero, in all (S - 1)^2 directions or, with
    `against="staying"`, in the one in which individuals stay where they are (or avoid it), which
    finds a weaker tendency to stay. Data and settings are those of `am.estimate`: `table` are the options
    that name the columns of a table or file, and `states`.

    Assumes noise that is independent between steps and mean shares that do not change; shares that
    drift look like memory, so test `stationarity` first. Groups of the jackknife are realizations, or
    blocks of time.

    >>> import aggmc_beam as am
    >>> shares = [0.5, 0.3, 0.2]
    >>> y, _ = am.simulate([shares] * 3, steps=50, realizations=50, noise=am.Binomial(0.5), seed=1)
    >>> print(zero_order(y, am.Binomial(0.5), population=100))
    F(4.0, 194.6) = 0.479, p = 0.75
    """
    source = _Source.of(data, noise, population, replicates, table)
    whole = source.latent(source.total)
    W = whitener(whole.mu, whole.c0)

    def contrasts(moments: Moments) -> np.ndarray:
        return _directions(W.T @ source.latent(moments).c1 @ W, against)

    z, spread = source.jackknife(contrasts)
    assumption = f"noise independent between steps, shares that do not drift; {source.groups_are}"
    return _f_test(z, [spread], assumption)


def equality(
    a: Any,
    b: Any,
    noise: Any = None,
    population: Any = "estimate",
    *,
    paired: bool = False,
    estimator: str = "mom",
    against: str = "any",
    replicates: int | None = None,
    **table: Any,
) -> TestResult:
    """Do two sources, or two periods of one, have the same transition matrix?

    Tests that all S(S - 1) differences of the two estimates are zero, or with `against="staying"`
    that individuals are as likely to stay. A tuple of two as `noise` or `population` gives each
    source its own. `estimator` is "mom", or "corrected-cls" where the noise covariance is known,
    which sees smaller differences. Rows of states that are rare in either source (a mean share below
    4 standard errors) are not compared.

    The sources are independent, unless `paired`: then they are two periods of the same realizations
    in the same order (or sums with the same replicates), and the jackknife leaves a realization
    out of both. Assumes that each source is stationary; where shares differ, so must P.

    >>> import aggmc_beam as am
    >>> P = [[0.9, 0.1], [0.3, 0.7]]
    >>> y, _ = am.simulate(P, steps=100, realizations=40, seed=1)
    >>> print(equality(y[:, :50], y[:, 50:], paired=True))
    F(1.3, 50.1) = 0.819, p = 0.4
    >>> z, _ = am.simulate([[0.8, 0.2], [0.6, 0.4]], steps=100, realizations=40, seed=2)
    >>> equality(y, z).p_value < 1e-9
    True
    """
    if estimator not in ESTIMATORS:
        raise InputError(f"estimator must be one of {', '.join(ESTIMATORS)}; got {estimator!r}")
    pairs = zip((a, b), _pair(noise), _pair(population), strict=True)
    sources = [_Source.of(data, model, N, replicates, table) for data, model, N in pairs]
    if sources[0].sums.states != sources[1].sums.states:
        raise InputError(
            f"the two sources have {sources[0].sums.states} and {sources[1].sums.states} states; "
            "their states must be the same"
        )
    return _Comparison(sources, estimator, against).test(paired)


def stationarity(
    data: Any,
    noise: Noise | None = None,
    population: Any = "estimate",
    *,
    replicates: int | None = None,
    **table: Any,
) -> TestResult:
    """Do the mean shares stay the same over time?

    Contrasts over time, each in all S - 1 directions: the first step against the rest, the first
    tenth against the rest, and the waves of half and one period over the data, for a trend and for
    a bend. The smallest of their p-values is corrected by Šidák's formula. Seasons of many periods
    are not seen.

    With realizations as groups, their contrasts are independent whatever the memory of the chain.
    With blocks of time (fewer than 20 realizations), the long-run variance is that of the next 6 to
    30 waves, so the memory must be shorter than about a hundredth of the steps; the first step is
    ranked among all steps, and there is no first tenth.

    >>> import aggmc_beam as am
    >>> P = [[0.9, 0.1], [0.3, 0.7]]
    >>> y, _ = am.simulate(P, steps=50, realizations=50, seed=1)
    >>> print(stationarity(y))
    F(1.0, 49.0) = 0.924, p = 0.81
    >>> y, _ = am.simulate(P, steps=50, realizations=50, seed=1, start=[0.7, 0.3])
    >>> {name: round(p, 3) for name, p in stationarity(y).contrasts.items()}
    {'first step': 0.0, 'first tenth': 0.002, 'trend': 0.429, 'bend': 0.097}
    """
    source = _Source.of(data, noise, population, replicates, table)
    if not source.sums.profiles:
        raise InputError("there are no means by step in these sums; give counts")
    whole = source.latent(source.total)
    W = whitener(whole.mu, whole.c0)
    if source.by_realization:
        return _combined(_between_realizations(source, W))
    return _combined(_within_few(source, W))


def _f_test(z: np.ndarray, spreads: Sequence[Spread], assumption: str) -> TestResult:
    F, h, f, p_value = box_test(z, spreads)
    return TestResult(F, p_value, (h, f), "F", assumption)


def _time_test(z: np.ndarray, spread: Spread, assumption: str) -> TestResult:
    """Hotelling's test where the covariance can be inverted safely, Box's elsewhere."""
    if HOTELLING * len(z) > spread.degrees or np.linalg.matrix_rank(spread.rows) < len(z):
        return _f_test(z, [spread], assumption)
    F, p, f, p_value = hotelling_test(z, spread)
    return TestResult(F, p_value, (p, f), "F", assumption)


def _combined(results: Mapping[str, TestResult]) -> TestResult:
    """The smallest p-value of several, corrected by Šidák: at most the nominal size for normal
    contrasts however they depend on each other."""
    best = min(results.values(), key=lambda r: r.p_value)
    p_value = float(-np.expm1(len(results) * np.log1p(-best.p_value))) if best.p_value < 1 else 1.0
    contrasts = {name: r.p_value for name, r in results.items()}
    return TestResult(best.statistic, p_value, best.degrees, best.reference, best.assumption, contrasts)


def whitener(mu: np.ndarray, c0: np.ndarray) -> np.ndarray:
    """W [S, r]: rows x @ W have identity covariance if x has c0; W'mu = 0, so totals do not count.

    r is S - 1, or less where states are never seen or always move together.
    """
    Q = _to_shares(mu)
    C = Q @ c0 @ Q.T
    deviation = np.sqrt(np.maximum(np.diag(C), 0.0))
    seen = deviation > RANK_TOLERANCE * deviation.max(initial=0.0)
    if not seen.any():
        raise InputError("the shares never change, so there is nothing to test")
    inverse = np.divide(1.0, deviation, out=np.zeros_like(mu), where=seen)
    values, vectors = np.linalg.eigh(C * np.outer(inverse, inverse))
    kept = values > RANK_TOLERANCE * values[-1]
    return np.asarray(Q.T @ (inverse[:, None] * vectors[:, kept]) / np.sqrt(values[kept]))


def _to_shares(mu: np.ndarray) -> np.ndarray:
    """Q with Q r = r - mu 1'r: deviations of counts without what their total explains."""
    return np.eye(len(mu)) - np.outer(mu, np.ones(len(mu)))


def _directions(whitened: np.ndarray, against: str) -> np.ndarray:
    """The contrasts of a whitened matrix [r, r]: all of them, or its trace."""
    if against not in AGAINST:
        raise InputError(f"against must be 'any' or 'staying'; got {against!r}")
    return np.atleast_1d(np.trace(whitened)) if against == "staying" else whitened.ravel()


@dataclass(frozen=True, eq=False)
class _Source:
    """Sums with their noise model and population settled."""

    sums: Sums
    resolved: Resolved

    @classmethod
    def of(
        cls,
        data: Any,
        noise: Noise | None,
        population: Any,
        replicates: int | None,
        table: Mapping[str, Any],
    ) -> _Source:
        noise = Exact() if noise is None else noise
        if not isinstance(noise, Noise):
            raise InputError(f"noise must be a noise model such as Binomial(0.5); got {noise!r}")
        settings = Settings(noise, population)
        sums, known = sums_of(data, settings, replicates, dict(table))
        return cls._checked(sums, resolve(known.noise, known.population, known.weighted, sums.total))

    @classmethod
    def _checked(cls, sums: Sums, resolved: Resolved) -> _Source:
        source = cls(sums, resolved)
        if len(source.parts) < MIN_GROUPS:
            raise InputError(
                f"a test needs at least {MIN_GROUPS} jackknife groups with data; there are "
                f"{len(source.parts)}. Give more realizations, more steps or more replicates"
            )
        return source

    @cached_property
    def parts(self) -> dict[int, Moments]:
        """The moments of each replicate that has pairs."""
        found = self.sums.by_replicate(self.sums.cells)
        return {r: m for r, m in found.items() if m.pairs > 0}

    @property
    def total(self) -> Moments:
        return self.sums.total

    @cached_property
    def share(self) -> np.ndarray:
        weight = np.array([m.lag0.weight for m in self.parts.values()])
        return np.asarray(weight / weight.sum())

    @cached_property
    def by_realization(self) -> bool:
        """Whether groups are realizations: a realization counts where its first record is."""
        return all(m.counts.realizations > 0 for m in self.parts.values())

    @property
    def groups_are(self) -> str:
        if self.by_realization:
            return "realizations that are independent"
        return "blocks of time longer than the memory of the chain"

    def latent(self, moments: Moments, profile: Callable[[], Profile] | None = None) -> Latent:
        return latent(moments, self.resolved.noise, self.resolved.scale, profile=profile)

    def trajectory(self, profile: Any) -> Trajectory:
        path = self.latent(self.total, lambda: profile).trajectory
        assert path is not None
        return path

    def reduced(self) -> list[Moments]:
        return leave_one_out(list(self.parts.values()))

    def jackknife(self, statistic: Callable[[Moments], np.ndarray]) -> tuple[np.ndarray, Spread]:
        """A statistic of moments, and its spread."""
        full = statistic(self.total)
        reduced = np.stack([statistic(m) for m in self.reduced()])
        return full, jackknife_spread(full, reduced, self.share)


def _pair(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, tuple):
        return value, value
    if len(value) != 2:
        raise InputError(f"a tuple of settings must have two, one for each source; got {len(value)}")
    return value[0], value[1]


def mom_of_shares(x: Latent) -> np.ndarray:
    """mom without the variation of totals, which is noise in a closed population: then mu'P = mu'."""
    Q = _to_shares(x.mu)
    return mom(x.replaced(c1=Q @ x.c1 @ Q.T))


#: Consistent and smooth, so that the jackknife holds.
ESTIMATORS = {"mom": mom_of_shares, "corrected-cls": corrected_cls}


class _Comparison:
    """Differences of two sources' transition matrices, in coordinates that are the same for both."""

    def __init__(self, sources: list[_Source], estimator: str, against: str) -> None:
        self.sources, self.estimate, self.against = sources, ESTIMATORS[estimator], against
        wholes = [s.latent(s.total) for s in sources]
        self.mu = np.mean([x.mu for x in wholes], axis=0)
        self.W = whitener(self.mu, np.mean([x.c0 for x in wholes], axis=0))
        self.population = float(np.mean([s.resolved.population for s in sources]))
        self.full = [self.estimate(x) for x in wholes]
        self.naive = [x.right for x in wholes]
        reduced = [[s.latent(m) for m in s.reduced()] for s in sources]
        self.reduced = [[self.estimate(x) for x in side] for side in reduced]
        self.known = np.ones(len(self.mu), bool)
        for x, side, s in zip(wholes, reduced, sources, strict=True):
            self.known &= x.mu > RARE * jackknife(x.mu, np.stack([r.mu for r in side]), s.share)

    def test(self, paired: bool) -> TestResult:
        a, b = self.sources
        z = self._contrasts(self.full[0] - self.full[1])
        spreads = [self._of_scale(i) for i in (0, 1) if self.sources[i].resolved.relative_error > 0]
        if paired:
            spreads.append(self._paired(z))
            groups = "the same realizations in both, independent of each other"
        else:
            spreads += [self._of_one(i) for i in (0, 1)]
            kinds = sorted({a.groups_are, b.groups_are})
            groups = f"independent sources; {' and '.join(kinds)}"
        return _f_test(z, spreads, f"stationary sources; {groups}")

    def _contrasts(self, difference: np.ndarray) -> np.ndarray:
        """mu'E, which the means tell, and the rest of diag(mu) E, which lagged covariances tell.

        Means are known better by a factor of sqrt(N); with it, all have variances of one order.
        """
        E = np.where(self.known[:, None], difference, 0.0) @ self.W
        rest = _directions(self.W.T @ (self.mu[:, None] * E), self.against)
        if self.against == "staying":
            return rest
        return np.concatenate([np.sqrt(self.population) * self.mu @ E, rest])

    def _of_one(self, i: int) -> Spread:
        reduced = np.stack([self._contrasts(P) for P in self.reduced[i]])
        return jackknife_spread(self._contrasts(self.full[i]), reduced, self.sources[i].share)

    def _paired(self, z: np.ndarray) -> Spread:
        a, b = self.sources
        if not (a.by_realization and b.by_realization and list(a.parts) == list(b.parts)):
            raise InputError(
                "paired sources must have the same replicates, made of whole realizations; with fewer "
                "than 20 realizations leave `paired` out"
            )
        pairs = zip(*self.reduced, strict=True)
        reduced = np.stack([self._contrasts(P - Q) for P, Q in pairs])
        return jackknife_spread(z, reduced, (a.share + b.share) / 2)

    def _of_scale(self, i: int) -> Spread:
        """An estimated alpha^2 N moves all of P - naive by the same factor."""
        moved = self.full[i] - self.naive[i]
        row = self.sources[i].resolved.relative_error * self._contrasts(moved)
        return Spread(row[None], np.inf)


def _waves(position: np.ndarray, orders: Sequence[int] | np.ndarray) -> np.ndarray:
    """[len(orders), B]: half periods of a cosine over positions in [0, 1]; orthogonal on a grid."""
    return np.asarray(np.cos(np.pi * np.outer(orders, position)))


def _over_time(path: Trajectory, start: int, stop: int, W: np.ndarray) -> np.ndarray:
    """[4, r]: first step, first tenth, trend and bend of one group's whitened shares."""
    x, w = path.shares @ W, path.weight
    position = (path.time - start + 0.5) / (stop - start)
    tenth = np.maximum(position < 0.1, path.time == path.time[0])
    shapes = np.vstack([path.time == path.time[0], tenth, _waves(position, (1, 2))]).astype(float)
    shapes -= (shapes @ w / w.sum())[:, None]
    return np.asarray((shapes * w) @ x / (shapes**2 @ w)[:, None])


def _between_realizations(source: _Source, W: np.ndarray) -> dict[str, TestResult]:
    paths = {r: source.trajectory(source.sums.profiles[r]) for r in source.parts}
    if min(len(p.time) for p in paths.values()) < MIN_STEPS:
        raise InputError(f"a test over time needs at least {MIN_STEPS} steps in every group")
    start = min(int(p.time[0]) for p in paths.values())
    stop = max(int(p.time[-1]) for p in paths.values()) + 1
    values = np.stack([_over_time(p, start, stop, W) for p in paths.values()])
    share = source.share[:, None]
    results = {}
    for name, own in zip(("first step", "first tenth", "trend", "bend"), values.swapaxes(0, 1), strict=True):
        mean = (share * own).sum(0)
        reduced = (mean - share * own) / (1 - share)
        spread = jackknife_spread(mean, reduced, source.share)
        results[name] = _time_test(mean, spread, "realizations that are independent")
    return results


def _within_few(source: _Source, W: np.ndarray) -> dict[str, TestResult]:
    path = source.trajectory(source.sums.profile)
    B = len(path.time)
    waves = int(np.clip(B // STEPS_PER_WAVE, *WAVES))
    if B < 2 * (waves + 2):
        raise InputError(
            "with fewer than 20 realizations a test over time needs at least "
            f"{2 * (waves + 2)} steps; there are {B}"
        )
    x = (path.shares - path.shares.mean(0)) @ W
    coefficients = _waves((np.arange(B) + 0.5) / B, np.arange(1, waves + 3)) @ x
    spread = Spread(coefficients[2:] / np.sqrt(waves), float(waves))
    assumption = f"memory shorter than about {max(1, B // 100) * source.sums.profile.width} steps"
    results = {"first step": _first_among_all(x, assumption)}
    for name, z in zip(("trend", "bend"), coefficients[:2], strict=True):
        results[name] = _time_test(z, spread, assumption)
    return results


def _first_among_all(x: np.ndarray, assumption: str) -> TestResult:
    """How far the first step is from the mean, by its rank among all steps."""
    distance = (x**2).sum(1)
    p_value = float((distance >= distance[0]).mean())
    return TestResult(float(distance[0]), p_value, (float(len(x)),), "rank", assumption)
