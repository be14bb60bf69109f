"""Kinds of config values that stand for objects of the library: noise, chain, durations, matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggmc_beam.budget import read_size
from aggmc_beam.chain import WEEK, Chain, Cycle, Parametric, Window, as_chain
from aggmc_beam.clock import CALENDAR
from aggmc_beam.config.kinds import Choice, Section, Several, Simple, as_number, integer, key, shown
from aggmc_beam.errors import InputError, nearest
from aggmc_beam.noise import Noise, noise_from_dict
from aggmc_beam.noise.description import _MODELS
from aggmc_beam.times import instant, microseconds
from aggmc_beam.zones import Zone


@dataclass(frozen=True)
class NoiseKind:
    text = "a mapping such as `{model: binomial, alpha: 0.5}`"

    @property
    def schema(self) -> dict[str, Any]:
        model = {"enum": list(_MODELS)}
        return {"anyOf": [model, {"type": "object", "properties": {"model": model}, "required": ["model"]}]}

    def read(self, value: Any, path: str) -> Noise:
        given = {"model": value} if isinstance(value, str) else value
        try:
            return noise_from_dict(_numbers(given))
        except (InputError, TypeError) as error:
            raise InputError(f"{path}: {error}") from None


def _numbers(value: Any) -> Any:
    """The same value with text that is a number, such as 1e-3, made one."""
    if isinstance(value, Mapping):
        return {k: _numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    found = as_number(value) if isinstance(value, str) else None
    return value if found is None else found


@dataclass(frozen=True)
class WindowKeys:
    size: int = key(integer(1), "length of a window, in steps")
    every: int | None = key(integer(1), "steps from one window's start to the next", None, "size")


@dataclass(frozen=True)
class HarmonicKeys:
    period: int = key(integer(2), "steps in a cycle")
    order: int = key(integer(1), "number of harmonics", 1)


@dataclass(frozen=True)
class CycleKeys:
    period: int = key(integer(1), "steps in a cycle")
    kinds: tuple[int, ...] = key(Several(integer(0)), "kinds of the cycles from step 0 on", (0,), "all alike")


@dataclass(frozen=True)
class DayTypeKeys:
    period: int = key(integer(1), "steps in a day", 24)
    rest: tuple[str, ...] = key(Several(Choice(WEEK)), "days of rest", ("saturday", "sunday"))
    first: str = key(Choice(WEEK), "the day of step 0", WEEK[0])


@dataclass(frozen=True)
class ChainKind:
    text = (
        "`stationary`, `per-step`, `{window: {size: 168, every: 24}}`, `{cycle: 24}`, `{day_types: {period: 24}}` or "
        "`{harmonics: {period: 24, order: 2}}`"
    )

    @property
    def schema(self) -> dict[str, Any]:
        parts = {
            "window": Section(WindowKeys).schema,
            "cycle": {"anyOf": [integer(1).schema, Section(CycleKeys).schema]},
            "day_types": Section(DayTypeKeys).schema,
            "harmonics": Section(HarmonicKeys).schema,
        }
        mappings = [
            {"type": "object", "properties": {k: v}, "required": [k], "additionalProperties": False}
            for k, v in parts.items()
        ]
        return {"anyOf": [{"enum": ["stationary", "per-step"]}, *mappings]}

    def read(self, value: Any, path: str) -> Chain:
        if isinstance(value, str):
            return as_chain(Choice(("stationary", "per-step")).read(value, path))
        if not isinstance(value, Mapping) or len(value) != 1:
            raise InputError(f"{path} must be {self.text}; got {shown(value)}")
        [(name, options)] = value.items()
        where = f"{path}.{name}"
        if name == "cycle":
            if not isinstance(options, Mapping):
                return Cycle(integer(1).read(options, where))
            cycle = Section(CycleKeys).read(options, where)
            return Cycle(cycle.period, cycle.kinds)
        if name == "day_types":
            days = Section(DayTypeKeys).read(options, where)
            return Cycle.day_types(days.period, days.rest, days.first)
        if name == "window":
            keys = Section(WindowKeys).read(options, where)
            return Window(keys.size, keys.every)
        if name == "harmonics":
            keys = Section(HarmonicKeys).read(options, where)
            return Parametric.harmonics(keys.period, keys.order)
        raise InputError(
            f"unknown key {where!r}; {nearest(name, ['window', 'cycle', 'day_types', 'harmonics'])}"
        )


def chain_to_plain(chain: Chain) -> Any:
    """What `ChainKind` reads; None for a chain that no config can describe.

    >>> chain_to_plain(Window(6, 2))
    {'window': {'size': 6, 'every': 2}}
    """
    if isinstance(chain, Window):
        return {"window": {"size": chain.size, "every": chain.every}}
    if isinstance(chain, Cycle):
        return {"cycle": chain.note() if len(chain.kinds) > 1 else chain.period}
    if isinstance(chain, Parametric):
        order = (chain.design.shape[1] - 1) // 2
        same = chain.period and 2 * order < chain.period
        if same and np.array_equal(Parametric.harmonics(chain.period or 2, order).design, chain.design):
            return {"harmonics": {"period": chain.period, "order": order}}
        return None
    return chain.name


@dataclass(frozen=True)
class Duration:
    text = "a duration such as `30s`, `15m`, `1h` or `7d`"
    schema = {"type": "string", "pattern": "^[0-9]+ *(ms|s|m|h|d|w)$"}  # noqa: RUF012

    def read(self, value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise InputError(f"{path} must be {self.text}; got {shown(value)}")
        try:
            microseconds(value)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        return value


@dataclass(frozen=True)
class Step:
    text = f"{Duration.text}, or {', '.join(f'`{unit}`' for unit in CALENDAR)}"
    schema = {"type": "string", "pattern": f"^([0-9]+ *(ms|s|m|h|d|w)|{'|'.join(CALENDAR)})$"}  # noqa: RUF012

    def read(self, value: Any, path: str) -> str:
        return value if isinstance(value, str) and value in CALENDAR else Duration().read(value, path)


@dataclass(frozen=True)
class ZoneKind:
    text = "a time zone such as `Europe/Berlin`"
    schema = {"type": "string"}  # noqa: RUF012

    def read(self, value: Any, path: str) -> str:
        try:
            if isinstance(value, str):
                return Zone(value).name
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        raise InputError(f"{path} must be {self.text}; got {shown(value)}")


@dataclass(frozen=True)
class Size:
    text = "a size such as `512MB` or `16GB`"
    schema = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? *(MB|GB|TB)$"}  # noqa: RUF012

    def read(self, value: Any, path: str) -> int:
        found = read_size(value) if isinstance(value, str) else None
        if found is None:
            raise InputError(f"{path} must be {self.text}; got {shown(value)}")
        return found


@dataclass(frozen=True)
class Encoding:
    text = "a name of an encoding of text"
    schema = {"type": "string"}  # noqa: RUF012

    def read(self, value: Any, path: str) -> str:
        try:
            # Not of bytes to bytes, such as zip.
            if isinstance(value, str) and isinstance(b"".decode(value), str):
                return value
        except (LookupError, ValueError):
            pass
        raise InputError(f"{path} must be {self.text}, such as latin-1; got {shown(value)}")


@dataclass(frozen=True)
class Moment:
    text = "a time such as `2026-01-05T00:00:00Z`"
    schema = {"type": "string"}  # noqa: RUF012

    def read(self, value: Any, path: str) -> int:
        if not isinstance(value, str) and not hasattr(value, "isoformat"):
            raise InputError(f"{path} must be {self.text}; got {shown(value)}")
        try:
            return instant(value)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def _matrix(value: Any) -> tuple[tuple[float, ...], ...] | None:
    if not isinstance(value, list) or not value or not all(isinstance(row, list) for row in value):
        return None
    rows = tuple(tuple(as_number(x) for x in row) for row in value)
    square = all(len(row) == len(rows) and None not in row for row in rows)
    return rows if square else None  # type: ignore[return-value]


def _points(value: Any) -> dict[str, tuple[float, float]] | None:
    if not isinstance(value, Mapping) or not value:
        return None
    found = {}
    for state, point in value.items():
        pair = tuple(map(as_number, point)) if isinstance(point, list) else ()
        if len(pair) != 2 or None in pair:
            return None
        found[str(state)] = pair
    return found  # type: ignore[return-value]


def points() -> Simple:
    """Two numbers for each state."""
    pair = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    return Simple(
        "a mapping of states to two numbers, such as `{home: [52.5, 13.4]}`",
        {"type": "object", "additionalProperties": pair},
        _points,
    )


def square() -> Simple:
    """A square table of numbers."""
    schema = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}
    return Simple("a square matrix, one list per row", schema, _matrix)
