"""Any nested value as text or rows: for the config, the ledger and diagnostics nobody foresaw."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_./][\w ./*:-]*$")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def outline(value: Any, indent: int = 0) -> str:
    """The value as YAML, block style, with lists of plain values in one line.

    >>> print(outline({"states": ["a", "b"], "noise": {"model": "binomial", "alpha": 0.5}}))
    states: [a, b]
    noise:
      model: binomial
      alpha: 0.5
    """
    pad = " " * indent
    if isinstance(value, Mapping) and value:
        lines = []
        for key, item in value.items():
            nested = _is_nested(item)
            text = outline(item, indent + 2)
            lines.append(f"{pad}{scalar(key)}:" + (f"\n{text}" if nested else f" {text.strip()}"))
        return "\n".join(lines)
    if _is_nested(value):
        return "\n".join(f"{pad}- {outline(item, indent + 2).lstrip()}" for item in value)
    return pad + _flat(value)


def rows(value: Mapping[str, Any], path: str = "", limit: int = 400) -> Iterator[tuple[str, str]]:
    """The leaves as (path, text), such as ("rejected.no counts", "12").

    >>> list(rows({"files": 2, "rejected": {"no counts": 12000}}))
    [('files', '2'), ('rejected.no counts', '12,000')]
    """
    for count, (key, item) in enumerate(value.items()):
        if count == limit:
            yield path or "more", f"and {len(value) - limit:,} more"
            return
        name = f"{path}.{key}" if path else str(key)
        if isinstance(item, Mapping) and item:
            yield from rows(item, name, limit)
        else:
            yield name, plain(item)


def plain(value: Any) -> str:
    """A leaf in few characters.

    >>> plain(20000.0), plain(0.123456), plain([True, None])
    ('20,000', '0.1235', 'yes, unknown')
    """
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "unknown"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, list | tuple):
        text = ", ".join(plain(item) for item in value[:20])
        return text + (f", and {len(value) - 20:,} more" if len(value) > 20 else "")
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {plain(item)}" for key, item in value.items())
    return str(value)


def _is_nested(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value)
    return isinstance(value, list | tuple) and any(isinstance(x, Mapping | list | tuple) for x in value)


def _flat(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flat(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{}"
    return scalar(value)


def scalar(value: Any) -> str:
    """A YAML scalar, quoted where it would be read as something else."""
    if isinstance(value, str):
        bare = _PLAIN.match(value) and value.lower() not in _WORDS and ": " not in value
        return value if bare and not value.endswith((":", " ")) else json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)
