"""The estimates that a page shows, brought to one set of states and into order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggmc_beam.errors import InputError
from aggmc_beam.report.outline import plain

#: About how many bytes of numbers a page may hold; more estimates than that are thinned evenly.
BUDGET = 1_500_000

#: Decimals of the numbers that drawings and the script have, see `sticky`; fewer are shown.
DIGITS = 5

#: Names of the ways in which estimates may follow one another.
ALONG = ("cell", "refresh", "group")


@dataclass(frozen=True, eq=False)
class Item:
    """One estimate. `group` and `cell` number the labels of the collection; `position` is where the
    cell lies in time, None for an estimate of all times."""

    source: Mapping[str, Any]
    group: int
    cell: int
    refresh: int
    position: float | None
    P: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    error: np.ndarray
    stationary: np.ndarray
    baselines: Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Collection:
    """What is shown, of `total` estimates that were given."""

    states: tuple[str, ...]
    items: tuple[Item, ...]
    groups: tuple[str, ...]
    cells: tuple[str, ...]
    ticks: tuple[str, ...]
    """The cells by their start only, for an axis."""
    total: int
    word: str
    """What a cell is called: window, phase, step or cell."""

    def along(self) -> list[str]:
        """The ways in which there is a series to draw, the most telling first."""
        return [name for name in ALONG if self.items and len(self.series(self.first, name)) > 1]

    @property
    def first(self) -> int:
        """The item shown first: of the first group the one with most pairs, and of those the newest
        refresh of the earliest cell. A first window is often not full."""

        def rank(k: int) -> tuple[float, ...]:
            x = self.items[k]
            counts = x.source.get("counts")
            pairs = counts.get("pairs") if isinstance(counts, Mapping) else None
            return (-x.group, pairs if isinstance(pairs, int | float) else 0, x.refresh, -x.cell)

        return max(range(len(self.items)), key=rank, default=0)

    def series(self, index: int, along: str) -> list[int]:
        """The items that differ from item `index` by cell, refresh or group only, in order."""
        me = self.items[index]
        if along == "refresh":
            same = [k for k, x in enumerate(self.items) if (x.group, x.cell) == (me.group, me.cell)]
            return sorted(same, key=lambda k: self.items[k].refresh)
        newest: dict[int, int] = {}
        for k, x in enumerate(self.items):
            if along == "cell" and (x.group != me.group or x.position is None):
                continue
            if along == "group" and x.cell != me.cell:
                continue
            key = x.cell if along == "cell" else x.group
            if key not in newest or self.items[newest[key]].refresh <= x.refresh:
                newest[key] = k
        return sorted(newest.values(), key=lambda k: (self.items[k].position or 0, self.items[k].group))

    def place(self, index: int, along: str) -> tuple[float, str]:
        """Where item `index` lies in a series, and what that place is called."""
        x = self.items[index]
        if along == "refresh":
            return float(x.refresh), str(x.refresh)
        if along == "group":
            return float(x.group), self.groups[x.group]
        return float(x.position or 0), self.ticks[x.cell]


def collect(estimates: Sequence[Mapping[str, Any]], config: Mapping[str, Any] | None = None) -> Collection:
    """Bring estimates as written by `Estimate.to_dict` together; `InputError` if one is not such."""
    word = _word(estimates, config)
    states: dict[str, None] = {}
    for k, e in enumerate(estimates):
        if not isinstance(e, Mapping) or "transition_matrix" not in e or "states" not in e:
            raise InputError(f"estimates[{k}] is not an estimate as written by to_dict")
        states |= dict.fromkeys(str(s) for s in e["states"])
    chosen = _within_budget(estimates, len(states))
    groups: dict[str, int] = {}
    cells: dict[str, int] = {}
    ticks: dict[int, str] = {}
    keys = [_cell_key(e) for e in chosen]
    numeric = all(isinstance(start, int | float) for start, _ in keys if start is not None)
    order = sorted({start for start, _ in keys if start is not None}, key=None if numeric else str)
    items = []
    for e, (start, name) in zip(chosen, keys, strict=True):
        label = "all times" if start is None else f"{word} {name}"
        place = None if start is None else float(start) if numeric else float(order.index(start))
        group = groups.setdefault(_group_label(e), len(groups))
        cell = cells.setdefault(label, len(cells))
        ticks[cell] = str(start)
        items.append(_item(e, tuple(states), group, cell, place))
    return Collection(
        tuple(states), tuple(items), tuple(groups), tuple(cells), tuple(ticks.values()), len(estimates), word
    )


def _item(e: Mapping[str, Any], states: tuple[str, ...], group: int, cell: int, place: float | None) -> Item:
    own = [states.index(str(s)) for s in e["states"]]
    S = len(states)

    def square(value: Any, absent: float = np.nan) -> np.ndarray:
        """[S, S] over all states; rows of states that this estimate does not have are unknown."""
        full = np.full((S, S), np.nan)
        given = _array(value)
        if given.shape == (len(own), len(own)):
            full[own] = absent
            full[np.ix_(own, own)] = given
            full[own] = np.where(np.isnan(full[np.ix_(own, own)]).all(1)[:, None], np.nan, full[own])
        return full

    pi = np.zeros(S)
    given = _array(e.get("stationary"))
    if given.shape == (len(own),):
        pi[own] = given
    baselines = {str(k): square(v, 0.0) for k, v in (e.get("baselines") or {}).items()}
    return Item(
        source=e,
        group=group,
        cell=cell,
        refresh=int(e.get("refresh") or 0),
        position=place,
        P=square(e["transition_matrix"], 0.0),
        lower=square(e.get("lower")),
        upper=square(e.get("upper")),
        error=square(e.get("standard_error")),
        stationary=pi,
        baselines={k: v for k, v in baselines.items() if np.isfinite(v).any()},
    )


def _array(value: Any) -> np.ndarray:
    try:
        return sticky(np.array(value, np.float64))
    except (TypeError, ValueError):
        return np.array(np.nan)


def line_of(e: Mapping[str, Any]) -> tuple[str, ...]:
    """Group, cell, pairs, population, the likeliest move between two states, and how many warnings."""
    names, P = [str(s) for s in e["states"]], np.array(_array(e["transition_matrix"]))
    move = ""
    if P.shape == (len(names),) * 2:
        np.fill_diagonal(P, np.nan)
        if np.isfinite(P).any():
            i, j = divmod(int(np.nanargmax(P)), len(P))
            move = f"{names[i]} → {names[j]} {P[i, j]:.3f}"
    counts = e.get("counts")
    pairs = counts.get("pairs") if isinstance(counts, Mapping) else None
    start, name = _cell_key(e)
    where = "all times" if start is None else name
    return (
        _group_label(e),
        where,
        plain(pairs),
        plain(e.get("population")),
        move,
        str(len(e.get("warnings") or [])),
    )


def sticky(values: np.ndarray) -> np.ndarray:
    """Values to `DIGITS` decimals such that what is rounded further is what the whole value would be rounded to.

    What is cut off leaves a trace: a last digit of 0 or 5, where rounding could turn, becomes 1 or 6.

    >>> values = np.array([0.12345, 0.1234999, 0.5, 0.12350001])
    >>> [f"{v:.3f}" for v in sticky(values)] == [f"{v:.3f}" for v in values]
    True
    """
    unit = 10.0**DIGITS
    with np.errstate(invalid="ignore"):
        scaled = np.abs(values) * unit
        whole = np.floor(scaled * (1 + 4e-16))
        inexact = np.abs(scaled - whole) > 1e-9 * np.maximum(scaled, 1.0)
        whole += inexact & (whole % 5 == 0)
    return np.asarray(np.copysign(whole / unit, values))


def _group_label(e: Mapping[str, Any]) -> str:
    group = e.get("group")
    if isinstance(group, Mapping):
        return ", ".join(f"{key} {plain(value)}" for key, value in group.items()) or "all"
    return "all" if group is None else plain(group)


def _cell_key(e: Mapping[str, Any]) -> tuple[Any, str]:
    """What orders the cell, None for all times, and its name."""
    window = e.get("window")
    if isinstance(window, Mapping) and window.get("start") is not None:
        start, end = window["start"], window.get("end")
        return start, f"{start}" if end is None else f"{start} to {end}"
    cell = e.get("cell")
    return cell, str(cell)


def _word(estimates: Sequence[Mapping[str, Any]], config: Mapping[str, Any] | None) -> str:
    if any(isinstance(e, Mapping) and e.get("window") for e in estimates):
        return "window"
    chain = (config or {}).get("chain")
    text = json.dumps(chain, default=str)
    return "phase" if "cycle" in text else "step" if "per-step" in text or "parametric" in text else "cell"


def _within_budget(estimates: Sequence[Mapping[str, Any]], S: int) -> list[Mapping[str, Any]]:
    """As many estimates as fit: first without superseded refreshes, then thinned evenly."""
    room = max(1, BUDGET // (15 * S * S + 10 * S + 1500))
    chosen = list(estimates)
    if len(chosen) > room:
        newest: dict[str, Mapping[str, Any]] = {}
        for e in chosen:
            key = f"{_group_label(e)}|{_cell_key(e)}"
            if key not in newest or (newest[key].get("refresh") or 0) <= (e.get("refresh") or 0):
                newest[key] = e
        chosen = list(newest.values())
    return chosen if len(chosen) <= room else _whole_groups(chosen, room)


def _whole_groups(estimates: Sequence[Mapping[str, Any]], room: int) -> list[Mapping[str, Any]]:
    """About `room` of them: all cells of as many groups as fit, evenly chosen, or else of the first group."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for e in estimates:
        groups.setdefault(_group_label(e), []).append(e)
    names, largest = list(groups), max(map(len, groups.values()))
    kept = [names[int(k)] for k in np.linspace(0, len(names) - 1, max(room // largest, 1)).round()]
    chosen = [e for name in dict.fromkeys(kept) for e in groups[name]]
    return [chosen[int(k)] for k in np.linspace(0, len(chosen) - 1, min(room, len(chosen))).round()]
