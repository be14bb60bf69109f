"""Sums of realizations that come whole, in any order of their records: the fast road to the same sums.

Where realizations are laid on a line, with rows of zeros between them, the pairs at any lag are one matrix
product of the line with itself, shifted. Counts are centred at whole numbers, so that sums of whole numbers
are exact, whatever the order, the blocks and the threads; where they are small, products in single precision
are exact too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np

from aggmc_beam.digest import Digest
from aggmc_beam.lagged import DOUBLE, fold_of
from aggmc_beam.layout import laid_out
from aggmc_beam.line import Line
from aggmc_beam.linesums import LineSummer, LineSums
from aggmc_beam.moments import PARTS, Counts, Moments
from aggmc_beam.narrow import compact, narrowed
from aggmc_beam.native import compiled
from aggmc_beam.panel import APART, Label, Panel
from aggmc_beam.paneldigest import StepSums, Sums, moments_of, profiles_of
from aggmc_beam.profile import Profile
from aggmc_beam.stretches import heads_of
from aggmc_beam.tracks import Tracks

#: Values that are multiplied at once, if realizations are not longer: near what stays in a core's cache, and
#: enough for threads not to wait for each other.
BLOCK = 1 << 20
#: With fewer values, threads are not worth their while: they wait for each other's short steps.
MANY = 1 << 16
#: Values of moments and step means that are made at once: small ones by few calls, large ones on all cores.
TOGETHER = 1 << 20

#: What `map` does, and a thread pool's.
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
#: A label, and which realizations of a panel have it.
Span = tuple[int, int, int]


@dataclass
class PanelSums:
    """Sums for each of `labels` replicates, over the steps start .. start + steps - 1.

    `map` may run its calls at once, as that of a thread pool does.

    >>> sums = PanelSums(states=2, labels=1, start=0, steps=3)
    >>> sums.add(np.array([0, 0, 0]), np.array([1, 0, 2]), np.eye(3, 2), lambda k: 0 * k)
    True
    >>> sums.digest.total.records, sums.digest.total.pairs, sums.tracks.stop.tolist()
    (3, 2, [2])
    """

    states: int
    labels: int
    start: int
    steps: int
    map: Map = map
    last: int = -1
    """The highest key so far."""

    def __post_init__(self) -> None:
        none = Moments.zero(self.states)
        self._replicates = [_Replicate(StepSums(self.steps), none) for _ in range(self.labels)]
        self._tracks = [Tracks.empty(self.states)]
        self._latest: tuple[Panel, np.ndarray] | None = None
        self._summer = LineSummer(self.states)

    def add(
        self,
        key: np.ndarray,
        time: np.ndarray,
        values: np.ndarray,
        label_of: Label,
        heads: np.ndarray | None = None,
    ) -> bool:
        """Take records [n] of realizations with higher keys than all before, or do nothing and return False
        if some are repeated, have too many gaps, or lie outside of the steps. `label_of` gives the labels of
        keys; `heads` are those of `heads_of`, if they are known. Values [n, S] must not change afterwards."""
        assert "digest" not in vars(self)
        panel = Panel.of(key, time, label_of, heads_of(key) if heads is None else heads)
        if panel is None or not self._is_next(panel):
            return False
        panel = replace(panel, first=panel.first - self.start)
        over = self.map if values.size >= MANY else map
        panel, values = _ready(panel, values, over)
        for _ in over(partial(self._take, panel, values), self._batches(panel)):
            pass
        self.last = int(panel.key.max())
        self._remember()
        self._latest = panel, values
        return True

    def _is_next(self, panel: Panel) -> bool:
        """Whether a panel has no realization of before, and no other steps than these."""
        end = int((panel.first + np.diff(panel.place)).max()) - APART
        return bool(
            panel.key.min() > self.last and panel.first.min() >= self.start and end <= self.start + self.steps
        )

    def _batches(self, panel: Panel) -> list[list[Span]]:
        """The spans of a panel, those that are alike together, as long as they have `BLOCK` values."""
        found: list[list[Span]] = []
        room = number = 0
        for span in panel.spans:
            _, a, b = span
            values = int(panel.place[b] - panel.place[a]) * self.states
            if values > room or b - a != number or not panel.is_full:
                found.append([])
                room, number = BLOCK, b - a
            found[-1].append(span)
            room -= values
        return found

    def _take(self, panel: Panel, values: np.ndarray, spans: list[Span]) -> None:
        """Add the records of some replicates."""
        fold = fold_of(self.states)
        blocks = [list(panel.blocks(a, b, BLOCK // self.states)) for _, a, b in spans]
        replicates = [self._replicates[label] for label, _, _ in spans]
        for replicate, (_, a, b) in zip(replicates, spans, strict=True):
            replicate.met += b - a
        # Only a span by itself can have more than one.
        for turn in zip(*blocks, strict=True):
            self._add(replicates, [Line(panel, values, a, b, fold) for a, b in turn])

    def _add(self, replicates: list[_Replicate], lines: list[Line]) -> None:
        """Add a line to each of some replicates."""
        centres = [r.centred(line) for r, line in zip(replicates, lines, strict=True)]
        for replicate, line, found in zip(replicates, lines, self._summer.whole(lines, centres), strict=True):
            if found is None or not replicate.add(line.first, found):
                # About a centre of its own, as sums about that of the others would cost digits.
                replicate.add_apart(line.first, self._summer.any(line, line.centre()))

    @cached_property
    def digest(self) -> Digest:
        """All sums, whose memory it takes over: nothing can be added afterwards."""
        used = [g for g, replicate in enumerate(self._replicates) if replicate.met]
        size = max(1, TOGETHER // (self.states * max(self.steps, len(PARTS) * self.states)))
        batches = [used[i : i + size] for i in range(0, len(used), size)]
        found = list(self.map(self._made, batches)) if len(batches) > 1 else list(map(self._made, batches))
        parts = {(0, g): m for g, m in zip(used, chain(*(m for m, _ in found)), strict=True)}
        return Digest(self.states, parts, dict(zip(used, chain(*(p for _, p in found)), strict=True)))

    def _made(self, labels: list[int]) -> tuple[list[Moments], list[Profile]]:
        """The moments and profiles of some replicates."""
        some = [self._replicates[g] for g in labels]
        found = iter(moments_of([r.sums for r in some if r.sums is not None]))
        moments = [r.settled(None if r.sums is None else next(found)) for r in some]
        centres = [r.centre for r in some if r.centre is not None]
        return moments, profiles_of(centres, [r.steps for r in some], self.start)

    @property
    def tracks(self) -> Tracks:
        """The tracks of all realizations. Those of the latest records are made only now, as few ask for
        them."""
        self._remember()
        return _joined(self._tracks)

    @property
    def open_values(self) -> int:
        """At most how many values tracks hold of records that later ones could pair with."""
        waiting = 0 if self._latest is None else 2 * APART * len(self._latest[0].key) * self.states
        return waiting + sum(tracks.open_values.size for tracks in self._tracks)

    def _remember(self) -> None:
        if self._latest is not None:
            self._tracks.append(_tracks(*self._latest, self.start))
            self._latest = None


def _ready(panel: Panel, values: np.ndarray, over: Map) -> tuple[Panel, np.ndarray]:
    """The same values where they are quick to read, and a panel that tells where that is."""
    in_c = compiled is not None and values.dtype.kind in "iu"
    if in_c:
        values = narrowed(values, over)
    elif panel.head is not None and panel.spot is None and not panel.copies(values):
        panel = panel.dealt()
    if panel.spot is not None:
        return replace(panel, spot=None), laid_out(values, panel.spot, panel.places, over)
    return panel, values if in_c or panel.head is not None else compact(values, over)


@dataclass
class _Replicate:
    """Sums of one replicate: those of whole numbers about its `centre`, and the moments of what is better
    summed about another one; and sums by step about the centre."""

    steps: StepSums
    others: Moments
    met: int = 0
    centre: np.ndarray | None = None
    sums: Sums | None = None

    def centred(self, line: Line) -> np.ndarray:
        """The centre, which the first line tells."""
        if self.centre is None:
            self.centre = line.centre()
        return self.centre

    def add(self, first: int, found: LineSums) -> bool:
        """Add sums about the centre, by step from the `first` on; or return False if they are not exact."""
        sums = found.sums if self.sums is None else self.sums + found.sums
        if not sums.lags[0].diagonal().max() < DOUBLE:
            return False
        self.sums = sums
        self.steps.add(first, found.by_step, found.number, found.lone)
        return True

    def add_apart(self, first: int, found: LineSums) -> None:
        """Add sums about any centre."""
        assert self.centre is not None
        self.others += moments_of([found.sums])[0]
        found = found.about(self.centre)
        self.steps.add(first, found.by_step, found.number, found.lone)

    def settled(self, found: Moments | None) -> Moments:
        """All moments, given those of `sums`, which are used up."""
        if found is not None:
            self.others, self.sums = found + self.others if self.others.records else found, None
        return replace(self.others, counts=Counts(realizations=self.met))


def _tracks(panel: Panel, values: np.ndarray, start: int) -> Tracks:
    """Covered intervals, and the records near an uncovered step."""
    heads, tails, near = panel.borders()
    # By key; the line is by label.
    key, first, _ = panel.at(heads)
    by = np.argsort(key, kind="stable")
    open_key, open_step, record = panel.at(near)
    order = np.argsort(open_key, kind="stable")
    return Tracks(
        values.shape[1],
        key[by],
        first[by] + start,
        panel.at(tails)[1][by] + start,
        open_key[order],
        open_step[order] + start,
        np.asarray(values[record[order]], np.float64, "C"),
        np.ones(len(near)),
    )


def _joined(parts: list[Tracks]) -> Tracks:
    """Tracks of parts that share no realization, in the order of their keys."""
    names = ("key", "start", "stop", "open_key", "open_time", "open_values", "open_weight")
    return Tracks(parts[0].states, *(np.concatenate([getattr(p, n) for p in parts]) for n in names))
