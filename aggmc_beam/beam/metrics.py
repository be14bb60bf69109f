"""Metrics of Beam, all in the namespace `aggmc`; docs/beam.md tells what each counts."""

from __future__ import annotations

from typing import Any

from apache_beam.metrics import Metrics

NAMESPACE = "aggmc"


def counter(name: str) -> Any:
    return Metrics.counter(NAMESPACE, name)


def distribution(name: str) -> Any:
    return Metrics.distribution(NAMESPACE, name)
