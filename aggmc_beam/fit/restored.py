"""Sums of what is shown turned into sums of what is behind it, linearly: replicates keep their places, and the
jackknife works as ever."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from aggmc_beam.noise import Layer, Noise
from aggmc_beam.noise.checks import FloatArray
from aggmc_beam.sums.sums import Sums

#: From this share of counts that are suppressed or cut on, an estimate says that it rests on what stands in for them.
MUCH_TOUCHED = 0.2


@dataclass(frozen=True, eq=False)
class Mapping:
    """x = start + slope z for each state, [S]; `more` [3, S, S] is what covariances at lags 0, 1 and 2 then lack."""

    start: np.ndarray
    slope: np.ndarray
    more: np.ndarray

    def applied(self, sums: Sums) -> Sums:
        """To all sums, what is lacking in proportion to their weight."""
        weight = sums.weight[:, [0, 1, 2, 1]]
        product = sums.product * np.outer(self.slope, self.slope)
        product += weight[:, :, None, None] * self.more[[0, 1, 2, 0]]
        steps = sums.steps
        return replace(
            sums,
            centre=self.start + self.slope * sums.centre,
            ends=self.slope * sums.ends,
            product=product,
            steps=replace(steps, total=steps.weight[:, None] * self.start + self.slope * steps.total),
        )


def completed(sums: Sums, state: int, total: float) -> Sums:
    """With the counts of one state taken as what the others leave of a total."""
    S = sums.states
    rest = complement(S, state)
    start = np.where(np.arange(S) == state, total, 0.0)
    steps = sums.steps
    return replace(
        sums,
        centre=start + sums.centre @ rest.T,
        ends=sums.ends @ rest.T,
        product=rest @ sums.product @ rest.T,
        steps=replace(steps, total=steps.weight[:, None] * start + steps.total @ rest.T),
    )


def complement(S: int, state: int) -> np.ndarray:
    """The matrix that leaves all states as they are, but for one that becomes less the sum of the others."""
    matrix = np.eye(S)
    matrix[state] = -1.0
    matrix[state, state] = 0.0
    return matrix


@dataclass(frozen=True, eq=False, repr=False)
class Restored(Noise):
    """The noise of counts behind those that are `published`, and the variance `extra` [S] by which these tell less.

    For each state: the share of counts that were suppressed or cut, `touched`, and that of entries that are
    `missing`; whether nothing can be told of it (`lost`), or its counts hardly show how much they vary, so that
    they are taken as those of independent individuals (`assumed`). `approximate`: populations differ. `rest`: the
    state whose counts are what the others leave of the population.
    """

    published: Noise
    extra: FloatArray
    touched: FloatArray
    missing: FloatArray
    lost: np.ndarray
    assumed: np.ndarray
    approximate: bool = False
    rest: int | None = None

    name: ClassVar[str] = "restored"

    @classmethod
    def of(cls, published: Noise, S: int) -> Restored:
        """Where nothing was changed."""
        zero, no = np.zeros(S), np.zeros(S, bool)
        return cls(published, zero, zero, zero, no, no)

    def __repr__(self) -> str:
        return repr(self.published)

    @property
    def below(self) -> Noise:
        """The noise model that all layers lie over."""
        return self.published.innermost if isinstance(self.published, Layer) else self.published

    @property
    def is_known(self) -> bool:
        return self.published.is_known

    @property
    def diagonal(self) -> bool | None:
        return self.published.diagonal if self.rest is None else False

    def over(self, noise: Noise) -> Restored:
        """With another model below the layers."""
        over = self.published.over(noise) if isinstance(self.published, Layer) else noise
        return replace(self, published=over)

    def matrix(self, S: int) -> FloatArray:
        return self.below.matrix(S)

    def offset(self, S: int) -> FloatArray:
        return self.below.offset(S)

    def covariance(self, mean: ArrayLike) -> FloatArray | None:
        below = self.below.covariance(mean)
        if below is None or self.rest is None:
            return None if below is None else below + np.diag(self.extra)
        to = complement(len(self.extra), self.rest)
        return np.asarray(to @ (below + np.diag(self.extra)) @ to.T)

    def with_value(self, value: float) -> Noise:
        return self.over(self.below.with_value(value))

    def sample(self, n: ArrayLike, rng: np.random.Generator) -> FloatArray:
        return self.published.sample(n, rng)

    def to_dict(self) -> dict[str, Any]:
        return self.published.to_dict()

    def note(self) -> dict[str, Any]:
        """For the diagnostics of an estimate."""
        return {
            "suppressed": self.touched.tolist(),
            "missing": self.missing.tolist(),
            "lost": self.lost.tolist(),
            "assumed": self.assumed.tolist(),
            "rest": self.rest,
        }

    def sentences(self, states: tuple[str, ...]) -> list[str]:
        """What a user must know before the estimate."""
        found = []
        for where, words in (
            (
                self.lost,
                "the published counts of {} hardly tell the counts behind them: nearly all are suppressed, or they "
                "vary less than they are rounded to; so moves from there are not determined",
            ),
            (
                self.assumed & ~self.lost,
                "the published counts of {} hardly show how much they vary, which is taken from independent movers",
            ),
        ):
            if where.any():
                names = [repr(s) for s, one in zip(states, where, strict=True) if one]
                found.append(words.format(", ".join(names)))
        share = float(self.touched.mean())
        if share >= MUCH_TOUCHED:
            found.append(
                f"about {share:.0%} of the counts were suppressed or cut: the estimate rests on the shape of the "
                "distribution of what is not shown, of which intervals know nothing"
            )
        if self.approximate:
            found.append(
                "counts are suppressed, rounded or cut, and populations differ: all are taken as changed where those "
                "of a mean population would be"
            )
        return found
