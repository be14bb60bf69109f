"""What the uncertainty of an estimate is made of, for the estimate that is shown.

Three labelled parts, each as a standard error [S, S]:

- sampling: how much another sample of the same size would move the estimate;
- differences: how much halves of the data, or the movement of the means against the movement about them,
  say different things;
- disagreement: how far the estimate is from what the conditional mean alone says.

The last two count only as far as they exceed what chance does; where the model holds they are zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from aggmc_beam.estimators.conditional import FEW_GROUPS, PairSums, Step
from aggmc_beam.estimators.inference import student_quantile
from aggmc_beam.estimators.spread import Spread, excess, scattered

#: Chance that one of the tests of a contradiction rejects where there is none.
LEVEL = 0.01
#: What would change a row by more than this many times its rate of leaving leaves nothing of it.
UNLIKE = 1.0
#: Most that the variance is multiplied by where sources contradict each other: beyond that it is the other
#: parts that say how far they are apart.
MOST_INFLATED = 4.0
#: Directions of composition along which realizations are halved.
AXES = 4
#: Parts of the range of time that the middles of groups must differ by to be halved along it.
ALONG_TIME = 0.5


@dataclass(frozen=True, eq=False)
class Parts:
    """Standard errors [S, S] by what they come from; NaN where nothing is known."""

    sampling: np.ndarray
    differences: np.ndarray
    disagreement: np.ndarray

    @classmethod
    def of_sampling(cls, error: np.ndarray) -> Parts:
        nothing = np.where(np.isnan(error), np.nan, 0.0)
        return cls(error, nothing, nothing)

    def known(self, where: np.ndarray) -> Parts:
        """NaN in all other cells: those that are fixed, or of which nothing is known."""
        where = where & (self.sampling > 0)
        return Parts(*(np.where(where, part, np.nan) for part in vars(self).values()))

    @property
    def error(self) -> np.ndarray:
        """All of it: the root of the sum of squares."""
        return np.asarray(np.sqrt(self.sampling**2 + self.differences**2 + self.disagreement**2))


@dataclass(frozen=True, eq=False)
class Sources:
    """The pairs of a cell as a `whole`, and apart: the movement `within` steps (or about a trend), and that
    of the `means`. starts [G, S]: where realizations begin, middles [G]: when groups are, as far as known."""

    whole: PairSums
    within: PairSums | None = None
    means: PairSums | None = None
    starts: np.ndarray | None = None
    middles: np.ndarray | None = None

    def halves(self) -> Iterator[tuple[str, np.ndarray]]:
        """Signs [G] of the groups, by what halves them; nothing is chosen by what happened later."""
        share, starts, middles = self.whole.share, self.starts, self.middles
        if starts is not None:
            moved = starts - share @ starts
            weighted = np.sqrt(share)[:, None] * moved
            sizes, axes = np.linalg.svd(weighted, full_matrices=False)[1:]
            for size, axis in zip(sizes[:AXES], axes[:AXES], strict=True):
                if size > 1e-6 * sizes[0]:
                    yield "composition", _signs(moved @ axis)
        elif middles is not None and np.ptp(middles) > 0:
            yield "time", _signs(middles)


def _signs(values: np.ndarray) -> np.ndarray:
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return np.where(2 * ranks < len(values), 1.0, -1.0)


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """The parts, the tests behind them (each a statistic over its limit, above 1 if rejected), and the
    contributions of groups to the step towards the conditional mean, `step`. `contradicted` [S]: rows of
    which the data say too different things to tell anything."""

    parts: Parts
    tests: Mapping[str, float] = field(default_factory=dict)
    step: Step | None = None
    contradicted: np.ndarray | None = None

    @classmethod
    def unknown(cls, S: int) -> Uncertainty:
        return cls(Parts.of_sampling(np.full((S, S), np.nan)))

    def nothing_known(self) -> Uncertainty:
        """Of any row."""
        rows = np.ones(len(self.parts.sampling), bool)
        return replace(self.rows_unknown(rows), contradicted=rows)

    def rows_unknown(self, rows: np.ndarray) -> Uncertainty:
        """With any probability possible in these rows [S]."""
        known = np.isnan(self.parts.sampling) | ~rows[:, None]
        parts = replace(self.parts, disagreement=np.where(known, self.parts.disagreement, 1.0))
        return replace(self, parts=parts)

    @property
    def contradiction(self) -> float:
        return max(self.tests.values(), default=0.0)


def uncertainty(
    P: np.ndarray,
    own: np.ndarray | None,
    sources: Sources,
    units: float = 1.0,
    held: np.ndarray | None = None,
) -> Uncertainty:
    """The parts for a shown P [S, S].

    `own`: the estimator's sampling error, None to take that of the conditional mean. `units`: individuals
    who count as one mover. `held` marks cells that are fixed.
    """
    step = Step(sources.whole, P, units, held)
    own = step.error if own is None else own
    if sources.whole.groups < FEW_GROUPS:
        return Uncertainty(Parts.of_sampling(own), {}, step)
    tests, squares, standing = {"conditional mean": _excess(step)}, [], step
    found = tests["conditional mean"]
    if sources.within is not None and sources.means is not None:
        # Such an estimate stands on the movement within; the means may move by other causes.
        standing, means = (Step(s, P, units, held) for s in (sources.within, sources.means))
        found = tests["within"] = _excess(standing)
        tests["means"] = _excess(means)
        weight = _weight(max(tests.values()))
        squares.append(weight * ((means.whole - standing.whole) / 2) ** 2)
    disagreement = np.abs(step.whole) * np.sqrt(_weight(tests["conditional mean"]))
    lost = _contradicted(standing) if found > 1 else np.zeros(len(P), bool)
    share = sources.whole.share
    about = step.scores - share[:, None, None] * step.scores.sum(0)
    halves = list(sources.halves())
    for name, signs in halves:
        z, level = np.tensordot(signs, about, 1).ravel(), LEVEL / len(halves)
        found = _test(z, step.scores.reshape(len(share), -1), share, level)
        tests[name] = max(found, tests.get(name, 0.0))
        squares.append(
            _weight(found) * np.tensordot(signs, step.parts - share[:, None, None] * step.whole, 1) ** 2
        )
    differences = np.sqrt(np.mean(squares, 0)) if squares else np.zeros_like(P)
    sampling, strongest = own, max(tests.values())
    if strongest > 1:  # what contradicts itself is known less well than its scatter says
        weight = _weight(strongest)
        wide = Step(sources.whole, P, units, held, min(strongest, MOST_INFLATED)).error
        sampling = np.sqrt((1 - weight) * own**2 + weight * np.maximum(own, wide) ** 2)
    disagreement[lost] = 1.0  # any probability
    return Uncertainty(Parts(sampling, differences, disagreement), tests, step, lost)


def _contradicted(step: Step) -> np.ndarray:
    """[S]: rows that surely differ by more than all that leave, so that not even their number is known."""
    size, error = np.abs(step.whole), np.maximum(step.error, 1e-300)
    limit = student_quantile(1 - LEVEL / size.size, step.sums.groups - 1)
    stay = np.clip(np.diag(step.P), 0.0, 1.0)
    leaving = np.maximum(1 - stay, 1 - float(step.sums.mu @ stay))
    return np.asarray(((size > limit * error) & (size > UNLIKE * leaving[:, None])).any(1))


def disagreeing(
    P: np.ndarray, own: np.ndarray | None, sources: Sources, held: np.ndarray | None = None
) -> Uncertainty:
    """As `uncertainty`, for an estimator that does not weigh the data as the conditional mean does: it
    disagrees only as far as the sampling errors of both do not explain it."""
    step = Step(sources.whole, P, 1.0, held)
    own = step.error if own is None else own
    if sources.whole.groups < FEW_GROUPS:
        return Uncertainty(Parts.of_sampling(own), {}, step)
    both = np.hypot(own, step.error)
    away = np.divide(np.abs(step.whole), both, out=np.zeros_like(P), where=both > 0)
    limit = student_quantile(1 - LEVEL / P.size, sources.whole.groups - 1)
    found = float(np.nanmax(away, initial=0.0)) / limit
    beyond = np.where(own > 0, np.abs(step.whole), 0.0) * np.sqrt(_weight(found))
    return Uncertainty(Parts(own, np.zeros_like(own), beyond), {"conditional mean": found}, step)


def _weight(found: float) -> float:
    return max(0.0, 1.0 - 1.0 / max(found, 1e-12))


def _excess(step: Step) -> float:
    """Whether the step is more than its scatter: in all directions together, and in each of them."""
    share, scores = step.sums.share, step.scores
    whole = _test(scores.sum(0).ravel(), scores.reshape(len(share), -1), share, LEVEL / 2)
    directions = scores.shape[1]
    each = [
        _test(scores[:, r].sum(0), scores[:, r], share, LEVEL / 2 / directions) for r in range(directions)
    ]
    return max(whole, *each)


def _test(z: np.ndarray, contributions: np.ndarray, share: np.ndarray, level: float = LEVEL) -> float:
    degrees = 1.0 / float((share**2).sum()) - 1.0
    return excess(z, [Spread(scattered(contributions, share), degrees)], level)
