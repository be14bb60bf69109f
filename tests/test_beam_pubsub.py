"""From the official Pub/Sub client, over the real protocol, to the final estimate."""

from __future__ import annotations

import json
import os
import shutil
import time

import frames
import numpy as np
import pytest
from pubsub_server import Server

from aggmc_beam.beam.run import start
from aggmc_beam.config import read_config
from aggmc_beam.local import run as run_locally

pubsub = pytest.importorskip("google.cloud.pubsub_v1", reason="the official client is not installed")
TOPIC, SUBSCRIPTION = "projects/aggmc-test/topics/counts", "projects/aggmc-test/subscriptions/counts"
MESSAGES = 2000


@pytest.fixture
def server(monkeypatch):
    """The emulator that is already running, or the small server of the tests."""
    if os.environ.get("PUBSUB_EMULATOR_HOST"):
        print(f"Pub/Sub: the emulator at {os.environ['PUBSUB_EMULATOR_HOST']}")
        yield None
        return
    found = "installed but not running" if shutil.which("cloud-pubsub-emulator") else "not on this machine"
    with Server() as made:
        print(f"Pub/Sub: the gRPC server in tests/pubsub_server.py (the official emulator is {found})")
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", made.address)
        yield made


def lines(path):
    return (
        [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    )


def test_disordered_repeated_and_broken_messages_give_the_estimate_of_the_clean_batch(server, tmp_path):
    rng = np.random.default_rng(1)
    y = frames.counts(K=22, T=80)
    good = [
        {"realization": k, "time": t, "counts": y[k, t].tolist()} for k, t in np.ndindex(22, 80)
    ]  # 1,760 distinct records
    repeated = [good[i] for i in rng.choice(len(good), MESSAGES // 10, replace=False)]
    broken = [f"garbage {i}" for i in range(MESSAGES // 50)]
    messages = [*(json.dumps(r) for r in [*good, *repeated]), *broken]
    assert len(messages) == MESSAGES

    path = tmp_path / "batch.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in good), encoding="utf-8")
    expected = run_locally(read_config(frames.config(path))).estimates[0]

    publisher, subscriber = pubsub.PublisherClient(), pubsub.SubscriberClient()
    publisher.create_topic(name=TOPIC)
    subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
    futures = [publisher.publish(TOPIC, messages[i].encode()) for i in rng.permutation(MESSAGES)]
    assert len({f.result(60) for f in futures}) == MESSAGES

    out = tmp_path / "out"
    plain = frames.config(path, output={"directory": str(out)}, stream={"refresh": "5s"})
    plain["input"] = {"pubsub": {"subscription": SUBSCRIPTION}}
    running = start(read_config(plain))
    try:
        stop = time.monotonic() + 120
        while time.monotonic() < stop:
            found = lines(out / "estimates.jsonl")
            done = found and found[-1]["counts"]["records"] + found[-1]["counts"]["duplicates"]
            if done == len(good) + len(repeated) and len(lines(out / "rejected.jsonl")) == len(broken):
                break
            time.sleep(0.2)
    finally:
        running.cancel()
        subscriber.close()
    last, rejected = lines(out / "estimates.jsonl")[-1], lines(out / "rejected.jsonl")
    np.testing.assert_allclose(last["transition_matrix"], expected.transition_matrix, rtol=0, atol=1e-10)
    np.testing.assert_allclose(last["standard_error"], expected.standard_error, rtol=0, atol=1e-10)
    assert last["counts"]["records"] == len(good)
    assert last["counts"]["duplicates"] == len(repeated)
    assert sorted(r["record"] for r in rejected) == sorted(broken)
    refreshes = [e["refresh"] for e in lines(out / "estimates.jsonl")]
    assert refreshes == list(range(1, len(refreshes) + 1))
