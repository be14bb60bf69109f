"""Groups borrow from each other, on request, as far as they are alike."""

import json

import apache_beam as beam
import numpy as np
import polars as pl
import pytest
from apache_beam.testing.util import assert_that

import aggmc_beam as am
from aggmc_beam.beam import Estimate, EstimateTransitions
from aggmc_beam.cli import main
from aggmc_beam.config.model import Stream
from aggmc_beam.estimators.alike import VARIANCES, Common, draw

HALF = am.Binomial(0.5)
STATES = ["home", "work", "other"]
ALIKE = np.array([[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.05, 0.25, 0.7]])


def records(matrices, population=200, steps=50, realizations=5, noise=HALF):
    rows = []
    for g, P in enumerate(matrices):
        y, _ = am.simulate(
            P, population=population, steps=steps, realizations=realizations, noise=noise, seed=g
        )
        for k, path in enumerate(y.tolist()):
            rows += [
                {"region": f"r{g}", "realization": k, "time": t, "counts": c} for t, c in enumerate(path)
            ]
    return rows


def different(groups, seed=0):
    rng = np.random.default_rng(seed)
    return [0.3 * np.eye(3) + 0.7 * rng.dirichlet(np.ones(3), 3) for _ in range(groups)]


def estimates(rows, noise=HALF, population=200, **options):
    return am.estimate(
        pl.DataFrame(rows), STATES, noise=noise, population=population, group_by="region", **options
    )


def error(found, matrices):
    return np.mean(
        [np.abs(e.transition_matrix - P).mean() for e, P in zip(found.estimates, matrices, strict=True)]
    )


def test_draws_are_the_posterior_of_rows_that_are_normal_about_a_common_mean():
    rng, G, S = np.random.default_rng(1), 6, 3
    U, error = rng.dirichlet(np.ones(S), (G, S)), rng.uniform(0.05, 0.2, (G, S, S))
    common = Common.of(U[0], error[0])
    for g in range(1, G):
        common = common + Common.of(U[g], error[g])
    i, t = 1, 20
    tau, v = VARIANCES[t], (error[:, i] ** 2).sum(1)
    K = np.diag(v + tau) + 1e6  # of the rows, their common mean being anywhere
    centre = np.linalg.solve(K, np.ones(G)) @ U[:, i] / np.linalg.solve(K, np.ones(G)).sum()
    np.testing.assert_allclose(common.centre[t, i], centre, rtol=1e-6)
    misfit = sum((U[:, i, j] - centre[j]) @ np.linalg.solve(K, U[:, i, j] - centre[j]) for j in range(S))
    np.testing.assert_allclose(
        common.square[t, i] - common.weight[t, i] * (centre**2).sum(), misfit, rtol=1e-3
    )
    only = Common.of(U[0], error[0])
    alone = draw(U[0], error[0], only)
    np.testing.assert_allclose(alone.P, U[0])
    assert not alone.borrowed.any()


def test_groups_that_are_alike_borrow_and_their_intervals_hold():
    matrices = [ALIKE] * 12
    rows = records(matrices)
    own, shared = estimates(rows), estimates(rows, pooling="groups")
    assert error(shared, matrices) < 0.6 * error(own, matrices)
    lower, upper = (
        np.stack(bounds) for bounds in zip(*(e.interval() for e in shared.estimates), strict=True)
    )
    assert ((lower <= ALIKE) & (ALIKE <= upper)).mean() > 0.9
    M = np.stack([e.transition_matrix for e in shared.estimates])
    assert ((lower <= M) & (M <= upper)).all()
    np.testing.assert_allclose(M.sum(2), 1.0)


def test_groups_that_differ_lose_nothing():
    ratios = []
    for seed in range(4):
        matrices = different(8, seed)
        rows = records(matrices, population=100, noise=am.Exact())
        found = [estimates(rows, am.Exact(), 100, pooling=pooling) for pooling in ("groups", "cells")]
        ratios.append(error(found[0], matrices) / error(found[1], matrices))
    assert np.mean(ratios) < 1.02


def test_results_say_how_much_is_borrowed_and_advise_it():
    rows = records([ALIKE] * 6)
    own, shared = estimates(rows), estimates(rows, pooling="groups")
    assert "The 6 groups look alike" in str(own)
    assert "look alike" not in str(shared)
    assert estimates(records(different(6), noise=am.Exact()), am.Exact()).advice is None
    e = shared["r0"]
    assert e.diagnostics["borrowed"]["groups"] == 6
    assert "borrowed from the other groups" in str(e)
    assert set(e.diagnostics["scores"]) >= {"estimate", "identity", "naive"}
    assert e.diagnostics["scores"]["estimate"] != own["r0"].diagnostics["scores"]["estimate"]
    assert (e.standard_error < own["r0"].standard_error).mean() > 0.8


def test_a_state_that_a_group_never_has_is_told_by_the_others():
    rows = records([ALIKE] * 4, noise=am.Exact(), realizations=2)
    two = am.simulate([[0.84, 0.16], [0.11, 0.89]], population=200, steps=60, realizations=2, seed=9)[0]
    rows += [
        {"region": "r4", "realization": k, "time": t, "counts": [*c, 0]}
        for k, path in enumerate(two.tolist())
        for t, c in enumerate(path)
    ]
    own, shared = (estimates(rows, am.Exact(), pooling=pooling)["r4"] for pooling in ("cells", "groups"))
    assert np.isnan(own.transition_matrix[2]).all()
    lower, upper = shared.interval()
    assert ((lower[2] <= ALIKE[2]) & (ALIKE[2] <= upper[2])).all()
    assert shared.diagnostics["borrowed"]["rows"][2] == pytest.approx(1.0)
    assert {"state": "other", "flag": "borrowed"}.items() <= shared.diagnostics["rows"][-1].items()


def test_rules_are_kept_by_groups_that_share():
    rules = am.Constraints(forbidden=[("home", "other")], fixed={("work", "home"): 0.1})
    for e in estimates(records([ALIKE] * 4), pooling="groups", constraints=rules).estimates:
        assert (e["home", "other"], e["work", "home"]) == (0.0, 0.1)
        np.testing.assert_allclose(e.transition_matrix.sum(1), 1.0)


@pytest.mark.parametrize("chain", ["stationary", am.Cycle(3)], ids=str)
def test_beam_draws_groups_as_the_local_engine_does(chain):
    rows = records([ALIKE, ALIKE, *different(1)], realizations=4, steps=24, noise=am.Exact())
    local = estimates(rows, am.Exact(), pooling="groups", chain=chain)
    with beam.Pipeline("FnApiRunner") as pipeline:
        step = EstimateTransitions(
            STATES, population=200, group_by=["region"], pooling="groups", chain=chain, shards=2
        )
        transitions = pipeline | beam.Create(rows) | step
        path = beam.Map(lambda e: json.dumps(e.to_dict()))
        assert_that(transitions.estimates | path, _same(local))


def _same(local):
    def check(lines):
        found = {}
        for line in lines:
            e = am.Estimate.from_json(line)
            found[(e.group["region"], e.cell)] = e
        assert len(found) == len(local.estimates)
        for e in local.estimates:
            other = found[(e.group["region"], e.cell)]
            np.testing.assert_allclose(other.transition_matrix, e.transition_matrix, atol=1e-9)
            np.testing.assert_allclose(other.standard_error, e.standard_error, atol=1e-9)
            assert other.diagnostics["borrowed"]["share"] == pytest.approx(e.diagnostics["borrowed"]["share"])

    return check


def test_what_cannot_pool_groups_says_so():
    y = np.array([[3, 7], [4, 6], [2, 8]])
    with pytest.raises(am.InputError, match="group_by"):
        am.estimate(y, pooling="groups")
    with pytest.raises(am.InputError, match="did you mean 'groups'"):
        am.estimate(y, pooling="group")
    with pytest.raises(am.InputError, match="reversible"):
        estimates(records([ALIKE] * 2), pooling="groups", constraints=am.Constraints(reversible=True))
    with pytest.raises(am.InputError, match="EstimateTransitions"):
        Estimate(pooling="groups")
    with pytest.raises(am.InputError, match="a stream does not have"):
        EstimateTransitions(STATES, group_by=["region"], pooling="groups", stream=Stream())


@pytest.mark.parametrize("engine", ["local", "beam"])
def test_a_config_pools_groups_and_runs_say_it(engine, tmp_path, capsys):
    (tmp_path / "feed.jsonl").write_text(
        "\n".join(json.dumps(row) for row in records([ALIKE] * 4, realizations=3, steps=30))
    )
    (tmp_path / "run.yaml").write_text(
        "\n".join(
            [
                "states: [home, work, other]",
                f"input: {{files: '{tmp_path}/feed.jsonl'}}",
                "group_by: [region]",
                "noise: {model: binomial, alpha: 0.5}",
                "population: 200",
                f"output: {{directory: '{tmp_path}/out', report: true}}",
            ]
        )
    )
    run = ["run", str(tmp_path / "run.yaml"), "--engine", engine]
    main(run)
    assert "groups look alike" in " ".join(capsys.readouterr().out.split())
    main([*run, "--set", "pooling=groups"])
    assert "borrowed from the other groups" in (tmp_path / "out" / "report.html").read_text()
    lines = [json.loads(line) for line in (tmp_path / "out" / "estimates.jsonl").read_text().splitlines()]
    assert all(line["diagnostics"]["borrowed"]["share"] > 0.2 for line in lines)
