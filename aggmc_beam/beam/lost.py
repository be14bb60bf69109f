"""A worker process that dies, on Beam's own runner with several processes: it would be waited for for ever.

The runner notices the death in a thread of its own, which ends with an error that nobody reads.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aggmc_beam.errors import InputError

#: The thread in which the runner waits for a worker process.
THREAD = "run_worker"


@contextmanager
def fail_when_lost() -> Iterator[None]:
    """Within it, the death of a worker process is an `InputError` in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    lost: list[str] = []
    usual = threading.excepthook

    def notice(found: Any) -> None:
        if found.thread is None or found.thread.name != THREAD:
            usual(found)
        elif not lost:
            lost.append(str(found.exc_value))
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.excepthook = notice
    try:
        yield
    except KeyboardInterrupt:
        if not lost:
            raise
        raise InputError(
            f"a worker process was lost ({lost[0]}), perhaps for want of memory; nothing was written, run it "
            "again, with fewer workers if it was memory"
        ) from None
    finally:
        threading.excepthook = usual
