"""The limited-information maximum-likelihood estimator of MacRae (1977)."""

from __future__ import annotations

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.estimators.latent import Latent

#: By this many steps the marginals have long converged; later steps are lumped into the last.
HORIZON = 400


def limle(x: Latent, starts: int = 3, seed: int = 0, iterations: int = 300) -> np.ndarray:
    """P that maximises the likelihood in which the n_t are independent Multinomial(N, mu_t) draws,
    mu_t+1 = mu_t P.

    It sees only the mean shares at each step, so where these are stationary any P with the right
    stationary distribution is as likely as any other, and the answer depends on where the search
    starts: at `starts` random matrices (of `seed`), of which the most likely result is taken.
    """
    if x.trajectory is None or not len(x.trajectory.time):
        raise InputError("limle needs the mean of each step; it works on data, not on bare moments")
    Y = _expected_visits(x)
    rng = np.random.default_rng(seed)
    fits = [_fit(Y, rng.dirichlet(np.ones(x.states), x.states), iterations) for _ in range(starts)]
    return min(fits, key=lambda fit: fit[0])[1]


def _expected_visits(x: Latent) -> np.ndarray:
    """[T, S]: (estimated) individuals seen in each state, steps without records being zero rows."""
    path = x.trajectory
    assert path is not None
    steps = np.minimum(path.time - path.time[0], HORIZON - 1)
    Y = np.zeros((int(steps.max()) + 1, x.states))
    # A multinomial likelihood has no place for negative counts, which noise can produce.
    np.add.at(Y, steps, np.maximum(path.shares, 0.0) * path.weight[:, None])
    return np.asarray(Y / Y.sum())


def _fit(Y: np.ndarray, P0: np.ndarray, iterations: int) -> tuple[float, np.ndarray]:
    from scipy import optimize

    T, S = Y.shape
    start = Y.sum(0) + 1e-6

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative log-likelihood and its gradient, by the adjoint recursion."""
        first, P = _softmax(theta[:S]), _softmax(theta[S:].reshape(S, S))
        marginals = np.empty((T, S))
        marginals[0] = first
        for t in range(1, T):
            marginals[t] = marginals[t - 1] @ P
        safe = marginals + 1e-300
        gradient = -Y / safe
        into_P, adjoint = np.zeros((S, S)), gradient[-1].copy()
        for t in range(T - 1, 0, -1):
            into_P += np.outer(marginals[t - 1], adjoint)
            adjoint = P @ adjoint + gradient[t - 1]
        into_first = first * (adjoint - first @ adjoint)
        into_rows = P * (into_P - (P * into_P).sum(1, keepdims=True))
        return -float((Y * np.log(safe)).sum()), np.concatenate([into_first, into_rows.ravel()])

    theta = np.concatenate([np.log(start), np.log(P0 + 1e-12).ravel()])
    found = optimize.minimize(
        objective, theta, jac=True, method="L-BFGS-B", options={"maxiter": iterations, "maxcor": 20}
    )
    return float(found.fun), _softmax(found.x[S:].reshape(S, S))


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))
