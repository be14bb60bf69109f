"""Counts at the edge of what floats hold, and chains at the edge of what can be told: right, or flagged."""

import json
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import aggmc_beam as am
from aggmc_beam.estimators.registry import NAMES
from aggmc_beam.result import Estimate

SMOOTH = ("mom", "cls", "corrected-cls")
#: Estimators that are right for exact counts of any chain whose counts move.
CONSISTENT = ("mom", "cls", "corrected-cls", "simplex", "fast", "gmm", "auto")


def sound(est):
    """Finite, or flagged; and it can be written and printed."""
    flags = {f["state"]: f["flag"] for f in est.diagnostics["rows"]}
    unknown = [flags.get(s) in ("never-seen", "undetermined") for s in est.states]
    finite = np.isfinite(est.transition_matrix).all(1)
    assert [not u for u in unknown] == finite.tolist(), (est.transition_matrix, flags)
    assert np.isfinite(est.stationary).all()
    assert np.isfinite(est.population)
    known = est.standard_error[finite]
    assert np.isfinite(known).all() or est.diagnostics["interval"]["unknown"] > 0
    assert Estimate.from_json(est.to_json()).states == est.states
    assert str(est)
    return est


def by_engine(engine, y, folder, **settings):
    """The same counts through the array door, or through a file and the local engine."""
    if engine == "array":
        return am.estimate(y, **settings)
    K, T, S = y.shape
    key, time = np.divmod(np.arange(K * T), T)
    frame = pl.DataFrame({"realization": key, "time": time, "counts": y.reshape(-1, S).tolist()})
    path = folder / "counts.parquet"
    frame.write_parquet(path)
    names = [str(i) for i in range(S)]
    return am.estimate(path, states=names, **settings)


ENGINES = ["array", "file"]
each_engine = pytest.mark.parametrize("engine", ENGINES)
each_estimator = pytest.mark.parametrize("estimator", NAMES)


def exact_counts(P, N, steps, realizations, seed):
    """Counts of up to N = 10^15 that move: whole numbers, so that fractions can follow them exactly."""
    rng = np.random.default_rng(seed)
    y = np.zeros((realizations, steps, len(P)), np.int64)
    for k in range(realizations):
        n = rng.multinomial(N, rng.dirichlet(np.ones(len(P))))
        for t in range(steps):
            y[k, t] = n
            n = sum(rng.multinomial(n[i], P[i]) for i in range(len(P)))
    return y


def mom_by_fractions(y, N):
    """Algorithm 1 in exact arithmetic, from its definition."""
    K, T, S = y.shape
    rows = [[[Fraction(int(v)) for v in y[k, t]] for t in range(T)] for k in range(K)]
    mean = [sum(rows[k][t][i] for k in range(K) for t in range(T)) / (K * T) for i in range(S)]
    P = np.zeros((S, S))
    for i in range(S):
        for j in range(S):
            lagged = sum(
                (rows[k][t][i] - mean[i]) * (rows[k][t + 1][j] - mean[j])
                for k in range(K)
                for t in range(T - 1)
            )
            joint = lagged / (K * (T - 1)) / N + mean[i] * mean[j] / sum(mean) ** 2
            P[i, j] = float(joint / (mean[i] / sum(mean)))
    return P


CHAIN = [[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.3, 0.1, 0.6]]


@each_engine
def test_counts_of_10_to_the_15_agree_with_exact_arithmetic(engine, tmp_path):
    N = 10**15
    y = exact_counts(CHAIN, N, steps=12, realizations=4, seed=3)
    est = sound(by_engine(engine, y.astype(float), tmp_path, estimator="mom", population=N))
    expected = mom_by_fractions(y, N)
    # Entries are of the order of N itself here: a chain that has not settled, taken for a settled one.
    np.testing.assert_allclose(est.transition_matrix, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    assert est.population == N


@each_engine
def test_least_squares_on_counts_of_10_to_the_15_finds_the_chain(engine, tmp_path):
    y = exact_counts(CHAIN, 10**15, steps=12, realizations=4, seed=3).astype(float)
    for estimator in ("cls", "corrected-cls"):
        est = sound(by_engine(engine, y, tmp_path, estimator=estimator))
        np.testing.assert_allclose(est.transition_matrix, CHAIN, atol=1e-6)


@each_estimator
def test_counts_of_10_to_the_15_are_no_trouble_to_any_estimator(estimator):
    y = exact_counts(CHAIN, 10**15, steps=12, realizations=4, seed=3).astype(float)
    sound(am.estimate(y, estimator=estimator))


@each_engine
def test_a_population_of_a_billion_with_noise_of_one_keeps_six_digits(engine, tmp_path):
    """About the mean the counts are known to 1 in 10^9; sums that lost it would show in the 4th digit."""
    N, T = 10**9, 400
    rng = np.random.default_rng(5)
    moved = np.zeros((1, T, 2))
    for t in range(1, T):  # a sticky chain about N / 2, its deviations of the order of sqrt(N)
        moved[0, t, 0] = 0.8 * moved[0, t - 1, 0] + rng.normal(scale=10_000)
    moved[..., 1] = -moved[..., 0]
    y = N / 2 + np.round(moved + rng.normal(size=moved.shape))
    exact = mom_by_fractions(y.astype(np.int64), N)
    est = by_engine(engine, y, tmp_path, noise=am.Gaussian(1.0), population=N, estimator="mom")
    np.testing.assert_allclose(sound(est).transition_matrix, exact, rtol=1e-6)


@each_engine
@each_estimator
def test_counts_that_never_change_are_answered_with_a_note(engine, estimator, tmp_path):
    y = np.tile([40.0, 60.0], (3, 10, 1))
    est = sound(by_engine(engine, y, tmp_path, estimator=estimator))
    flagged = est.diagnostics["condition"] > 1e10 or est.diagnostics["outside"] > 0
    assert flagged or np.allclose(est.transition_matrix.sum(1), 1)
    if estimator in ("mom", "naive", "simplex"):
        np.testing.assert_allclose(est.transition_matrix, [[0.4, 0.6]] * 2)


@each_engine
@each_estimator
def test_a_single_state_is_never_left(engine, estimator, tmp_path):
    y = np.full((2, 10, 1), 50.0)
    est = sound(by_engine(engine, y, tmp_path, estimator=estimator))
    np.testing.assert_allclose(est.transition_matrix, [[1.0]])


@each_engine
@each_estimator
def test_two_states_with_the_same_counts_are_answered_or_flagged(engine, estimator, tmp_path):
    y, _ = am.simulate(CHAIN, population=300, steps=60, realizations=4, seed=2)
    y[..., 1] = y[..., 0]
    y[..., 2] = 600 - y[..., :2].sum(2)
    est = sound(by_engine(engine, y, tmp_path, estimator=estimator, population=600))
    assert est.diagnostics["condition"] > 1e10
    if estimator != "limle":  # which searches, and ends at one of many answers that fit alike
        first, second = est.transition_matrix[:2]
        exchanged = second[[1, 0, 2]]  # a ridge towards staying treats each of the two alike
        assert np.allclose(first, second, atol=1e-6) or np.allclose(first, exchanged, atol=1e-6)


@each_engine
@pytest.mark.parametrize("estimator", CONSISTENT)
def test_a_periodic_chain_is_found_as_the_permutation_that_it_is(engine, estimator, tmp_path):
    cycle = np.roll(np.eye(3), 1, axis=1)
    rng = np.random.default_rng(4)
    starts = rng.multinomial(300, [1 / 3] * 3, size=60).astype(float)
    y = np.stack([[np.roll(n, t) for t in range(12)] for n in starts])
    est = sound(by_engine(engine, y, tmp_path, estimator=estimator))
    assert (est.transition_matrix.argmax(1) == [1, 2, 0]).all()
    exact = estimator in ("cls", "corrected-cls")
    np.testing.assert_allclose(est.transition_matrix, cycle, atol=1e-9 if exact else 0.25)


@each_engine
@each_estimator
def test_an_absorbing_state_is_answered_by_every_estimator(engine, estimator, tmp_path):
    P = np.array([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.0, 0.0, 1.0]])
    y, _ = am.simulate(P, population=1000, steps=15, realizations=30, seed=6, start=[0.5, 0.5, 0.0])
    est = sound(by_engine(engine, y, tmp_path, estimator=estimator))
    if estimator in ("cls", "corrected-cls", "auto"):
        np.testing.assert_allclose(est.transition_matrix, P, atol=0.05)


@each_engine
@each_estimator
def test_two_steps_are_enough_for_an_answer(engine, estimator, tmp_path):
    y, _ = am.simulate(CHAIN, population=500, steps=2, realizations=40, seed=7)
    sound(by_engine(engine, y, tmp_path, estimator=estimator))
    sound(by_engine(engine, y[:1], tmp_path, estimator=estimator))


@each_engine
@each_estimator
def test_nobody_counted_at_some_steps_breaks_nothing(engine, estimator, tmp_path):
    y, _ = am.simulate(CHAIN, population=4, steps=30, realizations=5, noise=am.Binomial(0.2), seed=8)
    y[:, 7:9] = 0
    settings = {"noise": am.Binomial(0.2), "population": 4, "estimator": estimator}
    sound(by_engine(engine, y, tmp_path, **settings))


@pytest.mark.parametrize("estimator", ["mom", "cls", "fast"])
def test_a_thousand_states_are_estimated(estimator):
    S, N = 1000, 10**6
    rng = np.random.default_rng(9)
    target = rng.permutation(S)
    y = np.zeros((1, 40, S))
    n = rng.multinomial(N, np.full(S, 1 / S))
    for t in range(40):
        y[0, t] = n
        moved = rng.binomial(n, 0.5)
        n = n - moved
        np.add.at(n, target, moved)
    est = am.estimate(y, estimator=estimator, replicates=2)
    finite = np.isfinite(est.transition_matrix).all(1)
    flags = {f["state"] for f in est.diagnostics["rows"] if f["flag"] in ("never-seen", "undetermined")}
    assert int((~finite).sum()) == len(flags)
    assert est.diagnostics["condition"] > 1e10  # 39 pairs cannot tell a thousand rows apart, and that is said


@pytest.mark.parametrize("estimator", NAMES)
def test_numbers_too_large_for_counts_are_refused(estimator):
    y, _ = am.simulate(CHAIN, steps=5, seed=1)
    with pytest.raises(am.InputError, match="too large to be one"):
        am.estimate(y * 1e30, estimator=estimator)
    with pytest.raises(am.InputError, match="population must be positive and finite"):
        am.estimate(y, noise=am.Binomial(0.5), population=1e31, estimator=estimator)


def test_a_realization_without_any_record_takes_part_in_nothing():
    y, _ = am.simulate(CHAIN, population=100, steps=20, realizations=3, seed=1)
    gone = np.concatenate([y, np.full_like(y[:1], np.nan)])
    for estimator in NAMES:
        with_gone, without = (am.estimate(x, estimator=estimator, replicates=3) for x in (gone, y))
        np.testing.assert_array_equal(with_gone.transition_matrix, without.transition_matrix)


RUN = """
import sys, aggmc_beam as am
est = am.estimate(sys.argv[1], noise=am.Binomial(0.5), population=1000, estimator=sys.argv[2])
print(est.to_json())
"""


@pytest.mark.parametrize("estimator", ["mom", "auto"])
def test_the_local_engine_gives_the_same_bits_whatever_the_number_of_threads(estimator, tmp_path):
    y, _ = am.simulate(CHAIN, population=1000, steps=300, realizations=40, noise=am.Binomial(0.5), seed=1)
    key, time = np.divmod(np.arange(40 * 300), 300)
    frame = pl.DataFrame({"realization": key, "time": time, "counts": y.reshape(-1, 3).tolist()})
    frame.sample(fraction=1.0, shuffle=True, seed=1).write_parquet(tmp_path / "c.parquet", row_group_size=500)
    found = set()
    for threads in ("1", "2", "4"):
        environment = {**os.environ, "POLARS_MAX_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, "-c", RUN, str(tmp_path / "c.parquet"), estimator]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1
    assert json.loads(found.pop())["counts"]["records"] == 12_000


def test_beam_gives_the_same_answer_whatever_the_number_of_workers(tmp_path):
    from aggmc_beam.cli import main

    y, _ = am.simulate(CHAIN, population=1000, steps=60, realizations=40, noise=am.Binomial(0.5), seed=1)
    key, time = np.divmod(np.arange(40 * 60), 60)
    for part in range(4):
        rows = key % 4 == part
        pl.DataFrame(
            {"realization": key[rows], "time": time[rows], "counts": y.reshape(-1, 3)[rows].tolist()}
        ).write_parquet(tmp_path / f"part{part}.parquet")
    found = []
    for workers in ("1", "2"):
        config = {
            "states": ["a", "b", "c"],
            "input": {"files": f"{tmp_path}/part*.parquet"},
            "noise": {"model": "binomial", "alpha": 0.5},
            "population": 1000,
            "estimator": "mom",
            "output": {"directory": str(tmp_path / workers)},
        }
        path = tmp_path / f"{workers}.yaml"
        path.write_text(json.dumps(config))
        options = [f"--direct_num_workers={workers}", "--direct_running_mode=multi_threading"]
        assert main(["run", str(path), "--engine", "beam", "--quiet", "--", *options]) == 0
        found.append(am.Estimate.from_json((tmp_path / workers / "estimates.jsonl").read_text()))
    # Runners join sums in an order of their own, so the last bits may differ.
    one, two = found
    np.testing.assert_allclose(two.transition_matrix, one.transition_matrix, rtol=0, atol=1e-12)
    np.testing.assert_allclose(two.standard_error, one.standard_error, rtol=0, atol=1e-12)
    assert two.counts == one.counts


@pytest.mark.parametrize("scale", [1e20, 1e27])
@pytest.mark.parametrize("estimator", ["mom", "simplex", "fast", "gmm", "auto"])
def test_rows_of_enormous_counts_are_probabilities_or_flagged(estimator, scale):
    y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], population=1000, steps=200, realizations=5, seed=1)
    found = am.estimate(y * scale, estimator=estimator)
    flagged = {int(row["state"]) for row in found.diagnostics["rows"] if row["flag"] == "not-determined"}
    sums = found.transition_matrix.sum(1)
    assert all(i in flagged or sums[i] == pytest.approx(1, abs=1e-9) for i in range(2))
    if estimator != "mom":
        np.testing.assert_allclose(sums, 1, atol=1e-9)
