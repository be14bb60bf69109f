"""Reading YAML that may come from anywhere: plain data only, within limits, errors with their line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from aggmc_beam.errors import InputError

MAX_BYTES = 1_000_000
MAX_DEPTH = 30
MAX_NODES = 100_000
#: Longest text of one value; YAML reads numbers such as 1:30:00 in time that grows with its square.
MAX_TEXT = 10_000
MAX_INTEGER = 2**63


class _Loader(yaml.SafeLoader):
    """The safe loader, without aliases and without keys given twice."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.depth = self.nodes = 0

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:
        # The scanner reads far ahead, in time that grows with the square of the depth.
        if self.flow_level >= MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"more than {MAX_DEPTH} levels; a config is small",
                problem_mark=self.get_mark(),
            )
        super().fetch_flow_collection_start(TokenClass)

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.events.AliasEvent) or getattr(event, "anchor", None):
            raise yaml.MarkedYAMLError(
                problem="anchors (&) and aliases (*) are not read; write the value out",
                problem_mark=event.start_mark,
            )
        if len(getattr(event, "value", "")) > MAX_TEXT:
            raise yaml.MarkedYAMLError(
                problem=f"a value of more than {MAX_TEXT:,} characters", problem_mark=event.start_mark
            )
        self.depth += 1
        self.nodes += 1
        if self.depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise yaml.MarkedYAMLError(
                problem=f"more than {MAX_DEPTH} levels or {MAX_NODES:,} values; a config is small",
                problem_mark=event.start_mark,
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag.endswith(":merge"):
                raise yaml.MarkedYAMLError(
                    problem="merge keys (<<) are not read", problem_mark=key.start_mark
                )
            name = str(key.value)
            if name in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {name!r} is given twice; keep one", problem_mark=key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)


def _integer(loader: _Loader, node: Any) -> int:
    found = loader.construct_yaml_int(node)
    if abs(found) >= MAX_INTEGER:
        raise yaml.MarkedYAMLError(
            problem="a whole number of more than 63 bits", problem_mark=node.start_mark
        )
    return int(found)


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


def read_yaml(text: str, source: str = "the config") -> Any:
    """Plain data from YAML text; `InputError` with the line for anything else.

    >>> read_yaml("a: [1, x]")
    {'a': [1, 'x']}
    """
    if len(text) > MAX_BYTES:
        raise InputError(f"{source} is larger than {MAX_BYTES // 1_000_000} MB; a config is small")
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise InputError(f"{source}{_place(error)}: {_problem(error, text)}") from None
    except (ValueError, OverflowError) as error:  # dates and numbers that are none
        raise InputError(f"{source}: {error}") from None


def read_yaml_file(path: str | os.PathLike[str]) -> Any:
    """As `read_yaml`, from a file."""
    name = os.fspath(path)
    try:
        if Path(path).stat().st_size > MAX_BYTES:
            raise InputError(f"{name} is larger than {MAX_BYTES // 1_000_000} MB; a config is small")
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {name!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text ({error.reason} at byte {error.start})") from None
    return read_yaml(text, name)


def _place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return "" if mark is None else f", line {mark.line + 1}"


def _problem(error: yaml.YAMLError, text: str) -> str:
    problem = str(getattr(error, "problem", None) or error)
    mark = getattr(error, "problem_mark", None)
    line = text.splitlines()[mark.line] if mark is not None and mark.line < len(text.splitlines()) else ""
    if "\\t" in problem or "\t" in line[: len(line) - len(line.lstrip())]:
        return "a tab is used for indentation; YAML allows spaces only"
    if "could not determine a constructor" in problem:
        tag = problem.rsplit("tag ", 1)[-1].strip("'").removeprefix("tag:yaml.org,2002:")
        return f"the tag !!{tag} is not read; a config holds plain values only"
    return problem
