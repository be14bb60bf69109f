"""A change of P, and alarms of single steps."""

from dataclasses import replace

import numpy as np
import pytest
from walks import chain, sure, walk

import aggmc_beam as am
from aggmc_beam.uses.alarms import alarms
from aggmc_beam.uses.change import change


@pytest.fixture(scope="module")
def template():
    n, _ = walk(chain())
    return replace(am.estimate(n, population=300, estimator="mom"), degrees=50)


def sequence(template, matrices, rng, members=2000, claimed=1.0):
    """Estimates from known moves, with standard errors that are `claimed` times the right ones."""
    found = []
    for c, P in enumerate(matrices):
        p = rng.multinomial(members, P) / members
        error = claimed * np.sqrt(P * (1 - P) / members)
        found.append(replace(sure(template, p, error), cell=c))
    return found


@pytest.mark.parametrize("claimed", [0.5, 1.0, 2.0])
def test_without_a_change_p_values_are_uniform_even_if_standard_errors_are_wrong(template, claimed):
    rng = np.random.default_rng(0)
    P = chain()
    p = [change(sequence(template, [P] * 12, rng, claimed=claimed)).p_value for _ in range(60)]
    assert np.mean(np.array(p) < 0.05) <= 0.15
    assert 0.35 < np.mean(p) < 0.65


def test_a_change_is_found_dated_and_measured(template):
    rng = np.random.default_rng(1)
    P = chain()
    Q = P.copy()
    Q[1, 1] -= 0.1
    Q[1, 2] += 0.1
    found = [change(sequence(template, [P] * 7 + [Q] * 5, rng)) for _ in range(15)]
    assert np.mean([f.p_value < 0.02 for f in found]) > 0.9
    assert np.mean([f.cell == 7 for f in found]) > 0.9
    inside = []
    for f in found:
        lower, upper = f.interval()
        inside.append(((lower <= Q - P) & (Q - P <= upper)).mean())
    assert 0.88 <= np.mean(inside) <= 0.99
    assert abs(np.mean([f.size for f in found]) - np.sqrt(((Q - P) ** 2).mean())) < 0.01


def test_two_estimates_are_compared_by_their_standard_errors(template):
    rng = np.random.default_rng(2)
    P, Q = chain(seed=1), chain(seed=2)
    assert change(sequence(template, [P, Q], rng)).p_value < 0.001
    same = [change(sequence(template, [P, P], rng)).p_value for _ in range(40)]
    assert np.mean(np.array(same) < 0.1) < 0.3


def test_means_that_move_are_no_change_of_p():
    P = chain(stay=0.95)
    rng = np.random.default_rng(0)
    n = np.zeros((20, 401, 4), int)
    n[:, 0] = [1000, 0, 0, 0]
    for t in range(400):
        for k in range(20):
            n[k, t + 1] = rng.multinomial(n[k, t], P).sum(0)
    # The first windows are still on their way; their matrices are those of the others.
    found = change(am.estimate(n, chain=am.Window(40), estimator="cls"))
    assert found.p_value > 0.01


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (lambda e: [e], "at least two estimates"),
        (lambda e: [e, replace(e, states=("a", "b", "c", "d"))], "different states"),
        (lambda e: [replace(e, window={"start": i, "end": i + 5}) for i in (0, 3)], "the windows overlap"),
        (lambda e: [replace(e, standard_error=np.zeros((4, 4)))] * 2, "all 0"),
    ],
)
def test_bad_input_is_named(template, items, words):
    with pytest.raises(am.InputError, match=words):
        change(items(template))


@pytest.mark.parametrize("noise", [am.Exact(), am.Gaussian(6.0)], ids=str)
@pytest.mark.parametrize("batch", [1, 5])
def test_the_false_alarm_rate_is_the_stated_one(template, noise, batch):
    P = chain()
    raised = []
    for seed in range(2):
        n, _ = walk(P, N=1000, K=1, T=3000, seed=seed, batch=batch)
        y = noise.sample(n, np.random.default_rng(seed))
        est = replace(sure(template, P), noise=noise, population=1000.0)
        raised.append(alarms(y[0], est, rate=0.05).raised[200:].mean())
    assert 0.04 <= np.mean(raised) <= 0.06


def test_a_flow_that_doubles_for_one_step_is_found(template):
    P = chain()
    found = 0
    for trial in range(30):
        n, moves = walk(P, N=2000, K=1, T=400, seed=trial)
        y = n[0].astype(float)
        i, j = np.unravel_index((moves[0, 300] * (1 - np.eye(4))).argmax(), (4, 4))
        more = moves[0, 300, i, j]
        y[301, i] -= more
        y[301, j] += more
        found += bool(alarms(y, sure(template, P), rate=0.01).raised[301])
    assert found >= 27


def test_too_little_before_a_step_raises_no_alarm(template):
    n, _ = walk(chain(), K=1, T=60)
    found = alarms(n[0], sure(template, chain()), rate=0.01)
    assert not found.raised.any()
    assert np.isnan(found.p_value).all()
    with pytest.raises(am.InputError, match="rate must lie"):
        alarms(n[0], sure(template, chain()), rate=2)
