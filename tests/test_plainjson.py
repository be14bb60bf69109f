"""JSON lines of plain numbers: what the general reader finds, or nothing at all."""

import json

import frames
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggmc_beam.config import read_config
from aggmc_beam.local import jsonlines, plainjson, run

KINDS = {"k": pl.Int64, "t": pl.Int64, "y": pl.List(pl.Int64)}


def text(rows, **options):
    return "".join(json.dumps({"k": k, "t": t, "y": y}, **options) + "\n" for k, t, y in rows).encode()


ROWS = [(k, t - 2, [3 * k, 10**t, 7]) for k in range(4) for t in range(5)]


def plain(path, data):
    path.write_bytes(data)
    return pl.concat(list(plainjson.frames(path, KINDS)))


def general(path, data):
    """The rows of the general reader, broken ones as nulls."""
    path.write_bytes(data)
    found = jsonlines.scan(path, frozenset("y"), list(KINDS), "row", "broken").collect()
    return found.with_columns(pl.when(~pl.col("broken")).then(pl.col(c)) for c in KINDS)


@pytest.mark.parametrize("chunk", [64, 1 << 20])
@pytest.mark.parametrize("end", [None, -1], ids=["lines", "last"])
def test_plain_lines_are_read_as_they_are(chunk, end, tmp_path, monkeypatch):
    monkeypatch.setattr(plainjson, "CHUNK", chunk)
    data = text(ROWS)[:end]
    expected = pl.DataFrame(ROWS, schema=KINDS, orient="row")
    assert plain(tmp_path / "a", data).equals(expected)
    assert plain(tmp_path / "a", b"\xef\xbb\xbf" + data).equals(expected)


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
def test_one_line_that_is_not_like_the_others_is_noticed(line, tmp_path):
    data = text(ROWS)
    for at in (len(data), data.index(b"\n") + 1):
        with pytest.raises(pl.exceptions.PolarsError):
            plain(tmp_path / "a", data[:at] + line.encode() + b"\n" + data[at:])


@pytest.mark.parametrize("name", [n for n in ODD if n not in ("order", "space", "more", "shorter", "escape")])
def test_lines_that_are_all_odd_are_left_to_others(name, tmp_path):
    with pytest.raises(pl.exceptions.PolarsError):
        plain(tmp_path / "a", 3 * (ODD[name].encode() + b"\n"))


@given(st.data())
def test_whatever_is_read_is_what_the_general_reader_reads(tmp_path_factory, data):
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
        found = plain(path, bytes(written))
    except pl.exceptions.PolarsError:
        return
    expected = general(path, bytes(written))
    assert not expected["broken"].any()
    assert found.select(pl.col("k", "t").cast(pl.String), pl.col("y").cast(pl.List(pl.Float64))).equals(
        expected.select(list(KINDS))
    )


@pytest.mark.parametrize("layout", ["lists", "columns"])
def test_a_run_finds_the_same_whether_lines_are_plain_or_not(layout, tmp_path, monkeypatch):
    y = frames.counts(K=25, T=8)
    frame = frames.wide(y)
    states = frame.columns[2:]
    records = [
        {"realization": r["realization"], "time": r["time"], "counts": [int(r[s]) for s in states]}
        if layout == "lists"
        else {n: int(v) for n, v in r.items()}
        for r in frame.iter_rows(named=True)
    ]
    lines = [json.dumps(r, ensure_ascii=False) for r in records]
    found = []
    read: list[list[pl.DataFrame]] = []
    frames_of = plainjson.frames
    monkeypatch.setattr(plainjson, "frames", lambda *a: read.append(list(frames_of(*a))) or iter(read[-1]))
    for name, data in (("plain", lines), ("other", [lines[0].replace(" ", "  ", 1), *lines[1:]])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(data), encoding="utf-8")
        found.append(run(read_config(frames.config(tmp_path / f"{name}.jsonl"))))
    assert len(read) == 1
    one, other = (np.array(r.estimates[0].transition_matrix) for r in found)
    np.testing.assert_allclose(one, other, atol=1e-12)
    assert found[0].ledger == found[1].ledger
