"""Work spread over the cores: a thread for each, and one BLAS thread within each of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Thread
from typing import Any, TypeAlias

from aggmc_beam.blas import one_blas_thread

#: A map, which may run its calls at once.
Map: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def spread() -> Iterator[Map]:
    """A `map` over threads, each with one BLAS thread."""
    with one_blas_thread():
        yield on_all_cores


def on_all_cores(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """As `map`, at once: a thread for each core, this one included, takes item after item.

    A pool's own map is much slower for small tasks, as the waiting thread is woken up after each of them.
    An error ends the work: that of the first who met one is raised.
    """
    found = list(items)
    if len(found) < 2:
        return [function(item) for item in found]
    turn = count()  # its steps cannot be interrupted
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while (at := next(turn)) < len(found) and not errors:
                found[at] = function(found[at])
        except BaseException as error:
            errors.append(error)

    others = [Thread(target=work) for _ in range(min(cores(), len(found)) - 1)]
    try:
        for other in others:
            other.start()
        work()
        for other in others:
            other.join()
    except BaseException as interrupt:
        errors.append(interrupt)  # so that nobody begins another one
        raise
    if errors:
        raise errors[0]
    return found
