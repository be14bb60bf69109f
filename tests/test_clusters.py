"""Engines that cannot be had say what is missing, and half of a download is never taken for the whole."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "clusters"))

import distribution
import flink
import prism
import store


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
