"""Which realizations must meet: found from what the pieces of the input cover."""

from __future__ import annotations

import numpy as np
import pytest
from combine_checks import check_combine_fn

from aggmc_beam.beam import files, small
from aggmc_beam.beam.coders import CoverageCoder, VerdictCoder
from aggmc_beam.beam.combiners import CoverageFn
from aggmc_beam.beam.coverage import MANY, Coverage, Covering, Verdict
from aggmc_beam.beam.values import Reach

NAMES = ("a", "b", "ü", "d", "e")


def covered(rows):
    """The coverage of some (name, time)."""
    names = tuple(dict.fromkeys(name for name, _ in rows))
    covering = Covering()
    for part in np.array_split(np.arange(len(rows)), 2):
        key = np.array([names.index(rows[i][0]) for i in part], np.int64)
        covering.add(key, np.array([rows[i][1] for i in part], np.int64))
    return covering.coverage(names).reaching(Reach(frozenset(names), 0, 9, (0, 0)))


def steps(coverage):
    return {
        (coverage.names[k], t)
        for k, a, b in zip(coverage.key, coverage.start, coverage.stop, strict=True)
        for t in range(a, b + 1)
    }


@pytest.mark.parametrize("seed", range(20))
def test_a_realization_meets_exactly_if_one_of_its_steps_is_held_twice(seed):
    rng = np.random.default_rng(seed)
    pieces = []
    for _ in range(4):
        rows = {(NAMES[rng.integers(5)], int(t)) for t in rng.integers(0, 40, 4)}
        pieces.append(sorted(rows) * (1 + int(rng.random() < 0.1)))
    held = [row for piece in pieces for row in piece]
    twice = {name for name, t in held if held.count((name, t)) > 1}
    whole = CoverageFn().merge_accumulators(map(covered, pieces))
    assert Verdict.of(whole).meets == twice
    assert steps(whole) == {(name, t) for name, t in held if name not in twice}


def test_scattered_steps_meet_and_dense_ones_do_not():
    rng = np.random.default_rng(1)
    dense = [("dense", int(t)) for t in rng.permutation(200)]
    scattered = [("scattered", int(t)) for t in rng.permutation(400)[:200]]
    assert Verdict.of(covered(dense + scattered)).meets == {"scattered"}


def test_coverage_fn_bears_what_every_combine_fn_must():
    pieces = [
        covered([("a", 0), ("a", 1), ("b", 5)]),
        covered([("a", 2), ("ü", 7)]),
        covered([("b", 5), ("b", 6)]),
        covered([("d", -3), ("a", 9)]),
    ]

    def same(found, expected):
        assert found == expected

    check_combine_fn(CoverageFn(), pieces, same)


def test_coders_keep_coverage_and_verdicts():
    whole = covered([("a", 0), ("b", 5), ("b", 5)])
    found = CoverageCoder().decode(CoverageCoder().encode(whole))
    assert steps(found) == {("a", 0)}
    assert Verdict.of(found) == Verdict.of(whole)
    for verdict in (Verdict.of(whole), Verdict(whole.reach, None)):
        assert VerdictCoder().decode(VerdictCoder().encode(verdict)) == verdict


def test_a_bucket_with_too_many_names_meets_as_a_whole():
    names = tuple(str(k) for k in range(MANY + 1))
    assert Verdict.of(Coverage(names, np.ones(len(names), bool))).meets is None


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_input_is_small_up_to_so_many_values_and_far_files_never_are(suffix, tmp_path, monkeypatch):
    import frames

    from aggmc_beam.config import read_config

    path = frames.save(frames.wide(frames.counts(K=3, T=30)), tmp_path / f"data.{suffix}")
    plan, found = files.open_plan(read_config(frames.config(path)))
    pieces = list(files.split_file(plan, found[0]))
    monkeypatch.setattr(small, "SMALL", 2000)
    assert small.is_small(plan, pieces)
    assert not small.is_small(plan, [files.Piece(files.File(0, "gs://bucket/data.csv"))])
    monkeypatch.setattr(small, "SMALL", 3 * 30 * 3)
    assert not small.is_small(plan, pieces)


def test_parquet_is_split_by_row_groups_and_every_row_is_in_one_piece(tmp_path, monkeypatch):
    import frames

    from aggmc_beam.config import read_config

    path = tmp_path / "data.parquet"
    frames.wide(frames.counts(K=3, T=30)).write_parquet(path, row_group_size=20)
    monkeypatch.setattr(files, "PIECE", 3 * 35)
    plan, found = files.open_plan(read_config(frames.config(path)))
    pieces = list(files.split_file(plan, found[0]))
    assert [(p.start, p.rows) for p in pieces] == [(0, 40), (40, 40), (80, 10)]
    rows = [r for p in pieces for part in files.read_rows(plan, p) for r in part["__row"].to_list()]
    assert rows == list(range(1, 91))
