"""Output of a run is written aside first and then moved into place: all of it, or nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from aggmc_beam.durable import sync
from aggmc_beam.errors import InputError
from aggmc_beam.local.lock import try_lock

#: Names of staging directories.
PREFIX = ".aggmc-"
#: What vouches for the other files of a run, and so is the last to change.
RUN = "run.json"
#: Where the files that are being replaced are kept until all are.
_BEFORE = "before"
#: Of a medium that takes no more, or fails.
_BROKEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class Staging:
    """A hidden directory beside the output; its files are moved into place if all went well, `run.json` last.

    After an error or an interruption nothing is left of it, and old files are as they were. What a killed run
    left is removed.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def __enter__(self) -> Path:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            _sweep(self.directory)
            self.aside = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self.directory))
            self.lock = try_lock(self.aside)
        except OSError as error:
            raise InputError(self._failed(error)) from error
        return self.aside

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._move()
        except OSError as failed:
            raise InputError(self._failed(failed)) from failed
        finally:
            shutil.rmtree(self.aside, ignore_errors=True)
            if self.lock is not None:
                os.close(self.lock)
        if isinstance(error, OSError) and error.errno in _BROKEN:
            raise InputError(self._failed(error)) from error

    def _failed(self, error: OSError) -> str:
        return f"cannot write to {os.fspath(self.directory)!r}: {error.strerror}; what was there is unchanged"

    def _move(self) -> None:
        """Everything into place; if that fails midway, what was moved goes back."""
        names = [path.name for path in sorted(self.aside.iterdir(), key=order)]
        for name in names:
            if (self.directory / name).is_dir():
                raise InputError(
                    f"{os.fspath(self.directory / name)!r} is a directory, where a file of that name is to be "
                    "written; move it, or choose another output.directory"
                )
            sync(self.aside / name)
        before = self.aside / _BEFORE
        before.mkdir()
        moved: list[str] = []
        try:
            for name in names:
                _keep(self.directory / name, before / name)
                moved.append(name)
                if name == RUN:
                    sync(self.directory)  # it vouches for files that are there
                os.replace(self.aside / name, self.directory / name)
            sync(self.directory)
        except OSError:
            for name in moved:
                self._put_back(name, before / name)
            raise

    def _put_back(self, name: str, old: Path) -> None:
        if old.exists():
            os.replace(old, self.directory / name)
        elif not (self.aside / name).exists():  # it is in place, where nothing was
            (self.directory / name).unlink(missing_ok=True)


def order(path: Path) -> tuple[bool, str]:
    """By which files are sorted that are put in place one after another: `run.json` is last."""
    return path.name == RUN, path.name


def _keep(path: Path, aside: Path) -> None:
    """A second name for a file, or a copy where files cannot have two."""
    if not path.exists():
        return
    try:
        os.link(path, aside)
    except OSError:
        shutil.copy2(path, aside)


def _sweep(directory: Path) -> None:
    """Remove what runs that were killed left behind; nobody holds it any more."""
    for path in directory.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = try_lock(path)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)
