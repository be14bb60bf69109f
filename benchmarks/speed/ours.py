"""The product's contestants."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np

import aggmc_beam as am
from aggmc_beam.config import Config, read_config
from aggmc_beam.fitting import Settings
from aggmc_beam.local import run
from aggmc_beam.local.engine import Plan, sum_plan
from aggmc_beam.saved import Saved, estimate_sums
from benchmarks.speed.sums import Sums


def sums_of(moments: am.Moments) -> Sums:
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
    total, _, _ = sum_plan(Plan.open(config_of(path, states, layout)))
    return sums_of(total.saved(remember=False).groups[0].digest.total)


def whole_run(path: str, states: list[str], layout: str = "parquet") -> Sums:
    """Files in, estimates with intervals out."""
    found = run(config_of(path, states, layout))
    return sums_of(found.saved.groups[0].digest.total)


def save_moments(path: str, states: list[str], to: str) -> None:
    run(config_of(path, states, "parquet")).saved.save(to)


def estimate_again(path: str) -> None:
    """An estimate with intervals from saved moments, under another noise."""
    saved = Saved.load(path)
    estimate_sums(saved, saved.groups[0], Settings(am.Poisson(0.9), 1000.0, "mom"))


def command(arguments: list[str]) -> None:
    """A Python process from start to end."""
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
