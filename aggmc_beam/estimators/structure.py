"""What is known of how many states lie to each other: which moves can happen, and how far apart states are."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggmc_beam.errors import InputError, nearest
from aggmc_beam.estimators.gravity import FORMS

#: Kilometres.
EARTH = 6371.0
DECAYS = ("auto", *FORMS, "none")


@dataclass(frozen=True, eq=False)
class Structure:
    """How states lie to each other, for estimates of many states from counts that tell little of each pair of them.

    moves: the moves that can happen, pairs of states by name or number, both ways unless `directed`; or a CSV file
        with two columns. Staying can always happen. None: all.
    coordinates: {state: (x, y)}, an array [S, 2], or a CSV file with columns state, x, y; with `geographic` these
        are latitude and longitude in degrees, and distances kilometres. A state without them, such as the rest of
        the world, is at no known distance from any other.
    distances: instead, an array [S, S] with NaN where not known, or a CSV file with columns from, to, distance.
    radius: moves further than this cannot happen.
    decay: how moves fall off with distance: "exponential", "power", "gaussian", "none", or "auto", which lets the
        counts choose. Its scale is estimated.

    The estimate is drawn to moves by attraction and distance, with a weight that is estimated from the same counts.

    >>> places = Structure(coordinates={"a": (0, 0), "b": (0, 1), "c": (0, 5)}, radius=4.5)
    >>> places.on(("a", "b", "c")).allowed.astype(int).tolist()
    [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    """

    moves: Any = None
    coordinates: Any = None
    distances: Any = None
    radius: float | None = None
    geographic: bool = False
    directed: bool = False
    decay: str = "auto"

    def __post_init__(self) -> None:
        if self.decay not in DECAYS:
            raise InputError(f"decay must be one of {', '.join(DECAYS)}; got {self.decay!r}")
        if self.coordinates is not None and self.distances is not None:
            raise InputError("coordinates and distances are both given; keep one of them")
        if self.moves is None and self.coordinates is None and self.distances is None:
            raise InputError("a structure needs moves, coordinates or distances")
        if self.radius is not None and (self.coordinates is None and self.distances is None):
            raise InputError("radius needs coordinates or distances")
        if self.radius is not None and not self.radius > 0:
            raise InputError(f"radius must be positive; got {self.radius!r}")
        # Files are read once, where the structure is made, so that workers need none.
        for name, columns in (("moves", 2), ("coordinates", 3), ("distances", 3)):
            value = getattr(self, name)
            if isinstance(value, str | os.PathLike):
                object.__setattr__(self, name, _READ[name](_rows(value, columns)))

    def on(self, states: Sequence[str]) -> StateMap:
        """For these states; `InputError` if it does not fit them."""
        distance = self._distance(states)
        allowed = self._allowed(states)
        if self.radius is not None:
            assert distance is not None
            allowed &= ~(distance > self.radius)
        forms = FORMS if self.decay == "auto" else () if self.decay == "none" else (self.decay,)
        return StateMap(allowed | np.eye(len(states), dtype=bool), distance, forms)

    def _allowed(self, states: Sequence[str]) -> np.ndarray:
        S = len(states)
        if self.moves is None:
            return np.ones((S, S), bool)
        places = {name: i for i, name in enumerate(states)}

        def index(state: Any) -> int:
            if not isinstance(state, bool) and isinstance(state, int | np.integer) and 0 <= state < S:
                return int(state)
            if str(state) in places:
                return places[str(state)]
            raise InputError(f"structure.moves names a state {state!r}; {nearest(state, states)}")

        allowed = np.eye(S, dtype=bool)
        for n, move in enumerate(self.moves):
            if isinstance(move, str) or len(move) != 2:
                raise InputError(f"structure.moves[{n}] must be two states, (from, to); got {move!r}")
            i, j = map(index, move)
            allowed[i, j] = True
            if not self.directed:
                allowed[j, i] = True
        return allowed

    def _distance(self, states: Sequence[str]) -> np.ndarray | None:
        if self.distances is not None:
            return _matrix(self.distances, states)
        if self.coordinates is None:
            return None
        at = _points(self.coordinates, states)
        if self.geographic:
            return _on_earth(at)
        return np.asarray(np.sqrt(((at[:, None] - at[None]) ** 2).sum(2)))


@dataclass(frozen=True, eq=False)
class StateMap:
    """A structure as arrays: moves that can happen [S, S], distances [S, S] with NaN where not known, and the forms
    of decay that are weighed."""

    allowed: np.ndarray
    distance: np.ndarray | None
    forms: Sequence[str]

    def restricted(self, keep: np.ndarray) -> StateMap:
        square = np.ix_(keep, keep)
        distance = None if self.distance is None else self.distance[square]
        return StateMap(self.allowed[square], distance, self.forms)

    def fixed(self, known: np.ndarray | None, states: Sequence[str]) -> np.ndarray | None:
        """What is fixed beforehand [S, S], NaN where free: `known`, and zeros for moves that cannot happen."""
        if self.allowed.all():
            return known
        fixed = np.full(self.allowed.shape, np.nan) if known is None else known.copy()
        wrong = ~self.allowed & (np.nan_to_num(fixed) > 0)
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            raise InputError(
                f"constraints give the move from {states[i]!r} to {states[j]!r} a probability of {fixed[i, j]:g}, "
                "but by the structure it cannot happen"
            )
        fixed[~self.allowed] = 0.0
        return fixed


def _matrix(given: Any, states: Sequence[str]) -> np.ndarray:
    S = len(states)
    if isinstance(given, Mapping):
        places, d = {name: i for i, name in enumerate(states)}, np.full((S, S), np.nan)
        _check_names(given, [str(name) for pair in given for name in pair], states, "distances")
        for (a, b), value in given.items():
            if str(a) in places and str(b) in places:
                i, j = places[str(a)], places[str(b)]
                d[i, j] = value
                if np.isnan(d[j, i]):
                    d[j, i] = value
    else:
        d = np.array(given, float)
    if d.shape != (S, S):
        raise InputError(
            f"structure.distances must be a matrix [{S}, {S}], one row per state; got shape {d.shape}"
        )
    np.fill_diagonal(d, 0.0)
    if (d < 0).any() or np.isinf(d).any():
        raise InputError("structure.distances must be 0 or more, or NaN where a distance is not known")
    if S > 1 and np.isnan(d[~np.eye(S, dtype=bool)]).all():
        raise InputError(f"structure.distances tells none between the states {_some(states)}")
    return d


def _points(given: Any, states: Sequence[str]) -> np.ndarray:
    S = len(states)
    if isinstance(given, Mapping):
        by_name = {str(name): point for name, point in given.items()}
        at = np.full((S, 2), np.nan)
        _check_names(given, by_name, states, "coordinates")
        for i, name in enumerate(states):
            if name in by_name:
                point = np.asarray(by_name[name], float)
                if point.shape != (2,):
                    raise InputError(
                        f"structure.coordinates of {name!r} must be two numbers; got {by_name[name]!r}"
                    )
                at[i] = point
        if np.isnan(at).all():
            raise InputError(
                f"structure.coordinates names none of the states {_some(states)}; it has {_some(list(by_name))}"
            )
        return at
    at = np.asarray(given, float)
    if at.shape != (S, 2):
        raise InputError(
            f"structure.coordinates must be two numbers for each of {S} states; got shape {at.shape}"
        )
    return at


class _Table(dict[Any, Any]):
    """What a file says, which may be of more than these states."""


def _check_names(given: Any, names: Iterable[str], states: Sequence[str], key: str) -> None:
    if not isinstance(given, _Table):
        for name in names:
            if name not in states:
                raise InputError(f"structure.{key} names a state {name!r}; {nearest(name, states)}")


def _on_earth(at: np.ndarray) -> np.ndarray:
    """Great circles, by the haversine formula."""
    if (np.abs(at[:, 0]) > 90).any() or (np.abs(at[:, 1]) > 360).any():
        raise InputError(
            "structure.coordinates must be latitude and longitude in degrees where geographic is set"
        )
    latitude, longitude = np.radians(at).T
    half = np.sin((latitude[:, None] - latitude) / 2) ** 2
    half += np.cos(latitude[:, None]) * np.cos(latitude) * np.sin((longitude[:, None] - longitude) / 2) ** 2
    return np.asarray(2 * EARTH * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0))))


def _rows(path: str | os.PathLike[str], columns: int) -> list[tuple[str, list[str]]]:
    """Rows of a CSV file below its header, each with its place for messages."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = [(f"{path}, line {n}", row) for n, row in enumerate(csv.reader(file), 1) if row]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the structure's file {path} cannot be read: {error}") from error
    for where, row in rows:
        if len(row) < columns:
            raise InputError(f"{where}: {columns} columns are needed; got {row!r}")
    if len(rows) < 2:
        raise InputError(f"{path}: a header and rows below it are needed")
    return [(where, [text.strip() for text in row]) for where, row in rows[1:]]


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{where}: {text!r} is no number") from None


_READ: dict[str, Any] = {
    "moves": lambda rows: tuple((row[0], row[1]) for _, row in rows),
    "coordinates": lambda rows: _Table(
        (row[0], (_number(row[1], where), _number(row[2], where))) for where, row in rows
    ),
    "distances": lambda rows: _Table(((row[0], row[1]), _number(row[2], where)) for where, row in rows),
}


def _some(names: Sequence[Any], most: int = 8) -> str:
    shown = ", ".join(repr(n) for n in list(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
