"""The worked pipelines, each short, give what `am.estimate` gives of the same records."""

from __future__ import annotations

import json
import runpy
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from google_services import big_query, cloud_storage, pub_sub

import aggmc_beam as am
from aggmc_beam.times import iso

ROOT = Path(__file__).parent.parent
STATES = ["home", "away"]
DAY = 24 * 3600


def counts(realizations, steps):
    return am.simulate(
        states=2, steps=steps, realizations=realizations, population=200, noise=am.Binomial(0.5), seed=5
    )[0]


def same(matrix, y):
    expected = am.estimate(y, states=STATES, noise=am.Binomial(0.5), population=200)
    np.testing.assert_allclose(matrix, expected.transition_matrix, rtol=0, atol=1e-10)


WORKED = "pipelines/daily_windows.py", "pipelines/sliding_stream.py", "configs/beam_windows.yaml"


@pytest.mark.parametrize("path", WORKED)
def test_each_is_short(path):
    code = [line for line in (ROOT / path).read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(code) < 30


def test_rows_of_bigquery_in_daily_windows_go_to_a_table(monkeypatch):
    y = counts(25, 48)
    build = runpy.run_path(str(ROOT / "pipelines/daily_windows.py"))["build"]
    begin = datetime(2024, 1, 1, tzinfo=timezone.utc)
    with cloud_storage(monkeypatch) as storage, big_query(monkeypatch, storage) as server:
        kinds = {"realization": "INTEGER", "time": "TIMESTAMP", "home": "INTEGER", "away": "INTEGER"}
        server.schemas["aggmc-test:feed.counts"] = [
            {"name": name, "type": kind, "mode": "NULLABLE"} for name, kind in kinds.items()
        ]
        server.rows["aggmc-test:feed.counts"] = [
            {"realization": k, "time": begin + timedelta(hours=t), "home": int(a), "away": int(b)}
            for k, path in enumerate(y)
            for t, (a, b) in enumerate(path)
        ]
        server.queries["SELECT 1"] = "aggmc-test:feed.counts"
        options = ["--temp_location=gs://bucket/tmp", "--project=aggmc-test"]
        with beam.Pipeline("FnApiRunner", options=PipelineOptions(options)) as pipeline:
            build(pipeline, "SELECT 1", "aggmc-test:results.daily")
        found = {
            row["window_start"]: json.loads(row["details"]) for row in server.rows["aggmc-test:results.daily"]
        }
    assert sorted(found) == ["2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"]
    for day, one in enumerate(one for _, one in sorted(found.items())):
        same(one["transition_matrix"], y[:, 24 * day : 24 * day + 24])


def test_messages_in_sliding_windows_are_published_early(monkeypatch):
    pubsub = pytest.importorskip("google.cloud.pubsub_v1")
    y = counts(25, 20)
    build = runpy.run_path(str(ROOT / "pipelines/sliding_stream.py"))["build"]
    begin = int(time.time()) // 60 * 60 - 1200
    project = "projects/aggmc-test"
    names = {side: (f"{project}/topics/{side}", f"{project}/subscriptions/{side}") for side in "ab"}
    with pub_sub(monkeypatch):
        publisher, subscriber = pubsub.PublisherClient(), pubsub.SubscriberClient()
        for topic, subscription in names.values():
            publisher.create_topic(name=topic)
            subscriber.create_subscription(name=subscription, topic=topic)
        pipeline = beam.Pipeline("BundleBasedDirectRunner", options=PipelineOptions(["--streaming"]))
        build(pipeline, names["a"][1], names["b"][0], early=1)
        running = pipeline.run()
        for t, k in np.ndindex(20, 25):
            moment = iso((begin + 60 * t) * 10**6)
            record = {"realization": k, "time": moment, "counts": y[k, t].tolist()}
            publisher.publish(names["a"][0], json.dumps(record).encode(), time=moment)
        found, deadline = [], time.monotonic() + 120
        while time.monotonic() < deadline and not any(e["counts"]["records"] == 500 for e in found):
            answer = subscriber.pull(subscription=names["b"][1], max_messages=100, timeout=10)
            found += [json.loads(m.message.data) for m in answer.received_messages]
        running.cancel()
        subscriber.close()
    one = next(e for e in found if e["counts"]["records"] == 500)
    start, end = (datetime.fromisoformat(one["window"][edge]).timestamp() for edge in ("start", "end"))
    assert (start <= begin, end - start) == (True, 6 * 3600)
    same(one["transition_matrix"], y)


def test_beam_yaml_has_windows_and_error_handling(tmp_path):
    yaml_main = pytest.importorskip("apache_beam.yaml.main", reason="Beam's extra `yaml` is not installed")
    y = counts(25, 20)
    rows = [f"{k},{t},{int(y[k, t, 0])},{int(y[k, t, 1])}" for k, t in np.ndindex(25, 20)]
    (tmp_path / "counts.csv").write_text("\n".join(["area,at,home,away", *rows, "3,3,,7"]), encoding="utf-8")
    text = (ROOT / "configs/beam_windows.yaml").read_text(encoding="utf-8")
    text = text.replace("aggmc_provider.yaml", str(ROOT / "configs/aggmc_provider.yaml"))
    variables = json.dumps({"dir": str(tmp_path)})
    yaml_main.run(["--yaml_pipeline", text, "--jinja_variables", variables, "--runner=FnApiRunner"])
    found, rejected = (
        [json.loads(line) for path in tmp_path.glob(f"{name}*") for line in path.read_text().splitlines()]
        for name in ("estimates", "rejected")
    )
    assert len(found) == 5
    for one in found:
        start = int(datetime.fromisoformat(one["window_start"]).timestamp())
        same(json.loads(one["details"])["transition_matrix"], y[:, max(0, start) : start + 10])
    assert {"is missing" in r["msg"] or "NaN" in r["msg"] for r in rejected} == {True}
