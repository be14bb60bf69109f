"""What `aggmc forecast`, `flows`, `alarms` and `change` do: uses of what a run has written."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aggmc_beam.commands import need_file
from aggmc_beam.config import Config, changed_config
from aggmc_beam.errors import InputError, UsageError
from aggmc_beam.fit.groups import by_group
from aggmc_beam.local import output
from aggmc_beam.local.follow_up import FollowUp, Frames, Results, first_rows, write_frames
from aggmc_beam.local.plan import Plan
from aggmc_beam.local.staging import Staging
from aggmc_beam.progress import Progress
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.sums import storage
from aggmc_beam.sums.records import Group
from aggmc_beam.text import escape_controls, say
from aggmc_beam.uses.change import apart
from aggmc_beam.uses.change import change as find_change

#: Rows of a table that are printed.
PRINTED = 40
FORMS = (".parquet", ".csv")


def flows(options: argparse.Namespace) -> None:
    progress = _progress(options)
    follow_up = _follow_up(options, progress)
    _show(follow_up.flows(), options, "flows", progress)
    for realization, why in follow_up.skipped.items():
        say(f"No flows of {escape_controls(realization)}: {why}")


def forecast(options: argparse.Namespace) -> None:
    progress = _progress(options)
    found = _follow_up(options, progress, forecast=options.steps)
    _show(found.forecasts(), options, "forecasts", progress)


def alarms(options: argparse.Namespace) -> None:
    progress = _progress(options)
    found = _follow_up(options, progress, alarms=options.rate)
    _show(found.alarms(), options, "alarms", progress)


def _progress(options: argparse.Namespace) -> Progress:
    progress = Progress()
    progress.shown &= options.log is None
    return progress


def change(options: argparse.Namespace) -> None:
    """Of one result along its windows; of several from one to the next."""
    runs = [read_results(Path(name)) for name in options.results]
    for group in runs[0]:
        label = f"{escape_controls(', '.join(group))}: " if group else ""
        missing = [name for name, run in zip(options.results, runs, strict=True) if group not in run]
        if missing:
            raise InputError(f"{missing[0]} has no estimate of group {', '.join(group)!r}")
        say(f"{label}{find_change(_sequence([run[group] for run in runs]))}")


def _sequence(found: Sequence[Estimate | Sequence[Estimate]]) -> Sequence[Estimate]:
    if len(found) == 1:
        if isinstance(found[0], Estimate):
            raise UsageError("a single matrix has nothing to be compared with; give results of several runs")
        return apart(found[0])
    pooled = [e if isinstance(e, Estimate) else getattr(e, "pooled", None) for e in found]
    if any(e is None for e in pooled):
        raise UsageError(
            "results of several runs are compared if each has one matrix; give one with windows alone"
        )
    return [e for e in pooled if e is not None]


def read_results(path: Path) -> Results:
    """The newest estimates of a run, by group."""
    need_file(os.fspath(path))
    source = path / output.ESTIMATES if path.is_dir() else path
    lines = storage.read_bytes(source).decode("utf-8").splitlines()
    found = [Estimate.from_json(line) for line in lines if line.strip()]
    if not found:
        raise InputError(f"{source} holds no estimates")
    newest: dict[tuple[Group, int | None], Estimate] = {}
    for e in found:
        newest[tuple((e.group or {}).values()), e.cell] = e
    return by_group(newest.values())


def _follow_up(
    options: argparse.Namespace, progress: Progress, forecast: int | None = None, alarms: float | None = None
) -> FollowUp:
    """The results of a run, and the records of its config or of those that were given instead."""
    path = Path(options.result)
    source = path / output.ESTIMATES if path.is_dir() else path
    results = read_results(path)
    config = _config_of(source.with_name(output.RUN), options.set)
    made = replace(config.output, forecast=forecast, alarms=alarms)
    states = _one(next(iter(results.values()))).states
    plan = Plan.open(replace(config, output=made, states=states, stream=None))
    return FollowUp(plan, results, progress=progress)


def _one(found: Estimate | Estimates) -> Estimate:
    return found if isinstance(found, Estimate) else found.items[0]


def _config_of(path: Path, changes: Sequence[str]) -> Config:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))["config"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(f"{path}, which tells how the records are read, cannot be used: {error}") from None
    try:
        return changed_config(plain, changes, str(path))[0]
    except InputError as error:
        raise UsageError(str(error)) from error


def _show(frames: Frames, options: argparse.Namespace, what: str, progress: Progress) -> None:
    if options.output is not None:
        path = Path(options.output)
        if path.suffix not in FORMS:
            raise UsageError(f"-o must end with one of {', '.join(FORMS)}; got {options.output!r}")
        with Staging(path.parent) as aside:
            write_frames(frames, aside / path.name)
        progress.clear()
        say(f"Written: {path}")
        return
    text, more = first_rows(frames, PRINTED)
    progress.clear()
    say(text or f"There are no {what}.")
    if more:
        say(f"... and more {what}; -o FILE writes all of them")
