"""Answers that were wrong when goldens were recorded: here is what is right, by hand."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import aggmc_beam as am

from . import doors
from .beams import bounded
from .special import config, rows

STATES = ["home", "work", "über land"]


#: Ways to write the name of one realization in JSON, and how many realizations they are.
NAMES = {
    "7, 7.0 and text": (["7", "7.0", '"7"', '" 7 "'], 1),
    "zero below zero": (["0", "-0.0", '"0"'], 1),
    "a large number": (["1e25", "10000000000000000000000000", '"10000000000000000000000000"'], 1),
    "a truth value": (["true", '"true"'], 1),
    "a separator of files": (['"a\\u001c"', '"a"'], 2),
    "a fraction": (["0.1", '"0.1"', "0.10"], 1),
    "an object": (["{}", '{"a": 1}'], 0),
    "no number": (["NaN"], 0),
    "infinite": (["Infinity", "-Infinity"], 0),
    "a list": (["[1]"], 0),
    "nothing": (["null", '""', '" "'], 0),
}
#: Ways to write the first count of a record, and whether it is one.
COUNTS = {
    "text": ('"7"', True),
    "text with spaces": ('" 7 "', True),
    "text that is no number": ('"7_0"', False),
    "a truth value": ("true", False),
    "no number": ("NaN", False),
    "infinite": ("Infinity", False),
    "zero below zero": ("-0.0", True),
    "an object": ("{}", False),
    "nothing": ("null", False),
    "beyond 10^30": ("1e31", False),
}
#: How the lines reach the product. What is unusual must not change how its neighbours are read.
ROADS = ("lines", "a broken line first", "many lines", "beam rows")
#: These share their code with others, so a few cases are enough.
MORE = {
    ("a truth value", "beam files"),
    ("no number", "beam files"),
    ("text", "beam files"),
    ("a large number", "text"),
    ("an object", "text"),
    ("7, 7.0 and text", "a broken line last"),
}


def cases(values: dict) -> list[tuple[str, str]]:
    return [(case, road) for case in values for road in ROADS] + sorted(c for c in MORE if c[0] in values)


def line(name: str, t: int, counts: str = "5, 6, 7") -> str:
    return f'{{"realization": {name}, "time": {t}, "counts": [{counts}]}}'


def counts_of(row: dict) -> str:
    return ", ".join(str(row[s]) for s in STATES)


def plain_lines(K: int = 4, T: int = 12) -> list[str]:
    return [line(json.dumps(f"r{r['realization']}"), r["time"], counts_of(r)) for r in rows(K=K, T=T)]


def name_lines(case: str) -> list[str]:
    return [line(way, t) for way in NAMES[case][0] for t in range(6)]


def count_lines(case: str) -> list[str]:
    return [line('"x"', t, f"{COUNTS[case][0]}, 6, 7") for t in range(6)]


def ledger(lines: list[str], road: str, tmp: Path) -> tuple[int, int, int]:
    """How many of some lines were used, were repetitions, and were rejected; plain ones go with them."""
    if road in ("beam rows", "text"):
        return beam_ledgers(road)["\n".join(lines)]
    around = plain_lines(T=1500) if road == "many lines" else plain_lines()
    text = [*around[: len(around) // 2], *lines, *around[len(around) // 2 :]]
    broken = {"a broken line first": 0, "a broken line last": len(text)}.get(road)
    if broken is not None:
        text.insert(broken, "{")
    (tmp / "a.jsonl").write_text("\n".join(text) + "\n", encoding="utf-8")
    engine = ("--engine", "beam") if road == "beam files" else ()
    found = doors.run(config(str(tmp / "a.jsonl")), tmp, *engine)["points"]["ledger"]["rows"]
    return found["used"] - len(around), found["duplicate"], found["rejected"] - (broken is not None)


@cache
def beam_ledgers(road: str) -> dict[str, tuple[int, int, int]]:
    """The ledgers of all cases by their lines, each a group of one pipeline."""
    groups = [*map(name_lines, NAMES), *map(count_lines, COUNTS)]
    around, elements = plain_lines(), []
    for number, lines in enumerate(groups):
        text = [item.replace("{", f'{{"case": {number}, ', 1) for item in (*around, *lines)]
        elements += [json.loads(item) for item in text] if road == "beam rows" else text
    points = bounded(elements, group_by=["case"])["points"]
    rejected = [json.loads(item)[0] for item in points["rejected"]]
    rejected = Counter(str((json.loads(r) if isinstance(r, str) else r)["case"]) for r in rejected)
    found = {}
    for number, lines in enumerate(groups):
        counts = points["estimates"][f"{number}|"]["counts"]
        used = counts["records"] - len(around)
        found["\n".join(lines)] = used, counts.get("duplicates", 0), rejected[str(number)]
    return found


@pytest.mark.parametrize(("case", "road"), cases(NAMES))
def test_a_name_is_the_same_however_it_is_written_and_read(case, road, tmp_path):
    lines, number = name_lines(case), NAMES[case][1]
    expected = (6 * number, len(lines) - 6 * number, 0) if number else (0, 0, len(lines))
    assert ledger(lines, road, tmp_path) == expected


@pytest.mark.parametrize(("case", "road"), cases(COUNTS))
def test_a_count_is_one_or_none_however_it_is_read(case, road, tmp_path):
    expected = (6, 0, 0) if COUNTS[case][1] else (0, 0, 6)
    assert ledger(count_lines(case), road, tmp_path) == expected


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_names_with_a_point_and_a_broken_line_do_not_count_records_twice(place, tmp_path):
    found = [
        line(f"{r['realization']}.0", r["time"], ", ".join(str(r[s]) for s in STATES))
        for r in rows(K=5, T=40)
    ]
    text = found + found
    text.insert({"first": 0, "middle": 200, "last": 400}[place], "{")
    (tmp_path / "a.jsonl").write_text("\n".join(text), encoding="utf-8")
    points = doors.run(config(str(tmp_path / "a.jsonl")), tmp_path)["points"]
    assert points["ledger"]["rows"] == {"read": 401, "used": 200, "duplicate": 200, "rejected": 1, "late": 0}
    assert points["ledger"]["realizations"] == 5


@pytest.mark.parametrize("layout", ["wide", "long"])
@pytest.mark.parametrize("more", [1, 2])
@pytest.mark.parametrize("size", ["few", "many"])
def test_a_row_with_too_many_fields_is_rejected_though_its_last_column_is_not_used(
    size, more, layout, tmp_path
):
    K, T = (5, 40) if size == "few" else (5, 2000)
    found = rows(K=K, T=T)
    if layout == "wide":
        text = ["realization,time,home,work,über land,note"]
        text += [",".join(str(v) for v in r.values()) + ",x" for r in found]
    else:
        text = ["realization,time,state,count,note"]
        text += [f"{r['realization']},{r['time']},{s},{r[s]},x" for r in found for s in STATES]
    number = len(text) // 2
    fields = text[number].split(",")
    text[number] = ",".join([*fields[:2], *["1"] * more, *fields[2:]])
    (tmp_path / "a.csv").write_text("\n".join(text) + "\n", encoding="utf-8")
    input = {"layout": layout, **({"absent": "missing"} if layout == "long" else {})}
    points = doors.run(config(str(tmp_path / "a.csv"), input=input), tmp_path)["points"]
    assert ["a.csv", number + 1, "it has more fields than the header"] in points["rejected"]
    assert points["ledger"]["records"] == K * T - 1


def far(place: tuple[int, int, int] | None) -> np.ndarray:
    """Counts of about 10^11, of which one is 10^29."""
    y = np.random.default_rng(0).integers(1, 100, (4, 40, 2)) * 1e9
    if place is not None:
        y[place] = 1e29
    return y


@pytest.mark.parametrize("place", [(0, 0, 0), (0, 5, 1)], ids=["first", "within"])
@pytest.mark.parametrize("door", ["windows of an array", "windows of a frame", "groups of a frame"])
def test_one_absurd_count_does_not_spoil_windows_and_groups_without_it(door, place):
    found, expected = matrices(far(place), door), matrices(far(None), door)
    assert len(expected) == 4
    for key in list(expected)[1:]:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-6, atol=1e-6, err_msg=str(key))


def matrices(y: np.ndarray, door: str) -> dict[str, np.ndarray]:
    """By window of ten steps, or by realization as a group; the first has what is absurd."""
    known = {"noise": am.Gaussian(1.0), "population": 1e11, "estimator": "cls", "replicates": 4}
    k, t = (a.ravel() for a in np.indices(y.shape[:2]))
    frame = pl.DataFrame({"realization": k, "time": t, "a": y[..., 0].ravel(), "b": y[..., 1].ravel()})
    if door == "groups of a frame":
        frame = frame.with_columns(group="realization")
        found = am.estimate(frame, states=["a", "b"], group_by="group", **known)
        return {group: e.transition_matrix for (group,), e in found.items()}
    data = y if door == "windows of an array" else frame
    found = am.estimate(data, states=["a", "b"], chain=am.Window(10), **known)
    return {str(e.cell): e.transition_matrix for e in found}


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_compressed_files_are_read(format, tmp_path):
    found = rows()
    if format == "csv":
        text = [",".join(found[0])] + [",".join(str(v) for v in r.values()) for r in found]
    else:
        text = [json.dumps(r) for r in found]
    data = ("\n".join(text) + "\n").encode()
    points = []
    for name, content in ((f"a.{format}", data), (f"b.{format}.gz", gzip.compress(data))):
        (tmp_path / name).write_bytes(content)
        points.append(doors.run(config(str(tmp_path / name)), tmp_path / "run")["points"])
    assert points[1] == points[0]
