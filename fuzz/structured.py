"""Targets whose inputs hypothesis builds: records, configs and counts that are nearly right.

Bytes that a fuzzer mutates rarely stay JSON or YAML; these reach what comes after parsing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from targets import NOISES, SCHEMAS, flagged, json_record, proper_errors

import aggmc_beam as am
from aggmc_beam.config import read_config
from aggmc_beam.config.reader import read_yaml
from aggmc_beam.estimators.registry import NAMES

quietly = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
texts = st.one_of(
    st.text(max_size=8), st.sampled_from(["home", "1e400", "NaN", "-0", "\x1b[2J", "../x", "=1+1"])
)
numbers = st.one_of(st.integers(), st.integers(-(10**400), 10**400), st.floats(), st.integers(0, 50))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts, st.just("2026-01-01T05:00:00Z")),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
COLUMNS = ("realization", "time", "counts", "count", "state", "region", "people", "home", "work", "<b>")


@quietly
@given(st.sampled_from(range(len(SCHEMAS))), st.dictionaries(st.sampled_from(COLUMNS), values))
def records(schema: int, row: dict[str, Any]) -> None:
    json_record(bytes([schema]) + json.dumps(row).encode())


KEYS = (
    "version", "name", "states", "input", "files", "layout", "columns", "step", "origin", "group_by", "noise",
    "model", "alpha", "sigma", "epsilon", "A", "models", "population", "chain", "window", "size", "every",
    "cycle", "harmonics", "period", "order", "estimator", "lags", "constraints", "forbidden", "fixed",
    "stationary", "prior", "uncertainty", "level", "output", "directory", "simulate", "matrix", "steps",
)  # fmt: skip
WORDS = ("a.csv", "wide", "long", "1h", "binomial", "gaussian", "linear", "per-step", "estimate", "home")
leaves = st.one_of(values, st.sampled_from(WORDS), st.just([[0.9, 0.1], [0.2, 0.8]]))
sections = st.recursive(
    leaves, lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=4), max_leaves=12
)


@quietly
@given(st.dictionaries(st.sampled_from(KEYS), sections, max_size=6))
def configs(plain: dict[str, Any]) -> None:
    with proper_errors():
        read_config({"input": {"files": "a.csv"}, **plain})
    with proper_errors():
        read_config(read_yaml(yaml.safe_dump(plain, allow_unicode=True)))


shapes = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 4))
entries = st.one_of(
    st.integers(0, 9).map(float), st.integers(0, 10**15).map(float), st.floats(), st.just(float("nan"))
)


@quietly
@given(
    shapes.flatmap(lambda shape: arrays.arrays(np.float64, shape, elements=entries)),
    st.sampled_from(NOISES),
    st.sampled_from(NAMES),
    st.one_of(st.just("estimate"), st.integers(1, 10**15).map(float)),
    st.sampled_from([1, 2]),
)
def estimates(counts: np.ndarray, noise: Any, estimator: str, population: Any, lags: int) -> None:
    with proper_errors():
        flagged(am.estimate(counts, noise=noise, population=population, estimator=estimator, lags=lags))


STRUCTURED: dict[str, Callable[[], None]] = {"records": records, "configs": configs, "estimates": estimates}
