"""How much more the counts vary than those of individuals who move independently.

Households, trucks and shared habits move many at once: covariances are then `factor` times those of
independent movers, and N individuals tell as much as N / factor of them. The factor is the excess of lag 0
over the noise, against the multinomial covariance; dividing it out leaves the model of independent movers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aggmc_beam.estimators.latent import Latent
from aggmc_beam.estimators.shrinkage import positive_shares
from aggmc_beam.estimators.spread import scattered
from aggmc_beam.estimators.stepwise import StepSums

#: A factor nearer to 1 than this changes nothing worth the change, however sure it is.
NEGLIGIBLE = 0.03
#: Level at which a factor of 1 is rejected.
LEVEL = 0.003
#: Fewer groups than this do not tell how sure the factor is.
FEW_GROUPS = 5
#: A factor below this is no dispersion any more: the noise as stated explains more than all variation.
LEAST = 0.02
#: Counts that vary less than this much of what independent movers would are not those of fewer movers than stated:
#: they have hardly moved yet, or the noise is smaller than stated.
FEWER = 0.3


@dataclass(frozen=True, eq=False)
class Dispersion:
    """The `factor` with its standard `error`, and the factor of each state by itself, `by_state` [S]."""

    factor: float
    error: float
    groups: int
    by_state: np.ndarray

    @property
    def significant(self) -> bool:
        """Whether the factor is surely not 1, and can be divided out."""
        from scipy import special

        if self.groups < FEW_GROUPS or not np.isfinite(self.factor) or self.factor < LEAST:
            return False
        limit = float(special.stdtrit(self.groups - 1, 1 - LEVEL / 2))
        # A factor that is small by chance has an error that is too small: their ratio is more constant.
        away = abs(float(np.log(self.factor))) * self.factor
        return abs(self.factor - 1) > NEGLIGIBLE and away > limit * self.error

    @property
    def usable(self) -> float:
        """The factor as covariances can be divided by it: 1 where it makes no sense."""
        return self.factor if np.isfinite(self.factor) and self.factor >= FEWER else 1.0


def dispersion(x: Latent, parts: Sequence[Latent] = (), keep: np.ndarray | None = None) -> Dispersion | None:
    """From lag 0 about one mean. `parts` are the replicates, of which `keep` [S] marks the states of x.

    None if the covariance of the noise is not known.
    """
    if x.V is None:
        return None
    keep = np.ones(x.states, bool) if keep is None else keep
    n = np.array([p.records for p in parts], float)
    share = n / max(n.sum(), 1.0)
    square = np.ix_(keep, keep)
    excess = (f * (part.lag0_about(x)[square] - x.V) for f, part in zip(share, parts, strict=True))
    mu = positive_shares(x.mu, x.individuals)
    return _dispersion(x.c0 - x.V, excess, share, np.diag(mu) - np.outer(mu, mu), x.V)


def cells_dispersion(cells: Sequence[tuple[Latent, Mapping[int, Latent]]]) -> Dispersion | None:
    """One factor for the cells of a chain, each with its replicates by number, from lag 0 about the means of
    each cell."""
    if not cells or any(x.V is None for x, _ in cells):
        return None
    names = sorted({r for _, parts in cells for r in parts})
    S, records = cells[0][0].states, float(sum(x.records for x, _ in cells))
    whole, independent, noise, share = (
        np.zeros((S, S)),
        np.zeros((S, S)),
        np.zeros((S, S)),
        np.zeros(len(names)),
    )
    excess = np.zeros((len(names), S, S))
    for x, parts in cells:
        assert x.V is not None
        weight, mu = x.records / records, positive_shares(x.mu, x.individuals)
        whole += weight * (x.c0 - x.V)
        noise += weight * x.V
        independent += weight * (np.diag(mu) - np.outer(mu, mu))
        for r, part in parts.items():
            own, at = part.records / records, names.index(r)
            share[at] += own
            excess[at] += own * (part.lag0_about(x) - x.V)
    return _dispersion(whole, excess, share / share.sum(), independent, noise)


def step_dispersion(sums: StepSums) -> Dispersion | None:
    """From lag 0 about the means of the steps."""
    if sums.fixed_noise is None or sums.share_noise is None or sums.pairs <= sums.steps:
        return None
    V = sums.share_noise + sums.fixed_noise * sums.inverse
    weight = sums.weight.sum(1)
    share = weight / weight.sum()
    excess = sums.ends / (sums.pairs - sums.steps) - share[:, None, None] * V
    return _dispersion(excess.sum(0), excess, share, independent_steps(sums), V)


def independent_steps(sums: StepSums) -> np.ndarray:
    """The mean over steps of diag(mu_t) - mu_t mu_t' [S, S]."""
    size = sums.step_weight / sums.step_weight.sum()
    mean = np.maximum(sums.mean_left, 0.0)
    mean = mean / np.maximum(mean.sum(1, keepdims=True), 1e-300)
    return np.asarray(np.diag(size @ mean) - (size[:, None] * mean).T @ mean)


def _dispersion(
    whole: np.ndarray, excess: Iterable[np.ndarray], share: np.ndarray, independent: np.ndarray, V: np.ndarray
) -> Dispersion:
    """Least squares of the excess on that of independent movers, in units of what both and noise vary by."""
    W = np.linalg.pinv(independent + V, rcond=1e-9, hermitian=True)
    K = W @ independent @ W
    unit = float((K * independent).sum())
    if not unit > 0:
        return Dispersion(1.0, np.inf, len(share), np.ones(len(V)))
    each = np.array([float((K * one).sum()) for one in excess]) / unit
    error = float(np.sqrt((scattered(each, share) ** 2).sum())) if len(each) > 1 else np.inf
    alone = np.diag(independent)
    by_state = np.divide(np.diag(whole), alone, out=np.ones_like(alone), where=alone > 0)
    return Dispersion(float((K * whole).sum()) / unit, error, len(each), by_state)


def in_units(x: Latent, size: float) -> Latent:
    """The same moments, of a population of units of so many individuals each."""
    if size == 1:
        return x
    names = ("c0", "c1", "c2", "gram", "cross", "arrivals", "individuals")
    found = {name: getattr(x, name) / size for name in names}
    return x.replaced(**found, V=None if x.V is None else x.V / size)


def steps_in_units(sums: StepSums, size: float) -> StepSums:
    """As `in_units`."""
    if size == 1:
        return sums
    return replace(
        sums,
        weight=sums.weight / size,
        ends=sums.ends / size,
        lag1=sums.lag1 / size,
        lag2=sums.lag2 / size,
        inverse=sums.inverse * size,
        fixed_noise=None if sums.fixed_noise is None else sums.fixed_noise / size**2,
        share_noise=None if sums.share_noise is None else sums.share_noise / size,
    )
