"""Estimates in every sink, sent there by the real clients, to servers of the tests that check them."""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from functools import cache
from pathlib import Path

import apache_beam as beam
import frames
import polars as pl
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Arrivals
from google.api_core.exceptions import NotFound
from google.cloud import pubsub_v1
from google_services import big_query, cloud_storage, pub_sub

import aggmc_beam as am
from aggmc_beam.beam import run as beam_run
from aggmc_beam.beam import sinks
from aggmc_beam.config import Output, read_config
from aggmc_beam.errors import InputError

TABLE = "aggmc-test:results.estimates"
TOPIC, SUBSCRIPTION = "projects/aggmc-test/topics/out", "projects/aggmc-test/subscriptions/out"
IN, FROM = "projects/aggmc-test/topics/in", "projects/aggmc-test/subscriptions/in"


@pytest.fixture
def storage(monkeypatch):
    with cloud_storage(monkeypatch) as server:
        yield server


@pytest.fixture
def bigquery(monkeypatch, storage):
    with big_query(monkeypatch, storage) as server:
        yield server


@pytest.fixture
def pubsub(monkeypatch):
    with pub_sub(monkeypatch) as server:
        publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
        for topic, subscription in ((TOPIC, SUBSCRIPTION), (IN, FROM)):
            publisher.create_topic(name=topic)
            subscriber.create_subscription(name=subscription, topic=topic)
        subscriber.close()
        publisher.transport.close()
        yield server


def lines(path):
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def records(K=4, T=20):
    """Records of two groups."""
    rows = frames.lists(frames.wide(frames.counts(K=K, T=T))).to_dicts()
    return [{"region": f"süd {row['realization'] % 2}", **row} for row in rows]


def bounded(tmp_path, *arguments, **output):
    """A run over a file; the estimates that it wrote."""
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, records())), encoding="utf-8")
    given = frames.config(
        tmp_path / "data.jsonl",
        group_by=["region"],
        output={"directory": str(tmp_path / "out"), **output},
    )
    beam_run.run(read_config(given), given, arguments)
    return lines(tmp_path / "out/estimates.jsonl")


def received():
    """The messages that wait, as estimates."""
    subscriber = pubsub_v1.SubscriberClient()
    answer = subscriber.pull(subscription=SUBSCRIPTION, max_messages=1000).received_messages
    subscriber.close()
    return [am.Estimate.from_json(m.message.data.decode()).to_dict() for m in answer]


def details(rows):
    return [json.loads(row["details"]) for row in rows]


def order(estimates):
    return sorted(estimates, key=lambda e: (json.dumps(e["group"]), e["refresh"]))


@cache
def one():
    """An estimate of little data; a state that was never seen has no numbers."""
    y = frames.counts(K=2, T=15)
    y[..., 0] = 0
    return am.estimate(y, states=frames.STATES, noise=am.Binomial(0.5), population=200, estimator="mom")


def made(refresh, **more):
    return am.Estimate(**{**vars(one()), "refresh": refresh, **more})


def sent(estimates, *options, runner="FnApiRunner", streaming=False, **output):
    """Estimates straight to the sinks; a stream is given by its `TestStream`."""
    source = estimates if streaming else beam.Create(estimates)
    given = PipelineOptions([*options, *(["--streaming"] if streaming else [])])
    with beam.Pipeline(runner, options=given) as pipeline:
        found = pipeline | source
        _ = found | "Write" >> sinks.WriteEstimates(Output(**output), streaming, files=streaming)


def test_a_bounded_run_publishes_estimates_and_loads_them_from_cloud_storage(
    bigquery, pubsub, storage, tmp_path
):
    expected = bounded(tmp_path, "--temp_location=gs://bucket/tmp", bigquery=TABLE, pubsub=TOPIC)
    assert len(expected) == 2
    assert order(received()) == expected
    assert bigquery.calls == ["insert_job", "get_job"]
    assert order(details(bigquery.rows[TABLE])) == expected
    entries = bigquery.rows[TABLE][0]["entries"]
    states = [(a, b) for a in frames.STATES for b in frames.STATES]
    assert [(entry["from_state"], entry["to_state"]) for entry in entries] == states
    assert all(path.startswith("gs://bucket/tmp/") for path in storage.objects)


def test_rows_are_streamed_once_though_an_answer_is_lost(bigquery):
    bigquery.lose = 1
    estimates = [made(1), made(2)]
    sent(estimates, bigquery=TABLE, bigquery_method="stream")
    assert bigquery.calls == ["get_table", "create_table", "insert_all", "insert_all"]
    assert order(details(bigquery.rows[TABLE])) == [e.to_dict() for e in estimates]
    assert {row["entries"][0]["probability"] for row in bigquery.rows[TABLE]} == {None}


def test_a_stream_writes_the_same_estimates_to_lines_parquet_pubsub_and_bigquery(bigquery, pubsub, tmp_path):
    out = tmp_path / "out"
    given = frames.config(
        "unused",
        group_by=["region"],
        output={"directory": str(out), "parquet": True, "pubsub": TOPIC, "bigquery": TABLE},
        stream={"refresh": "1s"},
    )
    given["input"] = {"pubsub": {"subscription": FROM}}
    publisher = pubsub_v1.PublisherClient()
    items = [*records(), "garbage"]
    for future in [publisher.publish(IN, json.dumps(item).encode()) for item in items]:
        future.result(30)
    running = beam_run.start(read_config(given))
    found: dict[str, list] = {"Pub/Sub": []}
    try:
        stop = time.monotonic() + 60
        while time.monotonic() < stop:
            found["Pub/Sub"] += received()
            found["BigQuery"] = details(bigquery.rows.get(TABLE, []))
            found["lines"] = lines(out / "estimates.jsonl") if (out / "estimates.jsonl").exists() else []
            parquet = [row for path in out.glob("*.parquet") for row in pl.read_parquet(path).to_dicts()]
            found["Parquet"] = details(parquet)
            last = {json.dumps(e["group"]): e["counts"]["records"] for e in order(found["lines"])}
            done = sum(last.values()) == len(records()) and (out / "rejected.jsonl").exists()
            if done and len({len(estimates) for estimates in found.values()}) == 1:
                break
    finally:
        running.cancel()
        publisher.transport.close()
    assert sum(last.values()) == len(records())
    assert [r["record"] for r in lines(out / "rejected.jsonl")] == ['"garbage"']
    for sink, estimates in found.items():
        assert order(estimates) == order(found["lines"]), sink
    rows = [sinks.table_row(am.Estimate.from_json(json.dumps(e))) for e in order(found["lines"])]
    assert sorted(parquet, key=lambda row: (row["group"], row["refresh"])) == rows


def test_a_stream_loads_rows_and_makes_files_in_far_directories(bigquery, storage, monkeypatch):
    monkeypatch.setattr(sinks, "LOAD_EVERY", 1)
    estimates = [made(i, window={"start": 5 * i, "end": 5 * i + 5}) for i in (1, 2)]
    stream = Arrivals()
    for estimate in estimates:
        stream = stream.add_elements([estimate]).advance_processing_time(5)
    sent(
        stream.advance_watermark_to_infinity(),
        "--temp_location=gs://bucket/tmp",
        runner="BundleBasedDirectRunner",
        streaming=True,
        directory="gs://bucket/out",
        parquet=True,
        bigquery=TABLE,
        bigquery_method="load",
    )
    expected = [e.to_dict() for e in estimates]
    assert bigquery.calls == ["insert_job", "get_job"] * 2
    assert order(details(bigquery.rows[TABLE])) == expected
    files = {kind: [p for p in storage.objects if p.endswith(kind)] for kind in ("jsonl", "parquet")}
    assert order(json.loads(storage.objects[path]) for path in files["jsonl"]) == expected
    frame = pl.concat(pl.read_parquet(storage.objects[path]) for path in files["parquet"])
    assert order(details(frame.to_dicts())) == expected
    assert all(len(found) == 2 for found in files.values())


def test_a_table_with_other_columns_fails_the_run_and_says_what_is_wrong(bigquery, monkeypatch):
    monkeypatch.setattr(sinks, "INSERT_RETRIES", 1)
    fields = sinks.table_schema()["fields"]
    bigquery.schemas[TABLE] = [f | {"type": "FLOAT"} if f["name"] == "group" else f for f in fields]
    bigquery.rows[TABLE] = []
    with pytest.raises(Exception, match="refused") as found:
        sent([made(1, group={"a": "b"})], bigquery=TABLE, bigquery_method="stream")
    error = beam_run.told(found.value)
    assert isinstance(error, InputError)
    assert "BigQuery refused a row of aggmc-test:results.estimates: group is" in str(error)
    assert bigquery.calls.count("insert_all") == 2
    with pytest.raises(RuntimeError, match="BigQuery job .* failed.*\n?.*group is"):
        sent([made(1, group={"a": "b"})], "--temp_location=gs://bucket/tmp", bigquery=TABLE)
    assert not bigquery.rows[TABLE]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            {"bigquery": TABLE},
            "add --temp_location=gs://BUCKET/PATH to Beam's options, or set output.bigquery_m",
        ),
        (
            {"bigquery": "a/b", "bigquery_method": "stream"},
            "output.bigquery is 'a/b', not project:dataset.table",
        ),
        (
            {"bigquery": "a.b", "bigquery_method": "stream"},
            "names no project: write project:a.b, or add --proj",
        ),
        ({"pubsub": "my-topic"}, "output.pubsub is 'my-topic', not projects/P/topics/T"),
    ],
)
def test_a_sink_that_cannot_work_is_refused_before_anything_is_read(output, reason, tmp_path):
    with pytest.raises(InputError, match=reason):
        bounded(tmp_path, **output)


def test_a_topic_that_does_not_exist_fails_the_run_and_is_named(pubsub):
    with pytest.raises(NotFound, match="projects/aggmc-test/topics/none"):
        sent([made(1)], pubsub="projects/aggmc-test/topics/none")


@pytest.mark.parametrize("sink", ["pubsub", "bigquery"])
def test_a_missing_client_is_told_with_the_way_to_install_it(sink, monkeypatch, tmp_path):
    for module in ("google.cloud.pubsub_v1", "google.cloud.bigquery"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        InputError, match=rf"output.{sink} needs Google's clients: pip install 'aggmc-beam\[gcp\]'"
    ):
        bounded(tmp_path, **{sink: {"pubsub": TOPIC, "bigquery": TABLE}[sink]})


def written(elements, *arguments, by=sinks.Append):
    """Elements through a writer of files, as one bundle."""
    writer = by(*arguments)
    writer.start_bundle()
    for element in elements:
        writer.process(element)
    writer.finish_bundle()


def test_a_bundle_that_fails_while_it_is_written_leaves_the_file_as_it_was(tmp_path):
    written([made(1)], str(tmp_path), "estimates")
    before = (tmp_path / "estimates.jsonl").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))  # a disk that is full
    try:
        with pytest.raises(OSError, match="only 100 of"):
            written([made(2)], str(tmp_path), "estimates")
        with pytest.raises(OSError, match="too large"):
            written([made(2)] * 50, str(tmp_path), by=sinks.AppendParquet)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.iterdir()] == ["estimates.jsonl"]
    assert (tmp_path / "estimates.jsonl").read_bytes() == before
    written([made(2)], str(tmp_path), "estimates")
    assert [e["refresh"] for e in lines(tmp_path / "estimates.jsonl")] == [1, 2]


def test_a_repeated_bundle_makes_no_second_file_of_estimates(storage, tmp_path):
    for refresh in (1, 1, 2):
        written([made(refresh)], str(tmp_path), by=sinks.AppendParquet)
        written([made(refresh)], "gs://bucket/out", "estimates")
        written([{"record": "x", "reason": "y"}], "gs://bucket/out", "rejected")
    assert sorted(pl.read_parquet(path)["refresh"][0] for path in tmp_path.iterdir()) == [1, 2]
    assert len([path for path in storage.objects if "estimates" in path]) == 2
    assert len([path for path in storage.objects if "rejected" in path]) == 3


def test_the_query_in_the_docs_finds_the_newest_estimates():
    text = (Path(__file__).parent.parent / "docs/beam.md").read_text(encoding="utf-8")
    [query] = re.findall(r"SELECT \* FROM dataset.estimates.*? = 1", text, re.DOTALL)
    window = {"start": 0, "end": 5}
    made_in_order = [
        made(7, group={"a": "x"}),
        made(8, group={"a": "x"}),
        made(8, group={"a": "x"}),
        made(1, group={"a": "x"}),  # of a job that was started anew
        made(2, group={"a": "y"}),
        made(3, group={"a": "y"}, window=window),
        made(4, group={"a": "y"}, cell=1),
    ]
    frame = sinks.parquet_frame(made_in_order).with_row_index("written")
    found = pl.SQLContext(estimates=frame).execute(
        query.replace("`", '"').replace("dataset.", ""), eager=True
    )
    kept = {(row["group"], row["window_end"], row["cell"], row["refresh"]) for row in found.to_dicts()}
    x, y = '{"a": "x"}', '{"a": "y"}'
    assert len(found) == 4
    assert kept == {(x, None, None, 1), (y, None, None, 2), (y, "5", None, 3), (y, None, 1, 4)}
