"""Kinds of config values: each reads a plain value, describes itself, and has a JSON Schema.

A value that does not fit raises `InputError` with the path of its key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Protocol

from aggmc_beam.errors import InputError, nearest


class Kind(Protocol):
    @property
    def text(self) -> str:
        """What to write, in words."""
        ...

    @property
    def schema(self) -> dict[str, Any]: ...
    def read(self, value: Any, path: str) -> Any: ...


@dataclass(frozen=True)
class Simple:
    """A kind made of a function that returns the value, or None if it does not fit."""

    text: str
    schema: dict[str, Any]
    convert: Callable[[Any], Any]

    def read(self, value: Any, path: str) -> Any:
        found = self.convert(value)
        if found is None:
            raise InputError(f"{path} must be {self.text}; got {shown(value)}")
        return found


def integer(low: int | None = None) -> Simple:
    limit = "" if low is None else f" of at least {low}"
    schema: dict[str, Any] = {"type": "integer"}
    if low is not None:
        schema["minimum"] = low

    def convert(value: Any) -> int | None:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return value if whole and (low is None or value >= low) else None

    return Simple(f"a whole number{limit}", schema, convert)


def number(low: float = 0, high: float | None = None) -> Simple:
    """Above `low` and below `high`."""
    between = f" above {low:g}" + ("" if high is None else f" and below {high:g}")
    schema: dict[str, Any] = {"type": "number", "exclusiveMinimum": low}
    if high is not None:
        schema["exclusiveMaximum"] = high

    def convert(value: Any) -> float | None:
        found = as_number(value)
        fits = found is not None and found > low and (high is None or found < high)
        return found if fits and found != float("inf") else None

    return Simple(f"a number{between}", schema, convert)


def probability() -> Simple:
    """0 to 1, both included."""

    def convert(value: Any) -> float | None:
        found = as_number(value)
        return found if found is not None and 0 <= found <= 1 else None

    return Simple("a probability, 0 to 1", {"type": "number", "minimum": 0, "maximum": 1}, convert)


def as_number(value: Any) -> float | None:
    """A number, also where YAML 1.1 takes one for text, as it does 1e3."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return float(value)


def text(what: str = "text") -> Simple:
    """Any text but none, and without NUL, which no path and no column can hold."""

    def convert(value: Any) -> str | None:
        return value if isinstance(value, str) and value and "\0" not in value else None

    return Simple(what, {"type": "string", "minLength": 1}, convert)


def name(what: str = "a name") -> Simple:
    """Text; a whole number stands for its digits. YAML reads a bare yes or no as a truth value."""

    def convert(value: Any) -> str | None:
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return value.strip() or None if isinstance(value, str) and "\0" not in value else None

    return Simple(f"{what} (in quotes if in doubt)", {"type": ["string", "integer"]}, convert)


def flag() -> Simple:
    return Simple("true or false", {"type": "boolean"}, lambda v: v if isinstance(v, bool) else None)


@dataclass(frozen=True)
class Choice:
    options: tuple[str, ...]

    @property
    def text(self) -> str:
        return " or ".join(f"`{o}`" for o in self.options)

    @property
    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.options)}

    def read(self, value: Any, path: str) -> str:
        if value not in self.options:
            raise InputError(f"{path} is {shown(value)}; {nearest(value, self.options)}")
        return str(value)


@dataclass(frozen=True)
class Several:
    """A list of one kind; a single value stands for a list of it."""

    item: Kind
    unique: bool = False

    @property
    def text(self) -> str:
        return f"a list, each entry {self.item.text}"

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.item.schema, "uniqueItems": self.unique}

    def read(self, value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise InputError(f"{path} must be {self.text}; got {shown(value)}")
        items = tuple(self.item.read(v, f"{path}[{i}]") for i, v in enumerate(value))
        if self.unique:
            for i, item in enumerate(items):
                if item in items[:i]:
                    raise InputError(f"{path}[{i}] is {shown(item)} again; each may be named once")
        return items


@dataclass(frozen=True)
class Either:
    """The first of several kinds that fits; told apart by the type of the value."""

    kinds: tuple[Kind, ...]
    fits: Callable[[Any], int]

    @property
    def text(self) -> str:
        return ", or ".join(k.text for k in self.kinds)

    @property
    def schema(self) -> dict[str, Any]:
        return {"anyOf": [k.schema for k in self.kinds]}

    def read(self, value: Any, path: str) -> Any:
        at = self.fits(value)
        if at < 0:
            raise InputError(f"{path} must be {self.text}; got {shown(value)}")
        return self.kinds[at].read(value, path)


@dataclass(frozen=True)
class Section:
    """A mapping whose keys are the fields of a dataclass made with `key`."""

    of: type

    @property
    def text(self) -> str:
        return "a section of keys"

    @property
    def schema(self) -> dict[str, Any]:
        properties, required = {}, []
        for f in fields(self.of):
            properties[f.name] = {**f.metadata["kind"].schema, "description": f.metadata["help"]}
            if _required(f):
                required.append(f.name)
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    def read(self, value: Any, path: str) -> Any:
        where = path or "the config"
        if not isinstance(value, Mapping):
            raise InputError(f"{where} must be a section of keys; got {shown(value)}")
        known = {f.name: f for f in fields(self.of)}
        for name in value:
            if name not in known:
                raise InputError(f"unknown key {joined(path, str(name))!r}; {nearest(name, known)}")
        found = {}
        for name, f in known.items():
            if value.get(name) is not None:
                found[name] = f.metadata["kind"].read(value[name], joined(path, name))
            elif _required(f):
                raise InputError(f"{joined(path, name)} is missing: {f.metadata['help']}")
        try:
            return self.of(**found)
        except InputError as error:
            raise InputError(str(error).replace("{path}", f"{path}." if path else "")) from None


def key(kind: Kind, help: str, default: Any = MISSING, show: str | None = None) -> Any:
    """A field of a config section. `show` is the default as the reference page prints it."""
    meta = {"kind": kind, "help": help, "show": show}
    if default is MISSING:
        return field(metadata=meta)
    if callable(default):
        return field(default_factory=default, metadata=meta)
    return field(default=default, metadata=meta)


def _required(f: Any) -> bool:
    return f.default is MISSING and f.default_factory is MISSING


def joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def shown(value: Any) -> str:
    found = repr(value)
    return found if len(found) <= 60 else found[:57] + "..."
