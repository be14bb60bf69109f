"""What the commands of `aggmc` do, once their arguments are read."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from aggmc_beam.config import Config, load_config, read_config
from aggmc_beam.config.reader import read_yaml
from aggmc_beam.config.special import NoiseKind
from aggmc_beam.durable import write_atomically
from aggmc_beam.errors import InputError, UsageError
from aggmc_beam.fit.fit import Settings
from aggmc_beam.fit.groups import by_group, estimate_state, group_sums, listed
from aggmc_beam.ledger import Ledger
from aggmc_beam.local import check as checking
from aggmc_beam.local import output, simulated
from aggmc_beam.local.engine import Summing, run_plan
from aggmc_beam.local.lock import OutputLock
from aggmc_beam.local.plan import Plan, check_local
from aggmc_beam.local.shown import shown_tables
from aggmc_beam.local.staging import RUN, Staging
from aggmc_beam.logs import LOGGER
from aggmc_beam.noise import Noise, noise_from_dict
from aggmc_beam.noise.description import _MODELS
from aggmc_beam.printing import wrapped
from aggmc_beam.progress import Progress, no_progress
from aggmc_beam.result import Estimate, Estimates, Groups, read_estimates
from aggmc_beam.sums import storage
from aggmc_beam.sums.run_file import describe, load_run, save_run
from aggmc_beam.text import escape_controls, say

#: With more groups than this a run prints a line for each.
MOST_SHOWN = 3


def run(options: argparse.Namespace) -> None:
    config, given = _config(options)
    engine = options.engine or config.engine
    if options.log is not None:
        options.log.run = config.name
    LOGGER.info("run started", extra={"config": options.config, "engine": engine})
    with _held(config, options.wait):
        (_run_beam if engine == "beam" else _run_local)(config, given, options)


def _held(config: Config, wait: bool) -> AbstractContextManager[Any]:
    """Hold the output directory, from before saved moments are read until new ones are written."""
    directory = config.output.directory
    far = "://" in directory  # object stores have no locks
    return nullcontext() if far else OutputLock(directory, config.name, wait)


def _run_local(config: Config, given: dict[str, Any], options: argparse.Namespace) -> None:
    if options.beam_options:
        raise UsageError("options after -- are for the Beam engine")
    plan = _open(config)
    progress = Progress()
    progress.shown &= options.log is None
    try:
        result = run_plan(plan, progress)
        written = output.write(result, config, given, progress)
    finally:
        progress.clear()
    if not options.quiet:
        _print_result(config, result.estimates, result.results, result.ledger, options.whole)
    _done(result.ledger, written)


def _run_beam(config: Config, given: dict[str, Any], options: argparse.Namespace) -> None:
    try:
        from aggmc_beam.beam import files as beam_files
        from aggmc_beam.beam import run as beam_run
        from aggmc_beam.beam.plan import open_plan
    except ImportError as error:
        raise UsageError(f"the Beam engine needs {error.name}: pip install apache-beam") from error
    _draw(config)
    if not config.input.endless and config.input.bigquery is None:
        try:
            open_plan(config)  # what is wrong with the config ends as it does on the local engine
        except InputError as error:
            raise UsageError(str(error)) from error
    beam_run.run(config, given, options.beam_options)
    if config.input.endless or not beam_files.is_local(config.output.directory):
        return
    estimates, ledger = beam_run.read_back(config)
    if not options.quiet:
        _print_result(config, estimates, by_group(estimates), ledger, options.whole)
    names = sorted(
        path.name
        for path in Path(config.output.directory).iterdir()
        if path.is_file() and path.name[0] != "."
    )
    _done(ledger, [Path(config.output.directory) / name for name in names])


def _done(ledger: dict[str, Any], written: list[Path]) -> None:
    LOGGER.info("run finished", extra={"ledger": ledger, "written": [str(path) for path in written]})
    say("Written: " + ", ".join(str(path) for path in written))


def _draw(config: Config) -> None:
    """Draw the data of a config if they do not exist and can be."""
    if config.simulate is not None and not simulated.target(config).exists():
        path = simulated.target(config)
        rows = simulated.write_simulated(config, path)
        say(f"Simulated {rows:,} rows into {path}.")


def _config(options: argparse.Namespace) -> tuple[Config, dict[str, Any]]:
    try:
        return load_config(options.config, options.set)
    except InputError as error:
        raise UsageError(str(error)) from error


def _open(config: Config) -> Plan:
    """The config's plan; its data are drawn first if they do not exist and can be."""
    try:
        check_local(config)
        _draw(config)
        return Plan.open(config)
    except InputError as error:
        raise UsageError(str(error)) from error


def _print_result(
    config: Config,
    estimates: list[Estimate],
    results: Mapping[tuple[str, ...], Any],
    ledger: dict[str, Any],
    whole: bool = False,
) -> None:
    say(f"{config.name}: {Ledger(**ledger['rows'])}.")
    say(
        f"The sums hold {ledger['records']:,} records of {ledger['realizations']:,} realizations, "
        f"{ledger['pairs']:,} pairs, {ledger['gaps']:,} gaps."
    )
    if ledger["filled_with_zero"]:
        say(f"{ledger['filled_with_zero']:,} states without a row were taken as zero (input.absent).")
    if ledger["conflicting"]:
        say(f"{ledger['conflicting']:,} duplicates have other counts than the record that was kept.")
    for realization, why in itertools.islice(ledger.get("without_flows", {}).items(), MOST_SHOWN):
        say(f"No flows of {escape_controls(realization)}: {why}")
    if len(results) > MOST_SHOWN and not whole:
        say(f"\n{Groups(results)}")
        say(f"{output.ESTIMATES} has the whole matrices; --whole prints them")
    else:
        for group, found in results.items():
            say(f"\n{escape_controls(', '.join(group))}:" if group else "")
            _print_found(found, whole)
    for name, why in ledger["skipped"].items():
        say(f"\nNo estimate for {name}: {why}")
    if ledger.get("advice"):
        say(f"\n{wrapped(ledger['advice'])}")
    if config.simulate is not None:
        say(f"\n{_error(config, estimates)}")


def _print_found(found: Estimate | Estimates, whole: bool) -> None:
    if isinstance(found, Estimate):
        say(found.to_text(whole))
    elif whole:
        say("\n\n".join(e.to_text(whole) for e in found))
    else:
        say(found)


def _error(config: Config, estimates: list[Estimate]) -> str:
    """How far the estimates are from the truth that their data were drawn from."""
    found = np.stack([e.transition_matrix for e in estimates])
    true = np.stack([simulated.truth(config, e) for e in estimates])
    naive = np.stack([np.asarray(e.baselines["naive"]) for e in estimates])

    def rms(P: np.ndarray) -> float:
        return float(np.sqrt(np.nanmean((P - true) ** 2)))

    return f"Root mean square error against the known truth: {rms(found):.4f} (naive: {rms(naive):.4f})"


def check(options: argparse.Namespace) -> None:
    config, _ = _config(options)
    try:
        check_local(config)
        if config.simulate is not None and not simulated.target(config).exists():
            say(f"{options.config} is valid; a run would draw {simulated.target(config)} first.")
            return
        plan = Plan.open(config)
    except InputError as error:
        raise UsageError(str(error)) from error
    lines = checking.describe(plan)
    say(f"{options.config} is valid. A run would")
    say("\n".join(f"  {line}" for line in lines))


def diagnose(options: argparse.Namespace) -> None:
    from aggmc_beam.fit.diagnosis import diagnose_sums

    config, _ = _config(options)
    plan = _open(config)
    state = plan.state()
    Summing(plan, state, no_progress).sum()
    for group, name in enumerate(state.groups):
        try:
            found = diagnose_sums(*group_sums(state, group, plan.settings), options.precision)
        except InputError as error:
            say(f"{escape_controls(', '.join(name))}: {error}" if name else f"{error}")
            continue
        if options.json:
            labels = dict(zip(plan.spec.group_by, name, strict=True)) if name else None
            print(json.dumps({"group": labels, **found.to_dict()}, allow_nan=False))
        else:
            say(f"\n{escape_controls(', '.join(name))}:" if name else "")
            say(found)


def simulate(options: argparse.Namespace) -> None:
    if options.config:
        config, _ = _config(options)
        path = Path(options.output) if options.output else simulated.target(config)
    else:
        if not options.output:
            raise UsageError("-o FILE or --config CONFIG is needed")
        path = Path(options.output)
        config = _simulation(options)
    if path.suffix not in (".csv", ".jsonl", ".parquet"):
        raise UsageError(f"{path.name!r} must end in .csv, .jsonl or .parquet")
    rows = simulated.write_simulated(config, path)
    truth = path.with_suffix(".truth.json")
    about = {
        "states": list(simulated.names(config)),
        "transition_matrix": simulated.matrices(config).tolist(),
    }
    write_atomically(truth, (json.dumps(about) + "\n").encode())
    say(f"Written: {path} ({rows:,} rows), {truth}")


def _simulation(options: argparse.Namespace) -> Config:
    states = options.states.split(",")
    if len(states) == 1 and states[0].isdigit():
        states = [f"s{i}" for i in range(int(states[0]))]
    try:
        return read_config(
            {
                "states": states,
                "input": {"files": options.output, "layout": options.layout},
                "noise": _noise(options.noise).to_dict(),
                "simulate": {
                    "steps": options.steps,
                    "realizations": options.realizations,
                    "population": options.population,
                    "seed": options.seed,
                },
            }
        )
    except InputError as error:
        raise UsageError(str(error)) from error


def compare(options: argparse.Namespace) -> None:
    from aggmc_beam.uses.compare import compare as differences

    ways = [options.second is not None, options.groups is not None, options.cells is not None]
    if sum(ways) != 1:
        raise UsageError("compare needs A and B, or A with --groups or --cells")
    need_file(options.first)
    first = read_estimates(options.first)
    if options.second is not None:
        need_file(options.second)
        a, b = first, read_estimates(options.second)
    else:
        a, b = (_part(first, options, name) for name in options.groups or options.cells)
    found = differences(a, b, level=options.level)
    say(found)
    if options.output:
        _write_comparison(found, Path(options.output))
        say(f"Written: {options.output}")


def _part(found: Any, options: argparse.Namespace, name: str) -> Any:
    """A group, or a cell, of a result."""
    try:
        if options.groups:
            if not isinstance(found, Groups):
                raise InputError(f"{options.first} has no groups")
            return found[tuple(name.split(", "))]
        if not isinstance(found, Estimates):
            raise InputError(
                f"{options.first} has no cells" + (", but groups" if isinstance(found, Groups) else "")
            )
        return found.cell(int(name) if name.lstrip("-").isdigit() else name)
    except InputError as error:
        raise UsageError(str(error)) from error


def _write_comparison(found: Any, path: Path) -> None:
    kind = path.suffix.lower()
    if kind == ".csv":
        found.to_csv(path)
    elif kind == ".json":
        write_atomically(path, (json.dumps(found.to_dict(), allow_nan=False) + "\n").encode())
    elif kind in (".png", ".svg", ".pdf"):
        found.plot().savefig(path)
    else:
        raise UsageError(f"{path.name!r} must end in .csv, .json, .png, .svg or .pdf")


def need_file(path: str) -> None:
    """`UsageError` if a file that the command names is not there."""
    if "://" not in path and not Path(path).exists():
        raise UsageError(f"cannot read {path!r}: there is no such file or directory")


def init(options: argparse.Namespace) -> None:
    from aggmc_beam.local.guess import config_name, config_text, guess

    name = config_name(options.files)
    path = Path(options.output or f"{name}.yaml")
    if path.exists():
        raise UsageError(f"{path} is there already; name another file with -o")
    try:
        found = guess(options.files)
    except InputError as error:
        raise UsageError(str(error)) from error
    write_atomically(path, config_text(found, name, f"out/{name}").encode())
    say(f"Written: {path}. Read it, then: aggmc check {path}")


def report(options: argparse.Namespace) -> None:
    given = Path(options.result)
    need_file(options.result)
    source = given / output.ESTIMATES if given.is_dir() else given
    try:
        lines = [json.loads(line) for line in storage.read_bytes(source).splitlines() if line.strip()]
    except ValueError as error:
        raise InputError(f"{source} is not a file of estimates: {error}") from None
    if not lines:
        raise InputError(f"{source} holds no estimates")
    about = _about(source.with_name(RUN))
    path = Path(options.output) if options.output else source.with_name(output.REPORT)
    with Staging(path.parent) as aside:
        config = about.get("config") or {}
        tables = shown_tables(source.parent, _list(config.get("group_by")))
        output.write_report(lines, aside / path.name, about.get("config"), about.get("ledger"), tables)
    say(f"Written: {path}")


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(v) for v in value or []]


def _about(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    return found if isinstance(found, dict) else {}


def moments_merge(options: argparse.Namespace) -> None:
    for file in options.files:
        need_file(file)
    total = load_run(options.files[0])
    for file in options.files[1:]:
        total = total + load_run(file)
    found = describe(total)
    if found["overlaps"] and not options.allow_overlap:
        raise InputError(
            f"{found['overlaps']:,} records are in several of these files and would be summed twice; run over the "
            "data with input.resume instead, or merge them all the same with --allow-overlap"
        )
    save_run(total, options.output)
    say(f"Written: {options.output} ({found['records']:,} records, {found['pairs']:,} pairs)")
    if found["overlaps"]:
        say(f"Warning: {found['overlaps']:,} records were summed twice; estimates from this file will say so")


def moments_show(options: argparse.Namespace) -> None:
    need_file(options.file)
    for name, value in describe(load_run(options.file)).items():
        say(f"{name + ':':<14}{f'{value:,}' if isinstance(value, int) else value}")


def moments_estimate(options: argparse.Namespace) -> None:
    noise, population = _noise(options.noise), _population(options.population)
    need_file(options.file)
    state = load_run(options.file)
    chain = state.spec.chain if options.chain == "saved" else "stationary"
    try:
        settings = Settings(noise, population, options.estimator, chain, options.level)
    except InputError as error:
        raise UsageError(str(error)) from error
    results, skipped = estimate_state(state, settings)
    if options.output:
        lines = "".join(e.to_json() + "\n" for e in listed(results))
        write_atomically(options.output, lines.encode())
        say(f"Written: {options.output}")
        return
    for group, found in results.items():
        say(f"{escape_controls(', '.join(group))}:\n{found}" if group else found)
    for name, why in skipped.items():
        say(f"No estimate for {name}: {why}")


def _noise(given: str) -> Noise:
    """A noise model as the command line gives it: name, name:value or a YAML mapping."""
    name, colon, value = given.partition(":")
    try:
        if given.lstrip().startswith("{") or not colon:
            return NoiseKind().read(read_yaml(given, "--noise"), "--noise")
        key = _MODELS[name][1][0] if name in _MODELS and _MODELS[name][1] else "value"
        return noise_from_dict({"model": name, key: read_yaml(value, "--noise")})
    except InputError as error:
        raise UsageError(str(error)) from error


def _population(given: str) -> float | str:
    if given == "estimate":
        return given
    try:
        found = float(given)
    except ValueError:
        found = np.nan
    if not (np.isfinite(found) and found > 0):
        raise UsageError(f"--population must be a number above 0 or estimate; got {given!r}")
    return found
