"""One run at a time writes to a directory. A lock ends with its process, however that ends."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType

from aggmc_beam.errors import InputError
from aggmc_beam.logs import LOGGER

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".aggmc.lock"
#: Seconds between two looks at a lock that another run holds.
PAUSE = 0.2


def try_lock(path: str | os.PathLike[str]) -> int | None:
    """Hold a directory until the descriptor is closed or the process ends; None if somebody holds it, or if
    this system has no such locks."""
    if fcntl is None:
        return None
    found = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(found)
        return None
    return found


class OutputLock:
    """Hold an output directory for a run, from before it reads what it goes on from until it has written.

    Where another run holds it, that one is named in an `InputError`; with `wait` this run waits for it.

    >>> import tempfile
    >>> there = tempfile.mkdtemp()
    >>> with OutputLock(there, "monday"), OutputLock(there, "tuesday"):
    ...     pass  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    aggmc_beam.errors.InputError: run 'monday' (process ... since ...) is writing to '...'; ...
    """

    def __init__(self, directory: str | os.PathLike[str], run: str, wait: bool = False) -> None:
        self.directory, self.run, self.wait = Path(directory), run, wait
        self.path = self.directory / NAME
        self.held: int | None = None

    def __enter__(self) -> OutputLock:
        if fcntl is None:
            return self
        self.made = not self.directory.exists()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            waiting = False
            while not self._take():
                if not self.wait:
                    raise InputError(
                        f"{self._holder()} is writing to {os.fspath(self.directory)!r}; run again when it has "
                        "ended, or let this run wait for it with --wait"
                    )
                if not waiting:
                    LOGGER.warning(f"waiting for {self._holder()}, which is writing to {self.directory}")
                waiting = True
                time.sleep(PAUSE)
        except OSError as error:
            raise InputError(
                f"cannot write to {os.fspath(self.directory)!r}: {error.strerror}; what was there is unchanged"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.held is None:
            return
        self.path.unlink(missing_ok=True)
        os.close(self.held)
        if self.made:
            with contextlib.suppress(OSError):  # it is not empty: the run has written
                self.directory.rmdir()

    def _take(self) -> bool:
        found = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(found)
            return False
        except OSError as error:  # a file system without locks
            os.close(found)
            LOGGER.warning(
                f"{self.directory} cannot be locked ({error.strerror}); let one run at a time write there"
            )
            return True
        try:
            same = os.fstat(found).st_ino == os.stat(self.path).st_ino
        except FileNotFoundError:
            same = False
        if not same:  # its holder removed it meanwhile
            os.close(found)
            return False
        self.held = found
        since = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        about = f"run {self.run!r} (process {os.getpid()} on {socket.gethostname()} since {since})"
        os.truncate(found, 0)
        with contextlib.suppress(OSError):  # the disk is full: the lock is held all the same
            os.write(found, about.encode())
        return True

    def _holder(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8").strip() or "another run"
        except OSError:
            return "another run"
