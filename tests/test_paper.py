"""The reproduction of the paper: its grid, its trials, how they are kept, and the quick version."""

import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest

import aggmc_beam as am
from benchmarks.paper import runner
from benchmarks.paper.claims import CLAIMS, findings
from benchmarks.paper.command import CONFIGS, main
from benchmarks.paper.grid import Cell, cells, load_experiment
from benchmarks.paper.page import page
from benchmarks.paper.trial import Row, estimates, fixed_point, run
from benchmarks.paper.trials import Trials

NOISES = (
    ("exact", {"model": "exact"}, ("mom", "cls", "naive", "auto")),
    ("α = 0.5", {"model": "binomial", "alpha": 0.5}, ("mom", "cls")),
)
SMALL = Cell("convergence", "regular", 0, 50, 30, 2, 4, 2.0, True, 1, NOISES)
TINY = """\
name: convergence
ensembles: [regular]
states: 4
precision: 2.0
population: [50]
steps: [20, 40]
realizations: [1, 2]
trials: 2
estimators: [mom, cls, naive, auto]
observations:
  - {name: exact, noise: {model: exact}}
  - {name: σ² = 5, noise: {model: gaussian, sigma: 2.2}}
"""


def silent(*_):
    pass


def tiny(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY, encoding="utf-8")
    return path


def test_the_grid_is_the_papers():
    experiment = load_experiment(CONFIGS / "convergence.yaml")
    assert experiment.steps == (10, 100, 1000, 10000)
    assert experiment.realizations == (1, 2, 5, 10, 20, 50)
    assert (experiment.population, experiment.trials) == ((100,), 10)
    assert (experiment.states, experiment.precision) == (10, 0.5)
    shown = {o.name: o.noise for o in experiment.observations}
    assert {shown[f"α = {a}"].alpha for a in (0.75, 0.5, 0.25)} == {0.75, 0.5, 0.25}
    assert [round(shown[f"σ² = {v}"].sigma ** 2, 12) for v in (1, 5)] == [1, 5]
    assert len(cells(experiment)) == 24 * 10 * 2


def test_every_config_reads_and_every_figure_has_auto():
    for path in CONFIGS.rglob("*.yaml"):
        for observation in (experiment := load_experiment(path)).observations:
            assert "auto" in (observation.estimators or experiment.estimators)


def test_a_trial_is_a_function_of_its_cell_alone():
    first = run(SMALL)
    run(replace(SMALL, trial=1))
    assert run(SMALL) == first


def test_trials_differ_and_share_chains_over_sizes_if_told_so():
    def rarest(**changes):
        return run(replace(SMALL, **changes))[0].rarest

    assert rarest(T=40) == rarest()
    assert rarest(T=40, shared=False) != rarest(shared=False)
    assert rarest(trial=1) != rarest()
    assert run(SMALL)[0].error != run(replace(SMALL, K=3))[0].error


def test_trials_use_the_estimates_that_users_get():
    y, _ = am.simulate(states=5, steps=60, realizations=6, noise=am.Binomial(0.5), seed=3)
    found = estimates(y, am.Binomial(0.5), 100, ("mom", "cls", "naive", "limle", "auto"))
    for name, P in found.items():
        expected = am.estimate(y, noise=am.Binomial(0.5), population=100, estimator=name).transition_matrix
        np.testing.assert_allclose(P, expected, atol=1e-12)


def test_a_state_that_was_never_seen_gets_the_mean_shares_as_its_row():
    y = np.zeros((1, 50, 3))
    y[..., :2] = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=50, seed=1).counts
    for P in estimates(y, am.Exact(), 100, ("mom", "cls", "naive", "auto")).values():
        np.testing.assert_allclose(P[2], y.mean((0, 1)) / 100)


def test_the_fixed_point_of_mom_is_the_mean_shares():
    y, _ = am.simulate(states=4, steps=30, population=50, seed=2, ensemble="regular", precision=2.0)
    P = estimates(y, am.Exact(), 50, ("mom",))["mom"]
    np.testing.assert_allclose(fixed_point(P), y.mean((0, 1)) / 50, atol=1e-10)


def test_an_interrupted_run_goes_on_and_gives_the_same_bytes(tmp_path, monkeypatch):
    grid = cells(load_experiment(tiny(tmp_path)))
    rows, seconds = runner.run_cells(grid, tmp_path / "whole", 2, silent)
    assert seconds > 0
    runner.write_csv(rows, tmp_path / "whole.csv")
    runner.run_cells(grid[2:5], tmp_path / "part", 1, silent)
    done = []
    monkeypatch.setattr(runner, "run", lambda cell: done.append(cell) or run(cell))
    runner.write_csv(runner.run_cells(grid, tmp_path / "part", 1, silent)[0], tmp_path / "part.csv")
    assert done == grid[:2] + grid[5:]
    assert (tmp_path / "part.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_a_kept_cell_is_not_used_for_another_config():
    assert SMALL.key() == replace(SMALL).key()
    keys = {replace(SMALL, **c).key() for c in ({}, {"T": 31}, {"seed": 2}, {"observations": NOISES[:1]})}
    assert len(keys) == 4


def test_wrong_configs_are_named_with_their_key(tmp_path, capsys):
    path = tmp_path / "bad.yaml"
    path.write_text(TINY.replace("[mom, cls, naive, auto]", "[mum]"), encoding="utf-8")
    assert main(["--configs", str(tmp_path), "--output", str(tmp_path)]) == 2
    assert "bad.yaml: estimators[0] is 'mum'" in capsys.readouterr().err
    path.write_text(TINY.replace("steps: [20, 40]", ""), encoding="utf-8")
    assert main(["--configs", str(tmp_path), "--output", str(tmp_path)]) == 2
    assert "or designs" in capsys.readouterr().err


def test_without_beam_the_beam_option_says_what_to_install(tmp_path, capsys):
    tiny(tmp_path)
    assert main(["--configs", str(tmp_path), "--output", str(tmp_path), "--beam"]) == 2
    assert "pip install apache-beam" in capsys.readouterr().err


def test_the_page_has_every_claim_and_its_figures(tmp_path):
    tiny(tmp_path)
    docs = tmp_path / "docs"
    arguments = ["--configs", str(tmp_path), "--output", str(tmp_path / "out"), "--docs", str(docs)]
    assert main([*arguments, "--processes", "1"]) == 0
    for name in ("figure2-binomial", "figure2-gaussian", "figure3b-parameters", "figure3c-stationary"):
        assert f"(paper/{name}.png)" in (docs / "paper.md").read_text(encoding="utf-8")
        assert 0 < (docs / "paper" / f"{name}.png").stat().st_size < 100 * 1024
        assert (tmp_path / "out" / f"{name}.svg").exists()


def power_law(noise, estimator, slope, level=0.0, ensemble="regular"):
    """Rows whose errors follow level + TK^slope."""
    return [
        Row("convergence", ensemble, 0, 100, T, 1, noise, estimator, 0.1, e, e, e, e)
        for T in (1_000, 10_000, 100_000)
        for e in [level + 10 * T**slope]
    ]


def test_claims_tell_rates_from_plateaus():
    by_title = {c.title: c for c in CLAIMS}
    rate, flat = by_title["mom, Gaussian 1: slope"], by_title["cls, Gaussian noise 1, 5: slope at large TK"]
    good = Trials.of(power_law("σ² = 1", "mom", -1) + power_law("σ² = 1", "cls", -1, 0.01))
    bad = Trials.of(power_law("σ² = 1", "mom", -0.5) + power_law("σ² = 1", "cls", -1))
    assert rate.ask(good, "median") == ("−1.00", True)
    assert not rate.ask(bad, "median")[1]
    assert flat.ask(good, "mean")[1]
    assert not flat.ask(bad, "mean")[1]
    rows = power_law("σ² = 1", "mom", -1) + power_law("σ² = 1", "mom", -0.5, ensemble="paper")
    (found,) = (f for f in findings(Trials.of(rows)) if f.claim is rate)
    assert found.verdict == "regular ensemble only"


@pytest.mark.xdist_group("paper")
def test_the_quick_version_finds_slopes_plateaus_and_orderings_as_claimed(tmp_path, capsys):
    assert main(["--quick", "--output", str(tmp_path)]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    assert said.count("  ok  ") >= 13
    assert "FAIL" not in said


def test_the_page_tells_the_slow_down_from_the_rate_of_common_states():
    rows = power_law("σ² = 5", "mom", -1)
    rows += [
        replace(r, common=r.error / 2, error=r.T**-0.3) for r in power_law("σ² = 5", "mom", -1, 0, "paper")
    ]
    text = " ".join(page(Trials.of(rows), [], []).split())
    assert "mom's slope is −0.30 by means and −0.30 by medians over the paper's ensemble" in text
    assert "share of at least 0.01, the slope is −1.00 by means" in text


def test_the_same_grid_runs_on_beam(tmp_path):
    pytest.importorskip("apache_beam")
    path = CONFIGS.parent.parent / "pipelines" / "paper.py"
    spec = importlib.util.spec_from_file_location("paper_pipeline", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    grid = cells(load_experiment(tiny(tmp_path)))[:3]
    module.on_beam(grid, tmp_path / "cells", ["--runner=DirectRunner"])
    kept = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "cells").iterdir()}
    assert {c.key() for c in grid} == set(kept)
