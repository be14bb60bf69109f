"""From the sums of a panel to what they mean: moments and profiles, of many replicates at once.

Replicates are alike and small, so that numpy's calls for each of them would take longer than the sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from aggmc_beam.line import Lone
from aggmc_beam.moments import CoMoment, Counts, Moments
from aggmc_beam.native import compiled
from aggmc_beam.profile import SHIFT, Profile, end_at, scattered

#: Sums by step that are kept apart at most, until they are added up.
POOL = 32
#: Parts with the same numbers of records, on average, that are worth being looked at together.
ALIKE = 4


class Sums(NamedTuple):
    """Sums about a centre [S]: `lags` [3, S, S], the products at lags 0 to 2; `last` [S, S], those of records
    without a next one with themselves; `ends` [5, S], sums of all records and of those that are left and
    right ends of pairs at lag 1 and lag 2, and their `number` [5]."""

    centre: np.ndarray
    lags: np.ndarray
    last: np.ndarray
    ends: np.ndarray
    number: np.ndarray

    def __add__(self, other: Sums) -> Sums:  # type: ignore[override]
        """Of both, about the same centre."""
        return Sums(self.centre, *(a + b for a, b in zip(self[1:], other[1:], strict=True)))


def moments_of(found: Sequence[Sums]) -> list[Moments]:
    """The moments that each of these sums tell, without counts. The sums are used up: their memory becomes
    that of moments."""
    if not found:
        return []
    centre, lags, last, ends, number = (_stacked(list(parts)) for parts in zip(*found, strict=True))
    zero, one, two = (lags[:, lag] for lag in range(3))
    kinds = (0, 0, zero), (1, 2, one), (3, 4, two), (1, 1, np.subtract(zero, last, out=last))
    whole = np.rint(number).astype(np.int64)
    parts = [
        CoMoment.several(centre, whole[:, x], number[:, x], ends[:, x], ends[:, y], product)
        for x, y, product in kinds
    ]
    return [
        Moments(lag0, lag1, lag2, left, Counts(), float(lag0.pairs))
        for lag0, lag1, lag2, left in zip(*parts, strict=True)
    ]


def _stacked(arrays: list[np.ndarray]) -> np.ndarray:
    """In one array; without a copy if there is only one, which may be large."""
    return arrays[0][None] if len(arrays) == 1 else np.array(arrays)


@dataclass
class StepSums:
    """Sums about a centre and numbers of records by step, [steps, S] and [steps], and of those without each
    of the `NEIGHBOURS`."""

    steps: int
    sums: np.ndarray | None = None
    number: np.ndarray | None = None
    lone: tuple[list[Lone], ...] = field(default_factory=lambda: ([], [], [], []))

    @property
    def numbers(self) -> tuple[Any, ...]:
        """All numbers of records, as something that can be compared."""
        lone = [[(found.step.tobytes(), found.number.tobytes()) for found in known] for known in self.lone]
        return np.asarray(self.number).tobytes(), *map(tuple, lone)

    def add(self, first: int, sums: np.ndarray, number: np.ndarray, lone: list[Lone]) -> None:
        """Add sums by step from the `first` on. The arrays must not be changed afterwards."""
        if self.sums is None and len(number) == self.steps:
            self.sums, self.number = sums, number.copy()
        else:
            at = slice(first, first + len(number))
            self.sums = np.zeros((self.steps, sums.shape[1])) if self.sums is None else self.sums
            self.number = np.zeros(self.steps) if self.number is None else self.number
            self.sums[at] += sums
            self.number[at] += number
        for known, found in zip(self.lone, lone, strict=True):
            found = found._replace(step=found.step + first) if first else found
            if known and np.array_equal(known[-1].step, found.step):
                known[-1] = Lone(found.step, known[-1].sums + found.sums, known[-1].number + found.number)
                continue
            known.append(found)
            if len(known) > POOL:
                known[:] = [_pooled(known)]


def _pooled(parts: list[Lone]) -> Lone:
    """With each step once, in order."""
    if len(parts) == 1:
        return parts[0]
    step, sums, number = (np.concatenate(part) for part in zip(*parts, strict=True))
    at, place = np.unique(step, return_inverse=True)
    return Lone(at, scattered(place, sums, len(at)), np.bincount(place, number))


def profiles_of(centres: Sequence[np.ndarray], parts: Sequence[StepSums], start: int) -> list[Profile]:
    """Of each, the mean counts of records by step, and of the ends of pairs: all, less those without a
    partner. The first step is `start`. The sums are used up: their memory becomes that of means."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, part in enumerate(parts):
        groups.setdefault(part.numbers, []).append(i)
    are_alike = len(groups) * ALIKE <= len(parts)
    found: dict[int, Profile] = {}
    for some in groups.values() if are_alike else [range(len(parts))]:
        given = np.array([centres[i] for i in some]), [parts[i] for i in some]
        found |= zip(some, _profiles_of(*given, start, are_alike), strict=True)
    return [found[i] for i in range(len(parts))]


def _profiles_of(centre: np.ndarray, parts: Sequence[StepSums], start: int, are_alike: bool) -> list[Profile]:
    """The profiles of one part at least. If all `are_alike`, their numbers are looked at once."""
    sums = [part.sums for part in parts if part.sums is not None]
    number = np.array([part.number for part in (parts[:1] if are_alike else parts)])
    there = number > 0
    row = np.cumsum(there, 1) - 1
    counted = np.stack([number] * 3, 2)
    none = np.zeros(0, np.int64)
    odd = [(none, none, centre[:0])]
    # Ends of pairs are at the step of the pair's left end.
    for kind, shift in enumerate(SHIFT.tolist(), 1):
        lone = [_pooled(part.lone[kind - 1]) for part in parts]
        part = np.repeat(np.arange(len(parts)), [len(one.step) for one in lone])
        step, lone_number = (
            np.concatenate([getattr(one, name) for one in lone]) for name in ("step", "number")
        )
        at = part % len(number), step
        if shift == 0:
            # Parts that are alike have the same number there, which is written once.
            counted[(*at, (kind + 1) // 2)] -= lone_number
        rest_number = number[at] - lone_number
        some = np.flatnonzero((lone_number > 0) & (rest_number > 0))
        if not len(some):
            continue
        rest = np.concatenate([all_[one.step] - one.sums for all_, one in zip(sums, lone, strict=True)])[some]
        n, part, step = rest_number[some, None], part[some], step[some]
        ends = (n * centre[part] + rest) / n
        odd.append((part, end_at(row[part % len(row), step - shift], kind), ends))
    return _profiles(start, there, counted, _means(sums, number, centre), odd)


def _profiles(
    start: int,
    there: np.ndarray,
    counted: np.ndarray,
    means: list[np.ndarray],
    odd: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> list[Profile]:
    """One for each of the `means` [steps, S], with the numbers of its row, or of the only one; `odd` has the
    number of the profile, the place and the mean of ends that are not all records of a step."""
    part, place, ends = (np.concatenate(found) for found in zip(*odd, strict=True))
    order = np.lexsort((place, part))
    place, ends = place[order], ends[order]
    cuts = np.concatenate([[0], np.cumsum(np.bincount(part, minlength=len(means)))]).tolist()
    steps = [slice(None) if some.all() else some for some in there]
    heads = [
        (np.flatnonzero(some) + start, np.rint(one[at]).astype(np.int64), one[at])
        for some, at, one in zip(there, steps, counted, strict=True)
    ]
    return [
        Profile(1, *heads[i % len(heads)], mean[steps[i % len(heads)]], place[a:b], ends[a:b])
        for i, (mean, (a, b)) in enumerate(zip(means, pairwise(cuts), strict=True))
    ]


def _means(sums: Iterable[np.ndarray], number: np.ndarray, centre: np.ndarray) -> list[np.ndarray]:
    """The means [m, S] of sums about centres [B, S], in their place; zero where there is none. `number` is
    [B, m], or [1, m] if it is that of all.

    Of whole numbers only the division is rounded, so that a mean tells its sum."""
    found = [np.ascontiguousarray(one) for one in sums]
    for i, (one, c) in enumerate(zip(found, centre, strict=True)):
        n = number[i % len(number)]
        if compiled is not None:
            compiled.means(one, n, c, one)
        else:
            one += n[:, None] * c
            one /= np.maximum(n, 1.0)[:, None]
    return found
