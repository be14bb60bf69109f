"""Work spread over the cores: a thread for each, and one BLAS thread within each of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import count
from threading import Lock, Thread
from typing import Any

from aggmc_beam.panelsums import Map


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
    """
    found = list(items)
    turn = count()  # its steps cannot be interrupted

    def work() -> None:
        try:
            while (at := next(turn)) < len(found):
                found[at] = function(found[at])
        except BaseException:
            for _ in found:
                next(turn)  # so that nobody begins another one
            raise

    with ThreadPoolExecutor(max(1, cores() - 1)) as pool:
        others = [pool.submit(work) for _ in range(min(cores(), len(found)) - 1)]
        work()
        for other in others:
            other.result()
    return found


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread: matrices here are small, and BLAS threads that wait for each other lose more
    than they gain.

    The setting is that of the whole process. It is changed by the first who asks and given back after the
    last, so any number of threads may ask at once.
    """
    _held.enter()
    try:
        yield
    finally:
        _held.leave()


class _Held:
    def __init__(self) -> None:
        self.lock, self.users = Lock(), 0
        self.limit: Any = None

    def enter(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                _aside(self._set)

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                _aside(self.limit.restore_original_limits)

    def _set(self) -> None:
        self.limit = _libraries("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas")


def _aside(change: Callable[[], None]) -> None:
    """In a thread that ends. threadpoolctl listens only to the thread that changed a setting first, while
    it lives; and the last of us to leave need not be the first who came."""
    thread = Thread(target=change)
    thread.start()
    thread.join()


_held = _Held()


@cache
def _libraries(with_scipy: bool) -> Any:
    """The libraries that are loaded now; scipy brings a BLAS of its own."""
    import numpy.linalg  # noqa: F401 - so that its BLAS is among them
    from threadpoolctl import ThreadpoolController  # takes a moment to import

    return ThreadpoolController()
