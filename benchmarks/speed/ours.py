"""The product's contestants."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np

import aggmc_beam as am
from aggmc_beam.config import Config, read_config
from aggmc_beam.estimate_groups import estimate_only_group
from aggmc_beam.fitting import Settings
from aggmc_beam.local import run
from aggmc_beam.local.engine import Plan, Summing
from aggmc_beam.moments import Moments
from aggmc_beam.sums.run_file import load_run
from benchmarks.speed.sums import Sums


def sums_of(moments: Moments) -> Sums:
    zero = np.zeros(moments.states)
    return Sums(moments.pairs, moments.lag0.left, moments.lag1.product_about(zero, zero))


def config_of(path: str, states: list[str], layout: str) -> Config:
    plain: dict[str, Any] = {
        "input": {"files": path, "layout": "long" if layout == "long" else "wide"},
        "states": states,
        "noise": {"model": "poisson", "alpha": 1.0},
        "population": 1000,
        "estimator": "mom",
    }
    return read_config(plain)


def sums(path: str, states: list[str], layout: str = "parquet") -> Sums:
    """Files in, all sums out that an estimate with intervals needs."""
    plan = Plan.open(config_of(path, states, layout))
    state = plan.state()
    Summing(plan, state).sum()
    return sums_of(state.sums.total)


def whole_run(path: str, states: list[str], layout: str = "parquet") -> Sums:
    """Files in, estimates with intervals out."""
    found = run(config_of(path, states, layout))
    return sums_of(found.state.sums.total)


def save_moments(path: str, states: list[str], to: str) -> None:
    run(config_of(path, states, "parquet")).save(to)


def estimate_again(path: str) -> None:
    """An estimate with intervals from saved moments, under another noise."""
    estimate_only_group(load_run(path), Settings(am.Poisson(0.9), 1000.0, "mom"))


def command(arguments: list[str]) -> None:
    """A Python process from start to end."""
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
