"""Every key of a config that takes a value, as a flat list: what options and templates are made from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any

from aggmc_beam.config.kinds import Choice, Kind, Section, integer, joined
from aggmc_beam.config.model import Config
from aggmc_beam.config.special import ChainKind, CycleKeys, DayTypeKeys, HarmonicKeys, NoiseKind, WindowKeys
from aggmc_beam.noise.description import _MODELS


@dataclass(frozen=True)
class Key:
    """`path` is its name with dots; `text` what to write; `schema` its JSON Schema; `default` in words."""

    path: str
    text: str
    help: str
    schema: dict[str, Any]
    default: str

    @property
    def option(self) -> str:
        """Its name as an option: dots become underscores."""
        return self.path.replace(".", "_")

    def change(self, value: str) -> str:
        """The override that sets the key to an option's value. Text stands as it is, so that globs, commas
        and a bare `no` need no quotes; what begins with a bracket is a list.

        >>> by_name = {k.option: k for k in keys()}
        >>> by_name["input_files"].change("*.csv"), by_name["lags"].change("1")
        ('input.files="*.csv"', 'lags=1')
        """
        kinds = {one.get("type") for one in self.schema.get("anyOf", [self.schema])}
        verbatim = "string" in kinds and kinds <= {"string", "array"} and not value.startswith("[")
        return f"{self.path}={json.dumps(value, ensure_ascii=False) if verbatim else value}"


def keys() -> list[Key]:
    """All keys, in the order of the reference page. Sections are given by their keys; so are parts of
    `noise` and `chain`, beside the whole.

    >>> [k.option for k in keys() if k.path.startswith("stream.")]
    ['stream_refresh', 'stream_allowed_lateness', 'stream_state_ttl', 'stream_max_ahead']
    """
    return list(_of_section(Config, ""))


def _of_section(section: type, path: str) -> Iterator[Key]:
    for f in fields(section):
        kind, name = f.metadata["kind"], joined(path, f.name)
        if isinstance(kind, Section):
            yield from _of_section(kind.of, name)
            continue
        yield _key(name, kind, f.metadata["help"], default_text(f))
        if isinstance(kind, NoiseKind):
            yield from _of_noise(name)
        if isinstance(kind, ChainKind):
            yield _key(f"{name}.cycle", integer(1), "steps in a cycle", "none")
            yield from _of_section(CycleKeys, f"{name}.cycle")
            yield from _of_section(DayTypeKeys, f"{name}.day_types")
            yield from _of_section(WindowKeys, f"{name}.window")
            yield from _of_section(HarmonicKeys, f"{name}.harmonics")


def _of_noise(path: str) -> Iterator[Key]:
    yield _key(f"{path}.model", Choice(tuple(_MODELS)), "noise model", "none")
    models: dict[str, list[str]] = {}
    for model, (_, own, budget) in _MODELS.items():
        for name in own + budget:
            models.setdefault(name, []).append(model)
    for name, having in models.items():
        yield Key(f"{path}.{name}", "as the model asks", f"key of {', '.join(having)} noise", {}, "none")


def _key(path: str, kind: Kind, help: str, default: str) -> Key:
    return Key(path, kind.text, help, kind.schema, default)


def default_text(f: Any) -> str:
    """The default of a config field, as Markdown."""
    if f.metadata["show"] is not None:
        return str(f.metadata["show"])
    if isinstance(f.metadata["kind"], Section) and f.default_factory is not MISSING:
        return "as below"
    if f.default is MISSING:
        return "**required**"
    return f"`{str(f.default).lower() if isinstance(f.default, bool) else f.default}`"
