"""Is the noise what it is said to be? A test on lag 0, where all of it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aggmc_beam.estimators.gmm import Lag0, noise_at_lag0, varying_basis
from aggmc_beam.estimators.latent import Latent
from aggmc_beam.estimators.shrinkage import positive_shares
from aggmc_beam.estimators.spectrum import Spectrum, conjugate_gradients, inner

#: The test rejects far out only: weights are approximate, and a mild violation does little harm.
LEVEL, MARGIN = 0.999, 1.1
#: A J beyond so many limits is not found to its last digit: that takes long, and decides nothing.
HOPELESS = 1.5


@dataclass(frozen=True)
class NoiseTest:
    """J = r' Omega^-1 r of the lag-0 residuals r under `assumed`, chi-squared if that holds; beyond
    `HOPELESS` limits it may be more than is said."""

    assumed: Lag0
    J: float
    degrees: int
    limit: float

    @property
    def accepted(self) -> bool:
        return self.J <= self.limit


def noise_test(x: Latent, P: np.ndarray, assumed: Lag0) -> NoiseTest:
    """Test "diagonal" (off-diagonals of lag 0 as without noise) or "known" (all of lag 0 as said)."""
    from scipy import special

    mu = positive_shares(x.mu, x.individuals)
    V = noise_at_lag0(x, mu, assumed)
    basis = varying_basis(x) if assumed == "known" else np.eye(x.states)
    k = basis.shape[1]
    used = np.ones((1, k, k)) if assumed == "known" else 1.0 - np.eye(k)[None]
    degrees = k * (k + 1) // 2 if assumed == "known" else k * (k - 1) // 2
    residual = x.c0 - np.diag(mu) + np.outer(mu, mu) - V
    r = (basis.T @ residual @ basis)[None] * used * np.sqrt(x.records)
    spectrum = Spectrum(P, mu, V, basis, 0)
    limit = MARGIN * float(special.chdtri(degrees, 1 - LEVEL)) if degrees else np.inf
    weighted = conjugate_gradients(
        lambda R: spectrum.covariance(R) * used,
        lambda R: spectrum.precision(R) * used,
        r,
        tolerance=1e-3,
        iterations=200,
        stop=HOPELESS * limit,
    )
    return NoiseTest(assumed, inner(weighted, r), degrees, limit)
