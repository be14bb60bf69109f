"""Two-step efficient GMM on lagged covariances, without matrices of S^2 x S^2 weights.

Moments: c_l - D Q^l at lags 1 and 2, lag 0 as far as the noise is known, and mu'(P - I) = 0, with the
ridge and the constraints. Efficient weights are the inverse covariance of the observed moments. That
inverse is not at hand, but the inverse over *all* lags is (see `spectrum`), and

    r' Omega_observed^-1 r  =  min over the unobserved residuals of <R, precision R>,

so unobserved moments (higher lags; lag 0 or its diagonal) are imputed by conjugate gradients, between
quadratic programs in P.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.estimators.constraints import Rules
from aggmc_beam.estimators.fast import fast
from aggmc_beam.estimators.latent import Latent
from aggmc_beam.estimators.quadratic import nonnegative_qp
from aggmc_beam.estimators.shrinkage import positive_shares, prior, without_totals
from aggmc_beam.estimators.spectrum import (
    FREQUENCIES,
    Spectrum,
    conjugate_gradients,
    deviation,
    inner,
    positive_part,
)

#: What is assumed of the noise at lag 0: nothing, that states are independent, or its covariance.
Lag0 = Literal["any", "diagonal", "known"]

ITERATIONS = 12
#: The weights are evaluated anew in this many first steps, then kept.
REWEIGHTED = 2
IMPUTATIONS = 30
#: As many lags as the frequencies can tell apart.
LAGS = FREQUENCIES // 2 - 1


def gmm(
    x: Latent, rules: Rules | None = None, lag0: Lag0 = "any", start: np.ndarray | None = None
) -> np.ndarray:
    """P by efficient GMM; `lag0` says how far lag 0 may be used, `start` is a first P (`fast`)."""
    rules = Rules.none(x.states) if rules is None else rules
    problem = Problem.of(x, rules, lag0)
    P = fast(x, rules) if start is None else start
    return _Search(problem, rules, P).run()


@dataclass(frozen=True, eq=False)
class Problem:
    """The observed moments and what is assumed of them.

    `basis` [S, k] spans the space in which counts vary. `unknown` are the index pairs of lag 0 that
    the noise makes useless, `hidden` [k, k] the same as a mask.
    """

    mu: np.ndarray
    c: np.ndarray
    V: np.ndarray
    numbers: np.ndarray
    individuals: float
    basis: np.ndarray
    unknown: tuple[np.ndarray, np.ndarray] | None
    hidden: np.ndarray
    floor: float
    centre: np.ndarray
    precision: np.ndarray

    @classmethod
    def of(cls, x: Latent, rules: Rules, lag0: Lag0) -> Problem:
        mu = positive_shares(x.mu, x.individuals) if rules.stationary is None else rules.stationary
        used = 3 if x.numbers[2] > 0 else 2
        c = np.stack(x.c[:used])
        basis = varying_basis(x)
        k = basis.shape[1]
        unknown, hidden = None, np.zeros((k, k), bool)
        if lag0 != "known":
            p, q = np.triu_indices(k)
            unknown = (p, q) if lag0 == "any" else (p[p == q], q[p == q])
            hidden[unknown] = hidden[unknown[::-1]] = True
        centre, precision = prior(x, mu, without_totals(c[:2])[1], rules)
        return cls(
            mu,
            c,
            noise_at_lag0(x, mu, lag0),
            np.array(x.numbers[:used], float),
            x.individuals,
            basis,
            unknown,
            hidden,
            0.03 if lag0 == "any" else 0.01,
            centre,
            precision,
        )

    def curvature(self, P: np.ndarray) -> Curvature:
        """Weights at P, and the curvature that they give the objective."""
        S = len(P)
        spectrum = Spectrum(P, self.mu, self.V, self.basis, LAGS, self.floor)
        means = _mean_precision(P, self.mu, self.V) * self.individuals
        H = spectrum.information(self.unknown)
        for mu, out in zip(self.mu, H.reshape(S, S, S, S), strict=True):
            out *= self.numbers[1]
            out += (mu * self.mu)[:, None] * means[:, None]
        H[np.diag_indices_from(H)] += self.precision.ravel()
        return Curvature(spectrum, means, H)


@dataclass(frozen=True, eq=False)
class Curvature:
    """The spectrum behind the weights of lagged moments, the precision `means` [S, S] of mu'(P - I), and
    the second derivative `H` [S^2, S^2] in vec P, by rows, of both and of the ridge."""

    spectrum: Spectrum
    means: np.ndarray
    H: np.ndarray


def noise_at_lag0(x: Latent, mu: np.ndarray, lag0: Lag0) -> np.ndarray:
    """V as known, or the excess of c0 over that of counts without noise."""
    if lag0 == "known":
        if x.V is None:
            raise InputError("the noise covariance is not known; give it with the noise model")
        return x.V
    excess = x.c0 - np.diag(mu) + np.outer(mu, mu)
    if lag0 == "diagonal":
        return np.diag(np.maximum(np.diag(excess), 0.0))
    return positive_part(excess)


def varying_basis(x: Latent) -> np.ndarray:
    """The identity, or an orthonormal basis of the complement of 1 if the total is constant."""
    S = x.states
    if x.c0.sum() > 1e-6 * np.trace(x.c0) or S == 1:
        return np.eye(S)
    return np.linalg.qr(np.column_stack([np.ones(S), np.eye(S)[:, 1:]]))[0][:, 1:]


class _Search:
    """Alternates imputation of the unobserved moments with quadratic programs in P."""

    def __init__(self, problem: Problem, rules: Rules, P: np.ndarray) -> None:
        self.problem, self.P = problem, P
        lags, k = len(problem.c) - 1, problem.basis.shape[1]
        extra = LAGS - lags
        self.hidden = np.concatenate(
            [problem.hidden[None], np.zeros((lags, k, k), bool), np.ones((extra, k, k), bool)]
        )
        relative = np.r_[problem.numbers / problem.numbers[1], np.ones(extra)]
        self.scale = np.sqrt(relative)[:, None, None]
        self.space = Space.of(problem.mu, rules)
        guess = self.space.basis.T @ P.ravel()
        self.free = guess > 1e-9 * guess.max(initial=0.0)
        observed = self._rotate(problem.c) * self.scale[: lags + 1]
        model = self._model()
        self.data = np.where(self.hidden, model, np.concatenate([observed, model[lags + 1 :]]))

    def run(self) -> np.ndarray:
        if not self.space.basis.shape[1]:
            return self.P
        last, previous = np.inf, self.P
        for iteration in range(ITERATIONS):
            if iteration < REWEIGHTED:
                self._weigh()
            R = self._impute()
            value, gradient = self._objective(R)
            # The information majorises the objective's curvature only approximately.
            if iteration >= REWEIGHTED and value > last + 0.5:
                return previous
            last, previous = value, self.P
            moved = self._step(gradient)
            if iteration and moved < 1e-3 * self.P.size:
                break
        return self.P

    def _rotate(self, c: np.ndarray) -> np.ndarray:
        U = self.problem.basis
        return np.asarray(U.T @ c @ U)

    def _model(self) -> np.ndarray:
        """Expected moments at the present P, for all lags."""
        mu = self.problem.mu
        Q = deviation(self.P, mu)
        terms = [np.diag(mu) - np.outer(mu, mu) + self.problem.V, mu[:, None] * Q]
        for _ in range(LAGS - 1):
            terms.append(terms[-1] @ Q)
        return np.asarray(self._rotate(np.array(terms)) * self.scale)

    def _weigh(self) -> None:
        """Weights and curvature at the present P."""
        self.curvature = self.problem.curvature(self.P)
        self.spectrum = self.curvature.spectrum
        self.H_free = self.space.reduce(self.curvature.H)

    def _impute(self) -> np.ndarray:
        """The residuals, with the unobserved ones where they cost least."""
        R = self.data - self._model()
        fill = conjugate_gradients(
            lambda r: self.spectrum.precision(r) * self.hidden,
            lambda r: self.spectrum.covariance(r) * self.hidden,
            -self.spectrum.precision(R) * self.hidden,
            tolerance=1e-2,
            iterations=IMPUTATIONS,
        )
        # Kept as data: from one P to the next the residuals must move with the model.
        self.data = self.data + fill
        return np.asarray(R + fill)

    def _objective(self, R: np.ndarray) -> tuple[float, np.ndarray]:
        q, P = self.problem, self.P
        gap, off = q.mu @ P - q.mu, P - q.centre
        value = q.numbers[1] * inner(R, self.spectrum.precision(R))
        value += gap @ self.curvature.means @ gap + float((q.precision * off**2).sum())
        gradient = -q.numbers[1] * self.spectrum.score(R) + q.precision * off
        gradient += np.outer(q.mu, self.curvature.means @ gap)
        return 0.5 * float(value), gradient

    def _step(self, gradient: np.ndarray) -> float:
        """To the minimum of the local quadratic; the squared length of the step in its metric."""
        space = self.space
        downhill, start = -(space.basis.T @ gradient.ravel()), space.coordinates(self.P)
        solution, self.free = nonnegative_qp(self.H_free, downhill, space.E, space.e, self.free, start)
        new = (space.origin + space.basis @ solution).reshape(self.P.shape)
        new /= new.sum(1, keepdims=True)
        step = (new - self.P).ravel()
        self.P = new
        return float(step @ (self.curvature.H @ step))


def _mean_precision(P: np.ndarray, mu: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Inverse of the long-run covariance of y_t+1 - P'y_t, per individual observation."""
    leave = np.eye(len(P)) - P
    covariance = np.diag(mu @ P) - P.T @ (mu[:, None] * P) + leave.T @ V @ leave
    size = np.sqrt(np.maximum(np.diag(covariance), 1e-6 * mu))
    values, vectors = np.linalg.eigh(covariance / np.outer(size, size))
    # A chain that hardly moves leaves directions without any variance.
    inverse = (vectors / np.maximum(values, max(1e-4 * values.max(), 1e-6))) @ vectors.T
    return np.asarray(inverse / np.outer(size, size))


@dataclass(frozen=True, eq=False)
class Space:
    """The matrices that the rules allow: vec P = origin + basis x, x >= 0, E x = e."""

    origin: np.ndarray
    basis: np.ndarray
    E: np.ndarray
    e: np.ndarray

    @classmethod
    def of(cls, mu: np.ndarray, rules: Rules) -> Space:
        from scipy import sparse

        S, free = len(mu), rules.free
        if rules.reversible:  # x_ij = mu_i P_ij = mu_j P_ji for i <= j
            i, j = np.nonzero(np.triu(free & free.T))
            apart = np.flatnonzero(i != j)
            values = np.r_[1 / mu[i], 1 / mu[j[apart]]]
            places = (np.r_[i * S + j, j[apart] * S + i[apart]], np.r_[np.arange(len(i)), apart])
            basis = sparse.csr_array((values, places), shape=(S * S, len(i)))
        else:
            cells = np.flatnonzero(free)
            places = (cells, np.arange(len(cells)))
            basis = sparse.csr_array((np.ones(len(cells)), places), shape=(S * S, len(cells)))
        E, e = np.kron(np.eye(S), np.ones((1, S))), np.ones(S)
        if rules.stationary is not None:
            E, e = np.vstack([E, np.kron(mu[None], np.eye(S))]), np.r_[e, mu]
        origin = np.nan_to_num(rules.fixed).ravel()
        e = e - E @ origin
        E = np.asarray((basis.T @ E.T).T)
        used = np.abs(E).sum(1) > 0
        if (np.abs(e[~used]) > 1e-9).any() or (e[used] < -1e-9).any():
            raise impossible()
        return cls(origin, basis, E[used], e[used])

    def coordinates(self, P: np.ndarray) -> np.ndarray:
        """The x of a P that is allowed."""
        return np.asarray(self.basis.T @ (P.ravel() - self.origin) / (self.basis**2).sum(0))

    def reduce(self, H: np.ndarray) -> np.ndarray:
        """H in terms of x."""
        if self.basis.shape[1] == len(H):
            return H
        return np.asarray(self.basis.T @ (self.basis.T @ H).T)


def impossible() -> InputError:
    return InputError("no transition matrix meets these constraints; fix fewer cells")
