"""Input and output on a filesystem that is not this machine's: Cloud Storage, with Google's client."""

from __future__ import annotations

import bz2
import gzip
import io
import json
from pathlib import Path

import frames
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from google_services import cloud_storage

import aggmc_beam as am
from aggmc_beam.beam import run as beam_run
from aggmc_beam.beam.files import find_files
from aggmc_beam.beam.pieces import Piece, read_blocks
from aggmc_beam.beam.plan import open_plan
from aggmc_beam.config import read_config
from aggmc_beam.errors import InputError
from aggmc_beam.local import output
from aggmc_beam.local import run as run_locally

FORMATS = ("csv", "jsonl", "parquet")


@pytest.fixture
def storage(monkeypatch):
    with cloud_storage(monkeypatch) as server:
        yield server


def uploaded(storage, tmp_path):
    """Records in a file of each format, here and there."""
    frame = frames.wide(frames.counts(K=6, T=30))
    for i, suffix in enumerate(FORMATS):
        path = frames.save(frame[i::3], tmp_path / f"data{i}.{suffix}")
        storage.objects[f"gs://bucket/in/{path.name}"] = path.read_bytes()
    return tmp_path


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_far_files_give_what_near_ones_give_and_all_output_is_written_far(storage, tmp_path):
    near = uploaded(storage, tmp_path)
    wrong = b'{"realization": 1, "time": "x", "home": 1, "work": 2, "\xc3\xbcnterwegs": 3}\n'
    storage.objects["gs://bucket/in/data1.jsonl"] += wrong
    (near / "data1.jsonl").write_bytes(storage.objects["gs://bucket/in/data1.jsonl"])
    storage.objects["gs://bucket/in/data.csv"] = b""
    wanted = {"moments": True, "report": True, "parquet": True}
    given = frames.config("gs://bucket/in/data*", output={"directory": "gs://bucket/out/", **wanted})
    beam_run.run(read_config(given), given)
    here = frames.config(near / "data*", output={"directory": str(tmp_path / "out"), **wanted})
    expected = run_locally(read_config(here))
    output.write(expected, read_config(here), here)

    far = {
        Path(path).name: data for path, data in storage.objects.items() if path.startswith("gs://bucket/out/")
    }
    assert far.keys() == {
        "estimates.jsonl",
        "estimates.parquet",
        "moments.aggmc",
        "rejected.jsonl",
        "report.html",
        "run.json",
    }
    [found] = lines(far["estimates.jsonl"].decode())
    [best] = [e.to_dict() for e in expected.estimates]
    assert found["counts"] == best["counts"]
    for i, row in enumerate(best["transition_matrix"]):
        assert found["transition_matrix"][i] == pytest.approx(row, abs=1e-10)
    [refused] = lines(far["rejected.jsonl"].decode())
    [same] = lines((tmp_path / "out/rejected.jsonl").read_text(encoding="utf-8"))
    assert refused["source"] == {**same["source"], "file": "gs://bucket/in/data1.jsonl"}
    assert refused["record"] == same["record"]
    assert pl.read_parquet(far["estimates.parquet"])["details"].to_list() == [
        json.dumps(found, ensure_ascii=False)
    ]
    (tmp_path / "moments.aggmc").write_bytes(far["moments.aggmc"])
    again = am.estimate(tmp_path / "moments.aggmc", noise=am.Binomial(0.5), population=200, estimator="mom")
    assert again.transition_matrix == pytest.approx(expected.estimates[0].transition_matrix)
    assert json.loads(far["run.json"])["ledger"]["files"] == 4


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_far_file_of_each_format_is_read_as_the_near_one(suffix, storage, tmp_path):
    near = uploaded(storage, tmp_path)
    found = []
    for place in ("gs://bucket/in", near):
        plan, files = open_plan(read_config(frames.config(f"{place}/*.{suffix}")))
        (block, _, _), (_, noticed, _) = read_blocks(plan, Piece(files[0]))
        read = block.records
        arrays = (read.names, read.realization, read.time, read.counts)
        found.append((*(array.tolist() for array in arrays), noticed["rows"]))
    assert found[0] == found[1]
    assert found[0][-1] == 60


def test_far_files_that_are_not_there_are_told(storage):
    with pytest.raises(InputError, match="no file matches 'gs://bucket/none\\*.csv'"):
        find_files(read_config(frames.config("gs://bucket/none*.csv")))


def test_an_error_in_a_far_file_names_the_file_and_not_its_copy(storage):
    storage.objects["gs://bucket/in/a.csv"] = b"realization,time,home\n1,2,3\n"
    with pytest.raises(InputError, match=r"^gs://bucket/in/a.csv has neither a column 'counts'"):
        open_plan(read_config(frames.config("gs://bucket/in/*.csv")))
    storage.objects["gs://bucket/in/a.csv"] = b""
    with pytest.raises(InputError, match="all input is empty: gs://bucket/in/a.csv"):
        open_plan(read_config(frames.config("gs://bucket/in/*.csv")))


def large(suffix):
    """The bytes of a file, of more than 36 MB where it is not packed."""
    frame = frames.wide(frames.counts(K=6, T=30))
    if suffix == "parquet":
        more = np.random.default_rng(1).random(5 * 10**6)
        columns = {c: np.resize(frame[c].to_numpy(), len(more)) for c in frame.columns}
        stream = io.BytesIO()
        pl.DataFrame({**columns, "more": more}).write_parquet(stream, row_group_size=10**5)
        return stream.getvalue()
    head, rest = frame.write_csv().split("\n", 1)
    packers = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "zst": lambda d: pa.compress(d, "zstd", asbytes=True),
    }
    pack = packers.get(suffix.split(".")[-1])
    data = f"{head}\n{rest * (400 if pack else 18_000)}".encode()
    return pack(data) if pack else data


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "csv.bz2", "csv.zst", "parquet"])
def test_the_launcher_reads_the_head_of_a_far_file_only(suffix, storage):
    data = storage.objects[f"gs://bucket/in/a.{suffix}"] = large(suffix)
    plan, _ = open_plan(read_config(frames.config(f"gs://bucket/in/a.{suffix}")))
    assert plan.schema.counts == tuple(frames.STATES)
    if not suffix.startswith("csv."):
        # Google's client reads 16 MB at a time: the head, and of Parquet the end too.
        assert len(data) > 36 << 20 > (34 if suffix == "parquet" else 18) << 20 >= storage.read


def test_states_of_far_files_in_the_long_layout_must_be_listed(storage):
    storage.objects["gs://bucket/in/a.csv"] = b"realization,time,state,count\n1,2,a,3\n"
    given = frames.config("gs://bucket/in/a.csv", input={"layout": "long"})
    with pytest.raises(InputError, match="states must be listed for far files"):
        open_plan(read_config({**given, "states": "from-data"}))
