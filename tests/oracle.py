"""Brute force, straight from the definitions, to compare the product with."""

from __future__ import annotations

import numpy as np

from aggmc_beam.sums.moments import CoMoment, Counts, Moments

Records = dict[tuple[int, int], np.ndarray]


def co_moment(pairs, S, weights=None):
    """Two passes in extended precision over explicit lists of pairs."""
    if not pairs:
        return CoMoment.zero(S)
    x = np.array([a for a, _ in pairs], np.longdouble)
    y = np.array([b for _, b in pairs], np.longdouble)
    w = np.ones(len(x), np.longdouble) if weights is None else np.array(weights, np.longdouble)
    left, right = w @ x / w.sum(), w @ y / w.sum()
    product = (w[:, None] * (x - left)).T @ (y - right)
    return CoMoment(len(x), float(w.sum()), left.astype(float), right.astype(float), product.astype(float))


def moments(records: Records, S: int, weights: dict[int, float] | None = None) -> Moments:
    """The moments of distinct records {(realization, time): counts}."""

    def lag(distance, ends_only=False):
        keys = [(k, t) for k, t in sorted(records) if (k, t + distance) in records]
        pairs = [(records[k, t], records[k, t if ends_only else t + distance]) for k, t in keys]
        return co_moment(pairs, S, None if weights is None else [weights[k] for k, _ in keys])

    counts = Counts(realizations=len({k for k, _ in records}))
    inverse = sum(1.0 if weights is None else 1 / weights[k] for k, _ in records)
    return Moments(lag(0), lag(1), lag(2), lag(1, ends_only=True), counts, float(inverse))


def assert_same_moments(found: Moments, expected: Moments, rtol: float = 1e-12) -> None:
    assert found.counts.realizations == expected.counts.realizations
    np.testing.assert_allclose(found.inverse_weight, expected.inverse_weight, rtol=1e-12)
    for name in ("lag0", "lag1", "lag2", "ends"):
        a, b = getattr(found, name), getattr(expected, name)
        assert a.pairs == b.pairs, name
        np.testing.assert_allclose(a.weight, b.weight, rtol=1e-12)
        if not b.pairs:
            continue
        size = np.abs(b.left).max() + np.abs(b.right).max()
        np.testing.assert_allclose(a.left, b.left, rtol=rtol, atol=rtol * size, err_msg=name)
        np.testing.assert_allclose(a.right, b.right, rtol=rtol, atol=rtol * size, err_msg=name)
        scale = b.weight * size**2
        np.testing.assert_allclose(a.product, b.product, rtol=0, atol=rtol * scale, err_msg=name)


def population_moments(P, N, noise, n=1000.0) -> Moments:
    """The exact expectations of all sums for a stationary chain, as if from `n` pairs."""
    from aggmc_beam.simulation import stationary_distribution

    P = np.asarray(P, float)
    S, mu = len(P), stationary_distribution(P)
    A, b = noise.matrix(S), noise.offset(S)
    sigma0 = N * (np.diag(mu) - np.outer(mu, mu))
    V = noise.covariance(N * mu)
    V = np.zeros((S, S)) if V is None else V
    mean = A @ (N * mu) + b

    def part(covariance):
        return CoMoment(int(n), n, mean, mean, n * covariance)

    lag0 = part(A @ sigma0 @ A.T + V)
    lag1 = part(A @ sigma0 @ P @ A.T)
    lag2 = part(A @ sigma0 @ P @ P @ A.T)
    return Moments(lag0, lag1, lag2, lag0, Counts(realizations=1), n)
