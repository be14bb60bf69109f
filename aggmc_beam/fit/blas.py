"""One BLAS thread for a while: with several, small matrices take longer, and other threads are disturbed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import Lock, Thread
from typing import Any

#: Matrices of more rows are better left to all threads.
SMALL = 256


def blas_for(size: int) -> AbstractContextManager[None]:
    """One BLAS thread if matrices of so many rows are small, else as many as there are."""
    return one_blas_thread() if size <= SMALL else nullcontext()


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
        self.limit = _libraries().limit(limits=1, user_api="blas")


def _aside(change: Callable[[], None]) -> None:
    """In a thread that ends. threadpoolctl listens only to the thread that changed a setting first, while
    it lives; and the last of us to leave need not be the first who came."""
    thread = Thread(target=change)
    thread.start()
    thread.join()


_held = _Held()


@cache
def _libraries() -> Any:
    """The libraries that there are. scipy brings a BLAS of its own, which is loaded when it is first asked for
    and then has as many threads as it likes, so it is asked for here."""
    import numpy.linalg  # noqa: F401
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController  # takes a moment to import

    return ThreadpoolController()
