"""The step sums of rows: what each step holds of records, and where ends of pairs differ from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from aggmc_beam.sums.centred import Centred
from aggmc_beam.sums.kernel import Pairs
from aggmc_beam.sums.profile import KINDS, LEFT1, LEFT2, RECORDS, RIGHT1, RIGHT2
from aggmc_beam.sums.ranks import distinct, ranked
from aggmc_beam.sums.steps import LARGEST, MAX_BINS, StepSums, too_far, without_zeros

#: Rows of step sums that are changed at once.
CACHED = 1 << 12


def sum_steps(
    table: Centred,
    time: np.ndarray,
    pairs: Pairs,
    group: np.ndarray,
    replicate: np.ndarray,
    weight: np.ndarray | None = None,
) -> StepSums:
    """The step sums of rows as `kernel.sum_records` takes them: `group` and `replicate` [n] are those of each
    row, which a pair has from its left one."""
    if not len(time):
        return StepSums.zero(table.states)
    width = _widths(group, time)
    bins = time
    if any(wide > 1 for wide in width.values()):
        factor = np.ones(int(group.max()) + 1, np.int64)
        for g, wide in width.items():
            factor[g] = wide
        bins = time // factor[group]
    place = Places.of_rows(group, replicate, bins)
    rows = None if pairs.new is None else np.flatnonzero(pairs.new)
    found = []
    if rows is None or len(rows):
        found = [_summed(table, place.of if rows is None else place.of[rows], rows, None, RECORDS, weight)]
    for kind, (of, row, sign) in zip((LEFT1, RIGHT1, LEFT2, RIGHT2), _exceptions(pairs, place), strict=True):
        if len(row):
            found.append(_summed(table, of, row, sign, kind, weight))
    if not found:
        return StepSums.zero(table.states)
    code, number, weights, total = _interleaved(found)
    key = place.key(code)
    _add_centres(total, weights, table.centre, key[:, 0])
    return without_zeros(StepSums(table.states, key, number, weights, total, width))


class Places(NamedTuple):
    """Integers [n] for (group, replicate, bin) of rows, in their order; `label` [n] is that of the first two."""

    of: np.ndarray
    label: np.ndarray
    low: int
    bins: int
    replicates: int

    @classmethod
    def of_rows(cls, group: np.ndarray, replicate: np.ndarray, bins: np.ndarray) -> Places:
        low = int(bins.min())
        span, replicates = int(bins.max()) - low + 1, int(replicate.max()) + 1
        if (int(group.max()) + 1) * replicates * span >= LARGEST:
            raise too_far(span)
        label = group * replicates + replicate if group.any() else replicate
        return cls(label * span + (bins - low), label, low, span, replicates)

    def moved(self, row: np.ndarray, owner: np.ndarray) -> np.ndarray:
        """The places of rows if they had the group and replicate of their owners."""
        return np.asarray(self.of[row] + (self.label[owner] - self.label[row]) * self.bins)

    def key(self, code: np.ndarray) -> np.ndarray:
        """[m, 4]: group, replicate, bin and kind of codes place * KINDS + kind."""
        place, kind = np.divmod(code, KINDS)
        rest, at = np.divmod(place, self.bins)
        group, replicate = np.divmod(rest, self.replicates)
        return np.column_stack([group, replicate, at + self.low, kind])


Part = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _summed(
    table: Centred,
    place: np.ndarray,
    rows: np.ndarray | None,
    sign: np.ndarray | None,
    kind: int,
    weight: np.ndarray | None,
) -> Part:
    """Codes, numbers, weights and sums about the centre of the rows (None: all) at each place, those of `sign` -1
    being taken off."""
    from scipy.sparse import csc_array  # takes a moment to import

    found, place = ranked(place)
    met = np.bincount(place, minlength=len(found))
    dtype = table.rows.dtype if table.adds_exactly(int(met.max(initial=0))) else np.dtype(np.float64)
    values = table.rows[:-1] if rows is None else np.take(table.rows, rows, axis=0)
    number: np.ndarray = met
    if sign is not None:
        number = np.bincount(place, sign, len(found)).astype(np.int64)
    if weight is None:
        heavy = np.ones(len(place), dtype) if sign is None else sign.astype(dtype)
        weights: np.ndarray = number.astype(np.float64)
    else:
        heavy = weight if rows is None else weight[rows]
        heavy = heavy if sign is None else heavy * sign
        weights = np.bincount(place, heavy, len(found))
    # Each row is a column of a sparse matrix.
    matrix = csc_array((heavy, place, np.arange(len(place) + 1)), shape=(len(found), len(place)))
    total = (matrix @ values.astype(dtype, copy=False))[:, : table.states]
    return found * KINDS + kind, number, weights, total


def _exceptions(pairs: Pairs, place: Places) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each kind of ends of pairs (places, rows, signs): what it has more or less than the records do."""
    n, label = len(place.of), place.label
    for follow in (pairs.next1, pairs.next2):
        is_left = follow < n
        if pairs.new is None:
            gained, missed = np.zeros(0, np.int64), np.flatnonzero(~is_left)
        else:
            gained, missed = np.flatnonzero(is_left & ~pairs.new), np.flatnonzero(pairs.new & ~is_left)
        yield _both((place.of[gained], gained), (place.of[missed], missed))
        left = np.flatnonzero(is_left)
        right = follow[left]
        own = label[left] == label[right]
        if pairs.new is not None:
            own &= pairs.new[right]
        has_own = np.zeros(n, bool)
        has_own[right] = own
        missed = np.flatnonzero(~has_own if pairs.new is None else pairs.new & ~has_own)
        other = np.flatnonzero(~own)
        yield _both((place.moved(right[other], left[other]), right[other]), (place.of[missed], missed))


def _both(
    more: tuple[np.ndarray, np.ndarray], less: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    signs = np.repeat(np.array([1, -1]), [len(more[0]), len(less[0])])
    return np.concatenate([more[0], less[0]]), np.concatenate([more[1], less[1]]), signs


def _interleaved(parts: Sequence[Part]) -> Part:
    """Parts whose codes are sorted and all different, as one that is sorted by code."""
    code = np.concatenate([part[0] for part in parts])
    order = np.argsort(code, kind="stable")
    number, weights = (np.concatenate([part[i] for part in parts])[order] for i in (1, 2))
    at = np.empty_like(order)
    at[order] = np.arange(len(order))
    total = np.empty((len(code), parts[0][3].shape[1]))
    begin = 0
    for part in parts:
        total[at[begin : begin + len(part[0])]] = part[3]
        begin += len(part[0])
    return code[order], number, weights, total


def _add_centres(total: np.ndarray, weight: np.ndarray, centre: np.ndarray, group: np.ndarray) -> None:
    """Make sums about centres those of values, in place and while they are in a core's cache."""
    for begin in range(0, len(total), CACHED):
        at = slice(begin, begin + CACHED)
        total[at] += weight[at, None] * (centre if len(centre) == 1 else centre[group[at]])


def _widths(group: np.ndarray, time: np.ndarray) -> dict[int, int]:
    """The width of each group's bins: the least power of two that leaves at most `MAX_BINS` of them."""
    present = np.flatnonzero(np.bincount(group))
    widths = dict.fromkeys(present.tolist(), 1)
    first, last = int(time.min()), int(time.max())
    if last - first < MAX_BINS:
        return widths
    span = last - first + 1
    if (int(present[-1]) + 1) * span >= LARGEST:
        raise too_far(span)
    of, steps = np.divmod(distinct(group * span + (time - first)), span)
    cuts = np.searchsorted(of, [*present, present[-1] + 1])
    for g, a, b in zip(present.tolist(), cuts[:-1], cuts[1:], strict=True):
        bins = steps[a:b] + first
        while len(bins) > MAX_BINS:
            widths[g] *= 2
            bins = np.unique(bins // 2)
    return widths
