"""From the official Pub/Sub client, over the real protocol, to the final estimate."""

from __future__ import annotations

import json
import os
import shutil
import time

import frames
import numpy as np
import pytest
from apache_beam.runners.direct import transform_evaluator
from pubsub_server import Server

from aggmc_beam.beam.run import start
from aggmc_beam.config import read_config
from aggmc_beam.local import run as run_locally
from aggmc_beam.times import iso

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


def until(found, seconds=300):
    """Wait until something is so; the test goes on to tell what is not."""
    stop = time.monotonic() + seconds
    while not found() and time.monotonic() < stop:
        time.sleep(0.2)


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
    twenty = {"replicates": 20}  # as many as a stream has
    expected = run_locally(read_config(frames.config(path, uncertainty=twenty))).estimates[0]

    publisher, subscriber = pubsub.PublisherClient(), pubsub.SubscriberClient()
    publisher.create_topic(name=TOPIC)
    subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
    futures = [publisher.publish(TOPIC, messages[i].encode()) for i in rng.permutation(MESSAGES)]
    assert len({f.result(60) for f in futures}) == MESSAGES

    out = tmp_path / "out"
    plain = frames.config(path, output={"directory": str(out)}, stream={"refresh": "5s"})
    plain["input"] = {"pubsub": {"subscription": SUBSCRIPTION}}

    def complete():
        found = lines(out / "estimates.jsonl")
        used = found and found[-1]["counts"]["records"] + found[-1]["counts"]["duplicates"]
        return used == len(good) + len(repeated) and len(lines(out / "rejected.jsonl")) == len(broken)

    def balanced():
        path = out / "health.json"
        return path.exists() and json.loads(path.read_text())["ledger"]["read"] == MESSAGES

    running = start(read_config(plain))
    try:
        until(lambda: complete() and balanced())
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
    health = json.loads((out / "health.json").read_text())
    assert health["ledger"] == {
        "read": MESSAGES,
        "used": len(good),
        "duplicate": len(repeated),
        "rejected": len(broken),
        "late": 0,
    }
    assert health["last_refresh"] is not None


def test_a_topic_is_read_from_the_start_of_the_job_on(server, tmp_path):
    if server is None:
        pytest.skip("only the server of the tests tells when the job has subscribed")
    y = frames.counts(K=22, T=10)
    good = [{"realization": k, "time": t, "counts": y[k, t].tolist()} for k, t in np.ndindex(22, 10)]
    path, out, topic = tmp_path / "batch.jsonl", tmp_path / "out", f"{TOPIC}-only"
    path.write_text("\n".join(json.dumps(r) for r in good), encoding="utf-8")
    publisher = pubsub.PublisherClient()
    publisher.create_topic(name=topic)
    plain = frames.config(path, output={"directory": str(out)}, stream={"refresh": "1s"})
    expected = run_locally(read_config(frames.config(path))).estimates[0]
    running = start(read_config({**plain, "input": {"pubsub": {"topic": topic}}}))
    try:
        until(lambda: server.topics[topic])
        for part in np.array_split(good, 4):  # arrays of records
            publisher.publish(topic, json.dumps(part.tolist()).encode()).result(60)
        until(lambda: [e for e in lines(out / "estimates.jsonl") if e["counts"]["records"] == len(good)])
    finally:
        running.cancel()
        # The runner would delete its subscription when Python ends, and the server is gone by then.
        for client in transform_evaluator._PubSubReadEvaluator._subscriber_client_cache.values():
            client.close()
    last = lines(out / "estimates.jsonl")[-1]
    np.testing.assert_allclose(last["transition_matrix"], expected.transition_matrix, rtol=0, atol=1e-10)


def test_windows_of_a_live_feed_close_one_after_the_other(server, tmp_path):
    y = frames.counts(K=22, T=24)
    publisher, subscriber = pubsub.PublisherClient(), pubsub.SubscriberClient()
    topic, subscription = f"{TOPIC}-live", f"{SUBSCRIPTION}-live"
    publisher.create_topic(name=topic)
    subscriber.create_subscription(name=subscription, topic=topic)
    out = tmp_path / "out"
    chain = {"window": {"size": 8, "every": 4}}
    stream = {"refresh": "1s", "allowed_lateness": "2s"}
    source = {"pubsub": {"subscription": subscription}, "step": "1s"}
    plain = frames.config("none", output={"directory": str(out)}, stream=stream, chain=chain)
    running = start(read_config({**plain, "input": source}))
    sent, first = [], int(time.time()) // 4 * 4 + 4
    try:
        for t in range(24):
            time.sleep(max(0, first + t - time.time()))
            rows = [
                {"realization": k, "time": iso((first + t) * 10**6), "counts": y[k, t].tolist()}
                for k in range(22)
            ]
            publisher.publish(topic, json.dumps(rows).encode())
            sent += rows
        until(lambda: len(closed(out)) == 7)
    finally:
        running.cancel()
        subscriber.close()

    path = tmp_path / "batch.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in sent), encoding="utf-8")
    found = closed(out)
    expected = run_locally(read_config(frames.config(path, chain=chain, input={"step": "1s"}))).estimates
    for e in expected:
        last = found[e.window["start"]]
        np.testing.assert_allclose(last["transition_matrix"], e.transition_matrix, rtol=0, atol=1e-10)
        assert last["counts"]["pairs"] == e.counts["pairs"]
    assert not lines(out / "rejected.jsonl")


def closed(out):
    """The final estimates by window."""
    found = lines(out / "estimates.jsonl")
    return {e["window"]["start"]: e for e in found if e["diagnostics"]["final"]}
