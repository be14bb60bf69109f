"""One YAML file describes a run. Every error names its key and what would be right."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from aggmc_beam.config.kinds import Section, shown
from aggmc_beam.config.model import FROM_DATA, Columns, Config, Input, Output, Simulate, Uncertainty
from aggmc_beam.config.reader import read_yaml, read_yaml_file
from aggmc_beam.errors import InputError

__all__ = [
    "FROM_DATA",
    "Columns",
    "Config",
    "Input",
    "Output",
    "Simulate",
    "Uncertainty",
    "changed_config",
    "load_config",
    "read_config",
]


def load_config(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> tuple[Config, dict[str, Any]]:
    """A config file with `key=value` overrides; also as plain data, for the report."""
    return changed_config(read_yaml_file(path), overrides, os.fspath(path))


def changed_config(
    plain: Any, overrides: Iterable[str], source: str = "the config"
) -> tuple[Config, dict[str, Any]]:
    """A config from plain data with `key=value` overrides; also as plain data."""
    if not isinstance(plain, dict):
        raise InputError(f"{source} is empty or not a mapping of keys; see docs/config.md")
    for override in overrides:
        set_key(plain, override)
    return read_config(plain), plain


def read_config(plain: Any) -> Config:
    """A config from plain data.

    >>> read_config({"input": {"files": "a.csv"}}).chain.name
    'stationary'
    """
    config: Config = Section(Config).read(plain, "")
    return config.checked


def set_key(plain: dict[str, Any], override: str) -> None:
    """Set a key by its path, as `--set` gives it; the value is read as YAML.

    >>> plain = {"output": {"report": False}}
    >>> set_key(plain, "output.report=true")
    >>> plain
    {'output': {'report': True}}
    """
    path, equals, value = override.partition("=")
    names = path.strip().split(".")
    if not equals or not all(names):
        raise InputError(f"--set needs key=value, such as estimator=mom; got {shown(override)}")
    for name in names[:-1]:
        inner = plain.get(name)
        if inner is not None and not isinstance(inner, dict):
            raise InputError(f"--set {path}: {name} is {shown(inner)}, not a section")
        if inner is None:
            plain[name] = {}
        plain = plain[name]
    plain[names[-1]] = read_yaml(value, f"--set {path}") if value else None
