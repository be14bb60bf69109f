"""Races of `make bench`: nobody is timed whose sums are wrong, and rounds to warm up do not count."""

import numpy as np
import pytest

from benchmarks.speed.data import Data, wrong
from benchmarks.speed.harness import LONG, ROUNDS, WARM, Bench, Contestant, Row
from benchmarks.speed.irregular import KINDS, Irregular
from benchmarks.speed.ours import sums
from benchmarks.speed.sums import Sums


class Stopwatch:
    """In place of a worker: what each contestant finds, and how long each of its runs takes."""

    def __init__(self, found, seconds):
        self.found, self.seconds, self.runs = found, seconds, {}

    def run(self, contestant):
        name = contestant.function
        self.runs[name] = self.runs.get(name, 0) + 1
        took = self.seconds[name](self.runs[name])
        return {"seconds": took, "cpu": took, "sums": self.found[name]}


def race(tmp_path, found, seconds):
    data = Data(2, 5, 3, "sorted", tmp_path)
    bench = Bench(tmp_path)
    bench.workers["any"] = Stopwatch({name: change(data.sums) for name, change in found.items()}, seconds)
    best = bench.race(data, {name: Contestant("any", name) for name in found})
    return best, bench.workers["any"].runs


def test_who_finds_wrong_sums_is_not_timed(tmp_path):
    changes = {
        "right": lambda s: s,
        "transposed": lambda s: Sums(s.pairs, s.mean, s.cross.T),
        "short": lambda s: Sums(s.pairs - 1, s.mean, s.cross),
        "away": lambda s: Sums(s.pairs, s.mean + 1e-3, s.cross),
    }
    best, runs = race(tmp_path, changes, dict.fromkeys(changes, lambda _: 0.1))
    assert best == {"right": 0.1, "transposed": None, "short": None, "away": None}
    assert runs == {"right": 1 + WARM + ROUNDS, "transposed": 1, "short": 1, "away": 1}


def test_the_best_of_rounds_after_warming_up_counts(tmp_path):
    seconds = {
        "short": lambda run: 0.01 if run <= 1 + WARM else 0.2 + run / 100,
        "longer": lambda run: 0.7 if run == 1 else 0.6 + run / 100,
        "long": lambda run: LONG + run,
    }
    best, runs = race(tmp_path, dict.fromkeys(seconds, lambda s: s), seconds)
    assert best == pytest.approx({"short": 0.2 + (2 + WARM) / 100, "longer": 0.62, "long": LONG + 1})
    assert runs == {"short": 1 + WARM + ROUNDS, "longer": 1 + ROUNDS, "long": 1}


@pytest.mark.parametrize(
    ("goal", "measured", "verdict"),
    [
        ("<= 2", 2.0, "pass"),
        ("<= 2", 2.01, "MISS"),
        (">= 3", 2.99, "MISS"),
        ("< 0.3", 0.2, "pass"),
        ("9 to 11", 8.9, "MISS"),
        ("9 to 11", 11.0, "pass"),
        (None, 5.0, ""),
        ("<= 2", None, "WRONG"),
    ],
)
def test_a_goal_is_met_or_missed(goal, measured, verdict):
    assert Row("what", "case", goal, measured).verdict == verdict


@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_irregular_data_are_found(kind, tmp_path):
    data = Irregular(12, 50, 3, "sorted", tmp_path, kind)
    found = sums(str(data.path()), data.states)
    assert wrong(found, data.sums) is None
    assert (data.records < 600) == (kind == "missing")
    assert np.isfinite(found.cross).all()
