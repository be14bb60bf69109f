"""The Beam engine's contestants."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from aggmc_beam.beam import run as beam_run
from aggmc_beam.config import read_config
from aggmc_beam.saved import Saved
from benchmarks.speed.ours import sums_of
from benchmarks.speed.sums import Sums

logging.disable(logging.WARNING)


def blocks(path: str, states: list[str]) -> Sums:
    """Files read in blocks, on Beam's own runner in one process."""
    with tempfile.TemporaryDirectory() as directory:
        plain = {
            "input": {"files": path},
            "states": states,
            "population": 1000,
            "noise": {"model": "poisson", "alpha": 1.0},
            "estimator": "mom",
            "output": {"directory": directory, "moments": True},
        }
        beam_run.run(read_config(plain), plain)
        saved = Saved.load(next(Path(directory).glob("moments*")))
        return sums_of(saved.groups[0].digest.total)
