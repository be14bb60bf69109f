"""What is read many rows at a time is what `read_record` reads one by one: in every type, format and file."""

import csv
import io
import json
from datetime import date, datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aggmc_beam.clock import Clock
from aggmc_beam.errors import InputError, Rejected
from aggmc_beam.local import csvrows, text
from aggmc_beam.local.blocks import BlockReader
from aggmc_beam.local.sources import open_files, open_frame
from aggmc_beam.records import Schema, parse_json, read_record

RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150)
WIDE = Schema(("a", "b"), ("a", "b"))
SCHEMAS = {
    "wide": WIDE,
    "lists": Schema(("a", "b"), "counts"),
    "grouped": Schema(("a", "b"), ("a", "b"), group_by=("g",), population="n"),
    "stamps": Schema(("a", "b"), ("a", "b"), clock=Clock("1h")),
    "long": Schema(("a", "b"), "count", "state"),
}


def records_of(source, schema, **options):
    """What a source holds, by row: (group, realization, time, counts, population); and the rows refused."""
    reader = BlockReader([source], schema, **options)
    found = {}
    for block in reader.blocks():
        records = block.records
        for i, row in enumerate(block.place.row.tolist()):
            key = records.realization[i]
            size = None if records.population is None else float(records.population[i])
            found[row] = (
                tuple(records.groups[records.group_of[key]]), str(records.names[key]), int(records.time[i]),
                tuple(map(float, records.counts[i])), size,
            )  # fmt: skip
    refused = sorted(row for place in reader.counts.places for row in place.row.tolist())
    return found, refused, reader.counts


def expected_of(rows, schema):
    """The same, row by row. A row is a mapping, or why there is none."""
    found, refused = {}, []
    for number, row in rows:
        try:
            if isinstance(row, Rejected):
                raise row
            record = read_record(row, schema)
        except Rejected:
            refused.append(number)
            continue
        found[number] = (
            record.group, record.realization, record.time, tuple(map(float, record.counts)), record.population
        )  # fmt: skip
    return found, refused


def check(source, rows, schema):
    found, refused, counts = records_of(source, schema)
    assert (found, refused) == expected_of(rows, schema)
    assert counts.read == len(rows)


# JSON lines

NUMBERS = st.one_of(
    st.integers(-5, 300),
    st.sampled_from([10**15, 2**53 + 1, 2**63, 10**25, -(2**70), 10**40]),
    st.floats(width=64),
    st.sampled_from([7.0, 7.5, -0.0, 1e3, 1e25, 1e-7, 1e29, 1e31, 0.1, 123456789.125]),
)
NAMES = st.sampled_from(
    ["", " ", "a", " a ", "7", "7.0", " 7.00", "-0", "-0.0", "007", "1e25", "NaN", "Infinity", "true", "{}", "[1]",
     "x\x1cy", "\x1c", "\x00", "\ufffd", "ü", "9" * 25, "9" * 40, "1.10", "1_0", "٣", "\u2003b", "\ud800"]
)  # fmt: skip
OTHERS = st.sampled_from([None, True, False, {}, {"a": 1}, [], [1], [[7]]])
STAMPS = st.sampled_from(
    ["2026-01-01", "2026-01-01T05:00Z", "2026-01-01 05:00:00+01:00", "2026-01-01T05:30Z", "yesterday", "12"]
)
VALUES = st.one_of(NUMBERS, NAMES, OTHERS, STAMPS)
PLAIN = {
    "realization": st.integers(0, 3), "time": st.integers(0, 20), "a": st.integers(0, 99), "b": st.integers(0, 99),
    "g": st.sampled_from(["x", "y"]), "n": st.integers(1, 9), "state": st.sampled_from(["a", "b"]),
    "count": st.integers(0, 99), "counts": st.lists(st.integers(0, 99), min_size=2, max_size=2),
}  # fmt: skip
ODD = {
    **dict.fromkeys(PLAIN, VALUES),
    "counts": st.one_of(st.lists(VALUES, max_size=3), st.sampled_from(["1, 2", "[3,4]", "5", ""]), VALUES),
}


def rows_of(schema, odd=ODD):
    """Rows of which most fields are plain."""
    fields = {c: st.one_of(PLAIN[c], PLAIN[c], PLAIN[c], odd[c]) for c in schema.columns}
    return st.lists(st.fixed_dictionaries(fields), min_size=1, max_size=12)


def parsed(line):
    try:
        return parse_json(line)
    except Rejected as error:
        return error


def check_json(data, schema, directory):
    path = directory / "x.jsonl"
    path.write_bytes(data)
    lines = [(i, line) for i, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    try:
        source = open_files([str(path)])[0]
        check(source, [(i, parsed(line)) for i, line in lines], schema)
    except InputError as error:
        assert "all input is empty" in str(error) or "not lists of counts" in str(error)  # noqa: PT017


@pytest.mark.parametrize("shape", [s for s in SCHEMAS if s != "long"])
@pytest.mark.parametrize("piece", [60, 1 << 20])
def test_json_lines_are_read_as_by_python(shape, piece, tmp_path, monkeypatch):
    monkeypatch.setattr(text, "PIECE", piece)
    schema = SCHEMAS[shape]

    @RELAXED
    @given(rows_of(schema))
    def holds(rows):
        check_json("".join(json.dumps(row) + "\n" for row in rows).encode(), schema, tmp_path)

    holds()


# CSV


def csv_rows(data, names, schema):
    """Rows of CSV by Python's own reader; of those that hold nothing there are none."""
    reader = csv.reader(io.StringIO(data.decode(errors="replace"), newline=""), skipinitialspace=True)
    number, found = 0, []
    for fields in reader:
        found.append((number + 1, fields))
        number = reader.line_num
    return rows_of_fields(found[1:], names, schema)


def rows_by_the_rule(data, names, schema):
    """As the rule for marks that are astray tells, line after line of the whole file."""
    _, *lines = data.split(b"\n")
    lines = lines if lines[-1] else lines[:-1]
    used = [names.index(c) for c in schema.columns]
    found, _ = csvrows.find_rows(lines, range(len(lines)), ",", len(names), used)
    return rows_of_fields(
        [(row.at + 2, row.reason if row.fields is None else row.fields) for row in found], names, schema
    )


def rows_of_fields(given, names, schema):
    found = []
    for start, fields in given:
        if isinstance(fields, str):
            found.append((start, Rejected(fields)))
            continue
        row = dict(zip(names, fields, strict=False))
        if not any([*(row.get(c) for c in schema.columns), *fields[len(names) :]]):
            continue
        if len(fields) != len(names):
            row = Rejected("too many or too few fields")
        found.append((start, row))
    return found


FIELDS = st.one_of(NUMBERS.map(str), NAMES.filter(lambda n: "\ud800" not in n and "\0" not in n), STAMPS)
CSV_ODD = {
    **dict.fromkeys(PLAIN, FIELDS),
    "counts": st.sampled_from(["1, 2", "[3,4]", "5", "", "[1.5, 2]", "[1,x]", "[1,2,3]"]),
}
CSV_PLAIN = {**{c: values.map(str) for c, values in PLAIN.items()}, "counts": st.just("[5, 7]")}


def check_csv(data, names, schema, directory, rows=csv_rows):
    path = directory / "x.csv"
    path.write_bytes(data)
    try:
        source = open_files([str(path)])[0]
        check(source, rows(data, names, schema), schema)
    except InputError as error:
        assert "empty" in str(error)  # noqa: PT017


@pytest.mark.parametrize("last", ["note", None])
@pytest.mark.parametrize("shape", [s for s in SCHEMAS if s != "long"])
@pytest.mark.parametrize("piece", [30, 1 << 20])
def test_csv_is_read_as_by_python(shape, piece, last, tmp_path, monkeypatch):
    monkeypatch.setattr(text, "PIECE", piece)
    schema = SCHEMAS[shape]
    names = [*schema.columns, *([last] if last else [])]
    fields = {c: st.one_of(CSV_PLAIN[c], CSV_PLAIN[c], CSV_PLAIN[c], CSV_ODD[c]) for c in schema.columns}
    note = {"note": st.sampled_from(["", "", "x", "a, b", 'say "hi"', "two\nlines"])}
    extra = st.lists(st.sampled_from(["", "5"]), max_size=2)
    row = st.tuples(st.fixed_dictionaries({**fields, **note}), extra, st.integers(0, 40), st.booleans())

    @RELAXED
    @given(st.lists(row, min_size=1, max_size=12))
    def holds(rows):
        out = io.StringIO(newline="")
        csv.writer(out, lineterminator="\n").writerow(names)
        for values, more, short, quoted in rows:
            quoting = csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
            writer = csv.writer(out, lineterminator="\n", quoting=quoting)
            cells = [values[c] for c in names]
            writer.writerow(
                cells[: -1 - short % 2] if short > 35 else [*cells, *(more if short > 32 else [])]
            )
        check_csv(out.getvalue().encode(), names, schema, tmp_path)

    holds()


MUTATIONS = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(["insert", "delete", "replace", "cut", "again"]),
        st.sampled_from(
            [b'"', b",", b"\n", b"{", b"]", b"1", b" ", b"\xff", b"e", b".", b"-", b"\\", b":", b"\t"]
        ),
    ),
    min_size=1,
    max_size=4,
)


def mutated(data, changes):
    for where, how, what in changes:
        at = int(where * (len(data) + 1))
        data = {
            "insert": data[:at] + what + data[at:],
            "delete": data[:at] + data[at + 1 :],
            "replace": data[:at] + what + data[at + 1 :],
            "cut": data[:at] + data[at + 7 :],
            "again": data[:at] + data[max(0, at - 9) :],
        }[how]
    return data


@pytest.mark.parametrize("piece", [50, 1 << 20])
@pytest.mark.parametrize("name", ["wide.jsonl", "lists.jsonl", "wide.csv"])
def test_spoiled_files_are_read_as_by_python(name, piece, tmp_path, monkeypatch):
    monkeypatch.setattr(text, "PIECE", piece)
    shape, ending = name.split(".")
    schema = SCHEMAS[shape]
    rows = [{"realization": k, "time": t, "a": 10 + t, "b": 20 - k} for k in range(2) for t in range(4)]
    if shape == "lists":
        rows = [
            {"realization": r["realization"], "time": r["time"], "counts": [r["a"], r["b"]]} for r in rows
        ]
    if ending == "csv":
        names = [*schema.columns, "note"]
        lines = [",".join(names), *(",".join([*map(str, row.values()), 'x,"y, z"'[2 * i % 4 :]])
                                    for i, row in enumerate(rows))]  # fmt: skip
        body = "".join(line + "\n" for line in lines[1:]).encode()
        head = (lines[0] + "\n").encode()
    else:
        head, body = b"", "".join(json.dumps(row) + "\n" for row in rows).encode()

    @settings(RELAXED, max_examples=300)
    @given(MUTATIONS)
    @example([(0.996, "insert", b'"'), (0.992, "insert", b'"')])
    @example([(1.0, "insert", b" ")])
    def holds(changes):
        data = head + mutated(body, changes)
        if ending == "csv":
            check_csv(data, names, schema, tmp_path, rows_by_the_rule)
        else:
            check_json(data, schema, tmp_path)

    holds()


# Frames

TYPED = {
    pl.Int64: st.integers(-(2**63), 2**63 - 1), pl.Int16: st.integers(-5, 5), pl.UInt64: st.integers(0, 2**64 - 1),
    pl.Float64: st.floats(), pl.Float32: st.floats(width=32), pl.String: NAMES.filter(lambda n: "\ud800" not in n),
    pl.Categorical: st.sampled_from(["a", " a", "7.0", "7"]), pl.Boolean: st.booleans(),
    pl.Date: st.dates(date(1900, 1, 1), date(2100, 1, 1)), pl.Decimal(20, 2): st.decimals(-9, 9, places=2),
    pl.Binary: st.binary(max_size=2), pl.Null: st.none(), pl.List(pl.Int64): st.lists(st.integers(0, 5), max_size=3),
    pl.Struct({"x": pl.Int64}): st.fixed_dictionaries({"x": st.integers(0, 5)}),
}  # fmt: skip


@RELAXED
@given(
    st.sampled_from(list(TYPED)).flatmap(
        lambda t: st.tuples(
            st.just(t),
            st.lists(st.tuples(st.one_of(TYPED[t], TYPED[t], st.none()), st.integers(1, 9)), max_size=6),
        )
    )
)
@example((pl.Float64, [(7.0, 1), (7.5, 1), (-0.0, 1), (1e25, 1), (float("nan"), 1), (float("inf"), 1)]))
@example((pl.String, [("7.0", 9), ("x\x1cy", 9), (" ", 1), ("7", 1)]))
def test_names_of_any_type_are_those_of_python(given):
    dtype, runs = given
    values = [value for value, length in runs for _ in range(length)]
    frame = pl.DataFrame({"realization": pl.Series(values, dtype=dtype)}).with_columns(
        time=pl.int_range(pl.len()), a=pl.lit(1), b=pl.lit(2)
    )
    check(open_frame(frame), list(enumerate(frame.to_dicts(), 1)), WIDE)


@RELAXED
@given(
    st.sampled_from(
        [pl.Int64, pl.Int16, pl.UInt64, pl.Float64, pl.Float32, pl.Decimal(20, 2), pl.String]
    ).flatmap(
        lambda t: st.tuples(st.just(t), st.lists(st.one_of(TYPED[t], st.none()), min_size=1, max_size=9))
    ),
    st.sampled_from(["a", "n", "time"]),
)
def test_numbers_of_any_type_are_those_of_python(given, column):
    dtype, values = given
    schema = SCHEMAS["grouped"]
    if column == "time" and dtype == pl.Decimal(20, 2):
        return
    frame = pl.DataFrame({column: pl.Series(values, dtype=dtype)})
    other = {"realization": 0, "time": 1, "a": 1, "b": 2, "g": "x", "n": 3}
    frame = frame.with_columns(**{c: pl.lit(v) for c, v in other.items() if c != column})
    frame = frame.with_columns(realization=pl.int_range(pl.len()))
    check(open_frame(frame), list(enumerate(frame.to_dicts(), 1)), schema)


MOMENTS = {"min_value": datetime(1900, 1, 1), "max_value": datetime(2100, 1, 1)}
ZONES = st.sampled_from(
    [timezone.utc, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=3))]
)
TIMES = st.one_of(
    st.datetimes(**MOMENTS).map(lambda d: d.replace(microsecond=0).isoformat(" ")),
    st.datetimes(**MOMENTS, timezones=ZONES).map(
        lambda d: d.replace(minute=0, second=0, microsecond=0).isoformat()
    ),
    st.sampled_from(["2026-01-01", "2026-01-01T05:00", "2026-01-01T05:00Z", "", "x", "12", "2026-13-01"]),
    st.integers(-(10**6), 10**6).map(str),
    st.floats(-1e6, 1e6).map(str),
)
CLOCKS = st.sampled_from([Clock(), Clock(3), Clock("1h"), Clock("90m", 10**6)])


@RELAXED
@given(st.lists(TIMES, min_size=1, max_size=20), CLOCKS)
def test_times_are_those_of_python(values, clock):
    schema = Schema(("a", "b"), ("a", "b"), clock=clock)
    frame = pl.DataFrame({"time": values}).with_columns(realization=pl.int_range(pl.len()), a=1, b=2)
    check(open_frame(frame), list(enumerate(frame.to_dicts(), 1)), schema)


@RELAXED
@given(
    st.lists(
        st.one_of(
            st.none(), st.lists(st.one_of(st.none(), st.floats(width=32), st.integers(0, 99)), max_size=4)
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([pl.List(pl.Float64), pl.List(pl.Int16)]),
)
def test_lists_are_those_of_python(values, dtype):
    if dtype == pl.List(pl.Int16):
        values = [v and [x if x is None else 3 for x in v] for v in values]
    frame = pl.DataFrame({"counts": pl.Series(values, dtype=dtype)}).with_columns(
        realization=pl.int_range(pl.len()), time=0
    )
    check(open_frame(frame), list(enumerate(frame.to_dicts(), 1)), SCHEMAS["lists"])


# Long tables


def account_of_long(rows, schema):
    """Records by (group, realization, time) as the rules say: one bad row costs its record."""
    records, refused = {}, []
    for number, row in rows:
        try:
            record = read_record(row, schema)
        except Rejected:
            refused.append(number)
            record = None
        key = place(row, schema)
        if key is not None:
            records.setdefault(key, []).append((number, record))
    found = {}
    for key, parts in records.items():
        if any(record is None for _, record in parts):
            refused += [number for number, record in parts if record is not None]
            continue
        counts = np.full(len(schema.states), np.nan)
        for _, record in parts:
            counts = np.where(np.isnan(counts), record.counts, counts)
        found[parts[0][0]] = (*key, tuple(np.nan_to_num(counts)), None)
    return found, sorted(refused)


def place(row, schema):
    try:
        record = read_record({**row, "state": "a", "count": 1}, schema)
    except Rejected:
        return None
    return record.group, record.realization, record.time


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_rows_of_long_tables_become_the_records_that_the_rules_tell(ending, tmp_path):
    schema = SCHEMAS["long"]
    small = {**PLAIN, "realization": st.integers(0, 1), "time": st.integers(0, 2)}
    kinds = ODD if ending == "jsonl" else {
        "realization": st.just(""), "time": st.just("x"), "state": st.just("c"), "count": st.just("many")
    }  # fmt: skip
    fields = {c: st.one_of(*[small[c]] * 9, kinds[c]) for c in schema.columns}

    @RELAXED
    @given(st.lists(st.fixed_dictionaries(fields), min_size=1, max_size=12))
    def holds(rows):
        path = tmp_path / f"x.{ending}"
        if ending == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            rows = [{c: str(v) for c, v in row.items()} for row in rows]
            pl.DataFrame(rows).write_parquet(path)
        found, refused, counts = records_of(open_files([str(path)])[0], schema)
        expected = account_of_long(list(enumerate(rows, 1)), schema)
        assert (found, refused) == expected
        assert counts.rejected == len(refused)

    holds()


def test_rows_as_they_usually_are_need_no_second_look(tmp_path):
    """All but what is odd is read many rows at a time."""
    rows = [{"realization": f"r{k}", "time": t, "a": t, "b": k} for k in range(9) for t in range(50)]
    frame = pl.DataFrame(rows)
    frame.write_parquet(tmp_path / "x.parquet")
    frame.write_csv(tmp_path / "x.csv")
    frame.write_ndjson(tmp_path / "x.jsonl")
    frame.cast(pl.String).write_csv(tmp_path / "quoted.csv", quote_style="always")
    for path in tmp_path.iterdir():
        source = open_files([str(path)])[0]
        reader = BlockReader([source], WIDE)
        assert sum(read.singly for make in source.batches(WIDE, reader._tidier.columns)
                   for read in [reader._tidier.read(make())]) == 0, path  # fmt: skip
