"""Engines that cannot be had say what is missing, and half of a download is never taken for the whole."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import grpc
import pytest
from apache_beam.portability.api import beam_fn_api_pb2 as messages
from apache_beam.portability.api import beam_fn_api_pb2_grpc as services

sys.path.insert(0, str(Path(__file__).parents[1] / "clusters"))

import distribution
import flink
import prism
import store
import worker_pool


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine without programs, and an empty cache."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("AGGMC_CACHE", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    return tmp_path


def program(folder, name, text):
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def test_programs_that_are_missing_are_named(bare):
    with pytest.raises(store.Missing, match="java is not installed; it is needed to run Flink"):
        flink.up()
    with pytest.raises(store.Missing, match="go is not installed"):
        prism.prism()
    with pytest.raises(store.Missing, match="mvn is not installed"):
        distribution.distribution()


def test_a_registry_that_refuses_every_pair_is_told_for_each_and_leaves_nothing(bare):
    program(bare, "mvn", 'echo "[ERROR] no such artifact"; exit 1')
    with pytest.raises(store.Missing) as told:
        distribution.distribution()
    for pair in distribution.PAIRS:
        assert f"{pair.artifact} {pair.beam} cannot be fetched: [ERROR] no such artifact" in str(told.value)
    assert not list((bare / "cache").iterdir())


def test_a_process_that_has_ended_is_not_taken_for_another_with_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr(flink, "FOLDER", tmp_path)
    (tmp_path / "jobmanager.pid").write_text(f"{os.getpid()} 1", encoding="utf-8")
    assert not flink.running("jobmanager")
    flink.down()
    assert not list(tmp_path.iterdir())


@pytest.fixture
def pool(tmp_path):
    """The address of a pool whose workers leave their process number in a file, and do nothing."""
    worker = tmp_path / "worker"
    worker.write_text(f"#!/bin/sh\necho > {tmp_path}/$$.pid\nexec sleep 60\n", encoding="utf-8")
    worker.chmod(0o755)
    address, server = worker_pool.SharedPool.start(use_process=True, container_executable=str(worker))
    yield address
    server.stop(0)


# Beam leaves the pipes of its workers to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_taskmanager_does_not_end_the_worker_of_another_with_the_same_number(pool, tmp_path):
    first, second = Manager(pool), Manager(pool)
    mine, other = (manager.start(tmp_path) for manager in (first, second))
    first.stop()
    assert not alive(mine)
    assert alive(other)
    second.stop()
    assert not alive(other)


class Manager:
    """A TaskManager as the pool sees it: a connection of its own, and workers numbered from 1."""

    def __init__(self, address):
        # Otherwise connections of one process to one address are one.
        own = [("grpc.use_local_subchannel_pool", 1)]
        self.pool = services.BeamFnExternalWorkerPoolStub(grpc.insecure_channel(address, own))

    def start(self, folder):
        known = set(folder.glob("*.pid"))
        assert not self.pool.StartWorker(messages.StartWorkerRequest(worker_id="1-1")).error
        deadline = time.monotonic() + 60
        while not (new := set(folder.glob("*.pid")) - known):
            assert time.monotonic() < deadline, "no worker was started"
            time.sleep(0.02)
        return int(new.pop().stem)

    def stop(self):
        assert not self.pool.StopWorker(messages.StopWorkerRequest(worker_id="1-1")).error


def alive(pid):
    return Path(f"/proc/{pid}").exists()
