"""Work spread over the cores: a thread for each, and one BLAS thread within each of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from aggmc_beam.ordered import Map


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def spread() -> Iterator[Map]:
    """A `map` over threads.

    Matrices here are small, and BLAS threads that wait for each other lose more than they gain, so BLAS is
    held to one thread meanwhile, and given back its own setting after.
    """
    from threadpoolctl import threadpool_limits  # takes a moment to import

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(cores()) as pool:
        yield pool.map
