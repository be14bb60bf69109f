"""The product as it is where it was installed without a compiler."""

from __future__ import annotations

import os

os.environ["AGGMC_NATIVE"] = "0"

from benchmarks.speed.ours import sums

__all__ = ["sums"]
