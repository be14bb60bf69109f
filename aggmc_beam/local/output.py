"""What a run writes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from aggmc_beam.config import Config
from aggmc_beam.config.model import KEPT
from aggmc_beam.errors import InputError
from aggmc_beam.local.reasons import Reasons
from aggmc_beam.local.shown import shown_tables
from aggmc_beam.local.staging import RUN as RUN
from aggmc_beam.local.staging import Staging, order
from aggmc_beam.local.unchanged import check_resumed
from aggmc_beam.progress import ProgressHook, no_progress
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.sums.run_file import FILE_NAME
from aggmc_beam.tables import table_files
from aggmc_beam.text import redacted

ESTIMATES, REJECTED, REPORT = "estimates.jsonl", "rejected.jsonl", "report.html"


class Finished(Protocol):
    """What a run has found, on any engine."""

    @property
    def estimates(self) -> Sequence[Estimate]: ...
    @property
    def ledger(self) -> dict[str, Any]: ...
    @property
    def resumed(self) -> Mapping[str, Any]: ...
    @property
    def rejections(self) -> Callable[[], Iterable[Any]]: ...
    @property
    def follow_up(self) -> Callable[[Path], None]: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...


def write(
    result: Finished, config: Config, plain: Mapping[str, Any], progress: ProgressHook = no_progress
) -> list[Path]:
    """Write what the config asks for; the paths of what was written, in the order in which that was done."""
    directory = Path(config.output.directory)
    progress("writing", 0, None)
    with Staging(directory) as aside:
        lines = [e.to_dict() for e in result.estimates]
        _write_lines(aside / ESTIMATES, lines)
        reasons = Reasons()
        most = None if config.output.rejected == "all" else KEPT
        _write_lines(aside / REJECTED, _kept(result.rejections(), reasons, most))
        result.follow_up(aside)
        plain = redacted(plain)
        if config.output.moments:
            result.save(aside / FILE_NAME)
        for name, format, data in table_files(result.estimates, config.output.tables):
            (aside / f"{name}.{format}").write_bytes(data)
        if config.output.report:
            progress("writing the report", 0, None)
            shown = shown_tables(aside, config.group_by)
            write_report([*_pooled(result), *lines], aside / REPORT, dict(plain), result.ledger, shown)
        about = {
            "config": plain,
            "ledger": result.ledger,
            "reasons": reasons.number,
            "files": _checksums(aside),
        }
        (aside / RUN).write_text(json.dumps(about, indent=1, default=str) + "\n", encoding="utf-8")
        written = [path.name for path in sorted(aside.iterdir(), key=order)]
        check_resumed(result.resumed)
    return [directory / name for name in written]


def _pooled(result: Finished) -> list[dict[str, Any]]:
    """The one matrix that fits all cells of a group, where there is one, for the report."""
    found = getattr(result, "results", {}).values()
    return [r.pooled.to_dict() for r in found if isinstance(r, Estimates) and r.pooled is not None]


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
    tables: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """The HTML report, which needs the plotting library. tables: what `shown_tables` found."""
    try:
        from aggmc_beam.report import write_report as write
    except ImportError as error:
        raise InputError(
            f"the report needs {error.name or 'a plotting library'}: pip install 'aggmc-beam[report]', or "
            "set output.report: false"
        ) from error
    write(estimates, path, config, ledger, tables)


def _write_lines(path: Path, items: Any) -> None:
    # Half of a surrogate pair, which UTF-8 has not, is written as JSON's own escape.
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as stream:
        for item in items:
            stream.write(json.dumps(item, allow_nan=False, ensure_ascii=False) + "\n")
