"""Sums: all that a run keeps of its data, from which every estimate is made.

Arrays over labels. A label is a group, a cell of the chain and a jackknife replicate; for each there are the
sums that `kernel` finds, about a centre of its own. `+` joins parts that share no record: zero + s is s, and
whole counts give the same bits for any order, split and merge tree, since sums about whole centres are exact.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np

from aggmc_beam.chain import Chain, Stationary
from aggmc_beam.durable import write_atomically
from aggmc_beam.errors import InputError
from aggmc_beam.sums.centred import Centred
from aggmc_beam.sums.jackknife import Extent, Replicates
from aggmc_beam.sums.kernel import LabelSums, Pairs, find_pairs, sum_records
from aggmc_beam.sums.moments import CoMoment, Counts, Moments
from aggmc_beam.sums.profile import Profile
from aggmc_beam.sums.ranks import ranked
from aggmc_beam.sums.recentre import LAGS, ROWS, common_centre, recentre
from aggmc_beam.sums.steps import StepSums, add_steps
from aggmc_beam.sums.sum_steps import sum_steps

Cell = int
Replicate = int


@dataclass(frozen=True, eq=False)
class Sums:
    """The sums of a data set by label, sorted by (group, cell, replicate).

    `centre` [L, S]; `number` [L, 3] of records and of pairs at lags 1 and 2, with their `weight` [L, 3];
    `inverse_weight` [L]; `realizations` [L] that were met first there; `ends` [L, 5, S] and
    `product` [L, 4, S, S] as `kernel.sum_records` gives them. `steps` are the sums by step, and `counts` tell
    for each group what else was met.

    >>> import aggmc_beam as am
    >>> y, _ = am.simulate(states=3, steps=10, realizations=30, seed=1)
    >>> sums = Sums.of(y)
    >>> sums.total.records, len(sums.replicates)
    (300, 30)
    >>> (Sums.zero(3) + sums).to_bytes() == sums.to_bytes()
    True
    """

    label: np.ndarray
    """[L, 3]: group, cell, replicate."""
    centre: np.ndarray
    number: np.ndarray
    weight: np.ndarray
    inverse_weight: np.ndarray
    realizations: np.ndarray
    ends: np.ndarray
    product: np.ndarray
    steps: StepSums
    counts: dict[int, Counts] = field(default_factory=dict)

    @classmethod
    def zero(cls, S: int) -> Sums:
        return cls(
            np.zeros((0, 3), np.int64),
            np.zeros((0, S)),
            np.zeros((0, 3), np.int64),
            np.zeros((0, 3)),
            np.zeros(0),
            np.zeros(0, np.int64),
            np.zeros((0, 5, S)),
            np.zeros((0, 4, S, S)),
            StepSums.zero(S),
        )

    @classmethod
    def of(
        cls,
        counts: np.ndarray,
        chain: Chain | None = None,
        weight: np.ndarray | None = None,
        replicates: int | None = None,
    ) -> Sums:
        """The sums of an array [K, T, S], NaN rows being missing steps.

        `weight` [K] makes the values shares of that population, weighted by it.
        """
        counts = np.asarray(counts)
        K, T, S = counts.shape
        chain = chain or Stationary()
        seen = ~np.isnan(counts).any(2)
        key, time = np.nonzero(seen)
        rule = Replicates.for_group(chain, S, Extent(K, len(key), 0, T - 1), replicates)
        return cls.of_rows(
            counts[seen],
            time,
            key,
            find_pairs(key, time),
            np.zeros(len(key), np.int64),
            chain,
            rule.labels(key, time),
            None if weight is None else weight[key],
        )

    @classmethod
    def of_rows(
        cls,
        values: np.ndarray,
        time: np.ndarray,
        key: np.ndarray,
        pairs: Pairs,
        group: np.ndarray,
        chain: Chain,
        replicate: np.ndarray,
        weight: np.ndarray | None = None,
        firsts: np.ndarray | None = None,
        centre: np.ndarray | None = None,
    ) -> Sums:
        """The sums of rows sorted by (key, time), with their pairs, groups and replicates; about the `centre`
        [groups, S] of other parts where that is near.

        `firsts` are the rows at which a realization is met for the first time, by default its first row here;
        each realization is counted there, once.
        """
        S = values.shape[1]
        if not len(time):
            return cls.zero(S)
        values = _whole(values)
        label, at = _distinct_labels(group, chain.cells(time), replicate)
        n, groups = len(time), int(label[-1, 0]) + 1
        has1, has2 = pairs.next1 < n, pairs.next2 < n
        table = Centred.of(values, group, groups, has1, has2, weight is not None, centre)
        found: LabelSums = sum_records(table, pairs, at, label[:, 0], weight)
        if firsts is None:
            firsts = np.flatnonzero(np.diff(key, prepend=key[0] - 1))
        met = np.bincount(at[firsts], minlength=len(label))
        steps = sum_steps(table, time, pairs, group, replicate, weight)
        used = found.number.any(1) | (met != 0)
        whole = cls(label, found.centre, found.number, found.weight, found.inverse_weight, met, found.ends,
                    found.product, steps)  # fmt: skip
        return whole if used.all() else whole._part(used)

    @property
    def states(self) -> int:
        return int(self.centre.shape[1])

    @cached_property
    def groups(self) -> list[int]:
        """The groups that have sums, by number."""
        return [int(g) for g in np.unique(self.label[:, 0])]

    @cached_property
    def replicates(self) -> list[Replicate]:
        return [int(r) for r in np.unique(self.label[:, 2])]

    @cached_property
    def cells(self) -> list[Cell]:
        return [int(c) for c in np.unique(self.label[:, 1])]

    def __add__(self, other: Sums) -> Sums:
        """Both; what they share must be of different records."""
        return add_sums(self.states, (self, other))

    def _part(self, at: np.ndarray | slice) -> Sums:
        return replace(self, **{n: getattr(self, n)[at] for n in _ARRAYS})

    def part(self, at: np.ndarray | slice, steps: StepSums) -> Sums:
        """Only some labels, by position, with these step sums."""
        return replace(self._part(at), steps=steps)

    def of_group(self, group: int, number: int = 0) -> Sums:
        """The sums of one group, as those of the group `number`; arrays are shared."""
        at = slice(*np.searchsorted(self.label[:, 0], (group, group + 1)))
        part = self._part(at)
        label = part.label.copy()
        label[:, 0] = number
        counts = {number: self.counts[group]} if group in self.counts else {}
        return replace(part, label=label, steps=self.steps.of_group(group, number), counts=counts)

    def renumbered(self, groups: np.ndarray) -> Sums:
        """With groups[g] in place of group g."""
        label = self.label.copy()
        label[:, 0] = groups[label[:, 0]]
        order = np.lexsort((label[:, 2], label[:, 1], label[:, 0]))
        counts = {int(groups[g]): c for g, c in self.counts.items()}
        return replace(
            replace(self, label=label)._part(order), steps=self.steps.renumbered(groups), counts=counts
        )

    def between(self, start: int, stop: int, pane: int) -> Sums:
        """What is held of the steps from `start` up to `stop`, where a cell is a pane of that many steps."""
        first = self.label[:, 1] * pane
        return replace(self._part((first >= start) & (first < stop)), steps=self.steps.between(start, stop))

    def counted(self, counts: Counts, group: int = 0) -> Sums:
        """With more counts of a group."""
        return replace(self, counts={**self.counts, group: self.counts.get(group, Counts()) + counts})

    def as_shares(self, N: float) -> Sums:
        """Sums of counts of populations of N as those of shares y / N, each weighing N."""
        return replace(
            self,
            centre=self.centre / N,
            weight=self.number * N,
            inverse_weight=self.number[:, 0] / N,
            product=self.product / N,
            steps=replace(self.steps, weight=self.steps.number * N),
        )

    def as_counts(self, N: float) -> Sums:
        """The inverse of `as_shares`."""
        return replace(
            self,
            centre=self.centre * N,
            weight=self.number.astype(np.float64),
            inverse_weight=self.number[:, 0].astype(np.float64),
            product=self.product * N,
            steps=replace(self.steps, weight=self.steps.number.astype(np.float64)),
        )

    # What estimators read.

    @cached_property
    def _moments(self) -> list[Moments]:
        return moments_of(self)

    @cached_property
    def parts(self) -> dict[tuple[Cell, Replicate], Moments]:
        """The moments of a single group by cell and replicate."""
        keys = map(tuple, self.label[:, 1:].tolist())
        return dict(zip(keys, self._moments, strict=True))

    @cached_property
    def total(self) -> Moments:
        """The moments of everything together."""
        merged = self._merged(np.zeros(len(self.label), np.int64))
        found = moments_of(merged)[0] if len(merged.label) else Moments.zero(self.states)
        counts = sum(self.counts.values(), Counts())
        return replace(found, counts=found.counts + counts)

    @cached_property
    def profiles(self) -> dict[Replicate, Profile]:
        """The step means of each replicate of a single group."""
        return self.steps.profiles(int(self.label[0, 0])) if len(self.label) else {}

    @cached_property
    def profile(self) -> Profile:
        return self.steps.profile(int(self.label[0, 0])) if len(self.label) else Profile.zero(self.states)

    def by_replicate(self, cells: Iterable[Cell]) -> dict[Replicate, Moments]:
        """The moments of these cells together, for each replicate that has any; of a single group."""
        part = self._part(np.isin(self.label[:, 1], list(cells)))
        merged = part._merged(part.label[:, 2])
        return dict(zip(merged.label[:, 2].tolist(), moments_of(merged), strict=True))

    def canonical(self) -> Sums:
        """The same sums about centres that depend on nothing but the records: equal data have equal bits."""
        return _about_rounded_means(self)

    def _merged(self, by: np.ndarray) -> Sums:
        """Labels that share `by` [L] as one, which is its replicate."""
        arrays = [getattr(self, n) for n in _ARRAYS]
        arrays[0] = np.column_stack([np.zeros_like(by), np.zeros_like(by), by])
        order, starts = _runs(arrays[0])
        if len(starts) == len(order):
            return _of_arrays([a[order] for a in arrays], self.steps, {})
        return _joined(arrays, order, starts, self.steps, {})

    # Files.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file that `load` and `am.estimate` read."""

        write_atomically(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Sums:
        """Read what `save` wrote; a damaged or foreign file is an `InputError`."""
        from aggmc_beam.sums import storage

        return cls.from_bytes(storage.read_bytes(path), os.fspath(path))

    def to_bytes(self) -> bytes:
        """Bytes of a file of sums; equal sums have equal bytes."""
        from aggmc_beam.sums.run_file import sums_to_bytes

        return sums_to_bytes(self)

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "these bytes") -> Sums:
        from aggmc_beam.sums.run_file import sums_from_bytes

        return sums_from_bytes(data, source)


_ARRAYS = tuple(f.name for f in fields(Sums) if f.name not in ("steps", "counts"))


def _of_arrays(arrays: Sequence[np.ndarray], steps: StepSums, counts: dict[int, Counts]) -> Sums:
    label, centre, number, weight, inverse, realizations, ends, product = arrays
    return Sums(label, centre, number, weight, inverse, realizations, ends, product, steps, counts)


def _whole(values: np.ndarray) -> np.ndarray:
    """Values as integers if all are such: their sums are then exact, and quicker to find."""
    if values.dtype.kind in "iu" or not values.size:
        return values
    limit = float(np.abs(values).max())
    if not limit < 2**31:
        return values
    dtype = np.int16 if limit < 2**15 else np.int32
    found = values.astype(dtype)
    return found if np.array_equal(found, values) else values


def _distinct_labels(
    group: np.ndarray, cell: np.ndarray, replicate: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The distinct (group, cell, replicate) [L, 3], sorted, and which of them each row has."""
    low = int(cell.min())
    cells, reps = int(cell.max()) - low + 1, int(replicate.max()) + 1
    if (int(group.max()) + 1) * cells * reps >= 2**62:
        raise InputError(
            "times are too far apart to be steps of one process; check the time column and its step"
        )
    code = (group * cells + (cell - low)) * reps + replicate
    found, at = ranked(code)
    rest, r = np.divmod(found, reps)
    g, c = np.divmod(rest, cells)
    return np.column_stack([g, c + low, r]), at


def _runs(label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of labels [L, 3], and where runs of equal ones begin in it."""
    order = np.lexsort((label[:, 2], label[:, 1], label[:, 0]))
    differs = (np.diff(label[order], axis=0) != 0).any(1)
    return order, np.concatenate([[0], np.flatnonzero(differs) + 1])[: max(1, len(order))] if len(
        order
    ) else order


def _joined(
    arrays: list[np.ndarray],
    order: np.ndarray,
    starts: np.ndarray,
    steps: StepSums,
    counts: dict[int, Counts],
) -> Sums:
    """Sums with those added that share a label. Each is moved to the centre that they have together."""
    label, centre, number, weight, inverse, realizations, ends, product = (a[order] for a in arrays)
    run = np.repeat(np.arange(len(starts)), np.diff([*starts, len(order)]))
    common = common_centre(centre, weight, ends, starts, run)
    away = centre - common[run]
    moved = away.any(1)
    if moved.any():
        recentre(ends, product, weight, away, np.flatnonzero(moved))
    summed = (np.add.reduceat(a, starts) for a in (number, weight, inverse, realizations, ends, product))
    n, w, i, r, e, p = summed
    return Sums(label[starts], common, n, w, i, r, e, p, steps, counts)


def _about_rounded_means(sums: Sums) -> Sums:
    """A copy about the mean of the records of each label, rounded, where all is whole: so that the same sums
    about another centre give the same bits. Halves are rounded up, in integers, for the same reason."""
    ends, product, centre = sums.ends.copy(), sums.product.copy(), sums.centre
    total, n = ends[:, 0], np.maximum(sums.number[:, 0], 1)
    whole = (sums.weight[:, 0] == sums.number[:, 0]) & (np.abs(total) < 2**52).all(1)
    whole &= (centre == np.rint(centre)).all(1) & (total == np.rint(total)).all(1)
    at = np.flatnonzero(whole)
    shift = (2 * total[at].astype(np.int64) + n[at, None]) // (2 * n[at, None])
    moved = shift.any(1)
    away = np.zeros_like(centre)
    away[at] = -shift
    recentre(ends, product, sums.weight, away, at[moved])
    return replace(sums, centre=centre - away, ends=ends, product=product)


def moments_of(sums: Sums) -> list[Moments]:
    """The moments of each label, about their own means."""
    kinds = []
    sums = _about_rounded_means(sums)
    product = sums.product
    for k, ((left, right), lag) in enumerate(zip(ROWS, LAGS, strict=True)):
        kinds.append(
            CoMoment.several(
                sums.centre,
                sums.number[:, lag],
                sums.weight[:, lag],
                sums.ends[:, left],
                sums.ends[:, right],
                product[:, k],
            )
        )
    return [
        Moments(lag0, lag1, lag2, ends, Counts(realizations=met), inverse)
        for lag0, lag1, lag2, ends, met, inverse in zip(
            *kinds, sums.realizations.tolist(), sums.inverse_weight.tolist(), strict=True
        )
    ]


def add_sums(S: int, items: Iterable[Sums]) -> Sums:
    """The sum of any number of them, none included; what they share must be of different records."""
    items = list(items)
    for item in items:
        if item.states != S:
            raise InputError(f"sums of {item.states} states cannot join sums of {S}")
    counts: dict[int, Counts] = {}
    for item in items:
        for group, more in item.counts.items():
            counts[group] = counts.get(group, Counts()) + more
    steps = add_steps(S, [item.steps for item in items])
    full = [item for item in items if len(item.label)]
    if len(full) < 2:
        return replace(full[0] if full else Sums.zero(S), steps=steps, counts=counts)
    arrays = [np.concatenate([getattr(p, n) for p in full]) for n in _ARRAYS]
    order, starts = _runs(arrays[0])
    if len(starts) == len(order):
        return _of_arrays([a[order] for a in arrays], steps, counts)
    return _joined(arrays, order, starts, steps, counts)
