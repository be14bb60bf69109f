"""docs/runners.md: the table of runners and features, from the outcomes of the suite."""

from __future__ import annotations

import json
from pathlib import Path

from features import FEATURES

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "runners"
PAGE = DOCS / "runners.md"
BEGIN, END = "<!-- table: written by make conformance -->", "<!-- end of the table -->"
ORDER = ("fnapi", "fnapi-multi", "prism", "flink", "flink-external", "spark")


def save(name: str, versions: str, features: dict[str, str]) -> None:
    """Keep what a run of the suite found, and write the table anew."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"versions": versions, "features": features}, indent=1, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_table(text: str) -> str:
    """The page with a table of what is known now."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n{END}{rest.split(END)[1]}"


def table() -> str:
    """Runners across, features down; reasons below, numbered."""
    found = {name: _result(name) for name in ORDER}
    reasons: list[str] = []
    lines = [f"| | {' | '.join(ORDER)} |", f"| --- |{' --- |' * len(ORDER)}"]
    for feature, title in FEATURES.items():
        cells = [_cell(found[name]["features"].get(feature, "not checked"), reasons) for name in ORDER]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines.append("")
    lines += [f"{number}. Not supported by the runner: {reason}." for number, reason in enumerate(reasons, 1)]
    lines += ["", *(f"- {name}: {found[name]['versions']}" for name in ORDER if found[name]["versions"])]
    return "\n".join(lines) + "\n"


def _result(name: str) -> dict:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"versions": "", "features": {}}


def _cell(outcome: str, reasons: list[str]) -> str:
    kind, _, reason = outcome.partition(": ")
    if not reason:
        return kind
    if reason not in reasons:
        reasons.append(reason)
    return f"no ({reasons.index(reason) + 1})"
