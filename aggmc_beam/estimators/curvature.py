"""How well moments tell P, by the curvature of what gmm minimises: its model's variance, not a scatter."""

from __future__ import annotations

import numpy as np

from aggmc_beam.estimators.constraints import Rules
from aggmc_beam.estimators.gmm import Lag0, Problem, _mean_precision
from aggmc_beam.estimators.latent import Latent
from aggmc_beam.estimators.spectrum import FREQUENCIES, Spectrum

#: Up to this many states the curvature is at hand: its cost is that of S^6.
CURVATURE_STATES = 25
#: What is added to the curvature, relative to its largest entry on the diagonal.
ROUNDING = 1e-12


def gmm_error(x: Latent, P: np.ndarray, lag0: Lag0, rules: Rules | None = None) -> np.ndarray:
    """Standard errors [S, S] of a P that gmm made, if individuals move independently.

    They allow for rows that sum to 1, not for signs: a constrained entry on the border has the error that
    it would have inside.
    """
    from scipy import linalg

    rules = Rules.none(x.states) if rules is None else rules
    problem, S = Problem.of(x, rules, lag0), x.states
    spectrum = Spectrum(P, problem.mu, problem.V, problem.basis, FREQUENCIES // 2 - 1, problem.floor)
    H = spectrum.information(problem.unknown) * problem.numbers[1]
    precision = _mean_precision(P, problem.mu, problem.V) * problem.individuals
    means = np.multiply.outer(np.outer(problem.mu, problem.mu), precision)
    H.reshape(S, S, S, S)[...] += means.transpose(0, 2, 1, 3)
    held = np.where(rules.free, problem.precision, problem.precision + 1e6 * np.abs(H).max())
    # The last term is more than rounding, which else may make the curvature of a chain without chance negative.
    H[np.diag_indices_from(H)] += held.ravel() + ROUNDING * np.abs(np.diag(H)).max()
    L = linalg.cholesky(H, lower=True, overwrite_a=True, check_finite=False)
    root = linalg.solve_triangular(L, np.eye(S * S), lower=True, overwrite_b=True, check_finite=False)
    variance = np.einsum("ki,ki->i", root, root)
    sums = root.reshape(S * S, S, S).sum(2)  # of rows of P
    Q, _ = np.linalg.qr(sums)
    variance = variance - ((Q.T @ root) ** 2).sum(0)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)).reshape(S, S))
