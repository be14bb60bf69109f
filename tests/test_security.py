"""Files and names from strangers: limits hold, nothing is run, nothing is written elsewhere."""

import ast
import hashlib
import io
import json
import math
import os
import re
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.beam import codec
from aggmc_beam.beam.parsing import Parse
from aggmc_beam.beam.rows import rows
from aggmc_beam.cli import main
from aggmc_beam.config import load_config
from aggmc_beam.config.reader import read_yaml
from aggmc_beam.errors import Rejected
from aggmc_beam.local.blocks import BlockReader
from aggmc_beam.local.sources import open_files
from aggmc_beam.records import MAX_BYTES, Schema, parse_json, read_record
from aggmc_beam.sums import run_file, storage
from aggmc_beam.text import escape_controls, redacted, say

PACKAGE = Path(am.__file__).parent
ESCAPE = "\x1b]0;owned\x07\x1b[2J"
MARKUP = "<script>alert(1)</script>"


# Configs


def test_a_config_that_would_grow_is_refused_before_it_does():
    laughs = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{f'*a{i - 1},' * 10}]\n" for i in range(1, 10))
    for text, message in {
        laughs: "anchors",
        "[" * 100_000: "levels",
        "{a: " * 1000: "levels",
        "population: " + "59:" * 4000 + "59": "10,000 characters",
        "population: 0x" + "f" * 5000: "63 bits",
        "- x\n" * 200_000: "100,000 values",
    }.items():
        with pytest.raises(am.InputError, match=message):
            read_yaml(text)


def test_a_config_of_100_mb_is_not_read(tmp_path):
    path = tmp_path / "big.yaml"
    with open(path, "wb") as stream:
        stream.truncate(100 << 20)
    tracemalloc.start()
    with pytest.raises(am.InputError, match="larger than 1 MB"):
        load_config(path)
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()


def test_a_small_config_cannot_ask_for_much_memory():
    with pytest.raises(am.InputError, match="too many covariates"):
        am.Parametric.harmonics(10**12, 3)


# Bytes


def test_nothing_that_runs_code_is_used_to_read_or_write():
    """No pickle and its kin, no eval, no shell; numpy's own loaders, which may unpickle, are not used."""
    modules = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "subprocess"}
    calls, attributes = (
        {"eval", "exec", "compile", "__import__"},
        {"system", "popen", "unsafe_load", "full_load"},
    )
    loaders = {"load", "save", "savez", "memmap", "fromfile"}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                assert not {a.name.split(".")[0] for a in node.names} & modules, where
            if isinstance(node, ast.ImportFrom) and node.module:
                assert node.module.split(".")[0] not in modules, where
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                owner = getattr(getattr(node.func, "value", None), "id", "")
                assert not (name in calls and isinstance(node.func, ast.Name)), where
                assert name not in attributes, where
                assert not (owner in ("np", "numpy") and name in loaders), where


def sealed(header, arrays=b""):
    text = json.dumps(header).encode()
    body = storage._PREFIX.pack(storage.MAGIC, storage.VERSION, len(text)) + text + arrays
    return body + hashlib.sha256(body).digest()


def sums_file(**changes):
    y, _ = am.simulate(states=2, steps=5, seed=1)
    arrays = run_file.sums_to_arrays(am.Sums.of(y / 7))
    data = storage.pack(run_file.SUMS, {"S": 2}, arrays, deflate=False)
    length = struct.unpack_from("<8sII", data)[2]
    header = json.loads(data[16 : 16 + length])
    header.update(changes)
    return header, data[16 + length : -32]


BAD_HEADERS = {
    "a huge array": {"arrays": [["label", "i", "<i8", [2**40, 2**20]]]},
    "a negative length": {"arrays": [["label", "i", "<i8", [-1]]]},
    "objects": {"arrays": [["label", "i", "|O", [1]]]},
    "no arrays": {"arrays": []},
    "a number for arrays": {"arrays": 3},
    "no states": {"meta": {"S": 0}},
    "many states": {"meta": {"S": 10**9}},
    "states as text": {"meta": {"S": "2"}},
    "no meta": {"meta": None},
    "kind as number": {"kind": 7},
}


@pytest.mark.parametrize("case", BAD_HEADERS)
def test_a_sealed_file_that_lies_about_its_contents_is_refused(case, tmp_path):
    """The checksum is right: whoever wrote the file knew the format and meant no good."""
    data = sealed(*sums_file(**BAD_HEADERS[case]))
    tracemalloc.start()
    with pytest.raises(am.InputError, match=re.escape("m.aggmc")):
        am.Sums.from_bytes(data, "m.aggmc")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e300])
def test_sums_that_no_data_have_are_refused(value):
    y, _ = am.simulate(states=2, steps=5, seed=1)
    arrays = run_file.sums_to_arrays(am.Sums.of(y))
    arrays["product"][0, 1] = value
    with pytest.raises(am.InputError, match="not finite, or too large"):
        am.Sums.from_bytes(storage.pack(run_file.SUMS, {"S": 2}, arrays))


def test_an_encoded_value_that_lies_about_its_lengths_is_refused():
    good = codec.encode(1, ["x"], np.arange(6).reshape(2, 3))
    assert good[2:3] == b"\x05"
    bombs = [
        good[:2] + b"\xff" * 9 + b"\x7f" + good[3:],  # the meta is longer than everything
        good[:2] + b"\xff" * 20,  # a length without end
        codec.encode(1, None)[:-1] + b"\xff\xff\xff\xff\x0f",  # four billion arrays
        good.replace(b"\x02\x02\x03", b"\x02\xff\xff\xff\xff\x7f\xff\xff\xff\xff\x7f"),  # 2^70 numbers
        good[:-1],
        good + b"\0",
    ]
    tracemalloc.start()
    for data in bombs:
        with pytest.raises(am.InputError):
            codec.decode(data, 1)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


# Records

LONG = Schema(("home", "away"), "count", state="state")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": ' + b"9" * 1_000_000 + b"}", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "nested"),
        (b'{"a": "' + b"x" * MAX_BYTES + b'"}', "longer than 10 MB"),
    ],
)
def test_records_have_limits_of_size_depth_and_digits(line, reason):
    with pytest.raises(Rejected, match=reason):
        parse_json(line)
    assert [type(row) for row in rows(line)] == [Rejected]


def test_numbers_beyond_reason_are_rejected_with_their_field():
    row = {"realization": "r", "time": 1, "state": "home", "count": 1}
    for change, reason in [
        ({"count": 10**400}, "too large"),
        ({"count": 1e200}, "too large"),
        ({"count": math.nan}, "NaN"),
        ({"count": -math.inf}, "infinite"),
        ({"time": 10**18}, "too far away"),
        ({"time": 10**4000}, "too far away"),
        ({"realization": "\ud800"}, "not UTF-8"),
        ({"realization": "a\0b"}, "not UTF-8"),
        ({"state": 10**5000}, "too large to show"),
    ]:
        with pytest.raises(Rejected, match=reason):
            read_record({**row, **change}, LONG)


def test_of_a_repeated_key_every_engine_takes_the_first(tmp_path):
    line = '{"realization": "r", "time": 1, "counts": [1, 2], "time": 2, "counts": [3, 4]}'
    path = tmp_path / "x.jsonl"
    path.write_text(line)
    [block] = BlockReader(open_files([str(path)]), Schema(("a", "b"), "counts")).blocks()
    assert (block.records.time.tolist(), block.records.counts.tolist()) == ([1], [[1, 2]])
    assert parse_json(line) == {"realization": "r", "time": 1, "counts": [1, 2]}


def test_a_line_that_is_too_long_is_rejected_and_the_others_are_used(tmp_path):
    path = tmp_path / "x.jsonl"
    row = b'{"realization": 1, "time": %d, "counts": [1, 2], "note": "%s"}\n'
    path.write_bytes(b"".join(row % (t, b"x" * MAX_BYTES if t == 1 else b"") for t in range(3)))
    reader = BlockReader(open_files([str(path)]), Schema(("a", "b"), "counts"))
    [block] = reader.blocks()
    assert block.records.time.tolist() == [0, 2]
    assert [place.row.tolist() for place in reader.counts.places] == [[2]]


def test_a_message_that_no_file_can_hold_becomes_a_dead_letter():
    evil = '{"realization": "\\ud800", "time": 1, "state": "home", "count": 1}'
    [letter] = [x.value for x in Parse(LONG).process(evil)]
    assert json.loads(json.dumps(letter))["reason"].endswith("not UTF-8 text")


# Output

EVIL = ["../../escape", "/etc/passwd", MARKUP, ESCAPE, "a\nb", "CON", "=cmd|' /C calc'!A0", "..", "~root"]


@pytest.fixture(scope="module")
def evil_run(tmp_path_factory):
    """A run whose states, groups, realizations and name all mean harm; and everything it printed."""
    folder = tmp_path_factory.mktemp("outer")
    y, _ = am.simulate(states=len(EVIL), population=500, steps=12, realizations=3, seed=2)
    records = [
        {"realization": f"{EVIL[k]}", "time": t, "region": group, "counts": y[k, t].tolist()}
        for k in range(3)
        for t in range(12)
        for group in EVIL[:4]
    ]
    lines = [json.dumps(r) for r in records] + [json.dumps({"realization": ESCAPE, "time": MARKUP})]
    (folder / "in").mkdir()
    source = folder / "in" / "feed.jsonl"
    source.write_text("\n".join(lines))
    config = {
        "name": f"{MARKUP}{ESCAPE}",
        "states": EVIL,
        "group_by": ["region"],
        "input": {"files": str(source)},
        "output": {"directory": str(folder / "in" / "out"), "moments": True, "report": True},
    }
    path = folder / "in" / "run.yaml"
    path.write_text(json.dumps(config))
    (folder / "in" / "out").mkdir()
    (folder / "precious").write_text("mine")
    (folder / "in" / "out" / "estimates.jsonl").symlink_to(folder / "precious")
    return folder, path


def test_a_run_writes_into_its_directory_only(evil_run, capfd):
    folder, config = evil_run
    assert main(["run", str(config)]) == 0
    outside = {p for p in folder.rglob("*") if p.is_file() and (folder / "in" / "out") not in p.parents}
    assert outside == {config, folder / "in" / "feed.jsonl", folder / "precious"}
    assert (folder / "precious").read_text() == "mine"
    names = {p.name for p in (folder / "in" / "out").iterdir()}
    assert names == {"estimates.jsonl", "rejected.jsonl", "run.json", "moments.aggmc", "report.html"}
    out, err = capfd.readouterr()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", out + err)
    assert "\\x1b]0;owned" in out


def test_an_error_shows_what_it_names_and_steers_nothing(tmp_path, capfd):
    for name in (f"x{ESCAPE}.yaml", "x\u202e.yaml"):
        assert main(["run", str(tmp_path / name)]) == 2
    config = tmp_path / "c.yaml"
    config.write_text(json.dumps({"input": {"files": f"{tmp_path}/{ESCAPE}.csv"}, "states": ["a", ESCAPE]}))
    assert main(["run", str(config)]) == 2
    assert main(["run", str(config), "--set", f"{ESCAPE}=1"]) == 2
    out, err = capfd.readouterr()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out + err)
    assert "Traceback" not in err


def test_a_terminal_without_unicode_is_no_obstacle():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    say("home ± \ud800", stream)
    stream.flush()
    assert stream.buffer.getvalue() == b"home \\xb1 \\ud800\n"
    assert escape_controls("ü 日本 →\tx") == "ü 日本 →\\tx"


def test_a_path_that_no_system_takes_is_a_config_error(tmp_path):
    for key in ("output.directory", "input.files", "states"):
        config = {"input": {"files": "a.csv"}, "output": {"directory": "out"}}
        section, _, inner = key.partition(".")
        config[section] = {inner: "a\0b"} if inner else ["a\0b", "c"]
        path = tmp_path / "c.yaml"
        path.write_text(json.dumps(config))
        with pytest.raises(am.InputError, match=re.escape(key)):
            load_config(path)


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum"])
def test_csv_is_not_written_with_names_that_spreadsheets_run(name, tmp_path, capfd):
    target = tmp_path / "x.csv"
    command = ["simulate", "--states", f"a,{name}", "--steps", "3", "-o"]
    assert main([*command, str(target)]) == 1
    assert "formula" in capfd.readouterr().err
    assert os.listdir(tmp_path) == []
    assert main([*command, f"{target}.parquet"]) == 0


def test_negative_counts_stay_numbers_in_csv(tmp_path, capfd):
    target = tmp_path / "x.csv"
    command = ["simulate", "--states", "2", "--steps", "50", "--population", "3", "--noise", "gaussian:5"]
    assert main([*command, "-o", str(target)]) == 0
    assert ",-" in target.read_text()
    assert "'-" not in target.read_text()


def test_credentials_in_settings_are_not_repeated(tmp_path, capfd):
    secret = "hunter2hunter2"
    files = f"https://ann:{secret}@host/x.csv?X-Goog-Signature={secret}&day=1"
    config = tmp_path / "c.yaml"
    config.write_text(json.dumps({"input": {"files": files}, "states": ["a", "b"]}))
    assert main(["run", str(config)]) != 0
    out, err = capfd.readouterr()
    assert secret not in out + err
    assert "host/x.csv" in err
    plain = redacted({"input": {"files": [files]}, "api_key": secret, "states": ["token", "a@b"]})
    assert secret not in json.dumps(plain)
    assert plain["states"] == ["token", "a@b"]


def test_results_hold_no_credential_of_the_config(tmp_path, monkeypatch, capfd):
    y, _ = am.simulate(states=2, steps=20, seed=1)
    lines = [json.dumps({"realization": 0, "time": t, "counts": y[0, t].tolist()}) for t in range(20)]
    folder = tmp_path / "s3:" / "ann:hunter2@host"
    folder.mkdir(parents=True)
    (folder / "x.jsonl").write_text("\n".join([*lines, '{"realization": 1}']))
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "c.yaml"
    config.write_text(
        json.dumps(
            {
                "input": {"files": "s3://ann:hunter2@host/x.jsonl"},
                "states": ["a", "b"],
                "output": {"directory": "out", "report": True},
            }
        )
    )
    assert main(["run", str(config)]) == 0
    written = {p.name: p.read_text() for p in (tmp_path / "out").iterdir()}
    assert set(written) == {"estimates.jsonl", "rejected.jsonl", "run.json", "report.html"}
    assert [name for name, text in written.items() if "hunter2" in text] == []
    assert "s3://***@host/x.jsonl" in written["run.json"]
    assert "hunter2" not in "".join(capfd.readouterr())
