"""The public doors, and what comes out of each as plain data."""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import aggmc_beam as am
from aggmc_beam.cli import main

#: What `run.json` says of how the work was done rather than of the data.
METHOD = ("sorted",)
#: What statistics say of an estimate, which may change apart from the estimate itself.
STATISTICS = ("standard_error", "degrees", "lower", "upper")
#: Statistics are kept of so many estimates of a case, for files that can be read.
MOST = 8
#: Estimators that choose by the statistics of the data.
CHOOSING = ("auto", "gmm")
#: Diagnostics that are no statistics.
APART = ("choice", "cycle", "final")

Record = dict[str, Any]


def rounded(value: Any, digits: int = 15) -> Any:
    """Numbers to so many digits, arrays as lists, NaN as None."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): rounded(v, digits) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v, digits) for v in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def numbers(value: Any) -> Any:
    """Only what are numbers, at any depth."""
    if isinstance(value, Mapping):
        found = {k: numbers(v) for k, v in value.items()}
        return {k: v for k, v in found.items() if v is not None}
    if isinstance(value, list | tuple):
        kept = [numbers(v) for v in value]
        return [v for v in kept if v is not None] or None
    return value if isinstance(value, int | float) else None


def read_out(estimates: Iterable[Mapping[str, Any]]) -> Record:
    """Estimates as `Estimate.to_dict` gives them, by group, cell and window: `points` are the matrices and
    what was counted, `errors` the statistics about them, `auto` the choices that were made."""
    points, errors, auto = {}, {}, {}
    for e in estimates:
        group = "/".join(str(v) for v in (e["group"] or {}).values())
        window = "" if e["window"] is None else f"{e['window']['start']}..{e['window']['end']}"
        key = f"{group}|{window if e['cell'] is None or window else e['cell']}"
        found = {
            "P": e["transition_matrix"],
            "stationary": e["stationary"],
            "population": e["population"],
        }
        if e["estimator"] in CHOOSING:
            auto[key] = {**found, "choice": _choice(e["diagnostics"].get("choice", {}))}
            found = {}
        points[key] = {**found, "counts": {k: v for k, v in e["counts"].items() if v}}
        if key not in errors and len(errors) == MOST:
            continue
        rest = {k: v for k, v in e["diagnostics"].items() if k not in APART}
        rest["interval"] = {k: v for k, v in rest["interval"].items() if k != "centre"}
        errors[key] = {**{k: e[k] for k in STATISTICS}, "diagnostics": numbers(rest)}
    return {"points": {"estimates": points}, "errors": errors, "auto": auto}


def _choice(choice: Mapping[str, Any]) -> Record:
    return {k: choice[k] for k in ("estimator", "form", "lag0") if k in choice}


def from_python(found: Any) -> Record:
    """What `am.estimate` returned: an estimate, several, or a dictionary of them by group."""
    results = found if isinstance(found, dict) else {(): found}
    items, more = [], {}
    for group, result in results.items():
        if isinstance(result, am.Estimates):
            items += [e.to_dict() for e in result]
            more["/".join(group)] = {
                "pooled": None if result.pooled is None else result.pooled.transition_matrix,
                "average": result.average,
                "coefficients": result.coefficients,
                "skipped": sorted(result.skipped),
            }
        else:
            items.append(result.to_dict())
    record = read_out(items)
    if more:
        # The matrix of all cells is chosen where theirs are.
        place = record["auto"] if record["auto"] else record["points"]
        place["together"] = {k: {n: v for n, v in d.items() if v is not None} for k, d in more.items()}
    return record


def estimate(data: Any, **options: Any) -> Record:
    """`am.estimate`."""
    has_rows = not isinstance(data, np.ndarray) and not str(data).endswith(".aggmc")
    more = {"max_rejected": 1.0} if has_rows else {}
    return from_python(am.estimate(data, **more, **options))


def command(*arguments: str) -> tuple[int, str]:
    """`aggmc ...`: its exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(arguments))
    return code, out.getvalue() + err.getvalue()


def run(config: Mapping[str, Any], directory: Path, *more: str) -> Record:
    """`aggmc run CONFIG`, whose files are below `directory`: estimates, ledger and rejected rows."""
    directory.mkdir(parents=True, exist_ok=True)
    path, out = directory / "config.yaml", directory / "out"
    config = {"max_rejected": 1.0, **config}
    path.write_text(
        json.dumps(
            {**config, "output": {"rejected": "all", **config.get("output", {}), "directory": str(out)}}
        )
    )
    code, text = command("run", str(path), "--quiet", *more)
    if code:
        return {"points": {"exit code": code}, "errors": {}, "auto": {}, "text": text}
    record = read_out(read_lines(out / "estimates.jsonl"))
    ledger = json.loads((out / "run.json").read_text(encoding="utf-8"))["ledger"]
    record["points"]["ledger"] = {k: v for k, v in ledger.items() if k not in METHOD}
    record["points"]["ledger"]["skipped"] = sorted(ledger["skipped"])
    record["points"]["rejected"] = rejected_rows(read_lines(out / "rejected.jsonl"))
    return record


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rejected_rows(lines: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    """File, row and reason of each."""
    found = [(Path(str(r["source"]["file"])).name, r["source"]["row"], r["reason"]) for r in lines]
    return [list(r) for r in sorted(found)]
