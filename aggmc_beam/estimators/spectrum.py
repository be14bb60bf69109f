"""The spectral density of the counts, and the covariance of their sample autocovariances.

For a Gaussian process with spectral density f the covariance of the sample autocovariances is the
map R -> lags of f R f, and its inverse on all lags is R -> lags of f^-1 R f^-1 (Whittle). Both cost
a few S x S products per frequency, where the matrix itself would have S^4 entries per pair of lags.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

#: Frequencies over the whole circle; half of them are distinct.
FREQUENCIES = 64
#: The slowest memory that weights allow for, as a bound on the spectral radius of Q.
SLOWEST = 0.98


class Spectrum:
    """f(w) = Y* (D - mu mu' - Q'DQ) Y + V, with Q = P - 1 mu', Y = (I - Q z)^-1, z = exp(-iw).

    `floor` D is added to V so that f can be inverted; it enters weights only. `basis` [S, k] spans
    the space in which counts vary: all, or the complement of 1 where totals are constant. Residual
    moments are arrays [lags, k, k] with lag 0 symmetric.
    """

    def __init__(
        self,
        P: np.ndarray,
        mu: np.ndarray,
        V: np.ndarray,
        basis: np.ndarray,
        lags: int,
        floor: float = 0.01,
    ) -> None:
        S = len(mu)
        Q = deviation(P, mu)
        Q = Q * min(1.0, SLOWEST / max(np.abs(np.linalg.eigvals(Q)).max(), 1e-300))
        w = 2 * np.pi * (np.arange(FREQUENCIES // 2) + 0.5) / FREQUENCIES
        z = np.exp(-1j * w)[:, None, None]
        Y = np.linalg.inv(np.eye(S) - Q * z)
        innovation = positive_part(np.diag(mu) - np.outer(mu, mu) - Q.T @ (mu[:, None] * Q))
        f = adjoint(Y) @ innovation @ Y + V + np.diag(mu * floor)
        # df = X dP Y + its adjoint, because f = D - mu mu' + V + (z D Q Y + adjoint).
        self.f, self.X, self.Y = basis.T @ f @ basis, basis.T @ (z * mu[:, None] * Y), Y @ basis
        self.inverse = np.linalg.inv(self.f)
        waves = np.exp(-1j * np.outer(w, np.arange(lags + 1)))
        self._to_frequency = waves * np.r_[0.5, np.ones(lags)]
        self._to_lag = np.concatenate([waves.real, waves.imag]).T / len(w)

    def transform(self, R: np.ndarray) -> np.ndarray:
        """R_0 + sum_l (R_l z^l + adjoint) at each frequency."""
        half = (self._to_frequency @ R.reshape(len(R), -1)).reshape(-1, *R.shape[1:])
        return np.asarray(half + adjoint(half))

    def covariance(self, R: np.ndarray) -> np.ndarray:
        """The covariance of the sample autocovariances, applied to R."""
        return self._sandwich(self.f, R)

    def precision(self, R: np.ndarray) -> np.ndarray:
        """The inverse of `covariance`, up to lags beyond those of R."""
        return self._sandwich(self.inverse, R)

    def _sandwich(self, a: np.ndarray, R: np.ndarray) -> np.ndarray:
        G = a @ self.transform(R) @ a
        G = np.concatenate([G.real, G.imag]).reshape(2 * len(a), -1)
        return np.asarray((self._to_lag @ G).reshape(-1, *R.shape[1:]))

    def score(self, R: np.ndarray) -> np.ndarray:
        """Gradient in P of <model, precision R>: Re mean (Y f^-1 R f^-1 X)'."""
        inner = self.inverse @ self.transform(R) @ self.inverse
        return np.asarray((self.Y @ inner @ self.X).real.mean(0).T)

    def information(self, unknown: tuple[np.ndarray, np.ndarray] | None) -> np.ndarray:
        """Whittle information of P per step [S^2, S^2], less what unknown entries of V cost.

        H[ij, ab] = Re mean (C_bi C_ja + A_ai B_jb), A = X* f^-1 X, B = Y f^-1 Y*, C = Y f^-1 X.
        `unknown` holds the index pairs of V that are estimated too: H - H_pv H_vv^-1 H_vp.
        """
        g, X, Y = self.inverse, self.X, self.Y
        S = X.shape[2]
        gX, Yg = g @ X, Y @ g
        A, B, C = adjoint(X) @ gX, Yg @ adjoint(Y), Y @ gX
        from_A, from_C = (np.ascontiguousarray(_parts(Z / len(g), -1).transpose(2, 1, 0)) for Z in (A, C))
        B, C = _parts(B).reshape(-1, S * S), _parts(C).reshape(-1, S * S)
        H = np.empty((S, S, S, S))
        for i, out in enumerate(H):  # so much at once stays in the processor's cache
            np.matmul(C.T, from_C[i].T, out=out.reshape(S * S, S))
            out += (from_A[i] @ B).reshape(S, S, S).swapaxes(0, 1)
        H = H.reshape(S * S, S * S)
        if unknown is not None:
            _profile_out(H, g, gX, Yg, unknown)
        return H


def _profile_out(
    H: np.ndarray,
    g: np.ndarray,
    gX: np.ndarray,
    Yg: np.ndarray,
    unknown: tuple[np.ndarray, np.ndarray],
) -> None:
    """H -= H_pv H_vv^-1 H_vp, in place."""
    from scipy import linalg

    p, q = unknown
    k = g.shape[1]
    once = np.where(p == q, 0.5, 1.0)
    cross = np.empty((len(H), len(p)))
    for n, (i, j) in enumerate(zip(p, q, strict=True)):
        both = Yg[:, :, i].T @ gX[:, j] + Yg[:, :, j].T @ gX[:, i]
        cross[:, n] = (both.real.T / len(g)).ravel() * once[n]
    G = _mean_outer(g, g).reshape(k, k, k, k)
    among = G[q[:, None], p, q[None], p[:, None]] + G[p[:, None], p, q[None], q[:, None]]
    L = linalg.cholesky(among * once[:, None] * once, lower=True, check_finite=False)
    root = linalg.solve_triangular(L, cross.T, lower=True, check_finite=False)
    H -= root.T @ root


def _mean_outer(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Re mean over frequencies of the outer product of the entries of a and b."""
    flat = _parts(a / len(a), -1).reshape(2 * len(a), -1)
    return np.asarray(flat.T @ _parts(b).reshape(len(flat), -1))


def _parts(a: np.ndarray, sign: int = 1) -> np.ndarray:
    """Real and imaginary parts one after the other, so that sums over frequencies are real products."""
    return np.concatenate([a.real, sign * a.imag])


def deviation(P: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """Q = P - 1 mu', with mu'Q = 0 made exact: D Q^l is the lag-l covariance."""
    Q = P - mu
    return np.asarray(Q - mu @ Q)


def positive_part(X: np.ndarray) -> np.ndarray:
    """The nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh((X + X.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def adjoint(X: np.ndarray) -> np.ndarray:
    return np.asarray(X.conj().swapaxes(-1, -2))


def inner(a: np.ndarray, b: np.ndarray) -> float:
    """Sum over distinct moments: lag 0 is symmetric, so each of its pairs counts once."""
    return float(0.5 * np.vdot(a[0], b[0]) + np.vdot(a[1:], b[1:]))


Operator = Callable[[np.ndarray], np.ndarray]


def conjugate_gradients(
    apply: Operator,
    precondition: Operator,
    right: np.ndarray,
    tolerance: float,
    iterations: int,
    stop: float = np.inf,
) -> np.ndarray:
    """Solve apply(x) = right for arrays of lag matrices, to `tolerance` in the preconditioned norm, or
    until <right, x>, which grows with each iteration, exceeds `stop`."""
    x, residual, value = np.zeros_like(right), right, 0.0
    direction = step = precondition(residual)
    size = inner(residual, step)
    enough = tolerance**2 * max(size, 1e-300)
    for _ in range(iterations):
        if size <= enough or value > stop:
            break
        applied = apply(direction)
        length = size / inner(direction, applied)
        value += length * size
        x, residual = x + length * direction, residual - length * applied
        step = precondition(residual)
        size, before = inner(residual, step), size
        direction = step + size / before * direction
    return x
