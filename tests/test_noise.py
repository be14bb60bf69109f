"""Observation models: moments of samples, exact variances, privacy calibrations, bad input."""

import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggmc_beam.errors import InputError
from aggmc_beam.noise import (
    Binomial,
    Detection,
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    Gaussian,
    Laplace,
    Linear,
    Noise,
    PerStep,
    Poisson,
    noise_from_dict,
)

CONFUSION = [[0.8, 0.1, 0.0], [0.2, 0.7, 0.1], [0.0, 0.1, 0.6]]
CORRELATED = [[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 2.0]]
MODELS: list[Noise] = [
    Exact(),
    Binomial(0.3),
    Binomial(1.0),
    Detection([0.2, 0.5, 0.9]),
    Poisson(0.4),
    Poisson(1.7),
    Gaussian(1.5),
    Gaussian(0.0),
    Laplace(1.2),
    DiscreteGaussian(0.4),
    DiscreteGaussian(3.5),
    DiscreteLaplace(0.5),
    DiscreteLaplace(4.0),
    Linear(CONFUSION, b=[1.0, 0.0, -2.0], covariance=CORRELATED),
]
n = np.array([40, 25, 10])


def label(model: Noise) -> str:
    return json.dumps(model.to_dict())[:60]


@pytest.mark.parametrize("model", MODELS, ids=label)
def test_samples_have_the_mean_and_covariance_that_the_model_states(model: Noise) -> None:
    draws = 200_000
    y = model.sample(np.tile(n, (draws, 1)), np.random.default_rng(1))
    A, b, V = model.matrix(3), model.offset(3), model.covariance(n)
    assert V is not None
    assert y.dtype == np.float64
    assert y.shape == (draws, 3)
    error = np.sqrt(np.diag(V) / draws)
    assert (np.abs(y.mean(axis=0) - (A @ n + b)) <= 4.5 * error + 1e-12).all()
    scale = np.sqrt(np.outer(np.diag(V), np.diag(V)))
    assert (np.abs(np.cov(y.T) - V) <= 0.03 * scale + 1e-12).all()


@pytest.mark.parametrize("model", MODELS, ids=label)
def test_a_model_survives_json_and_pickle(model: Noise) -> None:
    assert noise_from_dict(json.loads(json.dumps(model.to_dict()))) == model
    assert pickle.loads(pickle.dumps(model)) == model
    assert hash(model) == hash(noise_from_dict(model.to_dict()))


@pytest.mark.parametrize("model", MODELS, ids=label)
def test_a_model_that_does_not_vary_is_itself_at_every_step(model: Noise) -> None:
    assert not model.varies
    assert model.at(17) is model
    assert model.is_known


@pytest.mark.parametrize("model", MODELS, ids=label)
def test_samples_are_the_same_for_the_same_seed_and_any_leading_shape(model: Noise) -> None:
    counts = np.tile(n, (2, 4, 1))
    first = model.sample(counts, np.random.default_rng(3))
    assert first.shape == (2, 4, 3)
    assert first.tobytes() == model.sample(counts, np.random.default_rng(3)).tobytes()
    assert model.sample(np.zeros((0, 3), dtype=int), np.random.default_rng(3)).shape == (0, 3)


def test_additive_models_are_those_whose_variance_ignores_the_counts() -> None:
    additive = {model.name for model in MODELS if model.additive}
    assert additive == {"exact", "gaussian", "laplace", "discrete-gaussian", "discrete-laplace"}
    assert Linear(np.eye(2), covariance=np.eye(2)).additive
    assert not Linear(np.eye(2)).additive


def test_only_linear_noise_can_be_correlated_between_states() -> None:
    assert all(model.diagonal for model in MODELS if model.name != "linear")
    assert Linear(CONFUSION).diagonal is None
    assert Linear(CONFUSION, covariance=CORRELATED).diagonal is False
    assert Linear(CONFUSION, covariance=np.eye(3)).diagonal is True


def test_integer_noise_gives_whole_numbers() -> None:
    for model in (DiscreteGaussian(2.0), DiscreteLaplace(2.0)):
        y = model.sample(np.tile(n, (1000, 1)), np.random.default_rng(0))
        assert (y == np.round(y)).all()
        assert (y < n).any()


# ---- exact variances and distributions ----


@pytest.mark.parametrize("scale", [0.02, 0.3, 1.0, 7.0, 250.0])
def test_discrete_laplace_variance_is_the_brute_force_sum(scale: float) -> None:
    k = np.arange(1, int(60 * scale) + 60)
    weight = np.exp(-k / scale)
    brute = 2 * (k**2 * weight).sum() / (1 + 2 * weight.sum())
    assert DiscreteLaplace(scale).covariance([1.0])[0, 0] == pytest.approx(brute, rel=1e-11)


def test_discrete_laplace_variance_keeps_its_digits_at_large_scale() -> None:
    # The series of 2 q / (1 - q)^2 is 2 scale^2 - 1/6 + ...
    scale = 1e5
    assert DiscreteLaplace(scale).covariance([1.0])[0, 0] == pytest.approx(2 * scale**2 - 1 / 6, rel=1e-12)


@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.5, 1.0, 2.9, 3.0, 30.0])
def test_discrete_gaussian_variance_is_the_brute_force_sum(sigma: float) -> None:
    k = np.arange(1, int(45 * sigma) + 45)
    weight = np.exp(-(k**2) / (2 * sigma**2))
    brute = 2 * (k**2 * weight).sum() / (1 + 2 * weight.sum())
    found = DiscreteGaussian(sigma).covariance([1.0])[0, 0]
    assert found == pytest.approx(brute, rel=1e-12)
    assert found < sigma**2 * (1 + 1e-12)


@pytest.mark.parametrize("model", [DiscreteGaussian(1.3), DiscreteLaplace(1.3)], ids=label)
def test_discrete_samples_follow_the_stated_probabilities(model: Noise) -> None:
    draws = 400_000
    y = model.sample(np.zeros((draws, 1), dtype=int), np.random.default_rng(5))[:, 0]
    k = np.arange(-40, 41)
    power = np.abs(k) / 1.3 if model.name == "discrete-laplace" else k**2 / (2 * 1.3**2)
    p = np.exp(-power)
    p /= p.sum()
    common = p * draws > 20
    found = np.array([(y == value).sum() for value in k[common]])
    chi2 = ((found - p[common] * draws) ** 2 / (p[common] * draws)).sum()
    freedom = common.sum() - 1
    assert chi2 < freedom + 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("sigma", [1e-3, 1e3, 1e6])
def test_discrete_gaussian_samples_at_any_scale(sigma: float) -> None:
    y = DiscreteGaussian(sigma).sample(np.zeros((200_000, 1), dtype=int), np.random.default_rng(2))
    expected = DiscreteGaussian(sigma).covariance([0.0])[0, 0]
    assert y.var() == pytest.approx(expected, rel=0.02, abs=1e-12)
    assert np.abs(y).max() < 7 * sigma + 1


# ---- privacy ----


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def discrete_gaussian_leak(sigma: float, epsilon: float, shift: int) -> float:
    k = np.arange(-int(20 * sigma) - 20, int(20 * sigma) + 21)
    p = np.exp(-(k**2) / (2 * sigma**2))
    q = np.exp(-((k - shift) ** 2) / (2 * sigma**2))
    return hockey_stick(p / p.sum(), q / p.sum(), epsilon)


BUDGETS = [(0.1, 1e-6), (1.0, 1e-5), (1.0, 1e-9), (3.0, 1e-3), (8.0, 1e-6)]


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("sensitivity", [1.0, 2.5])
def test_gaussian_calibration_leaks_delta_and_not_a_bit_less(
    epsilon: float, delta: float, sensitivity: float
) -> None:
    sigma = Gaussian.private(epsilon, delta, sensitivity=sensitivity).sigma
    assert isinstance(sigma, float)
    # Where the density ratio exceeds e^epsilon, integrated numerically.
    edge = sensitivity / 2 - epsilon * sigma**2 / sensitivity
    x = edge - np.linspace(0, 40 * sigma, 400_001)
    p = np.exp(-(x**2) / (2 * sigma**2))
    q = np.exp(-((x - sensitivity) ** 2) / (2 * sigma**2))
    step = (x[0] - x[1]) / (sigma * math.sqrt(2 * math.pi))
    leak = np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0)) * step
    assert leak == pytest.approx(delta, rel=1e-4)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("sensitivity", [1, 3])
def test_discrete_gaussian_calibration_is_private_and_not_wasteful(
    epsilon: float, delta: float, sensitivity: int
) -> None:
    sigma = DiscreteGaussian.private(epsilon, delta, sensitivity=sensitivity).sigma
    assert discrete_gaussian_leak(sigma, epsilon, sensitivity) <= delta
    assert discrete_gaussian_leak(sigma / (1.25 if sigma < 1 else 1.12), epsilon, sensitivity) > delta


def test_gaussian_calibration_works_at_the_ends_of_the_range() -> None:
    strict = Gaussian.private(1e-3, 1e-15).sigma
    loose = Gaussian.private(1000.0, 0.5).sigma
    assert isinstance(strict, float)
    assert isinstance(loose, float)
    assert strict > 1000
    assert 0 < loose < 0.1
    assert DiscreteGaussian.private(1e-3, 1e-15).sigma > strict


@pytest.mark.parametrize("model", [Gaussian, DiscreteGaussian])
def test_zero_concentrated_privacy_sets_the_variance(
    model: type[Gaussian] | type[DiscreteGaussian],
) -> None:
    assert model.private(rho=0.5, sensitivity=3).sigma == pytest.approx(3.0)


def test_discrete_gaussian_divergence_at_rho_is_that_of_zcdp() -> None:
    # rho-zCDP bounds the Renyi divergence of every order a by a rho.
    sigma = DiscreteGaussian.private(rho=0.1).sigma
    k = np.arange(-60, 61)
    total = np.exp(-(k**2) / (2 * sigma**2)).sum()
    for order in (1.5, 2.0, 5.0):
        power = (order * k**2 + (1 - order) * (k - 1) ** 2) / (2 * sigma**2)
        divergence = math.log(np.exp(-power).sum() / total) / (order - 1)
        assert divergence <= order * 0.1 * (1 + 1e-12)
        assert divergence > order * 0.1 * 0.99


def test_laplace_and_geometric_mechanisms_have_likelihood_ratio_epsilon() -> None:
    for epsilon, sensitivity in ((0.5, 1), (0.5, 2), (2.0, 1)):
        scale = DiscreteLaplace.private(epsilon, sensitivity).scale
        k = np.arange(-50, 51)
        ratio = (np.abs(k - sensitivity) - np.abs(k)) / scale
        assert ratio.max() == pytest.approx(epsilon)
        assert Laplace.private(epsilon, sensitivity).scale == scale


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 20), st.floats(1e-12, 0.1))
def test_private_noise_never_leaks_more_than_delta(epsilon: float, delta: float) -> None:
    sigma = DiscreteGaussian.private(epsilon, delta).sigma
    assert discrete_gaussian_leak(sigma, epsilon, 1) <= delta * (1 + 1e-9)
    gaussian = Gaussian.private(epsilon, delta).sigma
    assert isinstance(gaussian, float)
    assert gaussian <= sigma * 1.001


# ---- parameters to be estimated ----


@pytest.mark.parametrize("model", [Binomial("estimate"), Gaussian("estimate"), Laplace("estimate")])
def test_an_unknown_parameter_is_refused_until_it_has_a_value(model: Noise) -> None:
    assert not model.is_known
    assert noise_from_dict(model.to_dict()) == model
    for use in (
        lambda: model.matrix(3),
        lambda: model.covariance(n),
        lambda: model.sample(n, np.random.default_rng(0)),
    ):
        with pytest.raises(InputError, match="must be estimated first"):
            use()
    complete = model.with_value(0.5)
    assert complete.is_known
    assert type(complete) is type(model)
    assert complete.matrix(3).shape == (3, 3)


def test_per_step_noise_is_unknown_while_one_of_its_models_is() -> None:
    assert not PerStep([Binomial(0.5), Binomial("estimate")]).is_known


# ---- noise that differs by step ----


def test_per_step_noise_cycles_through_its_models() -> None:
    model = PerStep([Exact(), Binomial(0.5), Poisson(2.0)])
    assert model.varies
    assert model.diagonal
    assert not model.additive
    assert [model.at(t).name for t in range(4)] == ["exact", "binomial", "poisson", "exact"]
    counts = np.full((20_000, 4, 2), 50)
    y = model.sample(counts, np.random.default_rng(1))
    np.testing.assert_allclose(y.mean(axis=(0, 2)), [50, 25, 100, 50], rtol=0.005)
    np.testing.assert_allclose(y.var(axis=0).mean(axis=1), [0, 12.5, 100, 0], rtol=0.03)
    for ask in (lambda: model.matrix(2), lambda: model.offset(2), lambda: model.covariance([1, 1])):
        with pytest.raises(InputError, match=r"ask at\(t\)"):
            ask()
    assert noise_from_dict(json.loads(json.dumps(model.to_dict()))) == model


def test_per_step_noise_of_equal_models_does_not_vary() -> None:
    model = PerStep([Binomial(0.5), Binomial(0.5)])
    assert not model.varies
    np.testing.assert_array_equal(model.matrix(2), 0.5 * np.eye(2))


def test_linear_noise_may_be_given_per_step() -> None:
    A = np.stack([np.eye(2), 2 * np.eye(2), np.array([[0.9, 0.2], [0.1, 0.8]])])
    model = Linear(A, b=[[0, 0], [1, 1], [5, 0]])
    assert model.varies
    y = model.sample(np.tile([10, 20], (3, 1)), np.random.default_rng(0))
    np.testing.assert_allclose(y, [[10, 20], [21, 41], [18, 17]])
    assert model.at(4) == Linear(A[1], b=[1, 1])
    assert noise_from_dict(json.loads(json.dumps(model.to_dict()))) == model
    with pytest.raises(InputError, match=r"ask at\(t\)"):
        model.matrix(2)
    with pytest.raises(InputError, match="shape"):
        model.sample([10, 20], np.random.default_rng(0))


def test_linear_noise_keeps_its_own_copy() -> None:
    A = np.eye(2)
    model = Linear(A)
    A[0, 0] = 7
    assert model.A[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        model.A[0, 0] = 7


# ---- bad input ----


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Binomial(0.0), "above 0 and at most 1, got 0"),
        (lambda: Binomial(1.1), "at most 1, got 1.1"),
        (lambda: Binomial(math.nan), "finite"),
        (lambda: Binomial("half"), "binomial alpha must be a finite number"),
        (lambda: Binomial(True), "finite number"),
        (lambda: Detection(0.5), "use Binomial"),
        (lambda: Detection([]), "one per state"),
        (lambda: Detection("estimate"), "one per state"),
        (lambda: Detection([0.5, 2.0]), r"alpha\[1\]"),
        (lambda: Detection([0.5, 0.5]).matrix(3), "2 probabilities for 3 states"),
        (lambda: Detection([0.5, 0.5]).covariance([1, 1, 1]), "2 probabilities for 3 states"),
        (lambda: Poisson("estimate"), "cannot be estimated"),
        (lambda: Poisson(0), "above 0"),
        (lambda: Gaussian(-1.0), "0 or more"),
        (lambda: Gaussian(math.inf), "finite"),
        (lambda: Laplace(-0.1), "0 or more"),
        (lambda: DiscreteGaussian("estimate"), "finite number"),
        (lambda: DiscreteLaplace(None), "finite number"),
        (lambda: Linear([[1.0, 2.0]]), "shape"),
        (lambda: Linear([[1.0, 2.0], [2.0, 4.0]]), "singular .condition number"),
        (lambda: Linear([[1.0, math.nan], [0.0, 1.0]]), "finite"),
        (lambda: Linear([["a"]]), "array of numbers"),
        (lambda: Linear(np.eye(2), b=[1.0]), "linear b"),
        (lambda: Linear(np.eye(2), covariance=np.eye(3)), "linear covariance must have shape"),
        (lambda: Linear(np.eye(2), covariance=[[1, 2], [0, 1]]), "symmetric"),
        (lambda: Linear(np.eye(2), covariance=[[1, 2], [2, 1]]), "negative eigenvalue"),
        (lambda: Linear(np.stack([np.eye(2)] * 3), b=np.zeros((2, 2))), "numbers of steps"),
        (lambda: Linear(np.eye(2)).matrix(3), "3 states"),
        (lambda: PerStep([]), "at least one"),
        (lambda: PerStep([0.5]), r"models\[0\]"),
        (lambda: PerStep([PerStep([Exact(), Binomial(0.5)])]), "one step"),
        (lambda: Exact().with_value(1.0), "no parameter"),
        (lambda: Exact().covariance(np.eye(2)), "shape"),
        (lambda: Exact().sample([0.5], np.random.default_rng(0)), "whole"),
        (lambda: Exact().sample([-1], np.random.default_rng(0)), "negative"),
        (lambda: Exact().sample(3, np.random.default_rng(0)), "states last"),
        (lambda: Laplace.private(0.0), "epsilon must be above 0"),
        (lambda: DiscreteLaplace.private(1.0, -1), "sensitivity"),
        (lambda: Gaussian.private(1.0), "needs rho, or epsilon and delta"),
        (lambda: Gaussian.private(1.0, 1e-5, rho=1.0), "not both"),
        (lambda: Gaussian.private(1.0, 1.5), "between 0 and 1"),
        (lambda: DiscreteGaussian.private(rho=0), "rho must be above 0"),
        (lambda: noise_from_dict({"model": "binomal", "alpha": 0.5}), "did you mean 'binomial'"),
        (lambda: noise_from_dict({"alpha": 0.5}), "noise has no model"),
        (lambda: noise_from_dict({"model": ["binomial"]}), "unknown noise model"),
        (lambda: noise_from_dict("binomial"), "mapping"),
        (lambda: noise_from_dict({"model": "binomial"}), "needs alpha"),
        (lambda: noise_from_dict({"model": "gaussian"}), "needs sigma .or a privacy budget"),
        (lambda: noise_from_dict({"model": "binomial", "alpa": 1}), "did you mean 'alpha'"),
        (lambda: noise_from_dict({"model": "exact", "alpha": 1}), "no other keys"),
        (lambda: noise_from_dict({"model": "laplace", "scale": 1, "epsilon": 1}), "keep one"),
        (lambda: noise_from_dict({"model": "laplace", "sensitivity": 1}), "needs epsilon"),
        (lambda: noise_from_dict({"model": "per-step", "models": 3}), "list of noise"),
    ],
)
def test_bad_input_is_refused_with_what_would_be_right(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(InputError, match=message):
        make()


def test_a_privacy_budget_describes_a_model() -> None:
    described = noise_from_dict({"model": "gaussian", "epsilon": 1.0, "delta": 1e-5})
    assert described == Gaussian.private(1.0, 1e-5)
    described = noise_from_dict({"model": "discrete-gaussian", "rho": 0.5, "sensitivity": 2})
    assert described == DiscreteGaussian(2.0)
