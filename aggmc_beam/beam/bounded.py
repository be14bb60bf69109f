"""Names and counters that the transforms of streams share with the others."""

from __future__ import annotations

import json
from functools import lru_cache

from aggmc_beam.beam.estimate import NAMESPACE
from aggmc_beam.beam.exact import REJECTED, counter
from aggmc_beam.sums.records import Group

__all__ = ["NAMESPACE", "REJECTED", "SKIPPED", "counter", "group_key"]

SKIPPED = "skipped"


@lru_cache(10_000)
def group_key(group: Group) -> str:
    """The key of a group."""
    return json.dumps(group, ensure_ascii=False)
