"""Text of plain numbers: what the general reader finds, or nothing at all."""

import json

import frames
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loops import ROADS

from aggmc_beam.config import read_config
from aggmc_beam.local import jsonlines, plainjson, plaintext, run
from aggmc_beam.local.engine import Plan
from aggmc_beam.local.plaintext import NotPlain, Template
from aggmc_beam.native import compiled

KINDS = {"k": pl.Int64, "t": pl.Int64, "y": pl.List(pl.Int64)}


def text(rows, **options):
    return "".join(json.dumps({"k": k, "t": t, "y": y}, **options) + "\n" for k, t, y in rows).encode()


ROWS = [(k, t - 2, [3 * k, 10**t, 7]) for k in range(4) for t in range(5)]


#: Readers of plain JSON lines.
READERS = {"numpy": plainjson.frames} | ({} if compiled is None else {"compiled": plaintext.frames})


def plain(path, data, road="numpy"):
    path.write_bytes(data)
    return pl.concat(list(READERS[road](Template.of_json(str(path)), str(path), KINDS)))


def general(path, data):
    """The rows of the general reader, broken ones as nulls."""
    path.write_bytes(data)
    found = jsonlines.scan(path, frozenset("y"), list(KINDS), "row", "broken").collect()
    return found.with_columns(pl.when(~pl.col("broken")).then(pl.col(c)) for c in KINDS)


@pytest.fixture(params=READERS)
def road(request):
    return request.param


@pytest.mark.parametrize("chunk", [1, 64, 1 << 20])
@pytest.mark.parametrize("end", [None, -1], ids=["lines", "last"])
def test_plain_lines_are_read_as_they_are(chunk, end, road, tmp_path, monkeypatch):
    monkeypatch.setattr(plainjson, "CHUNK", chunk)
    monkeypatch.setattr(plaintext, "STRETCH", chunk)
    monkeypatch.setattr(plaintext, "AHEAD", 8)
    monkeypatch.setattr(plaintext, "TOGETHER", 3)
    data = text(ROWS)[:end]
    expected = pl.DataFrame(ROWS, schema=KINDS, orient="row")
    assert plain(tmp_path / "a", data, road).equals(expected)
    assert plain(tmp_path / "a", b"\xef\xbb\xbf" + data, road).equals(expected)


@pytest.mark.skipif(compiled is None, reason="the package was installed without a compiler")
def test_lines_that_end_as_those_of_windows_are_plain_too(tmp_path):
    expected = pl.DataFrame(ROWS, schema=KINDS, orient="row")
    data = text(ROWS).replace(b"\n", b"\r\n")
    assert plain(tmp_path / "a", data, "compiled").equals(expected)
    for spoiled in (data.replace(b"\r", b"", 1), data[:-2]):
        with pytest.raises(NotPlain):
            plain(tmp_path / "a", spoiled, "compiled")


@pytest.mark.skipif(compiled is None, reason="the package was installed without a compiler")
def test_a_line_that_is_longer_than_any_record_is_not_plain(tmp_path, monkeypatch):
    monkeypatch.setattr(plaintext, "STRETCH", 16)
    monkeypatch.setattr(plaintext, "MAX_BYTES", 100)
    data = text([ROWS[0], (1, 2, list(range(100))), *ROWS[1:]])
    with pytest.raises(NotPlain):
        plain(tmp_path / "a", data, "compiled")


ODD = {
    "zeros": '{"k": 0, "t": 007, "y": [1, 2, 3]}',
    "minus": '{"k": 0, "t": -0, "y": [1, 2, 3]}',
    "plus": '{"k": 0, "t": 7, "y": [1, +2, 3]}',
    "outside": '{"k": 0, "t": 7, "y": [1, 2, ]3}',
    "before": '{0"k": , "t": 7, "y": [1, 2, 3]}',
    "Windows": '{"k": 0, "t": 7, "y": [1, 2, 3]}\r',
    "point": '{"k": 0, "t": 7, "y": [1.5, 2, 3]}',
    "power": '{"k": 0, "t": 7, "y": [1e5, 2, 3]}',
    "null": '{"k": 0, "t": 7, "y": [null, 2, 3]}',
    "bool": '{"k": 0, "t": true, "y": [1, 2, 3]}',
    "text": '{"k": "0", "t": 7, "y": [1, 2, 3]}',
    "gone": '{"k": 0, "t": , "y": [1, 2, 3]}',
    "apart": '{"k": 0, "t": 7, "y": [1, 2 2, 3]}',
    "shorter": '{"k": 0, "t": 7, "y": [1, 2]}',
    "nested": '{"k": 0, "t": 7, "y": [[1], 2, 3]}',
    "more": '{"k": 0, "t": 7, "y": [1, 2, 3], "z": 1}',
    "twice": '{"k": 0, "t": 7, "t": 8, "y": [1, 2, 3]}',
    "named": '{"k": 0, "t": 7, "y2": [1, 2, 3]}',
    "comma": '{"k": 0, "t": 7, "y,": [1, 2, 3]}',
    "order": '{"t": 7, "k": 0, "y": [1, 2, 3]}',
    "space": '{"k":0, "t": 7, "y": [1, 2, 3]}',
    "escape": '{"k": 0, "\\u0074": 7, "y": [1, 2, 3]}',
    "blank": "",
    "broken": '{"k": 0, "t": 7, "y": [1, 2, 3',
    "large": '{"k": 0, "t": 7, "y": [1, 2, 99999999999999999999]}',
}


@pytest.mark.parametrize("line", ODD.values(), ids=ODD)
def test_one_line_that_is_not_like_the_others_is_noticed(line, road, tmp_path):
    data = text(ROWS)
    for at in (len(data), data.index(b"\n") + 1):
        with pytest.raises(pl.exceptions.PolarsError):
            plain(tmp_path / "a", data[:at] + line.encode() + b"\n" + data[at:], road)


@pytest.mark.parametrize("name", [n for n in ODD if n not in ("order", "space", "more", "shorter", "escape")])
def test_lines_that_are_all_odd_are_left_to_others(name, road, tmp_path):
    if (name, road) == ("Windows", "compiled"):
        return  # which compiled loops read, see above
    with pytest.raises(pl.exceptions.PolarsError):
        plain(tmp_path / "a", 3 * (ODD[name].encode() + b"\n"), road)


@pytest.mark.parametrize("road", READERS)
@given(data=st.data())
def test_whatever_is_read_is_what_the_general_reader_reads(tmp_path_factory, road, data):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    counts = st.lists(st.integers(0, 10**12), min_size=2, max_size=2)
    rows = data.draw(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 10**6), counts), min_size=1))
    written = bytearray(text(rows, separators=data.draw(st.sampled_from([(",", ":"), (", ", ": ")]))))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(written) - 1))
        written[at : at + data.draw(st.integers(0, 1))] = data.draw(
            st.one_of(
                st.sampled_from([b"0", b"-", b",", b".", b" ", b"\n", b'"', b"[", b"1", b"k"]),
                st.binary(max_size=1),
            )
        )
    try:
        found = plain(path, bytes(written), road)
    except pl.exceptions.PolarsError:
        return
    expected = general(path, bytes(written))
    assert not expected["broken"].any()
    assert found.select(pl.col("k", "t").cast(pl.String), pl.col("y").cast(pl.List(pl.Float64))).equals(
        expected.select(list(KINDS))
    )


#: A CSV file, and what its rows are read as by the general reader: text.
NAMES = ["k", "note", "t", "a", "b"]


def csv(path, data, separator=",", stretch=32):
    path.write_bytes(data)
    template = Template.of_csv(str(path), NAMES, ["k", "t", "a", "b"], separator)
    kinds = dict.fromkeys("ktab", pl.Int64)
    return pl.concat(list(plaintext.frames(template, str(path), kinds)))


@pytest.mark.skipif(compiled is None, reason="the package was installed without a compiler")
@pytest.mark.parametrize("stretch", [1, 16, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_plain_rows_of_csv_are_read_as_they_are(stretch, end, separator, tmp_path, monkeypatch):
    monkeypatch.setattr(plaintext, "STRETCH", stretch)
    rows = [(k, f"n{k}", t, -k * 10**t, 2**31 - 1) for k in range(5) for t in range(4)]
    lines = [NAMES, *rows]
    data = "".join(separator.join(map(str, line)) + end for line in lines).encode()
    expected = pl.DataFrame(rows, schema=NAMES, orient="row").drop("note")
    assert csv(tmp_path / "a", data, separator).equals(expected)
    assert csv(tmp_path / "a", b"\xef\xbb\xbf" + data, separator).equals(expected)
    if end == "\n":
        assert csv(tmp_path / "a", data[:-1], separator).equals(expected)


ODD_ROWS = {
    "zeros": "01,x,2,3,4", "minus": "-0,x,2,3,4", "plus": "+1,x,2,3,4", "space": "1,x, 2,3,4",
    "point": "1,x,2,3.0,4", "power": "1,x,2,1e3,4", "empty": "1,x,2,,4", "text": "1,x,2,y,4",
    "quoted number": '1,x,"2",3,4', "quoted text": '1,"x",2,3,4', "quote within": '1,x"y,2,3,4',
    "short": "1,x,2,3", "long": "1,x,2,3,4,5", "blank": "", "return": "1,x\ry,2,3,4",
    "large": "1,x,2,3,9999999999", "very large": "1,x,2,3,99999999999999999999",
    "end": "1,x,2,3,4 ", "nul": "1,x,2,3\0,4",
}  # fmt: skip


@pytest.mark.skipif(compiled is None, reason="the package was installed without a compiler")
@pytest.mark.parametrize("row", ODD_ROWS.values(), ids=ODD_ROWS)
def test_one_row_that_is_not_like_the_others_is_noticed(row, tmp_path):
    good = "1,x,2,3,4\n"
    for lines in (good + row + "\n" + good, good + row + "\n"):
        with pytest.raises(NotPlain):
            csv(tmp_path / "a", (",".join(NAMES) + "\n" + lines).encode())


@pytest.mark.skipif(compiled is None, reason="the package was installed without a compiler")
@pytest.mark.parametrize("header", ['k,"note",t,a,b', "k,note,t,a,b\n", "k,note,t,a,b\n\n1,x,2,3,4\n"])
def test_a_table_that_does_not_begin_with_a_plain_row_is_left_to_others(header, tmp_path):
    with pytest.raises(NotPlain):
        csv(tmp_path / "a", header.encode())


@pytest.mark.skipif(compiled is None, reason="the package was installed without a compiler")
@given(data=st.data())
def test_whatever_rows_are_read_are_those_of_the_general_reader(tmp_path_factory, data):
    """Numbers and text of each row, spoiled here and there."""
    path = tmp_path_factory.getbasetemp() / "any.csv"
    row = st.tuples(st.integers(0, 99), st.sampled_from(["x", "", "y z"]), *[st.integers(-9, 10**9)] * 3)
    rows = data.draw(st.lists(row, min_size=1))
    written = bytearray("".join(",".join(map(str, r)) + "\n" for r in [NAMES, *rows]).encode())
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(len("k,note,t,a,b\n"), len(written) - 1))
        written[at : at + data.draw(st.integers(0, 1))] = data.draw(
            st.one_of(
                st.sampled_from([b"0", b"-", b",", b".", b" ", b"\n", b'"', b"\r", b"1"]),
                st.binary(max_size=1),
            )
        )
    try:
        found = csv(path, bytes(written))
    except NotPlain:
        return
    columns = {"realization": "k", "time": "t", "counts": ["a", "b"]}
    config = {
        "input": {"files": str(path), "columns": columns},
        "states": ["a", "b"],
        "noise": {"model": "exact"},
    }
    general = Plan.open(read_config(config)).sources[0].scan(["k", "t", "a", "b"]).collect()
    assert not general["__broken"].any()
    assert found.cast(pl.String).equals(general.select("k", "t", "a", "b"))


def records_of(layout):
    frame = frames.wide(frames.counts(K=25, T=8))
    states = frame.columns[2:]
    return [
        {"realization": r["realization"], "time": r["time"], "counts": [int(r[s]) for s in states]}
        if layout == "lists"
        else {n: int(v) for n, v in r.items()}
        for r in frame.iter_rows(named=True)
    ]


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("layout", ["lists", "columns"])
def test_a_run_finds_the_same_whether_lines_are_plain_or_not(layout, road, tmp_path, monkeypatch):
    lines = [json.dumps(r, ensure_ascii=False) for r in records_of(layout)]
    found, read = [], []
    for module in (plainjson, plaintext):
        reader = module.frames
        monkeypatch.setattr(module, "frames", lambda *a, reader=reader: read.append(1) or reader(*a))
    for name, data in (("plain", lines), ("other", [lines[0].replace(" ", "  ", 1), *lines[1:]])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(data), encoding="utf-8")
        read.clear()
        with ROADS[road]():
            found.append(run(read_config(frames.config(tmp_path / f"{name}.jsonl"))))
        assert read
    check_same_runs(*found)


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("between", [", ", " ,", ",0"])
def test_a_run_finds_the_same_of_csv_whether_rows_are_plain_or_not(between, road, tmp_path):
    """The first numbers of the last row are written in another way."""
    records = [r for r in records_of("columns") if r["realization"] == 7 or r["time"] < 7]
    found = []
    for name in ("plain", "other"):
        lines = [",".join(records[0]), *(",".join(map(str, r.values())) for r in records)]
        if name == "other":
            lines[-1] = lines[-1].replace(",", between, 1)
        (tmp_path / f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")
        with ROADS[road]():
            found.append(run(read_config(frames.config(tmp_path / f"{name}.csv"))))
    check_same_runs(*found)


def check_same_runs(one, other):
    assert one.ledger == other.ledger
    np.testing.assert_allclose(
        one.estimates[0].transition_matrix, other.estimates[0].transition_matrix, atol=1e-12
    )
