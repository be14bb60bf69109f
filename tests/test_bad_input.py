"""Bad input is a clear error or a counted rejection with its place; never a wrong answer."""

import json
import os
from pathlib import Path

import frames
import numpy as np
import polars as pl
import pytest

import aggmc_beam as am
from aggmc_beam.config import read_config
from aggmc_beam.local import engine, output, run, text

HEADER = "realization,time,home,work\n"
GOOD = "".join(f"{k},{t},{10 + (k + t) % 3},{20 - (k + t) % 3}\n" for k in range(3) for t in range(12))
PLAIN = {
    "states": ["home", "work"],
    "noise": {"model": "gaussian", "sigma": 1},
    "population": 30,
    "max_rejected": 1.0,
}


def run_on(path, **more):
    given = more.pop("input", {})
    return run(read_config({**PLAIN, "estimator": "simplex", "input": {"files": str(path), **given}, **more}))


@pytest.fixture
def write(tmp_path):
    def write(content, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def expected(write):
    return run_on(write(HEADER + GOOD, "good.csv")).estimates[0].to_json()


def without_rejected(estimate):
    found = estimate.to_dict()
    found["counts"] = {k: v for k, v in found["counts"].items() if k not in ("rejected", "duplicates")}
    return found


REJECTED = {
    "mixed types": ("1,99,many,5\n", "the count of 'home' is 'many', not a number"),
    "NaN": ("1,99,NaN,5\n", "the count of 'home' is NaN"),
    "infinite": ("1,99,3,inf\n", "the count of 'work' is infinite"),
    "overflowing": ("1,99,1e999,5\n", "the count of 'home' is infinite"),
    "a missing count": ("1,99,3\n", "the count of 'work' is missing"),
    "a missing time": ("1,,3,5\n", "time is missing"),
    "a missing realization": (",99,3,5\n", "realization is missing"),
    "a broken time": ("1,9x,3,5\n", "time is '9x', not a whole number"),
    "half a step": ("1,9.5,3,5\n", "time is '9.5', not a whole number"),
    "a time stamp": ("1,2026-01-01,3,5\n", "for dates give step as day, week"),
    "too many fields": ("1,99,3,5,7\n", "it has more fields than the header"),
    "a decimal comma": ("1,99,3,5,5\n", "it has more fields than the header"),
    "a decimal mark": ('1,99,"1,5",5\n', "the count of 'home' is '1,5', not a number"),
    "an underscore": ("1,99,1_0,5\n", "not a number"),
    "an open quote": ('1,99,"3,4\n', "a quotation mark is opened and not closed"),
    "no UTF-8": (b"\xff,99,3,5\n", "realization is not UTF-8 text"),
}


@pytest.mark.parametrize("case", REJECTED)
def test_one_broken_row_is_rejected_with_its_place_and_the_rest_is_used(case, write, expected):
    row, reason = REJECTED[case]
    row = row if isinstance(row, bytes) else row.encode()
    lines = (HEADER + GOOD).encode().splitlines(keepends=True)
    path = write(b"".join([*lines[:7], row, *lines[7:]]))
    result = run_on(path)
    assert without_rejected(result.estimates[0]) == without_rejected(am.Estimate.from_json(expected))
    assert result.estimates[0].counts["rejected"] == result.ledger["rejected"] == 1
    [rejection] = result.rejections()
    assert reason in rejection.reason
    assert (rejection.file, rejection.row) == (str(path), 8)
    json.dumps(rejection.to_dict(), allow_nan=False)


def as_json(row):
    return json.dumps(row, ensure_ascii=False)


JSON_ROWS = [
    as_json({"realization": k, "time": t, "home": 10 + (k + t) % 3, "work": 20 - (k + t) % 3})
    for k in range(3)
    for t in range(12)
]
JSON_REJECTED = {
    "half a line": ('{"realization": 1, "time": 99, "ho', "the line is not JSON"),
    "a list": ("[1, 2]", r"holds \[1, 2\], not a JSON object"),
    "text": ('{"realization": 1, "time": 99, "home": "many", "work": 5}', "'home' is 'many', not a number"),
    "a truth value": ('{"realization": 1, "time": true, "home": 1, "work": 5}', "time is True, not a whole"),
    "null": ('{"realization": 1, "time": 99, "home": null, "work": 5}', "'home' is missing"),
    "NaN": ('{"realization": 1, "time": 99, "home": NaN, "work": 5}', "'home' is NaN"),
    "nesting": ('{"realization": {"a": 1}, "time": [9], "home": 1, "work": 5}', "realization is {'a': 1}"),
    "no UTF-8": (b'{"realization": "\xff", "time": 99, "home": 1, "work": 5}', "not UTF-8"),
    "another object": ("{}", "realization is missing"),
}


@pytest.mark.parametrize("case", JSON_REJECTED)
def test_one_broken_json_line_is_rejected_with_its_place(case, write, expected):
    row, reason = JSON_REJECTED[case]
    lines = [line.encode() for line in JSON_ROWS]
    lines.insert(5, row if isinstance(row, bytes) else row.encode())
    lines.insert(2, b"")
    result = run_on(write(b"\n".join(lines), "data.jsonl"))
    assert without_rejected(result.estimates[0]) == without_rejected(am.Estimate.from_json(expected))
    [rejection] = result.rejections()
    assert rejection.row == 7
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(rejection.reason)


LISTS = {
    "too short": ("[1]", "counts has 1 values for 2 states"),
    "too long": ("[1, 2, 3]", "counts has 3 values for 2 states"),
    "text": ('[1, "x"]', "the count of 'work' is 'x'"),
    "null": ("[1, null]", "the count of 'work' is missing"),
    "no list": ("5", "counts is 5, not a list"),
    "none": ("null", "counts is missing"),
    "truth": ("[1, true]", "the count of 'work' is True"),
}


@pytest.mark.parametrize("case", LISTS)
def test_a_list_that_is_no_list_of_counts_is_rejected(case, write):
    value, reason = LISTS[case]
    rows = [as_json({"realization": 0, "time": t, "counts": [10 + t % 2, 20]}) for t in range(12)]
    rows.append(f'{{"realization": 0, "time": 99, "counts": {value}}}')
    result = run_on(write("\n".join(rows), "data.jsonl"))
    assert result.ledger["records"] == 12
    [rejection] = result.rejections()
    assert reason in rejection.reason


HARMLESS = {
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "a BOM": lambda text: b"\xef\xbb\xbf" + text,
    "CRLF": lambda text: text.replace(b"\n", b"\r\n"),
    "BOM and CRLF": lambda text: b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"),
    "no newline at the end": lambda text: text.rstrip(b"\n"),
    "blank lines": lambda text: text.replace(b"1,0,", b"\n1,0,") + b"\n\n",
    "scientific notation": lambda text: text.replace(b",10,", b",1e1,").replace(b",20\n", b",2.0E+01\n"),
    "spaces": lambda text: text.replace(b",", b" , "),
    "quotes": lambda text: text.replace(b",10,", b',"10",'),
    "an extra column": lambda text: text.replace(b"\n", b',"a, b"\n').replace(b'work,"a, b"', b"work,note"),
    "time going backwards": lambda text: b"".join(
        [text.splitlines(keepends=True)[0], *reversed(text.splitlines(keepends=True)[1:])]
    ),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_harmless_variants_give_the_same_answer(case, write, expected):
    path = write(HARMLESS[case]((HEADER + GOOD).encode()))
    result = run_on(path)
    found, wanted = result.estimates[0], am.Estimate.from_json(expected)
    np.testing.assert_allclose(found.transition_matrix, wanted.transition_matrix, atol=1e-12)
    assert dict(found.counts) == dict(wanted.counts)


FATAL = {
    "an empty file": ("", {}, "all input is empty"),
    "a header only": (HEADER, {}, "the input has no rows"),
    "a BOM only": (b"\xef\xbb\xbf", {}, "all input is empty"),
    "a column missing": ("realization,time,home\n1,2,3\n", {}, "nor one for the state 'work'"),
    "a time column missing": (
        "realization,tme,home,work\n1,2,3,4\n",
        {},
        "no column 'time'; did you mean 'tme'",
    ),
    "a column twice": ("realization,time,home,home\n", {}, "column 'home' occurs twice"),
    "only broken rows": (HEADER + "1,x,3,4\n", {}, "all 1 rows were rejected; the first: time is 'x'"),
    "more than max_rejected": (
        HEADER + GOOD + "1,x,3,4\n" * 3,
        {"max_rejected": 2},
        "records were rejected, more than max_rejected: 2",
    ),
    "one step": (HEADER + "1,0,3,4\n2,0,3,4\n", {}, "no two records are one step apart"),
    "steps far apart": (HEADER + "1,0,3,4\n" + f"2,{2**62},3,4\n", {}, "check the time column and its step"),
    "exact counts that change": (
        HEADER + GOOD + "".join(f"1,{t},9,9\n" for t in range(12, 15)),
        {"noise": "exact", "population": None},
        "not closed",
    ),
    "exact counts beyond N": (
        HEADER + GOOD,
        {"noise": "exact", "population": 5},
        "more than the population 5",
    ),
    "a stream": (HEADER + GOOD, {"stream": {}}, "stream needs the Beam engine"),
}


@pytest.mark.parametrize("case", FATAL)
def test_input_that_cannot_be_used_is_one_clear_error(case, write):
    content, more, message = FATAL[case]
    with pytest.raises(am.InputError, match=message):
        run_on(write(content), **more)


def test_files_that_are_missing_foreign_or_of_no_known_format_are_named(write, tmp_path):
    for name, content, message in (
        ("x.parquet", b"PAR1 and nonsense", "cannot be read as Parquet"),
        ("x.dat", b"abc", "format of .*x.dat"),
        ("x.csv.gz", b"\x1f\x8b\x08", "gzip"),
    ):
        with pytest.raises(am.InputError, match=message):
            run_on(write(content, name))
    for path, message in (
        (tmp_path / "none.csv", "cannot read"),
        (tmp_path, "is a directory"),
        (tmp_path / "*.x", "no file"),
    ):
        with pytest.raises(am.InputError, match=message):
            run_on(path)


def test_a_parquet_column_of_the_wrong_type_is_an_error(tmp_path):
    frame = frames.wide(frames.counts())
    for changed, message in (
        (frame.with_columns(time=pl.lit(0).cast(pl.Datetime)), "input.step to a duration"),
        (frame.with_columns(time=pl.lit(True)), "not whole numbers"),
        (frame.with_columns(counts=pl.lit(3)), "not lists of counts"),
    ):
        path = frames.save(changed, tmp_path / "data.parquet")
        with pytest.raises(am.InputError, match=message):
            run(read_config(frames.config(path)))
    path = frames.save(frame, tmp_path / "data.parquet")
    with pytest.raises(am.InputError, match="not time stamps"):
        run(read_config(frames.config(path, input={"step": "1h"})))


def test_time_stamps_off_the_step_are_rejected(write):
    rows = "".join(f"1,2026-01-01T{h:02d}:00:00Z,{10 + h % 2},20\n" for h in range(12))
    odd = "1,2026-01-01T05:30:00Z,1,2\n1,yesterday,1,2\n1,2026-02-30,1,2\n"
    result = run_on(write(HEADER + rows + odd), input={"step": "1h"})
    reasons = [r.reason for r in result.rejections()]
    assert result.ledger["records"] == 12
    assert "not a whole number of 1h steps from 1970-01-01" in reasons[0]
    assert all("not a time such as" in r for r in reasons[1:])


def test_duplicates_are_dropped_and_counted_and_conflicts_are_told(write, expected):
    path = write(HEADER + GOOD + GOOD + "1,3,99,99\n")
    result = run_on(path)
    assert without_rejected(result.estimates[0]) == without_rejected(am.Estimate.from_json(expected))
    assert result.ledger["duplicates"] == 37
    assert result.ledger["conflicting"] == 1
    assert [(r.row, r.reason[:40]) for r in result.rejections()] == [
        (74, "its realization and time were met before")
    ]
    assert result.ledger["rejected"] == 0


LONG = "realization,time,state,count\n" + "".join(
    f"{k},{t},home,{10 + (k + t) % 3}\n{k},{t},work,{20 - (k + t) % 3}\n" for k in range(3) for t in range(12)
)


def long_run(path, absent=None, **more):
    return run_on(path, input={"layout": "long", **({"absent": absent} if absent else {})}, **more)


def test_a_row_of_a_long_table_that_is_bad_costs_its_whole_record(write):
    for row, reason in (
        ("1,5,hme,3\n", "state 'hme' is not declared"),
        ("1,5,work,x\n", "the count of 'work' is 'x'"),
    ):
        result = long_run(write(LONG + row))
        assert result.ledger["records"] == 35
        rejections = list(result.rejections())
        own = [r for r in rejections if "another row of its record" not in r.reason]
        assert [r.row for r in own] == [74]
        assert reason in own[0].reason
        assert len(rejections) == result.ledger["rejected"] == 3


def test_a_state_without_a_row_is_zero_or_makes_the_record_missing(write):
    path = write(LONG.replace("1,5,work,15\n", "").replace("1,5,work,20\n", "").replace("1,5,work,18\n", ""))
    zero, missing = long_run(path), long_run(path, "missing")
    assert zero.ledger["filled_with_zero"] == 1
    assert zero.ledger["records"] == 36
    assert missing.ledger["incomplete"] == 1
    assert missing.ledger["records"] == 35
    assert missing.ledger["gaps"] == 1
    assert missing.ledger["rows"] == {"read": 71, "used": 70, "duplicate": 0, "rejected": 1, "late": 0}


def test_a_long_table_given_twice_is_all_duplicates(write, monkeypatch):
    monkeypatch.setattr(engine, "HELD_VALUES", 10)
    monkeypatch.setattr(engine, "BLOCK_VALUES", 10)
    once, twice = long_run(write(LONG, "a.csv")), long_run(write(LONG + LONG.split("\n", 1)[1], "b.csv"))
    assert twice.ledger["duplicates"] == 36
    assert twice.ledger["rows"]["duplicate"] == 72
    assert twice.ledger["conflicting"] == 0
    assert without_rejected(once.estimates[0]) == without_rejected(twice.estimates[0])


def test_a_population_that_changes_within_a_realization_is_rejected(write):
    rows = GOOD.replace("\n", ",30\n") + "1,12,10,20,40\n1,13,10,20,-1\n"
    path = write(HEADER.replace("\n", ",people\n") + rows)
    result = run_on(path, population=None, input={"columns": {"population": "people"}})
    reasons = [r.reason for r in result.rejections()]
    assert "population 40 differs from 30" in reasons[0]
    assert "a population is above 0" in reasons[1]


def test_negative_counts_are_normal_under_additive_noise(write):
    result = run_on(write(HEADER + GOOD + "1,12,-3,33\n"))
    assert result.ledger["records"] == 37


def test_one_broken_row_in_a_large_file_does_not_stop_the_run(write):
    rows = [
        f'{{"realization": 0, "time": {t}, "home": {10 + t % 3}, "work": {20 - t % 3}}}'
        for t in range(20_000)
    ]
    rows[15_000] = rows[15_000][:20]
    result = run_on(write("\n".join(rows), "data.jsonl"), estimator="mom")
    assert result.ledger["records"] == 19_999
    assert result.ledger["gaps"] == 1
    assert [r.row for r in result.rejections()] == [15_001]


STRAY = {
    "one mark": (['1,5,"7,9\n'], 1),
    "two marks with rows between": (['1,5,"7,9\n', '1,6,7,"9\n'], 2),
    "a mark in each of two neighbours": (['1,5,7,"9\n1,6,7,"9\n'], 2),
    "bytes that are no UTF-8": ([b"\xff\xfe,5,7,9\n"], 1),
    "fields that are too many": (["1,5,7,9,9\n"], 1),
    "a broken first chunk": (["{" * 50 + "\n"], 1),
}


@pytest.mark.parametrize("case", STRAY)
def test_what_is_broken_costs_its_own_line(case, write):
    """Not the file, and not the rows that come after it."""
    broken, lost = STRAY[case]
    lines = (
        (HEADER + "".join(f"0,{t},{10 + t % 3},{20 - t % 3}\n" for t in range(600))).encode().splitlines(True)
    )
    rows = [one if isinstance(one, bytes) else one.encode() for one in broken]
    for number, row in enumerate(rows):
        lines.insert(10 + 200 * number, row)
    result = run_on(write(b"".join(lines)), estimator="mom")
    assert result.ledger["records"] == 600
    assert result.ledger["rows"]["rejected"] == lost
    for rejection in result.rejections():
        assert rejection.row in (10, 11, 12, 210, 211, 212)
        assert rejection.reason


def test_json_lines_whose_first_chunk_is_broken_are_read(write, monkeypatch):
    monkeypatch.setattr(text, "PIECE", 256)
    good = [f'{{"realization": 0, "time": {t}, "counts": [{10 + t % 3}, {20 - t % 3}]}}\n' for t in range(50)]
    result = run_on(write("not json\n" * 60 + "".join(good), "data.jsonl"), estimator="mom")
    assert result.ledger["records"] == 50
    assert result.ledger["rejected"] == 60


def test_a_run_that_rejects_much_stops_and_tells_the_reasons_and_the_keys(write):
    rows = [f'0,{t},"1,{t:02}",20\n' for t in range(8)] + [f"0,{t}.5,1,2\n" for t in range(3)]
    path = write(HEADER + "".join(f"0,{t},{10 + t % 3},20\n" for t in range(8, 100)) + "".join(rows))
    with pytest.raises(am.InputError) as found:
        run_on(path, max_rejected=None)
    told = str(found.value)
    assert "11 of 103 records were rejected, more than max_rejected: 0.05; the commonest reasons: 8 x" in told
    assert "the count of 'home' is '1,00', not a number" in told
    assert "row 94; see input.decimal" in told
    assert "3 x time is '0.5', not a whole number" in told
    assert "see input.step" in told
    assert run_on(path, max_rejected=0.2).ledger["rejected"] == 11
    with pytest.raises(am.InputError, match="11 of 103 records were rejected"):
        am.estimate(path, ["home", "work"], noise=am.Gaussian(1), population=30)


def test_rejected_lines_are_a_sample_of_each_reason_and_all_are_counted(write, tmp_path):
    rows = "".join(f"0,x{t},1,2\n" for t in range(150)) + "".join(f"0,{t},x,2\n" for t in range(30))
    path = write(HEADER + GOOD + rows)
    for wanted, lines in (("sample", 130), ("all", 180)):
        plain = {**PLAIN, "estimator": "mom", "input": {"files": str(path)},
                 "output": {"directory": str(tmp_path / wanted), "rejected": wanted}}  # fmt: skip
        config = read_config(plain)
        output.write(run(config), config, plain)
        assert len((tmp_path / wanted / "rejected.jsonl").read_text().splitlines()) == lines
        about = json.loads((tmp_path / wanted / "run.json").read_text())
        assert sorted(about["reasons"].values()) == [30, 150]
        assert about["ledger"]["rejected"] == 180


def test_rows_of_one_series_need_no_column_for_it(write):
    one = "time,home,work\n" + "".join(f"{t},{10 + t % 3},{20 - t % 3}\n" for t in range(30))
    assert run_on(write(one), estimator="mom").ledger["realizations"] == 1
    two = one + "".join(f"{t},{12 - t % 2},{18 + t % 2}\n" for t in range(30))
    with pytest.raises(am.InputError, match="not of one series; name the column that tells series apart"):
        run_on(write(two), estimator="mom")


def test_a_column_of_a_state_that_is_left_out_is_said(write, caplog):
    rows = "".join(f"0,{t},{10 + t % 3},{20 - t % 3},{t},x\n" for t in range(30))
    run_on(write(HEADER.replace("\n", ",away,note\n") + rows), estimator="mom")
    assert "columns of numbers that are not read: away; if they are states" in caplog.text


def test_codes_with_leading_zeros_booleans_and_dates_stay_what_they_are(write):
    rows = "".join(
        f"{name},{t},{10 + t % 3},20\n" for name in ("007", "7", "true", "2026-01-31") for t in range(9)
    )
    state = run_on(write(HEADER + rows), estimator="mom").state
    assert set(map(str, state.names.tolist())) == {"007", "7", "true", "2026-01-31"}


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for path, what in ((tmp_path / "pipe.csv", "a pipe"), (Path("/dev/null"), "a device")):
        with pytest.raises(am.InputError, match=f"not a file with contents that stay .it is {what}"):
            run_on(path)


def test_a_directory_in_the_place_of_a_file_is_found_before_anything_is_replaced(write, tmp_path):
    path, out = write(HEADER + GOOD), tmp_path / "out"
    (out / "run.json").mkdir(parents=True)
    (out / "estimates.jsonl").write_text("old")
    plain = {**PLAIN, "estimator": "mom", "input": {"files": str(path)}, "output": {"directory": str(out)}}
    config = read_config(plain)
    with pytest.raises(am.InputError, match="run.json.* is a directory"):
        output.write(run(config), config, plain)
    assert (out / "estimates.jsonl").read_text() == "old"


def test_what_would_take_too_much_memory_is_refused_with_the_number_to_change(write, tmp_path):
    rows = "".join(f'{{"realization": 0, "time": {t}, "counts": {[1] * 600}}}\n' for t in range(9))
    wide = write(rows, "wide.jsonl")
    small = {"limits": {"memory": "20MB"}, "estimator": "mom", "states": "from-data"}
    y, _ = am.simulate(states=2, steps=50, realizations=3, seed=1)
    frame = pl.DataFrame({"realization": 0, "time": range(300)}).with_columns(counts=pl.lit([1] * 10_000))
    packed = frames.save(frame, tmp_path / "packed.parquet")
    assert packed.stat().st_size < 100_000
    for call, message in (
        (lambda: run_on(wide, **small), "an estimate of 600 states would take about .* take fewer states"),
        (
            lambda: run_on(wide, **{**small, "limits": {"memory": "200MB"}}),
            "uncertainty.replicates is smaller",
        ),
        (lambda: am.estimate(y, replicates=10**9, population=100), "lower uncertainty.replicates"),
        (lambda: am.estimate(y, chain=am.Window(10**9, 1), population=100), "raise chain.window.every"),
        (lambda: run_on(packed, **small), "row group 0 of .* with 3,00.,... values, would take about 45"),
    ):
        with pytest.raises(am.InputError, match=message):
            call()
    assert run_on(wide, **{**small, "limits": {"memory": "1GB"}}).ledger["records"] == 9


@pytest.mark.parametrize("first", [False, True])
def test_a_record_with_another_total_under_exact_counts_costs_itself(first, write):
    """Also where it comes first: the usual total of its realization is the right one."""
    odd = "1,-1,9,9\n" if first else "1,12,9,9\n"
    path = write(HEADER + (odd + GOOD if first else GOOD + odd))
    result = run_on(path, noise="exact", population=None, estimator="mom")
    assert result.ledger["records"] == 36
    [rejection] = result.rejections()
    assert rejection.row == (2 if first else 38)
    assert (
        rejection.reason
        == "its counts add up to 18, those of its realization to 30, which exact counts do not"
    )
    over = run_on(write(HEADER + GOOD + "1,12,20,20\n"), noise="exact", population=30, estimator="mom")
    assert [r.reason for r in over.rejections()] == ["it counts 40 individuals, more than the population 30"]
