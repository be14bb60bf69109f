"""How alike groups are, row by row, and estimates drawn to what they have in common.

Of group g, row i of the matrix is P_gi. Beforehand it has mean c_i and total variance tau_i over the groups; an
unconstrained estimate U_gi of it has a known variance v_gi. What the marginal likelihood of tau_i and the posterior
of c_i need are sums over groups, at each of some values of tau: `Common`. An estimate E_gi of variance e_gi is then
drawn to c by the share e / (e + tau + var c) (James & Stein 1961; Efron & Morris 1973), averaged over what is known
of tau, whose prior makes that share uniform (Daniels 1999). Rows of which groups say little take their tau from the
others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

#: Total variances of a row between groups that are weighed: from below any error to all that a row can vary.
VARIANCES = np.r_[0.0, np.geomspace(1e-8, 1.0, 25)]
#: A variance of a row beyond any that a row of probabilities can have: nothing is known.
UNKNOWN = 1e6
#: Variances below this are rounding.
LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Common:
    """Sums over groups, at each of the T `VARIANCES`: `weight` [T, S] of 1 / (v + tau), `first` [T, S, S] of that
    times U, `square` [T, S] times |U|^2, and `log` [T, S] of its logarithm. `number` [S]: groups that tell it."""

    number: np.ndarray
    weight: np.ndarray
    first: np.ndarray
    square: np.ndarray
    log: np.ndarray

    @classmethod
    def of(cls, U: np.ndarray, error: np.ndarray) -> Common:
        """Of one group: its estimate [S, S], which need not keep to probabilities, and its standard error."""
        v, told = row_variance(error)
        w = told / (np.maximum(v, LEAST) + VARIANCES[:, None])
        U = np.where(told[:, None], U, 0.0)
        log = np.log(np.where(told, w, 1.0))
        return cls(told.astype(float), w, w[..., None] * U, w * (U**2).sum(1), log)

    def __add__(self, other: Common) -> Common:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Common(*(a + b for a, b in pairs))

    @property
    def groups(self) -> int:
        return int(self.number.max(initial=0))

    @cached_property
    def centre(self) -> np.ndarray:
        """c [T, S, S]; zeros where no group tells."""
        return np.asarray(self.first / np.maximum(self.weight, 1e-300)[..., None])

    @cached_property
    def shape(self) -> np.ndarray:
        """[S, S]: how the variance of a row is shared by its entries, as that of shares is."""
        c = np.clip(self.centre[len(VARIANCES) // 2], 1e-3, 1 - 1e-3)
        q = c * (1 - c)
        return np.asarray(q / q.sum(1, keepdims=True))

    @cached_property
    def chances(self) -> np.ndarray:
        """[T, S]: how likely each variance is, for each row."""
        freedom = 1 / (self.shape**2).sum(1)  # entries of a row that vary by themselves
        misfit = np.maximum(self.square - self.weight * (self.centre**2).sum(2), 0.0)
        told = np.maximum(self.weight, 1e-300)
        log = freedom * (self.log - np.log(told) - misfit) / 2
        log = np.where(self.number > 1, log, 0.0)
        likelihood = np.exp(log - log.max(0))
        typical = self.number / told[0]  # the harmonic mean of v
        # Uniform in typical / (typical + tau); what is between two values of tau stands at the lower one.
        limits = typical / (typical + VARIANCES[:, None])
        prior = limits - np.vstack([limits[1:], np.zeros(len(typical))])
        alone = likelihood * prior
        alone /= alone.sum(0)
        others = alone[:, self.number > 1].mean(1, keepdims=True) if (self.number > 1).any() else 1.0
        found = likelihood * prior * others
        total = found.sum(0)
        return np.asarray(np.where(total > 0, found / np.maximum(total, 1e-300), alone))

    @property
    def spread(self) -> np.ndarray:
        """[S]: the standard deviation of a row between groups, all its entries together."""
        return np.asarray(np.sqrt(VARIANCES @ self.chances))


@dataclass(frozen=True, eq=False)
class Drawn:
    """A matrix `P` [S, S] as it is drawn, `borrowed` [S] of each row being of the others. `kept` [S, S]: the part of
    its own errors that remains; `error` [S, S]: the standard error of what is borrowed."""

    P: np.ndarray
    borrowed: np.ndarray
    error: np.ndarray

    @property
    def kept(self) -> np.ndarray:
        return np.asarray(1 - self.borrowed[:, None])


def draw(P: np.ndarray, error: np.ndarray, common: Common) -> Drawn:
    """An estimate of a group that is part of `common`, with its standard error. Rows of which no other group tells
    stay as they are; a row that is not known is that of the others."""
    e, told = row_variance(error)
    others = common.number > told
    mean_variance = 1 / np.maximum(common.weight, 1e-300)
    apart = VARIANCES[:, None] + mean_variance  # of the group's row from the centre
    share = np.where(others, e / np.maximum(e + apart, LEAST), 0.0)
    chances, c = common.chances, common.centre
    own = np.where(told[:, None], np.nan_to_num(P), 0.0)
    moved = c + (1 - share)[..., None] * (own - c)
    found = np.einsum("ti,tij->ij", chances, moved)
    of_mean = (share**2 * apart)[..., None] * common.shape
    variance = np.einsum("ti,tij->ij", chances, of_mean + (moved - found) ** 2)
    borrowed = (chances * share).sum(0)
    found = np.where((told | others)[:, None], found, P)
    return Drawn(found, borrowed, np.sqrt(variance))


def row_variance(error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of standard errors [S, S], where NaN is of an entry that is fixed: the variance of each row, and whether
    anything is known of it."""
    told = np.isfinite(error).any(1)
    v = np.where(np.isfinite(error), error, 0.0)
    return np.where(told, (v**2).sum(1), UNKNOWN), told
