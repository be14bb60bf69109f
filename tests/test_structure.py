"""Many states: allowed moves, and a prior by distance and attraction whose weight the counts tell."""

import json
import textwrap

import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.cli import main
from aggmc_beam.estimators.gravity import balanced
from aggmc_beam.estimators.leaving import RATES, series_rates, weigh_rates

HALF = am.Binomial(0.5)


def city(S, seed, gravity=True, leave=0.07, scale=2.0):
    """A matrix and the places of its states: moves by distance and attraction, or anywhere."""
    rng = np.random.default_rng([seed, S])
    at = rng.uniform(0, 10, (S, 2))
    d = np.sqrt(((at[:, None] - at) ** 2).sum(2))
    K = np.exp(rng.normal(0, 0.7, S)) * np.exp(-d / scale) if gravity else rng.dirichlet(np.full(S, 0.1), S)
    np.fill_diagonal(K, 0)
    rates = leave * np.exp(rng.normal(0, 0.4, S))
    P = rates[:, None] * K / K.sum(1, keepdims=True)
    return P + np.diag(1 - rates), at


def error(P, Q, n):
    mu = n.reshape(-1, len(Q)).mean(0)
    return float(np.sqrt((mu / mu.sum()) @ ((P - Q) ** 2).sum(1)))


def estimated(P, at, noise, K=1, T=168, seed=0, **more):
    n, _ = am.simulate(P, population=100_000, steps=T, realizations=K, seed=seed)
    y = noise.sample(n, np.random.default_rng(seed))
    found = am.estimate(y, noise=noise, population=100_000, structure=am.Structure(coordinates=at, **more))
    return found, error(found.transition_matrix, P, n) / error(np.eye(len(P)), P, n)


def test_as_many_enter_a_state_as_leave_it():
    rng = np.random.default_rng(0)
    f = np.exp(-rng.uniform(0, 2, (6, 6)))
    f = (f + f.T) * (1 - np.eye(6))
    leaving = rng.uniform(0.5, 1, 6)
    K = balanced(f, leaving)
    np.testing.assert_allclose(K.sum(1), 1)
    np.testing.assert_allclose(leaving @ K, leaving, rtol=1e-6)
    flow = leaving[:, None] * K / np.where(f > 0, f, 1)  # a_i b_j: of rank one off the diagonal
    np.testing.assert_allclose(flow[0, 1] * flow[2, 3], flow[0, 3] * flow[2, 1])


def test_rates_of_which_all_is_told_are_those_told_and_others_are_like_the_rest():
    told = np.array([0.02, 0.05, 0.1, 0.05])
    away = (np.log(RATES) - np.log(told)[:, None]) / np.array([1e-2, 1e-2, 1e-2, 1e9])[:, None]
    found = weigh_rates(-(away**2) / 2)
    np.testing.assert_allclose(found.value[:3], told[:3], rtol=0.02)
    assert 0.02 < found.value[3] < 0.12
    assert found.error[3] > 10 * found.error[0]


def test_a_series_tells_rates_of_leaving_without_its_daily_cycle():
    P, _ = city(12, 3)
    n, _ = am.simulate(P, population=100_000, steps=1440, seed=1)
    shares = n[0] / 100_000
    mu = shares.mean(0)
    day = 0.02 * mu * np.sin(2 * np.pi * np.arange(1440) / 24)[:, None]
    plain = series_rates(shares, 100_000, np.zeros((12, 12)), mu)
    daily = series_rates(shares + day, 100_000, np.zeros((12, 12)), mu, 24)
    for found in (plain, daily):
        np.testing.assert_allclose(found.value, 1 - np.diag(P), rtol=0.15)
    assert series_rates(shares + day, 100_000, np.zeros((12, 12)), mu) is None


@pytest.mark.parametrize("noise", [am.Exact(), am.Binomial(0.3)], ids=str)
def test_one_week_of_a_city_is_told_better_than_by_nobody_moves_and_intervals_hold(noise):
    held = []
    for seed in range(3):
        P, at = city(20, seed)
        found, ratio = estimated(P, at, noise, seed=seed)
        assert ratio <= 0.6
        lower, upper = found.interval()
        assert ((found.transition_matrix >= lower) & (found.transition_matrix <= upper)).all()
        held.append(((P >= lower) & (P <= upper)).mean())
    assert np.mean(held) >= 0.9


def test_many_weeks_tell_that_moves_follow_the_distances_and_how_far_they_go():
    P, at = city(30, 1)
    found, ratio = estimated(P, at, am.Exact(), K=20)
    note = found.diagnostics["structure"]
    assert ratio <= 0.1
    assert note["decay"]["form"] == "exponential"
    assert 1.4 <= note["decay"]["scale"] <= 2.8  # truly 2
    assert note["follows_distance"]
    assert not any("distance" in warning for warning in found.warnings)
    assert found.diagnostics["borrowed"]["share"] < 0.2


def test_moves_that_do_not_follow_distances_are_said_and_learned_where_counts_tell_them():
    P, at = city(30, 2, gravity=False)
    found, ratio = estimated(P, at, am.Exact(), K=20)
    assert ratio <= 0.4
    assert any("do not tell that moves follow the distances" in warning for warning in found.warnings)
    assert any("moves differ from what attraction" in warning for warning in found.warnings)
    lower, upper = found.interval()
    assert ((P >= lower) & (P <= upper)).mean() >= 0.9


def test_little_told_is_borrowed_and_said_so_by_row():
    P, at = city(30, 1)
    found, _ = estimated(P, at, am.Binomial(0.3), T=60)
    borrowed = found.diagnostics["borrowed"]
    assert borrowed["share"] > 0.5
    assert len(borrowed["rows"]) == 30
    assert "is borrowed from moves by attraction and distance" in str(found)
    assert am.Estimate.from_json(found.to_json()).diagnostics["borrowed"] == borrowed


def test_moves_that_cannot_happen_have_no_probability_and_states_without_a_place_are_reached_from_all():
    P, at = city(8, 5)
    names = [f"zone {i}" for i in range(8)]
    places = {name: tuple(xy) for name, xy in zip(names[:7], at, strict=False)}
    y, _ = am.simulate(P, population=10_000, steps=100, realizations=5, seed=1)
    near = am.Structure(coordinates=places, radius=4.0)
    found = am.estimate(y, states=names, population=10_000, structure=near)
    d = np.sqrt(((at[:, None] - at) ** 2).sum(2))
    far = np.zeros((8, 8), bool)
    far[:7, :7] = d[:7, :7] > 4
    np.testing.assert_array_equal(found.transition_matrix[far], 0)
    np.testing.assert_allclose(found.transition_matrix.sum(1), 1)
    assert (found.transition_matrix[:7, 7] > 0).all()
    pairs = [(names[i], names[j]) for i, j in np.argwhere(~far) if i != j]
    by_pairs = am.Structure(moves=pairs, coordinates=places, directed=True)
    again = am.estimate(y, states=names, population=10_000, structure=by_pairs)
    np.testing.assert_allclose(again.transition_matrix, found.transition_matrix)


def test_cells_of_a_cycle_are_drawn_to_the_structured_matrix():
    P, at = city(20, 4)
    y, _ = am.simulate(P, population=100_000, steps=24 * 14, seed=1)
    y = am.Binomial(0.3).sample(y, np.random.default_rng(1))
    found = am.estimate(
        y,
        noise=am.Binomial(0.3),
        population=100_000,
        chain=am.Cycle(4),
        structure=am.Structure(coordinates=at),
    )
    assert "structure" in found.pooled.diagnostics
    identity = error(np.eye(20), P, y)
    assert max(error(M, P, y) for M in found.transition_matrix) <= 0.6 * identity


def test_great_circles_are_kilometres_on_the_earth():
    towns = am.Structure(
        coordinates={"Paris": (48.8566, 2.3522), "London": (51.5074, -0.1278)}, geographic=True
    )
    assert towns.on(("Paris", "London")).distance[0, 1] == pytest.approx(343.6, abs=0.5)


def test_files_and_values_say_the_same(tmp_path):
    (tmp_path / "moves.csv").write_text("from,to\na,b\nb,c\n")
    (tmp_path / "places.csv").write_text("state,x,y\na,0,0\nb,0,1\nc,0,3\nelsewhere,9,9\n")
    (tmp_path / "distances.csv").write_text("from,to,distance\na,b,1\nb,c,2\na,c,3\n")
    states = ("a", "b", "c")
    d = np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0]])
    for places in (
        am.Structure(coordinates=tmp_path / "places.csv"),
        am.Structure(distances=str(tmp_path / "distances.csv")),
        am.Structure(distances=d),
    ):
        np.testing.assert_array_equal(places.on(states).distance, d)
    allowed = am.Structure(moves=tmp_path / "moves.csv").on(states).allowed
    np.testing.assert_array_equal(allowed, np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], bool))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "needs moves, coordinates or distances"),
        ({"moves": [("a", "d")]}, "names a state 'd'"),
        ({"moves": ["ab"]}, "moves.0. must be two states"),
        ({"coordinates": {"a": (0, 0), "B": (0, 1)}}, "coordinates names a state 'B'"),
        ({"coordinates": {"a": (0, 0, 0)}}, "must be two numbers"),
        ({"coordinates": [[0, 0]]}, "two numbers for each of 3 states"),
        ({"coordinates": [[99, 0]] * 3, "geographic": True}, "latitude and longitude"),
        ({"distances": [[0, 1], [1, 0]]}, "must be a matrix .3, 3."),
        ({"distances": -np.ones((3, 3))}, "0 or more"),
        ({"moves": [("a", "b")], "radius": 3}, "radius needs"),
        ({"coordinates": [[0, 0]] * 3, "decay": "linear"}, "decay must be one of"),
        ({"coordinates": [[0, 0]] * 3, "distances": np.ones((3, 3))}, "keep one"),
        ({"moves": "nowhere.csv"}, "nowhere.csv cannot be read"),
    ],
)
def test_what_does_not_fit_is_said(given, says):
    with pytest.raises(am.InputError, match=says):
        am.Structure(**given).on(("a", "b", "c"))


def test_a_file_with_a_bad_row_is_named_with_its_line(tmp_path):
    (tmp_path / "places.csv").write_text("state,x,y\na,0,0\nb,north,1\n")
    with pytest.raises(am.InputError, match=r"places.csv, line 3: 'north' is no number"):
        am.Structure(coordinates=tmp_path / "places.csv")
    (tmp_path / "places.csv").write_text("state,x,y\nd,0,0\n")
    with pytest.raises(am.InputError, match="names none of the states 'a', 'b', 'c'; it has 'd'"):
        am.Structure(coordinates=tmp_path / "places.csv").on(("a", "b", "c"))


def test_a_structure_does_not_go_with_what_it_cannot_keep():
    y, _ = am.simulate(np.full((3, 3), 1 / 3), population=100, steps=50, seed=1)
    line = am.Structure(moves=[(0, 1), (1, 2)])
    with pytest.raises(am.InputError, match="for estimator auto"):
        am.estimate(y, population=100, estimator="mom", structure=line)
    prior = am.Constraints(prior=np.full((3, 3), 1 / 3))
    with pytest.raises(am.InputError, match="give one of them"):
        am.estimate(y, population=100, constraints=prior, structure=line)
    with pytest.raises(am.InputError, match="by the structure it cannot happen"):
        am.estimate(y, population=100, constraints=am.Constraints(fixed={(0, 2): 0.1}), structure=line)


def test_both_engines_and_python_give_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    P, at = city(5, 1)
    (tmp_path / "places.csv").write_text(
        "state,x,y\n" + "".join(f"z{i},{x:.3f},{y:.3f}\n" for i, (x, y) in enumerate(at))
    )
    y, _ = am.simulate(P, population=5_000, steps=40, realizations=6, seed=1)
    rows = [{"realization": k, "time": t, "counts": y[k, t].tolist()} for k in range(6) for t in range(40)]
    (tmp_path / "counts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = """
        states: [z0, z1, z2, z3, z4]
        input: {files: counts.jsonl}
        population: 5000
        structure: {coordinates: places.csv, radius: 8}
        uncertainty: {replicates: 6}
        """
    (tmp_path / "run.yaml").write_text(textwrap.dedent(config))
    matrices = []
    for engine in ("local", "beam"):
        assert (
            main(["run", "run.yaml", "--quiet", "--engine", engine, "--set", f"output.directory={engine}"])
            == 0
        )
        line = (tmp_path / engine / "estimates.jsonl").read_text().splitlines()[0]
        matrices.append(am.Estimate.from_json(line).transition_matrix)
    structure = am.Structure(coordinates=tmp_path / "places.csv", radius=8)
    found = am.estimate(
        y, states=[f"z{i}" for i in range(5)], population=5_000, structure=structure, replicates=6
    )
    np.testing.assert_allclose(matrices[0], matrices[1])
    np.testing.assert_allclose(matrices[0], found.transition_matrix)
