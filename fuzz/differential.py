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
import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cases import Case, Expected, define, draw, rows_in, written
from oracle import assert_same_moments, moments

from aggmc_beam.config import read_config
from aggmc_beam.errors import InputError
from aggmc_beam.ledger import Ledger
from aggmc_beam.local import text
from aggmc_beam.local.engine import Summing
from aggmc_beam.local.plan import Plan
from aggmc_beam.sums.state import AggregationState

#: How many of the ways to the sums each file takes, drawn anew for each.
TAKEN = 1
#: One input in so many goes through both engines as a whole.
WHOLE = 100
#: Beside larger counts the digits of usual ones are lost, in sums as in the brute force.
LARGEST = 1e6


class Disagreement(Exception):
    """Two ways give two answers."""


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

    if max(np.nanmax(np.abs(counts)) for counts in expected.kept.values()) > LARGEST:
        return
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
