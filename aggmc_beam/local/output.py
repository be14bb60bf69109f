"""What a run writes: everything is written aside first and then moved into place."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from aggmc_beam.config import Config
from aggmc_beam.config.model import KEPT
from aggmc_beam.errors import InputError
from aggmc_beam.local.reasons import Reasons
from aggmc_beam.result import Estimate
from aggmc_beam.sums.run_file import FILE_NAME
from aggmc_beam.text import redacted

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

#: Names of staging directories, and errors of a medium that takes no more.
PREFIX = ".aggmc-"
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
ESTIMATES, REJECTED, REPORT, RUN = "estimates.jsonl", "rejected.jsonl", "report.html", "run.json"


class Staging:
    """A hidden directory beside the output; its files are moved into place if all went well.

    They are moved in the order of their names, so that `run.json` is the last one. After an error or an
    interruption nothing is left of it, and old files are as they were. What a killed run left is removed.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def __enter__(self) -> Path:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            _sweep(self.directory)
            self.aside = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self.directory))
            self.lock = _lock(self.aside)
        except OSError as error:
            raise InputError(self._failed(error)) from error
        return self.aside

    def _failed(self, error: OSError) -> str:
        return f"cannot write to {os.fspath(self.directory)!r}: {error.strerror}; what was there is unchanged"

    def _check_places(self, written: Iterable[Path]) -> None:
        for path in written:
            if (self.directory / path.name).is_dir():
                raise InputError(
                    f"{os.fspath(self.directory / path.name)!r} is a directory, and the run writes a file there; "
                    "nothing was replaced"
                )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                written = sorted(self.aside.iterdir())
                self._check_places(written)
                for path in written:
                    os.replace(path, self.directory / path.name)
        finally:
            shutil.rmtree(self.aside, ignore_errors=True)
            if self.lock is not None:
                os.close(self.lock)
        if isinstance(error, OSError) and error.errno in FULL:
            raise InputError(self._failed(error)) from error


def _lock(directory: Path) -> int | None:
    """Hold a directory until the process ends, however it ends; None if somebody holds it, or if this
    system has no such locks."""
    if fcntl is None:
        return None
    found = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(found)
        return None
    return found


def _sweep(directory: Path) -> None:
    """Remove what runs that were killed left behind; nobody holds it any more."""
    for path in directory.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = _lock(path)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


class Finished(Protocol):
    """What a run has found, on any engine."""

    @property
    def estimates(self) -> Sequence[Estimate]: ...
    @property
    def ledger(self) -> dict[str, Any]: ...
    @property
    def rejections(self) -> Callable[[], Iterable[Any]]: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...


def write(result: Finished, config: Config, plain: Mapping[str, Any]) -> list[Path]:
    """Write what the config asks for; the paths of what was written."""
    directory = Path(config.output.directory)
    with Staging(directory) as aside:
        lines = [e.to_dict() for e in result.estimates]
        _write_lines(aside / ESTIMATES, lines)
        reasons = Reasons()
        most = None if config.output.rejected == "all" else KEPT
        _write_lines(aside / REJECTED, _kept(result.rejections(), reasons, most))
        plain = redacted(plain)
        if config.output.moments:
            result.save(aside / FILE_NAME)
        if config.output.report:
            write_report(lines, aside / REPORT, dict(plain), result.ledger)
        about = {
            "config": plain,
            "ledger": result.ledger,
            "reasons": reasons.number,
            "files": _checksums(aside),
        }
        (aside / RUN).write_text(json.dumps(about, indent=1, default=str) + "\n", encoding="utf-8")
        written = sorted(path.name for path in aside.iterdir())
    return [directory / name for name in written]


def _kept(rejections: Iterable[Any], reasons: Reasons, most: int | None) -> Iterator[dict[str, Any]]:
    """The first of each reason, as they are written; all are counted."""
    for r in rejections:
        met = reasons.add(r.reason, r.file, r.row)
        if most is None or met <= most:
            yield r.to_dict()


def _checksums(directory: Path) -> dict[str, str]:
    """By which the files of one run know each other: SHA-256 by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(directory.iterdir())}


def write_report(
    estimates: list[dict[str, Any]],
    path: Path,
    config: dict[str, Any] | None,
    ledger: dict[str, Any] | None,
) -> None:
    """The HTML report, which needs the plotting library."""
    try:
        from aggmc_beam.report import write_report as write
    except ImportError as error:
        raise InputError(
            f"the report needs {error.name or 'a plotting library'}: pip install 'aggmc-beam[report]', or "
            "set output.report: false"
        ) from error
    write(estimates, path, config, ledger)


def _write_lines(path: Path, items: Any) -> None:
    # Half of a surrogate pair, which UTF-8 has not, is written as JSON's own escape.
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as stream:
        for item in items:
            stream.write(json.dumps(item, allow_nan=False, ensure_ascii=False) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
