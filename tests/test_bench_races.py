"""Races of `make bench`: nobody is timed whose sums are wrong, and rounds to warm up do not count."""

import time

import numpy as np
import pytest

from benchmarks.speed import local, table, user_script
from benchmarks.speed.data import Data
from benchmarks.speed.harness import LONG, ROUNDS, WARM, Bench, Contestant, Row, Worker
from benchmarks.speed.ours import sums
from benchmarks.speed.sums import Sums, wrong


class Stopwatch:
    """In place of a worker: what each contestant finds, and how long each of its runs takes."""

    def __init__(self, found, seconds):
        self.found, self.seconds, self.runs = found, seconds, {}
        self.process = self

    def poll(self):
        return None

    def run(self, contestant, check=True):
        name = contestant.function
        self.runs[name] = self.runs.get(name, 0) + 1
        took = self.seconds[name](self.runs[name])
        if isinstance(took, str):
            return {"error": took}
        return {"seconds": took, "cpu": 2 * took, **({"sums": self.found[name]} if check else {})}


def race(tmp_path, found, seconds):
    right = Data(tmp_path, 2, 5, 3).sums()
    bench = Bench(tmp_path)
    bench.workers["any"] = Stopwatch({name: change(right) for name, change in found.items()}, seconds)
    best = bench.race("a case", {name: Contestant("any", name) for name in found}, right)
    return bench, best, bench.workers["any"].runs


def test_who_finds_wrong_sums_or_fails_is_not_timed(tmp_path):
    changes = {
        "right": lambda s: s,
        "transposed": lambda s: Sums(s.pairs, s.gram, s.cross.swapaxes(1, 2)),
        "short": lambda s: Sums(s.pairs - 1, s.gram, s.cross),
        "away": lambda s: Sums(s.pairs, s.gram * (1 + 1e-6), s.cross),
        "failed": lambda s: s,
    }
    times = dict.fromkeys(changes, lambda _: 0.1) | {"failed": lambda _: "InputError: refused"}
    bench, best, runs = race(tmp_path, changes, times)
    assert (best["right"].seconds, best["right"].cpu, best["right"].fault) == (0.1, 0.2, None)
    assert runs == {"right": 1 + WARM + ROUNDS, "transposed": 1, "short": 1, "away": 1, "failed": 1}
    for name, why in {"transposed": "cross", "short": "pairs", "away": "gram", "failed": "refused"}.items():
        assert why in best[name].fault
        assert bench.ratio(best["right"], best[name])["measured"] is None
    assert bench.ratio(best["right"], best["right"]) == {
        "measured": 1.0,
        "processor": 1.0,
        "note": "0.1 s, 0.1 s",
    }


def test_the_best_of_rounds_after_warming_up_counts(tmp_path):
    seconds = {
        "short": lambda run: 0.01 if run <= 1 + WARM else 0.2 + run / 100,
        "longer": lambda run: 0.7 if run == 1 else 0.6 + run / 100,
        "long": lambda run: LONG + run,
    }
    _, best, runs = race(tmp_path, dict.fromkeys(seconds, lambda s: s), seconds)
    found = {name: took.seconds for name, took in best.items()}
    assert found == pytest.approx({"short": 0.2 + (2 + WARM) / 100, "longer": 0.62, "long": LONG + 1})
    assert runs == {"short": 1 + WARM + ROUNDS, "longer": 1 + ROUNDS, "long": 1}


def test_a_worker_that_takes_too_long_or_too_much_memory_is_stopped(tmp_path):
    sleep = Contestant("ours", "command", {"arguments": ["-c", "import time; time.sleep(60)"]}, sums=False)
    for limits, why in (({"limit": 0.5}, "> 0 s"), ({"memory": 1.0}, "out of memory")):
        started = time.monotonic()
        worker = Worker("ours", tmp_path)
        assert why in worker.run(sleep, **limits)["error"]
        worker.close()
        assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("goal", "measured", "verdict"),
    [
        ("<= 2", 2.0, "pass"),
        ("<= 2", 2.01, "MISS"),
        ("< 0.3", 0.2, "pass"),
        ("< 0.3", 0.3, "MISS"),
        (None, 5.0, ""),
        ("<= 2", None, "MISS"),
    ],
)
def test_a_goal_is_met_or_missed(goal, measured, verdict):
    row = Row("what", "case", "peer", goal, measured)
    assert row.verdict == verdict
    assert table.line(row).count("|") == len(table.HEAD) + 1


SMALL = {
    "10 long realizations": (2, 300),
    "realizations of two steps": (60, 2),
    "3,000 groups": (24, 20),
}


@pytest.mark.parametrize("name", local.CASES)
def test_all_find_the_same_sums_in_every_case(name, tmp_path):
    shape = dict(local.CASES[name][0])
    shape["K"], shape["T"] = SMALL.get(name, (24, 60))
    shape["groups"] = min(shape.get("groups", 1), shape["K"] // 2)
    shape["files"] = min(shape.get("files", 1), shape["K"])
    data = Data(tmp_path, S=3, **shape)
    right = data.sums()
    assert right.pairs.sum() > 0
    assert len(right.pairs) >= data.groups
    assert wrong(Sums(*user_script.script(**data.script())), right) is None
    assert wrong(sums(data.config())(), right) is None


def test_the_definition_counts_pairs_by_hand(tmp_path):
    data = Data(tmp_path, 4, 6, 2, chain="cycle", groups=2, gaps=True)
    pairs = [
        sum(data.seen[k, t] and data.seen[k, t + 1] for k in range(4) if data.group_of[k] == g)
        for g in range(2)
        for t in range(5)
    ]
    np.testing.assert_array_equal(data.sums().pairs, [n for n in pairs if n])
