"""Does every way of reading and summing give what the definition gives? `fuzz/differential.py [--cases N]`.

Inputs are drawn by number: files of records in any layout, with repetitions, contradictions, gaps, odd values and
bytes that are changed. Each row is a case: what `read_record` finds in it, one at a time, is what the vectorised
reader must find in CSV, JSON lines and Parquet, in pieces of any size. The sums over the records, by brute force in
extended precision, are what each engine must make of them:

    local       of one file, of several, resumed from bytes, merged from parts, in any order
    Beam        of files, in shards that come in any order; of messages, over encoded accumulators; as a stream, by
                bundles

Now and then a whole run of both engines is compared, estimates and all. A disagreement is printed with the number of
its input, which `--first NUMBER --cases 1` draws again.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from oracle import assert_same_moments, moments

from aggmc_beam.config import read_config
from aggmc_beam.errors import InputError, Rejected
from aggmc_beam.ledger import Ledger
from aggmc_beam.local import csvrows, text
from aggmc_beam.local.engine import Summing
from aggmc_beam.local.plan import Plan
from aggmc_beam.records import Schema, parse_json, read_record
from aggmc_beam.sums.state import AggregationState

#: Values that are no plain count, time or name, or only nearly.
ODD = (
    "", " ", "a", " a ", "7", "7.0", " 7.00", "-0", "-0.0", "007", "1e25", "1e31", "NaN", "inf", "true", "{}", "[1]",
    "x\x1cy", "\ufffd", "ü", "9" * 25, "9" * 40, "1.10", "1_0", "٣", "\u2003b", "4,534", "4 534", "4'534",
    "12.5 %", "<5", "fewer than 10", "-", "NA", "*", "c", "1e3", "-3", "−3", "0.1", "+5", ".5", "5.", "0x10", "'5",
    "2026-01-01", "2026-01-01T05:00Z", "2026-01-01 05:00:00+01:00", "2026-01", "2026-W05", "31.01.2026", "01/02/2026",
    "a, b", 'say "5"', "1e-320", "123456789.125",
)  # fmt: skip
#: What takes the place of bytes of a file.
BYTES = (b'"', b",", b"\n", b"{", b"]", b"1", b" ", b"\xff", b"e", b".", b"-", b"\\", b":", b"\t", b"'", b"%")
#: How many of the ways to the sums each file takes, drawn anew for each.
TAKEN = 1
#: One input in so many goes through both engines as a whole.
WHOLE = 1000
#: Beside larger counts the digits of usual ones are lost, in sums as in the brute force.
LARGEST = 1e6
Key = tuple[tuple[str, ...], str, int]


class Disagreement(Exception):
    """Two ways give two answers."""


@dataclass
class Case:
    """Rows of text, and what a config says of them. `data` are the bytes of a file that were changed, by format."""

    rng: random.Random
    layout: str
    states: tuple[str, ...]
    columns: list[str]
    rows: list[dict[str, str]]
    plain: dict[str, Any]
    data: tuple[str, bytes] | None = None
    compared: int = 0


def draw(seed: int, number: int) -> Case:
    """An input by its number."""
    rng = random.Random(f"{seed}:{number}")
    states = tuple(rng.sample(["a", "b", "ü", "1", "d"], rng.randint(2, 4)))
    layout = rng.choice(["wide", "wide", "lists", "long"])
    grouped, stamps, gaps = (rng.random() < p for p in (0.3, 0.25, 0.2))
    population = layout != "long" and rng.random() < 0.1
    counts = {"wide": list(states), "lists": ["counts"], "long": ["state", "count"]}[layout]
    columns = [*(["g"] if grouped else []), "realization", "time", *counts, *(["n"] if population else [])]
    rng.shuffle(columns)
    names = rng.choice([[*"01234"], ["r1", " b ", "ü", "x y"], ["007", "7", "1e5", "-1", "8"]])
    rows = []
    for k, name in enumerate(names):
        skips = rng.random() * 0.3
        for t in range(rng.randint(3, 60)):
            if rng.random() < skips:
                continue
            at = f"2026-01-{1 + t // 24:02}T{t % 24:02}:00:00Z" if stamps else str(t - 3)
            row = {"realization": name, "time": at, "g": "xy"[k % 2], "n": str(100 + k)}
            numbers = [str(rng.randint(0, 300)) for _ in states]
            if gaps and rng.random() < 0.3:
                numbers[rng.randrange(len(states))] = rng.choice(["", "NA", "<5"])
            rows += _rows(row, layout, states, numbers)
    some = [dict(row) for row in rows if rng.random() < 0.15]
    for row in some:  # again, some with another value
        if rng.random() < 0.4:
            row[rng.choice(columns)] = str(rng.randint(0, 9))
    rows = [dict(row) for row in [*rows, *some]]
    dirt = rng.choice([0, 0.05, 0.3])
    for row in rows:
        if rng.random() < dirt:
            row[rng.choice(columns)] = rng.choice(ODD)
    if rng.random() < 0.7:
        rng.shuffle(rows)
    source: dict[str, Any] = {"layout": "long" if layout == "long" else "wide", "columns": {}}
    if layout == "long":
        source["absent"] = rng.choice(["zero", "missing"])
    elif layout == "lists":
        source["columns"]["counts"] = "counts"
    if population:
        source["columns"]["population"] = "n"
    if stamps:
        source["step"] = "1h"
    if gaps and layout != "long" and not population:
        source["missing"] = "pairwise"
    plain = {
        "states": list(states),
        "input": source,
        "noise": {"model": "gaussian", "sigma": 1.0},
        "estimator": "mom",
        "max_rejected": 1.0,
        "uncertainty": {"replicates": rng.choice([2, 5]), "block": 4},
    }
    if not population:
        plain["population"] = 900
    if grouped:
        plain["group_by"] = ["g"]
    case = Case(rng, layout, states, columns, rows, plain)
    if layout != "long" and rng.random() < 0.4:
        kind = rng.choice(["csv", "jsonl"])
        head, body = written(case, rows, kind)
        case.data = kind, head + changed(body, rng)
    return case


def _rows(
    row: dict[str, str], layout: str, states: Sequence[str], numbers: list[str]
) -> list[dict[str, str]]:
    if layout == "wide":
        return [row | dict(zip(states, numbers, strict=True))]
    if layout == "lists":
        return [{**row, "counts": f"[{', '.join(numbers)}]"}]
    return [{**row, "state": s, "count": n} for s, n in zip(states, numbers, strict=True)]


def changed(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 5)):
        at, what = rng.randrange(len(data) + 1), rng.choice(BYTES)
        data = rng.choice(
            [
                data[:at] + what + data[at:],
                data[:at] + data[at + 1 :],
                data[:at] + what + data[at + 1 :],
                data[:at] + data[at + rng.randint(1, 9) :],
                data[:at] + data[max(0, at - 9) :],
            ]
        )
    return data


def written(case: Case, rows: Sequence[Mapping[str, str]], kind: str) -> tuple[bytes, bytes]:
    """A header and rows as the bytes of a file."""
    if kind == "jsonl":
        return b"", "".join(json.dumps(_json(row, case)) + "\n" for row in rows).encode()
    if kind == "parquet":
        out = io.BytesIO()
        values = {c: [row[c] for row in rows] for c in case.columns}
        pl.DataFrame(values, dict.fromkeys(case.columns, pl.String)).write_parquet(out)
        return b"", out.getvalue()
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(case.columns)
    writer.writerows([row[c] for c in case.columns] for row in rows)
    head, body = out.getvalue().encode().split(b"\n", 1)
    return head + b"\n", body


def _json(row: Mapping[str, str], case: Case) -> dict[str, Any]:
    """Numbers as numbers, now and then, and lists as lists."""
    found: dict[str, Any] = {}
    for column in case.columns:
        value = row[column]
        if column == "counts" and value.startswith("["):
            parts = [part.strip() for part in value[1:-1].split(",")]
            found[column] = [int(p) if p.isascii() and p.isdigit() else p for p in parts]
        elif value.isascii() and value.isdigit() and len(value) < 5 and str(int(value)) == value:
            found[column] = int(value)
        else:
            found[column] = value
    return found


# The definition


@dataclass
class Expected:
    """What the definition makes of rows: records by row, rows refused, the ledger, and sums by group."""

    records: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    kept: dict[Key, np.ndarray] = field(default_factory=dict)
    is_told_apart: bool = True
    """Whether no record came again with other counts, so that any order gives the same."""


def define(rows: Sequence[tuple[int, Any]], schema: Schema, absent: str) -> Expected:
    if schema.state is not None:
        return _define_long(rows, schema, absent)
    found = Expected()
    used = again = 0
    for number, row in rows:
        try:
            if isinstance(row, Rejected):
                raise row
            record = read_record(row, schema)
        except Rejected:
            found.refused.append(number)
            continue
        key = (record.group, record.realization, record.time)
        found.records[number] = (*key, tuple(record.counts.tolist()), record.population)
        if key in found.kept:
            again += 1
            found.is_told_apart &= np.array_equal(found.kept[key], record.counts, equal_nan=True)
        else:
            used += 1
            found.kept[key] = record.counts
    found.ledger = Ledger(len(rows), used, again, len(found.refused))
    return found


def _define_long(rows: Sequence[tuple[int, Any]], schema: Schema, absent: str) -> Expected:
    """One bad row costs its record; of repeated states the first counts."""
    found, parts = Expected(), dict[Key, list[tuple[int, Any]]]()
    for number, row in rows:
        try:
            record = read_record(row, schema)
        except Rejected:
            record = None
        try:
            place = read_record({**row, "state": schema.states[0], "count": 1}, schema)
        except Rejected:
            found.refused.append(number)
            continue
        parts.setdefault((place.group, place.realization, place.time), []).append((number, record))
    used = again = 0
    for key, given in parts.items():
        states = {record.state for _, record in given if record is not None}
        if any(record is None for _, record in given) or (
            absent == "missing" and len(states) < len(schema.states)
        ):
            found.refused += [number for number, _ in given]
            continue
        counts = np.zeros(len(schema.states))
        for _, record in reversed(given):
            found.is_told_apart &= counts[record.state] in (0, record.counts[record.state])
            counts[record.state] = record.counts[record.state]
        found.kept[key] = counts
        used, again = used + len(states), again + len(given) - len(states)
        found.records[given[0][0]] = (*key, tuple(counts.tolist()), None)
    found.ledger = Ledger(len(rows), used, again, len(found.refused))
    return found


def rows_in(case: Case, kind: str, data: bytes) -> list[tuple[int, Any]]:
    """The rows of a file as Python reads them, numbered; of one that is none, why."""
    if kind == "parquet":
        return list(enumerate(pl.read_parquet(io.BytesIO(data)).to_dicts(), 1))
    lines = data.split(b"\n")
    if kind == "jsonl":
        return [(i, _parsed(line)) for i, line in enumerate(lines, 1) if line.strip()]
    names, given = case.columns, []
    lines = lines[1:] if lines[-1] else lines[1:-1]
    if b'"' not in data:
        given = [(i, line.decode(errors="replace").split(",")) for i, line in enumerate(lines, 2)]
    else:  # a mark may be astray
        used = [names.index(c) for c in names]
        found, _ = csvrows.find_rows(lines, range(len(lines)), ",", len(names), used)
        given = [(row.at + 2, row.fields if row.fields is not None else row.reason) for row in found]
    rows: list[tuple[int, Any]] = []
    for number, fields in given:
        if isinstance(fields, str):
            rows.append((number, Rejected(fields)))
        elif any(fields):
            fits = len(fields) == len(names)
            rows.append(
                (number, dict(zip(names, fields, strict=True)) if fits else Rejected("fields of another row"))
            )
    return rows


def _parsed(line: bytes) -> Any:
    try:
        return parse_json(line)
    except Rejected as error:
        return error


# What must agree with it


def check(seed: int, number: int) -> int:
    """Compare all ways on one input; how many rows were compared. `Disagreement` if one differs."""
    case = draw(seed, number)
    piece = case.rng.choice([300, 4000, 1 << 22])
    with tempfile.TemporaryDirectory(prefix="aggmc-diff-") as folder, mock.patch.object(text, "PIECE", piece):
        kinds = ["csv", "jsonl", "parquet"] if case.data is None else [case.data[0]]
        for kind in kinds:
            data = b"".join(written(case, case.rows, kind)) if case.data is None else case.data[1]
            path = Path(folder) / f"x.{kind}"
            path.write_bytes(data)
            plan = _opened(case, str(path))
            if plan is None:
                continue
            expected = define(rows_in(case, kind, data), plan.schema, plan.config.input.absent or "zero")
            case.compared += expected.ledger.read
            _agree(f"rows of {kind}", _read_rows, plan, expected, case)
            if plan.schema.population is None and expected.kept:
                for way in case.rng.sample(WAYS, TAKEN):
                    _agree(f"{way.__name__.strip('_')}, {kind}", way, plan, expected, case)
        if case.data is None and number % WHOLE == 0 and plan is not None and plan.schema.population is None:
            _agree("whole runs", _whole_runs, plan, expected, case)
    return case.compared


def _agree(name: str, way: Callable[..., None], plan: Plan, expected: Expected, case: Case) -> None:
    try:
        way(plan, expected, case)
    except Exception as error:
        raise Disagreement(f"{name}: {type(error).__name__}: {error}") from error


def _opened(case: Case, files: str) -> Plan | None:
    plain = {**case.plain, "input": {**case.plain["input"], "files": files}}
    try:
        return Plan.open(read_config(plain))
    except InputError as error:
        if case.data is not None or "not lists of counts" in str(error):
            return None  # bytes of no file with these columns
        raise


def _read_rows(plan: Plan, expected: Expected, case: Case) -> None:
    reader = plan.reader()
    found: dict[int, tuple[Any, ...]] = {}
    for block in reader.blocks():
        records = block.records
        for i, row in enumerate(block.place.row.tolist()):
            key = records.realization[i]
            size = None if records.population is None else float(records.population[i])
            group = tuple(records.groups[records.group_of[key]])
            counts = tuple(map(float, records.counts[i]))
            found[row] = (group, str(records.names[key]), int(records.time[i]), counts, size)
    refused = [row for place in reader.counts.places for row in place.row.tolist()]
    if plan.schema.state is not None:  # a record is refused at its first row
        assert set(refused) <= set(expected.refused)
        assert reader.counts.rejected == expected.ledger.rejected
    else:
        assert sorted(refused) == sorted(expected.refused), (sorted(refused), sorted(expected.refused))
    wrong = {row for row in found.keys() | expected.records.keys() if not _same(found, expected.records, row)}
    assert not wrong, [(row, found.get(row), expected.records.get(row)) for row in sorted(wrong)[:3]]
    assert reader.counts.read == expected.ledger.read


def _same(found: Mapping[int, Any], expected: Mapping[int, Any], row: int) -> bool:
    a, b = found.get(row), expected.get(row)
    if a is None or b is None:
        return False
    return bool(a[:3] == b[:3] and a[4] == b[4] and np.array_equal(a[3], b[3], equal_nan=True))


def _same_sums(state: AggregationState, expected: Expected) -> None:
    spec = state.spec
    groups: dict[Any, dict[Any, np.ndarray]] = {}
    for (group, name, at), counts in expected.kept.items():
        if spec.columns > len(counts):
            gone = np.isnan(counts)
            counts = np.concatenate([np.where(gone, 0.0, counts), gone])
        groups.setdefault(group, {})[name, at] = counts
    assert set(state.groups) == set(groups), (state.groups, groups.keys())
    for g, group in enumerate(state.groups):
        if max(np.abs(counts).max() for counts in groups[group].values()) > LARGEST:
            continue
        names = {name: k for k, name in enumerate(dict.fromkeys(name for name, _ in groups[group]))}
        records = {(names[name], at): counts for (name, at), counts in groups[group].items()}
        assert_same_moments(state.sums.of_group(g).total, moments(records, spec.columns))


def _one_file(plan: Plan, expected: Expected, case: Case) -> None:
    state = plan.state()
    summing = Summing(plan, state)
    summing.sum()
    assert summing.ledger(state.records) == expected.ledger, (summing.ledger(state.records), expected.ledger)
    _same_sums(state, expected)


def _blocks(plan: Plan, expected: Expected, case: Case) -> None:
    """In parts of realizations, in blocks, resumed from bytes after each."""
    if plan.schema.state is not None:
        return
    state, parts = plan.state(), case.rng.randint(1, 3)
    for part in range(parts):
        for block in plan.reader().blocks(case.rng.randint(1, 30), (part, parts)):
            state.add(block.records)
            if case.rng.random() < 0.3:
                state = AggregationState.from_bytes(state.to_bytes())
    _same_sums(state, expected)


def _merged(plan: Plan, expected: Expected, case: Case) -> None:
    """In any order, dealt over states that are merged in any order; each record is in one of them."""
    if not expected.is_told_apart:
        return
    states = [plan.state() for _ in range(case.rng.randint(2, 4))]
    for block in plan.reader().blocks():
        records = block.records
        order = np.array(case.rng.sample(range(len(records)), len(records)), np.int64)
        owner = {key: case.rng.randrange(len(states)) for key in sorted(_keys(records))}
        side = np.array([owner[key] for key in _keys(records)], np.int64)
        for i, state in enumerate(states):
            state.add(records.take(order[side[order] == i]))
    while len(states) > 1:
        a, b = (states.pop(case.rng.randrange(len(states))) for _ in range(2))
        joined = a + AggregationState.from_bytes(b.to_bytes())
        states.append(joined)
    if states[0].records:
        _same_sums(states[0], expected)


def _keys(records: Any) -> list[tuple[int, int]]:
    return list(zip(records.realization.tolist(), records.time.tolist(), strict=True))


def _several_files(plan: Plan, expected: Expected, case: Case) -> None:
    """The rows dealt over files in their order; Beam's workers read them in any order."""
    if case.data is not None:
        return
    path = Path(plan.sources[0].name)
    cuts = sorted(case.rng.randint(0, len(case.rows)) for _ in range(2))
    ends = [*cuts, len(case.rows)]
    for i, (start, end) in enumerate(zip([0, *cuts], ends, strict=True)):
        data = b"".join(written(case, case.rows[start:end], path.suffix[1:]))
        (path.parent / f"y{i}{path.suffix}").write_bytes(data)
    try:
        several = _opened(case, str(path.parent / f"y*{path.suffix}"))
        if several is not None:
            several = replace(several, schema=plan.schema)
            _one_file(several, expected, case)
            _beam_files(several, expected, case)
    finally:
        for left in path.parent.glob("y*"):
            left.unlink()


def _beam_files(plan: Plan, expected: Expected, case: Case) -> None:
    """The steps of a pipeline over files, called by hand: shards, bundles and their order are drawn."""
    from apache_beam.pvalue import TaggedOutput
    from apache_beam.transforms.window import GlobalWindow
    from apache_beam.utils.windowed_value import WindowedValue

    from aggmc_beam.beam import exact, files, pieces

    def told(items: Any) -> list[tuple[str, Any]]:
        found = []
        for one in items or ():
            assert isinstance(one, TaggedOutput)
            value = one.value.value if isinstance(one.value, WindowedValue) else one.value
            found.append((one.tag, value))
        return found

    outputs: list[tuple[str, Any]] = []
    reader = pieces.ReadPieces(plan, case.rng.randint(1, 5))
    reader.start_bundle()
    for number, source in enumerate(plan.sources):
        outputs += told(reader.process(pieces.Piece(files.File(number, source.name)).to_text()))
    outputs += told(reader.finish_bundle())
    shards: dict[int, list[Any]] = {}
    for tag, value in outputs:
        if tag == exact.BLOCKS:
            shards.setdefault(value[0], []).append(value[1])
    for blocks in shards.values():
        case.rng.shuffle(blocks)
    met = list(shards.items())
    case.rng.shuffle(met)
    reaches = [reach for one in met for reach in exact.Look(plan).process(one)]
    summing, bundles = exact.SumShards(plan), case.rng.randint(1, 2)
    summed: list[tuple[str, Any]] = []
    for bundle in range(bundles):
        summing.start_bundle()
        for one in met[bundle::bundles]:
            summed += told(summing.process(one, reaches, GlobalWindow()))
        summed += told(summing.finish_bundle())
    buckets: dict[int, list[AggregationState]] = {}
    noticed = exact.add_counts(value for tag, value in [*outputs, *summed] if tag == exact.NOTICED)
    for tag, value in summed:
        if tag == exact.STATES:
            buckets.setdefault(value[0], []).append(value[1])
    ledger = Ledger(
        noticed["rows"], noticed.get("used", 0), noticed.get("duplicate", 0), noticed.get("rejected", 0)
    )
    assert ledger == expected.ledger, (ledger, expected.ledger)
    states = [exact.added(bucket, states)[1] for bucket, states in buckets.items()]
    whole = states[0]
    for state in states[1:]:
        whole = whole + state
    _same_sums(whole, expected)


def _messages(plan: Plan, expected: Expected, case: Case) -> None:
    """Rows as messages through a CombineFn and the coder of its accumulators."""
    if plan.schema.state is not None or not expected.is_told_apart or case.data is not None:
        return
    from aggmc_beam.beam.combine import SumsCombineFn

    fn = SumsCombineFn.of_plan(plan)
    coder = fn.get_accumulator_coder()
    accumulator = fn.create_accumulator()
    for row in case.rows:
        given: Any = {c: row[c] for c in case.columns}
        if case.rng.random() < 0.3:
            given = json.dumps(given).encode()
        accumulator = fn.add_input(accumulator, given)
        if case.rng.random() < 0.05:
            accumulator = coder.decode(coder.encode(accumulator))
    _same_sums(fn.extract_output(fn.compact(accumulator)), expected)


def _stream(plan: Plan, expected: Expected, case: Case) -> None:
    """Records one at a time, in bundles, in any order, through the stage of a stream that pairs them."""
    import bundles

    from aggmc_beam.beam.guard import by_realization
    from aggmc_beam.beam.pair import Pair
    from aggmc_beam.beam.timing import Timing
    from aggmc_beam.records import Record

    if plan.schema.state is not None and not expected.is_told_apart:
        return
    records = [Record(name, at, counts, None, group) for (group, name, at), counts in expected.kept.items()]
    case.rng.shuffle(records)
    again = [r for r in records if case.rng.random() < 0.1]
    given = [(by_realization(record), 0) for record in [*records, *again]]
    driver = bundles.Driver(Pair(plan, Timing(ttl=1000)), bundles.AtOnce())
    while given:
        size = case.rng.randint(1, 40)
        fail = case.rng.random() < 0.1
        driver.bundle(*given[:size], fail=fail)
        given = given if fail else given[size:]
    parts: dict[str, dict[int, list[Any]]] = {}
    for handed_on in driver.deltas:
        key, delta = handed_on.value
        group, shard = json.loads(key)
        parts.setdefault(group, {}).setdefault(shard, []).append(delta)
    rule = driver.pair.rule
    columns = plan.spec.columns
    for group, shards in parts.items():
        found = rule.total(rule.sums(deltas, shard) for shard, deltas in shards.items())
        own: dict[Any, np.ndarray] = {}
        for (g, name, at), counts in expected.kept.items():
            if list(g) == json.loads(group):
                gone = np.isnan(counts)
                own[name, at] = np.concatenate([np.where(gone, 0.0, counts), gone])[:columns]
        names = {name: k for k, name in enumerate(dict.fromkeys(name for name, _ in own))}
        same = {(names[name], at): counts for (name, at), counts in own.items()}
        if max(np.abs(counts).max() for counts in own.values()) > LARGEST:
            continue
        assert_same_moments(found.sums.total, moments(same, columns))


WAYS: tuple[Callable[[Plan, Expected, Case], None], ...] = (
    _one_file,
    _blocks,
    _merged,
    _several_files,
    _beam_files,
    _messages,
    _stream,
)


def _whole_runs(plan: Plan, expected: Expected, case: Case) -> None:
    """Both engines as the command line runs them, on Beam's own runner."""
    from aggmc_beam.beam import run as beam_run
    from aggmc_beam.local import run

    with tempfile.TemporaryDirectory(prefix="aggmc-diff-") as out:
        files = {**case.plain["input"], "files": plan.sources[0].name}
        plain = {**case.plain, "input": files, "output": {"directory": out}}
        config = read_config(plain)
        try:
            local = run(config)
        except InputError as error:
            try:
                beam_run.run(config, plain, ["--runner=FnApiRunner"])
            except InputError:
                return
            raise Disagreement(f"only the local engine says: {error}") from error
        beam_run.run(config, plain, ["--runner=FnApiRunner"])
        lines = (Path(out) / "estimates.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(local.estimates)
    for line, estimate in zip(lines, local.estimates, strict=True):
        for name in ("transition_matrix", "standard_error"):
            np.testing.assert_allclose(
                np.array(json.loads(line)[name], float), getattr(estimate, name), rtol=0, atol=1e-10
            )


def numbers(first: int, cases: int, seconds: float) -> Iterator[int]:
    began, number = time.monotonic(), first
    while number - first < cases and (not seconds or time.monotonic() - began < seconds):
        yield number
        number += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=1_000_000, help="rows to compare (1,000,000)")
    parser.add_argument("--inputs", type=int, default=10**9, help="files at most")
    parser.add_argument("--seconds", type=float, default=0, help="at most this long (no limit)")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs (1)")
    parser.add_argument("--first", type=int, default=1, help="number of the first input (1)")
    parser.add_argument("--most", type=int, default=1, help="disagreements after which to stop (1)")
    given = parser.parse_args()
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    rows = inputs = wrong = 0
    for number in numbers(given.first, given.inputs, given.seconds):
        inputs += 1
        try:
            rows += check(given.seed, number)
        except Disagreement as error:
            wrong += 1
            traceback.print_exception(error.__cause__, limit=-3)
            print(f"Disagreement: input {number} of seed {given.seed}: {str(error)[:2000]}", flush=True)
            if wrong >= given.most:
                break
        if rows >= given.cases:
            break
    print(f"{wrong} disagreements; {inputs:,} inputs")
    print(f"number_of_executed_units: {rows}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
