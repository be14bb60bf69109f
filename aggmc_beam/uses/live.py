"""Flows, forecasts and alarms while records arrive: what is new since the last time, told once.

Held are the last records of each realization, which tell how far forecasts can be trusted and how much flows
vary; what is told next are the steps that came since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from aggmc_beam.records import Clock
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.sums.records import Records, joined_records
from aggmc_beam.uses.alarms import COMPARED, ranks, surprise
from aggmc_beam.uses.flow_model import FlowModel, sample
from aggmc_beam.uses.forecast import Forecast, Tracked, forecast_series
from aggmc_beam.uses.given import step_labels
from aggmc_beam.uses.series import Series, series_of
from aggmc_beam.uses.tables import Table, flow_table, forecast_rows, name_columns
from aggmc_beam.uses.transitions import Transitions

#: Records that are held, and of one realization.
HELD, HELD_EACH = 5000, 1000


@dataclass(frozen=True)
class Wanted:
    """What is to be told: flows or not, forecasts of so many steps, alarms at this rate; and how."""

    flows: bool = False
    forecast: int | None = None
    alarms: float | None = None
    group_by: tuple[str, ...] = ()
    clock: Clock = field(default_factory=Clock)


class Told(NamedTuple):
    """Tables of what is new: flows, forecasts, how earlier ones did, alarms; and reasons of what has no flows."""

    flows: list[Table]
    forecasts: list[Table]
    scores: list[Table]
    alarms: list[Table]
    without: dict[str, str]


@dataclass(frozen=True, eq=False)
class Live:
    """What is remembered of a group from one time to the next.

    `told`: of each realization the steps that were told; `floor`: the first step that is still held, where
    earlier ones were dropped; `active`: the last time that something new came. `surprises` [n] are those that
    alarms are compared with, `ahead` the forecasts that were made, and `scores` [steps, 4] of each realization
    the number of those that could be checked by horizon, and sums of their squared errors, of those of
    persistence, and of hits.
    """

    records: Records | None = None
    told: dict[str, np.ndarray] = field(default_factory=dict)
    floor: dict[str, int] = field(default_factory=dict)
    active: dict[str, int] = field(default_factory=dict)
    surprises: np.ndarray = field(default_factory=lambda: np.zeros(0))
    ahead: dict[str, tuple[Forecast, np.ndarray]] = field(default_factory=dict)
    scores: dict[str, np.ndarray] = field(default_factory=dict)
    times: int = 0

    def tell(
        self,
        arrived: Iterable[Records],
        estimate: Estimate | Estimates,
        wanted: Wanted,
        some: Sequence[Series] | None = None,
    ) -> tuple[Live, Told]:
        """What is new by these records of one group, and what is to be remembered. `some` are series from which
        habits are learned, by default those of these records; see `flow_model.sample`."""
        parts = [r for r in [*([] if self.records is None else [self.records]), *arrived] if len(r)]
        if not parts:
            return self, Told([], [], [], [], {})
        records = joined_records(parts)
        series = [s for one in series_of(records) for s in self._in_time(one)]
        fresh = [_seen(s) & ~np.isin(s.times, self.told.get(s.name, [])) for s in series]
        now = replace(self, times=self.times + 1)
        told = Told([], [], [], [], {})
        if wanted.flows:
            told.without.update(_flows(series, fresh, estimate, wanted, told.flows, some))
        if wanted.alarms is not None:
            now = replace(now, surprises=now._alarms(series, fresh, estimate, wanted, told.alarms))
        if wanted.forecast is not None:
            now = now._forecasts(series, fresh, estimate, wanted, told)
        return now._held(records, series, fresh), told

    def _in_time(self, series: Series) -> Iterator[Series]:
        """Without steps that are no longer known, of which nobody can say whether they were told."""
        floor = self.floor.get(series.name)
        kept = series if floor is None else series.since(floor)
        if len(kept.counts) and _seen(kept).any():
            yield kept

    def _alarms(
        self,
        series: Sequence[Series],
        fresh: Sequence[np.ndarray],
        estimate: Estimate | Estimates,
        wanted: Wanted,
        into: list[Table],
    ) -> np.ndarray:
        chain, past, rate = Transitions.of(estimate, wanted.clock), self.surprises, wanted.alarms
        assert rate is not None
        for s, new in zip(series, fresh, strict=True):
            if len(s.counts) < 2 or not new.any():
                continue
            size, far = surprise(Tracked.of(s.counts, chain, s.start))
            at = np.flatnonzero(new & np.isfinite(size))
            p = ranks(np.concatenate([past, size[at]]), rate, len(past))[len(past) :]
            past = np.concatenate([past, size[at]])[-COMPARED:]
            raised = np.flatnonzero(p <= rate)
            if len(raised):
                table = name_columns(s, wanted.group_by, len(raised))
                table["time"] = step_labels(s.start + at[raised], wanted.clock)
                table["p_value"] = p[raised]
                table["state"] = np.array(chain.states, object)[far[at[raised]]]
                table["rate"] = np.full(len(raised), rate)
                into.append(table)
        return past

    def _forecasts(
        self,
        series: Sequence[Series],
        fresh: Sequence[np.ndarray],
        estimate: Estimate | Estimates,
        wanted: Wanted,
        told: Told,
    ) -> Live:
        steps, chain = wanted.forecast, Transitions.of(estimate, wanted.clock)
        assert steps is not None
        scores, ahead = dict(self.scores), dict(self.ahead)
        level = estimate.level if isinstance(estimate, Estimate) else estimate[0].level
        for s, new in zip(series, fresh, strict=True):
            if not new.any():
                continue
            if s.name in ahead:
                checked = _score(*ahead[s.name], Tracked.of(s.counts, chain, s.start), new)
                scores[s.name] = scores.get(s.name, 0) + checked
                if checked.any():
                    told.scores.append(_scores(scores[s.name], s, wanted.group_by))
            last = int(np.flatnonzero(_seen(s))[-1])
            found = forecast_series(chain, s.counts[: last + 1], steps, s.start + last, level)
            ahead[s.name] = found, Tracked.of(s.counts[last : last + 1], chain, s.start + last).seen[0]
            told.forecasts.append(forecast_rows(s, found, wanted.group_by, wanted.clock))
        return replace(self, ahead=ahead, scores=scores)

    def _held(self, records: Records, series: Sequence[Series], fresh: Sequence[np.ndarray]) -> Live:
        """The last records, of those that were heard of last."""
        active, floor, told = dict(self.active), dict(self.floor), dict[str, np.ndarray]()
        for s, new in zip(series, fresh, strict=True):
            if new.any():
                active[s.name] = self.times
        ends = {s.name: s for s in series}
        kept: dict[str, Series] = {}
        left = HELD
        for name in sorted(ends, key=lambda n: (-active.get(n, 0), n)):
            if left <= 0 and active.get(name) != self.times:
                continue
            size = max(2, min(HELD_EACH, max(left, 0), len(ends[name].counts)))
            own = ends[name].since(ends[name].start + len(ends[name].counts) - size)
            kept[name] = own
            left -= len(own.counts)
            if own.start > min(s.start for s in series if s.name == name) or name in floor:
                floor[name] = own.start
            told[name] = own.times[_seen(own)]
        names = records.names[records.realization]
        first = np.array([kept[str(n)].start if str(n) in kept else np.iinfo(np.int64).max for n in names])
        held = records.take(np.flatnonzero(records.time >= first)).without_unused_names()
        return replace(
            self,
            records=_once(held),
            told=told,
            floor={n: t for n, t in floor.items() if n in kept},
            active={n: t for n, t in active.items() if n in kept},
            ahead={n: f for n, f in self.ahead.items() if n in kept},
            scores={n: f for n, f in self.scores.items() if n in kept},
        )


def _once(records: Records) -> Records:
    """Without repeated records."""
    both = np.stack([records.realization, records.time], 1)
    return records.take(np.sort(np.unique(both, axis=0, return_index=True)[1]))


def _seen(series: Series) -> np.ndarray:
    return np.asarray(~np.isnan(series.counts).any(1))


def _flows(
    series: Sequence[Series],
    fresh: Sequence[np.ndarray],
    estimate: Estimate | Estimates,
    wanted: Wanted,
    into: list[Table],
    some: Sequence[Series] | None,
) -> dict[str, str]:
    """Adds flows of pairs of steps that were both counted, one of them lately; why others have none."""
    pairs = {}
    for s, new in zip(series, fresh, strict=True):
        seen = _seen(s)
        pairs[s.name, s.start] = seen[1:] & seen[:-1] & (new[1:] | new[:-1])
    some = sample(series) if some is None else some
    if not some:
        return {}
    model = FlowModel.learned(estimate, some, wanted.clock)
    own = [s for s in series if pairs[s.name, s.start].any()]
    reasons = {s.name: why for s in own if (why := model.why_not(s)) is not None}
    for batch, found in model.flows([s for s in own if s.name not in reasons]):
        masks = [pairs[s.name, s.start] for s in batch]
        into.append(flow_table(batch, found, wanted.group_by, wanted.clock, masks))
    return reasons


def _score(made: Forecast, start: np.ndarray, came: Tracked, new: np.ndarray) -> np.ndarray:
    """The scores [steps, 4] of a forecast that was made from counts `start`; bands hold noisy counts if they are
    as much wider as the noise is."""
    scores = np.zeros((len(made.time), 4))
    for h, time in enumerate(made.time):
        at = int(time) - came.start
        if 0 <= at < len(new) and new[at]:
            seen, noise = came.seen[at], np.maximum(np.diagonal(came.noise[at]), 0.0)
            error = np.maximum(made.standard_error[h], 1e-300)
            half = (made.upper[h] - made.mean[h]) * np.sqrt(1 + noise / error**2)
            off = np.abs(seen - made.mean[h])
            scores[h] = 1, (off**2).mean(), ((seen - start) ** 2).mean(), (off <= half + 1e-9).mean()
    return scores


def _scores(scores: np.ndarray, series: Series, group_by: Sequence[str]) -> Table:
    """A tidy table by horizon: how many forecasts were checked, their root mean square error, that of
    persistence, and how often bands held what came."""
    known = np.flatnonzero(scores[:, 0])
    n, square, rival, inside = scores[known].T
    table = name_columns(series, group_by, len(known))
    table["horizon"] = known + 1
    table["forecasts"] = n.astype(np.int64)
    table["rmse"], table["persistence"], table["coverage"] = (
        np.sqrt(square / n),
        np.sqrt(rival / n),
        inside / n,
    )
    return table
