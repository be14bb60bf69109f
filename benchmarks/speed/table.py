"""The results as a Markdown table and as JSON, and into the page that shows them."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.speed.data import SEED
from benchmarks.speed.harness import ROOT, Bench, Row

PACKAGES = ("aggmc-beam", "numpy", "scipy", "polars", "pyarrow", "apache-beam")
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"


def facts() -> dict[str, Any]:
    """The machine and the versions."""
    found = re.findall(r"^model name\s*:\s*(.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    memory = re.search(r"MemTotal:\s*(\d+)", _read("/proc/meminfo"))
    return {
        "processor": found[0] if found else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(int(memory.group(1)) / 2**20) if memory else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "peers": re.findall(r"^(\S+==\S+)", (ROOT / "benchmarks/peers.lock").read_text(), re.MULTILINE),
        "seed": SEED,
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


HEAD = ("case", "size", "against", "goal", "measured", "processor", "cold", "")


def line(row: Row) -> str:
    """A row of the table."""
    measured = "-" if row.measured is None else f"{row.measured:.3g}{row.unit}"
    ratios = ["" if x is None else f"{x:.3g}" for x in (row.processor, row.cold)]
    verdict = "; ".join(part for part in (row.verdict, row.note) if part)
    cells = [row.what, row.case, row.against, row.goal or "", measured, *ratios, verdict]
    return "| " + " | ".join(cells) + " |"


def markdown(rows: Sequence[Row], about: dict[str, Any]) -> str:
    lines = ["| " + " | ".join(HEAD) + " |", "| --- " * len(HEAD) + "|", *map(line, rows)]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines += [
        "",
        f"{about['processor']}, {about['cores']} cores, {about['memory_gb']} GB; Python {about['python']}, "
        f"{versions}; seed {about['seed']}.",
    ]
    return "\n".join(lines) + "\n"


def save(rows: Sequence[Row], about: dict[str, Any], bench: Bench, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {
        "about": about,
        "quick": bench.quick,
        "clock": bench.clock,
        "rows": [asdict(row) | {"verdict": row.verdict} for row in rows],
        "races": bench.log,
    }
    path.write_text(json.dumps(plain, indent=1) + "\n")


def write_between_marks(text: str, path: Path) -> None:
    """Put the table into a page, between its marks."""
    page = path.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n{text}{END}{rest.split(END)[1]}", encoding="utf-8")
