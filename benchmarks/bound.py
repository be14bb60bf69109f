"""The information bound: the least variance that any unbiased estimate of P from counts can have.

With many individuals, counts around their means are a stationary Gaussian process, with mean N mu and,
per individual, the spectral density

    f(w) = V + D R + (D R)^H - D - mu mu',    R = (I - z Q)^-1,  z = exp(-i w),

where D = diag(mu), Q = P - 1 mu', and V is the noise covariance at the scale of true counts, over N.
One time step of one realization carries the information (Whittle 1953)

    I_ab = 1/(4 pi) int tr(f^-1 df_a f^-1 df_b) dw + N dmu_a' f(0)^-1 dmu_b

on directions a, b of P, all of which keep the sums of rows at 1. The first term is from covariances,
the second from means. Noise parameters and N are taken as known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aggmc_beam.noise import Noise
from aggmc_beam.simulation import stationary_distribution

#: Points on the half circle; the error falls like |lambda_2| to twice this power.
FREQUENCIES = 128


def information_bound(P: np.ndarray, noise: Noise, N: float, frequencies: int = FREQUENCIES) -> float:
    """Mean over the entries of P of the least variance, times the number of records T K.

    >>> import aggmc_beam as am
    >>> P = np.array([[0.9, 0.1], [0.3, 0.7]])
    >>> [round(information_bound(P, noise, 100), 3) for noise in (am.Exact(), am.Binomial(0.5))]
    [0.098, 0.693]
    """
    covariance = np.linalg.inv(information(P, noise, N, frequencies))
    return float(np.trace(covariance)) / P.size


def information(P: np.ndarray, noise: Noise, N: float, frequencies: int = FREQUENCIES) -> np.ndarray:
    """[p, p], p = S (S - 1): of one record, on the orthonormal directions of `directions`."""
    model = Model.of(P, noise, N)
    E = directions(len(P))
    dmu = model.mean_slopes(E)
    dV = model.noise_slopes(dmu)
    total = np.zeros((len(E), len(E)))
    for w in np.pi * (np.arange(frequencies) + 0.5) / frequencies:
        f, df = model.density(w), model.density_slopes(w, E, dmu, dV)
        whitened = np.linalg.solve(f, df)
        flat, turned = whitened.reshape(len(E), -1), whitened.transpose(0, 2, 1).reshape(len(E), -1)
        total += (flat @ turned.T).real / (2 * frequencies)
    level = dmu @ model.basis
    return np.asarray(total + N * level @ np.linalg.solve(model.density(0.0).real, level.T))


def directions(S: int) -> np.ndarray:
    """[S (S - 1), S, S]: orthonormal changes of P that leave the sums of rows alone."""
    contrasts = complement_of_ones(S).T
    E = np.zeros((S, S - 1, S, S))
    for i in range(S):
        E[i, :, i] = contrasts
    return E.reshape(-1, S, S)


def complement_of_ones(S: int) -> np.ndarray:
    """[S, S - 1]: an orthonormal basis of the vectors that add to 0."""
    return np.linalg.qr(np.column_stack([np.ones(S), np.eye(S)[:, 1:]]))[0][:, 1:]


@dataclass(frozen=True, eq=False)
class Model:
    """Counts of a chain P under noise; `basis` [S, k] spans the space in which they vary."""

    P: np.ndarray
    mu: np.ndarray
    noise: Noise
    N: float
    V: np.ndarray
    basis: np.ndarray

    @classmethod
    def of(cls, P: np.ndarray, noise: Noise, N: float) -> Model:
        S = len(P)
        mu = stationary_distribution(P)
        V = _noise_covariance(noise, mu, N)
        # Without noise the total of a closed population is constant.
        varies = float(V.sum()) > 1e-12
        return cls(P, mu, noise, N, V, np.eye(S) if varies else complement_of_ones(S))

    def density(self, w: float) -> np.ndarray:
        """f(w) [k, k] on the basis."""
        DR = self.mu[:, None] * self._resolvent(w)
        f = self.V + DR + DR.conj().T - np.diag(self.mu) - np.outer(self.mu, self.mu)
        return np.asarray(self.basis.T @ f @ self.basis)

    def density_slopes(self, w: float, E: np.ndarray, dmu: np.ndarray, dV: np.ndarray) -> np.ndarray:
        """df [p, k, k] along directions E, by which mu and V change by dmu and dV."""
        R, mu = self._resolvent(w), self.mu
        S = len(mu)
        dQ = E - dmu[:, None, :]
        dDR = dmu[:, :, None] * (R - np.eye(S)) + mu[:, None] * (R @ (np.exp(-1j * w) * dQ) @ R)
        dD = dmu[:, :, None] * np.eye(S)
        cross = mu[:, None] * dmu[:, None, :]
        df = dV + dD - cross - cross.transpose(0, 2, 1) + dDR + dDR.conj().transpose(0, 2, 1)
        return np.asarray(self.basis.T @ df @ self.basis)

    def mean_slopes(self, E: np.ndarray) -> np.ndarray:
        """dmu [p, S]: from mu = mu P, dmu = mu E (I - Q)^-1."""
        return np.asarray(self.mu @ E @ self._resolvent(0.0).real)

    def noise_slopes(self, dmu: np.ndarray) -> np.ndarray:
        """dV [p, S, S]; noise covariances are linear in the mean counts."""
        step = 0.5 * self.mu.min() / np.abs(dmu).max()
        return np.stack(
            [(_noise_covariance(self.noise, self.mu + step * d, self.N) - self.V) / step for d in dmu]
        )

    def _resolvent(self, w: float) -> np.ndarray:
        Q = self.P - self.mu
        return np.asarray(np.linalg.inv(np.eye(len(Q)) - np.exp(-1j * w) * Q))


def _noise_covariance(noise: Noise, mu: np.ndarray, N: float) -> np.ndarray:
    """V = A^-1 Cov(y | n = N mu) A^-T / N."""
    covariance = noise.covariance(N * mu)
    if covariance is None:
        raise ValueError(f"the covariance of {noise.name} noise is not known")
    inverse = np.linalg.inv(noise.matrix(len(mu)))
    return np.asarray(inverse @ covariance @ inverse.T / N)
