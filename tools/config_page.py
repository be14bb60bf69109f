"""The reference page and the JSON Schema of configs, made from the code: `make docs`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from aggmc_beam.config.keys import default_text
from aggmc_beam.config.kinds import Either, Section, joined
from aggmc_beam.config.model import Config
from aggmc_beam.noise.description import _MODELS

PAGE, SCHEMA = Path("docs/config.md"), Path("docs/config.schema.json")

_INTRO = """# Config reference

One YAML file describes a run; `aggmc check CONFIG` validates it without running, and
`--set key=value` changes a key for one run. Unknown keys, wrong types and impossible combinations are
errors that name the key. Paths are relative to the directory where the command is run. This page is
made from the code by `make docs`, and so is `docs/config.schema.json`, which editors can use for
completion: put `# yaml-language-server: $schema=docs/config.schema.json` on the first line of a config.

```yaml
version: 1
name: hourly-mobility
states: [home, work, transit, other]
input:
  files: data/*.parquet
  columns: {realization: day, time: hour, counts: devices}
group_by: [region]
noise: {model: binomial, alpha: 0.5}
population: estimate
chain: {cycle: 24}
output: {directory: out/, moments: true, report: true}
```

YAML anchors, aliases, tags and repeated keys are not read, nor files beyond 1 MB.
"""


def page() -> str:
    """The reference as Markdown."""
    parts = [_INTRO]
    for path, section in _sections(Config, ""):
        title = f"`{path}`" if path else "Top level"
        parts.append(f"\n## {title}\n\n{(section.__doc__ or '').strip()}\n\n{_table(section, path)}")
    parts.append(f"\n## Noise models\n\n{_noise_table()}")
    return "".join(parts)


def schema() -> str:
    """The JSON Schema as text."""
    found = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "aggmc config",
        **Section(Config).schema,
    }
    return json.dumps(found, indent=1) + "\n"


def write(root: Path = Path()) -> None:
    """Write both files below `root`."""
    (root / PAGE).parent.mkdir(parents=True, exist_ok=True)
    (root / PAGE).write_text(page(), encoding="utf-8")
    (root / SCHEMA).write_text(schema(), encoding="utf-8")


def _sections(section: type, path: str) -> Iterator[tuple[str, type]]:
    yield path, section
    for f in fields(section):
        kind = f.metadata["kind"]
        if isinstance(kind, Section):
            yield from _sections(kind.of, joined(path, f.name))


def _table(section: type, path: str) -> str:
    lines = ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    for f in fields(section):
        kind = f.metadata["kind"]
        what = (
            f"see [{joined(path, f.name)}](#{_anchor(joined(path, f.name))})"
            if isinstance(kind, Section)
            else _words(kind)
        )
        help = f.metadata["help"]
        lines.append(f"| `{f.name}` | {what} | {default_text(f)} | {help} |")
    return "\n".join(lines) + "\n"


def _anchor(path: str) -> str:
    return path.replace(".", "").lower()


def _words(kind: Any) -> str:
    text = ", or ".join(_words(k) for k in kind.kinds) if isinstance(kind, Either) else str(kind.text)
    return text.replace("|", "\\|")


def _noise_table() -> str:
    lines = ["| model | keys | or a privacy budget |", "| --- | --- | --- |"]
    for name, (_, keys, budget) in _MODELS.items():
        cells = (", ".join(f"`{k}`" for k in part) for part in (keys, budget))
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write()
