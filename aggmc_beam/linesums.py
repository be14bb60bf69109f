"""Sums of lines: the products and the sums by step of several at once, as exact as their numbers allow.

Few large steps rather than many small ones, so that threads seldom wait for each other. Lines that are summed
at once must be alike, see `Line`, and follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import local
from typing import Any, NamedTuple

import numpy as np

from aggmc_beam.lagged import gram, products
from aggmc_beam.line import Line, Lone
from aggmc_beam.native import compiled
from aggmc_beam.paneldigest import Sums

#: Fewer rows than these are not worth single precision.
FEW = 64
#: What compiled loops take.
SHORT = (np.int8, np.int16, np.int32)


class LineSums(NamedTuple):
    """What is found of a line: its sums, sums [m, S] and numbers [m] of records by step from its first on,
    and those of records without each of the `NEIGHBOURS`."""

    sums: Sums
    by_step: np.ndarray
    number: np.ndarray
    lone: list[Lone]

    def about(self, centre: np.ndarray) -> LineSums:
        """With sums by step about another centre."""
        away = self.sums.centre - centre
        lone = [one._replace(sums=one.sums + one.number[:, None] * away) for one in self.lone]
        return self._replace(by_step=self.by_step + self.number[:, None] * away, lone=lone)


class LineSummer:
    """Sums lines of S states, on any number of threads. What precision fits is remembered from line to line;
    sums do not depend on it."""

    def __init__(self, states: int) -> None:
        self.states = states
        self.rows = 1 << 20
        """How many rows may be multiplied at once in single precision, as far as is known."""
        self._spaces = _Spaces()

    def whole(self, lines: Sequence[Line], centres: Sequence[np.ndarray]) -> list[LineSums | None]:
        """The sums of whole numbers about whole centres; None for a line with fractions."""
        is_whole = lines[0].values.dtype.kind in "iu"
        found = in_c(lines, centres) or self._in_single(lines, centres) if is_whole else None
        if found is not None:
            return list(found)
        if is_whole or all(line.begins_whole for line in lines):
            z = self._filled(lines, centres, np.float64)
            if is_whole or (np.rint(z) == z).all():
                return list(_summed(lines, centres, z, z.shape[1]) or [])
        if len(lines) == 1:
            return [None]
        return [self.whole([line], [centre])[0] for line, centre in zip(lines, centres, strict=True)]

    def any(self, line: Line, centre: np.ndarray) -> LineSums:
        """The sums of any numbers."""
        z = self._filled([line], [centre], np.float64)
        found = _summed([line], [centre], z, z.shape[1])
        assert found is not None
        return found[0]

    def _in_single(self, lines: Sequence[Line], centres: Sequence[np.ndarray]) -> list[LineSums] | None:
        """The sums about the centres, if single precision is exact for at least a few rows at once."""
        rows = self.rows
        if rows < FEW:
            return None
        z = self._filled(lines, centres, np.float32)
        found = _summed(lines, centres, z, rows)
        while found is None and rows >= 4 * FEW:
            rows = min(rows, z.shape[1]) // 4
            found = _summed(lines, centres, z, rows)
        self.rows = rows if found is not None else 0
        return found

    def _filled(self, lines: Sequence[Line], centres: Sequence[np.ndarray], dtype: Any) -> np.ndarray:
        """[lines, m, S]: the records of each line, less its centre."""
        fold = lines[0].fold
        m = -(-max(line.length for line in lines) // fold) * fold
        z = self._spaces.of(len(lines) * m * self.states, dtype).reshape(len(lines), m, self.states)
        for line, centre, part in zip(lines, centres, z, strict=True):
            line.fill(centre, part)
        return z


def in_c(lines: Sequence[Line], centres: Sequence[np.ndarray]) -> list[LineSums] | None:
    """The sums of whole numbers by compiled loops; None where there are none, or values are too large."""
    one, S = lines[0], lines[0].values.shape[1]
    if compiled is None or one.values.dtype not in SHORT:
        return None
    lags, last = np.empty((len(lines), 3, S, S)), np.empty((len(lines), 1, S, S))
    by_step = np.empty((len(lines), one.steps, S))
    cuts, centre = np.array([line.a for line in lines] + [lines[-1].b]), np.array(centres).astype(np.int64)
    together = Line(one.panel, one.values, one.a, lines[-1].b, one.fold)
    if not together.sum_in_c(cuts, centre, lags, last, by_step):
        return None
    return _made(lines, centres, lags, last[:, 0], by_step, one.lone_in_c(by_step, centre[0]))


def _summed(
    lines: Sequence[Line], centres: Sequence[np.ndarray], z: np.ndarray, rows: int
) -> list[LineSums] | None:
    """The sums of lines that are filled; None if single precision may not be exact."""
    one = lines[0]
    lags, last = products(z, one.fold, rows), gram(one.last(z), rows)
    if lags is None or last is None:
        return None
    by_step = one.by_step(z)
    return _made(lines, centres, lags, last, by_step, one.lone(by_step, lambda places: z[0, places]))


def _made(
    lines: Sequence[Line],
    centres: Sequence[np.ndarray],
    lags: np.ndarray,
    last: np.ndarray,
    by_step: np.ndarray,
    lone: list[Lone],
) -> list[LineSums]:
    """What the products of lines and their sums by step tell, of all records and of those without each of the
    neighbours."""
    one = lines[0]
    ends, numbers = _ends(by_step, one.number, lone)
    return [
        LineSums(
            Sums(centre, lags[i], last[i], ends[i], numbers),
            by_step[i],
            one.number,
            # A copy, as sums by step are added to.
            [Lone(step, sums[i].copy(), count) for step, sums, count in lone],
        )
        for i, centre in enumerate(centres)
    ]


def _ends(by_step: np.ndarray, number: np.ndarray, lone: list[Lone]) -> tuple[np.ndarray, np.ndarray]:
    """Sums [lines, 5, S] and numbers [5] of all records, and of each kind of ends: all, less those without
    partner."""
    ends, numbers = np.empty((len(by_step), 5, by_step.shape[2])), np.empty(5)
    # A product with ones is several times faster than numpy's sum along columns.
    ends[:], numbers[:] = (np.ones(len(number)) @ by_step)[:, None], number.sum()
    for kind, found in enumerate(lone, 1):
        ends[:, kind] -= found.sums.sum(1)
        numbers[kind] -= found.number.sum()
    return ends, numbers


class _Spaces(local):
    """Space to work in, for each thread: memory that was used before is much faster than new one."""

    def __init__(self) -> None:
        self.held: dict[Any, np.ndarray] = {}

    def of(self, values: int, dtype: Any) -> np.ndarray:
        found = self.held.get(dtype)
        if found is None or len(found) < values:
            found = self.held[dtype] = np.zeros(values, dtype)
        return found[:values]
