"""Pub/Sub that delivers again: acknowledgements that are lost, and deadlines that pass."""

from __future__ import annotations

import json
import time

import frames
import numpy as np
import pytest
from pubsub_server import Server

from aggmc_beam.beam.run import start
from aggmc_beam.config import read_config
from aggmc_beam.local import run as run_locally

pubsub = pytest.importorskip("google.cloud.pubsub_v1", reason="the official client is not installed")
TOPIC, SUBSCRIPTION = "projects/aggmc-test/topics/again", "projects/aggmc-test/subscriptions/again"


def lines(path):
    return (
        [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    )


def test_messages_delivered_again_are_duplicates_and_change_nothing(tmp_path, monkeypatch):
    y = frames.counts(K=22, T=20)
    rows = [{"realization": k, "time": t, "counts": y[k, t].tolist()} for k, t in np.ndindex(22, 20)]
    path = tmp_path / "batch.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    expected = run_locally(read_config(frames.config(path))).estimates[0]
    out = tmp_path / "out"
    plain = frames.config(path, output={"directory": str(out)}, stream={"refresh": "2s"}, engine="beam")
    plain["input"] = {"pubsub": {"subscription": SUBSCRIPTION}}
    with Server(lost_acknowledgements=3, deadline=1.0) as server:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.address)
        publisher, subscriber = pubsub.PublisherClient(), pubsub.SubscriberClient()
        publisher.create_topic(name=TOPIC)
        subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
        for i in np.random.default_rng(1).permutation(len(rows)):
            publisher.publish(TOPIC, json.dumps(rows[i]).encode()).result(60)
        running = start(read_config(plain))
        try:
            stop = time.monotonic() + 240
            while time.monotonic() < stop:
                found = lines(out / "estimates.jsonl")
                counts = found[-1]["counts"] if found else {"records": 0, "duplicates": 0}
                settled = server.redelivered and not server.waiting
                if settled and counts["records"] + counts["duplicates"] == server.delivered:
                    break
                time.sleep(0.2)
        finally:
            running.cancel()
            subscriber.close()
    last = lines(out / "estimates.jsonl")[-1]
    assert server.redelivered > 0
    assert last["counts"]["records"] == len(rows)
    assert last["counts"]["duplicates"] == server.redelivered
    np.testing.assert_allclose(last["transition_matrix"], expected.transition_matrix, rtol=0, atol=1e-10)
    assert not lines(out / "rejected.jsonl")
