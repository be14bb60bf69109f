"""The report and the figures, without a browser."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.report import render, write_report
from aggmc_beam.report.outline import outline

pytest.importorskip("matplotlib", reason="the report needs matplotlib: pip install aggmc-beam[report]")

SCRIPT = "<script>alert(1)</script>"
STATES = ("home", "work", "transit", "other")


def an_estimate(states=STATES, seed=0, **changes):
    """A dict as `Estimate.to_dict` makes it, of known content, without estimating anything."""
    names = [f"s{k}" for k in range(states)] if isinstance(states, int) else list(states)
    S = len(names)
    rng = np.random.default_rng(seed)
    P = 0.5 * np.eye(S) + 0.5 * rng.dirichlet(np.full(S, 0.4), S)
    naive = rng.dirichlet(np.ones(S))
    made = {
        "group": None,
        "window": None,
        "cell": None,
        "states": names,
        "estimator": "simplex",
        "transition_matrix": P.tolist(),
        "standard_error": np.full((S, S), 0.02).tolist(),
        "lower": np.clip(P - 0.04, 0, 1).tolist(),
        "upper": np.clip(P + 0.04, 0, 1).tolist(),
        "level": 0.95,
        "degrees": 31,
        "stationary": rng.dirichlet(np.ones(S)).tolist(),
        "population": 1000.0,
        "noise": {"model": "binomial", "alpha": 0.5},
        "baselines": {"identity": np.eye(S).tolist(), "naive": np.tile(naive, (S, 1)).tolist()},
        "counts": {"records": 4320, "pairs": 4140, "realizations": 180, "duplicates": 7, "gaps": 0},
        "diagnostics": {
            "rows": [],
            "interval": {"of": "mom", "groups": 32, "cut": True, "centre": P.tolist()},
            "population": {"method": "given"},
            "outside": 0,
            "condition": 116.4,
        },
        "refresh": 0,
    }
    return made | changes


class Texts(HTMLParser):
    """The text of a page as a reader sees it, and the names of its elements and attributes."""

    def __init__(self, page):
        super().__init__()
        self.text, self.tags, self.attributes, self.inside = "", [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.inside = tag

    def handle_data(self, data):
        if self.inside not in ("script", "style"):
            self.text += data + " "

    def handle_endtag(self, tag):
        self.inside = ""


def seen(*args):
    return " ".join(Texts(render(*args)).text.split())


def test_the_page_says_what_was_assumed_found_and_used():
    text = seen([an_estimate()], {"name": "mobility", "chain": "stationary"}, {"files": 12})
    for part in ("mobility", "home", "Everyone is seen with probability 0.5", "1,000 individuals"):
        assert part in text
    for part in ("4,320 records", "7 second records", "files 12", "chain: stationary", "Naive"):
        assert part in text


def test_the_table_holds_every_value_and_interval():
    estimate = an_estimate()
    text = seen([estimate])
    for key in ("transition_matrix", "lower", "upper"):
        assert all(f"{v:.4f}" in text for row in estimate[key] for v in row)


def test_markup_in_any_text_stays_text():
    evil = an_estimate(states=(SCRIPT, "</script><b>", "a & b", "$x_{1"), group={SCRIPT: SCRIPT})
    evil["diagnostics"] = {SCRIPT: {SCRIPT: [SCRIPT]}, "rows": [{"flag": SCRIPT, "why": SCRIPT}]}
    evil |= {"estimator": SCRIPT, "noise": {"model": SCRIPT}, "counts": {SCRIPT: SCRIPT}}
    page = render([evil, {**evil, "group": None}], {"name": SCRIPT, SCRIPT: [SCRIPT]}, {SCRIPT: {SCRIPT: 1}})
    tags = Texts(page)
    assert tags.tags.count("script") == 2
    assert tags.text.count(SCRIPT) > 8
    assert "alert(1)</script>" not in page


def test_the_policy_allows_one_script_and_one_style_by_hash():
    page = render([an_estimate()])
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page).group(1)
    assert policy.startswith("default-src &#x27;none&#x27;")
    assert "unsafe" not in policy
    assert policy.count("sha256-") == 2
    names = Texts(page).attributes
    assert not [a for a in names if a.startswith("on") or a in ("style", "src", "href", "xlink:href")]


def test_the_page_has_no_address_of_anything_else():
    page = render([an_estimate()], {"name": "x"})
    outside = set(re.findall(r"(?:https?:)?//[\w.]+", page)) - {"http://www.w3.org"}
    assert not [u for u in outside if "." in u]


@pytest.mark.parametrize(
    "name", ["日本語 ünï", "a\nb", "nul\x00", "\ud800 lone", "x" * 400, "", "\u202eabc", "$a$"]
)
def test_any_name_of_a_state_can_be_shown(name, tmp_path):
    write_report([an_estimate(states=(name, "b"))], tmp_path / "r.html")
    assert "<svg" in (tmp_path / "r.html").read_text("utf-8")


def test_unknown_and_odd_diagnostics_are_shown_and_break_nothing():
    odd = {"rows": [3, {"flag": "new"}], "interval": None, "outside": None, "condition": None}
    odd |= {
        "population": "guessed",
        "drift": 3,
        "new_key": {"deep": [{"x": None}]},
        "scores": {"naive": 0.123},
    }
    odd |= {"choice": {"form": "gmm", "why": "lowest loss"}, "noise_test": {"accepted": False, "J": 99.0}}
    text = seen([an_estimate(diagnostics=odd)])
    for part in ("New key", "gmm. Lowest loss.", "0.123", "99", "Check the noise model", "guessed"):
        assert part in text


def test_what_auto_found_is_said_in_words():
    test = {"assumed": "known", "J": 99.0, "degrees": 10, "limit": 30.0, "accepted": False}
    drift = {"statistic": 5.1, "limit": 3.9, "tests": 4, "method": "t", "implied_bias": 0.02, "raised": True}
    choice = {"estimator": "gmm", "form": "detrended", "why": "means move", "noise_test": {"known": test}}
    scores = {"estimate": 0.03, "identity": 0.01, "naive": 0.2}
    found = {"choice": choice, "drift": drift, "scores": scores}
    text = seen([an_estimate(diagnostics=found)])
    assert "do not agree with that (J = 99, limit 30)" in text
    assert "Mean shares change with time (largest t 5.1, limit 3.9)" in text
    assert "gmm, detrended. Means move." in text
    assert "lower is better: identity 0.01, estimate 0.03, naive 0.2" in text
    assert "Identity predicts better" in text


def test_missing_parts_leave_a_page():
    bare = {"states": ["a", "b"], "transition_matrix": [[1, 0], [None, None]]}
    text = seen([bare])
    assert "unknown" in text
    assert "No intervals could be computed" in text


def test_a_state_never_seen_is_unknown_and_said_to_be():
    estimate = an_estimate()
    for key in ("transition_matrix", "standard_error", "lower", "upper"):
        estimate[key][3] = [None] * 4
    why = "state 'other' was never seen, so nothing is known of moves from it"
    estimate["diagnostics"]["rows"] = [{"state": "other", "flag": "never-seen", "why": why}]
    text = seen([estimate])
    assert "? ? ? ?" in text
    assert why[1:] in text
    assert "▲ act" in text


def test_groups_with_other_states_share_one_page():
    text = seen([an_estimate(states=("a", "b"), group="x"), an_estimate(states=("b", "c"), group="y")])
    assert "3 states" in text
    assert "2 groups" in text


def test_a_run_without_estimates_still_has_its_ledger():
    text = seen([], {"name": "empty"}, {"rejected": 12})
    assert "No estimate could be made" in text
    assert "rejected 12" in text


def test_the_balance_of_a_run_is_told_in_a_sentence():
    rows = {"read": 1200, "used": 1100, "duplicate": 60, "rejected": 30, "late": 10}
    told = "1,200 rows read: 1,100 used, 60 duplicate, 30 rejected, 10 late."
    assert told in seen([], None, {"rows": rows})
    for other in ({**rows, "read": "many"}, 12, {"read": 12}):
        assert "rows read" not in seen([], None, {"rows": other})


@pytest.mark.parametrize(
    ("estimates", "limit"),
    [
        ([an_estimate(states=100)], 1.5),
        ([an_estimate(states=10, seed=k, cell=k) for k in range(168)], 1.0),
        ([an_estimate(states=10, seed=k, group={"r": k}) for k in range(50)], 0.6),
        ([an_estimate(states=100, group={"r": k}) for k in range(12)], 3.0),
    ],
    ids=["100 states", "168 cells", "50 groups", "100 states in 12 groups"],
)
def test_large_pages_stay_small(estimates, limit):
    assert len(render(estimates).encode()) < limit * 1e6


def test_more_estimates_than_fit_are_thinned_and_that_is_said():
    text = seen([an_estimate(states=100, group={"r": k}) for k in range(30)])
    assert re.search(r"shows \d+ of 30 estimates", text)


def test_entries_that_change_are_drawn_with_bands():
    cells = [an_estimate(seed=k, cell=k) for k in range(24)]
    page = render(cells, {"chain": {"cycle": 24}})
    assert "Selected entries over phases" in page
    assert page.count("data-series=") == 4
    assert page.count('data-role="band"') == 4


def test_the_embedded_numbers_are_those_of_the_estimate():
    estimate = an_estimate()
    data = json.loads(re.search(r'id="data">(.*?)</script>', render([estimate])).group(1))
    P = np.array(data["items"][0]["P"]).reshape(4, 4) / data["unit"]
    np.testing.assert_allclose(P, estimate["transition_matrix"], atol=5.1e-5)


def test_the_same_estimates_give_the_same_bytes(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert render([an_estimate()]) == render([an_estimate()])


def test_a_report_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(am.InputError, match=r"estimates\[0\]"):
        write_report([{"no": "estimate"}], path)
    assert path.read_text() == "old"
    write_report([an_estimate()], path)
    assert path.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert list(tmp_path.iterdir()) == [path]


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(am.InputError, match=r"pip install aggmc-beam\[report\]"):
        render([an_estimate()])


def test_importing_the_package_does_not_import_matplotlib():
    import subprocess

    code = "import sys, aggmc_beam, aggmc_beam.report; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def simulated(chain="stationary", states=STATES):
    P = [[0.8, 0.1, 0.1, 0], [0.1, 0.8, 0.1, 0], [0.3, 0.3, 0.4, 0], [0, 0.2, 0, 0.8]]
    y, _ = am.simulate(P, steps=24, population=1000, realizations=30, noise=am.Binomial(0.5), seed=1)
    noise = am.Binomial(0.5)
    return am.estimate(y, states=states, noise=noise, population=1000, estimator="simplex", chain=chain)


def test_an_estimate_draws_itself_as_a_heat_map(tmp_path):
    figure = simulated(states=("home", "$x", "a_b", "<c>")).plot()
    labels = [t.get_text() for t in figure.axes[0].get_xticklabels()]
    assert labels == ["home", "$x", "a_b", "<c>"]
    figure.savefig(tmp_path / "matrix.png")
    assert (tmp_path / "matrix.png").stat().st_size > 5000


def test_an_estimate_draws_into_given_axes():
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots(1, 2)
    assert simulated().plot(ax=axes[1]) is figure
    assert axes[1].get_ylabel() == "from"
    assert axes[0].get_ylabel() == ""


def test_estimates_draw_their_entries_over_the_cells(tmp_path):
    figure = simulated(chain=am.Cycle(12)).plot()
    assert len(figure.axes) == 6
    figure.savefig(tmp_path / "series.png")


def test_real_estimates_make_a_report(tmp_path):
    estimates = simulated(chain=am.Window(12, 6))
    write_report([e.to_dict() for e in estimates], tmp_path / "r.html")
    assert "over windows" in (tmp_path / "r.html").read_text("utf-8")


def test_the_outline_of_a_config_is_yaml():
    yaml = pytest.importorskip("yaml")
    config = {
        "a": {"b": [1, 2.5, None, True], "c": "yes", "d": []},
        "e": [{"f": "x: y"}, {"g": "1"}],
        "h": {},
    }
    assert yaml.safe_load(outline(config)) == config


def test_what_follows_and_changes_are_shown():
    P, Q = [[0.9, 0.1], [0.3, 0.7]], [[0.6, 0.4], [0.3, 0.7]]
    y, _ = am.simulate([P] * 200 + [Q] * 199, realizations=5, seed=1)
    single = am.estimate(y[:, :200], states=["in", "out"])
    page = render([single.to_dict()])
    stay = single.follows().mean_stay()
    assert f"{stay.value[0]:.4g}<small>{stay.lower[0]:.4g} to {stay.upper[0]:.4g}</small>" in page
    assert 'id="change"' not in page
    windows = am.estimate(y, states=["in", "out"], chain=am.Window(50, every=25))
    page = render([e.to_dict() for e in windows])
    # Those of them that do not overlap, from the last one back.
    assert re.search("The matrix changed from (175|225) on", page)
    still = am.estimate(y[:, :200], states=["in", "out"], chain=am.Window(25))
    assert "No change is shown" in render([e.to_dict() for e in still])
