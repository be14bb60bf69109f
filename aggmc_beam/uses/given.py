"""Counts that users give to flows, forecasts and alarms: arrays, or tables whose columns they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aggmc_beam.clock import Clock
from aggmc_beam.errors import InputError
from aggmc_beam.estimation import check_options, is_table, refuse_options, table_records
from aggmc_beam.fit.observations import check_counts
from aggmc_beam.uses.series import padded, series_of
from aggmc_beam.uses.transitions import Transitions


@dataclass(frozen=True, eq=False)
class Labels:
    """Where arrays [K, T, ...] belong: the names of realizations [K], the step at which each begins [K], and the
    clock that tells the time of a step. A long gap parts a realization into two of one name.

    >>> Labels(("north", "south"), np.array([2, 3]), Clock("year")).times(2).tolist()
    [['1972', '1973'], ['1973', '1974']]
    """

    names: tuple[Any, ...]
    starts: np.ndarray
    clock: Clock

    @classmethod
    def plain(cls, K: int, start: int = 0) -> Labels:
        """Of an array: numbers from 0, and steps from `start`."""
        return cls(tuple(range(K)), np.full(K, start), Clock())

    def after(self, steps: int | np.ndarray) -> Labels:
        """With other beginnings."""
        return replace(self, starts=self.starts + steps)

    def times(self, T: int) -> np.ndarray:
        """The time [K, T] of each step, as the user writes times."""
        return step_labels((self.starts[:, None] + np.arange(T)).ravel(), self.clock).reshape(-1, T)

    def columns(self, k: np.ndarray, t: np.ndarray) -> dict[str, list[Any]]:
        """The columns `realization` and `time` of places (k, t)."""
        names = np.array(self.names, object)
        return {
            "realization": names[k].tolist(),
            "time": step_labels(self.starts[k] + t, self.clock).tolist(),
        }


@dataclass(frozen=True, eq=False)
class Given:
    """`counts` [K, T, S]: NaN rows are missing steps, also those behind the ends [K] of shorter realizations. `chain`
    tells the matrix of each step; `single` that one series was given."""

    counts: np.ndarray
    chain: Transitions
    labels: Labels
    ends: np.ndarray
    single: bool

    @classmethod
    def of(cls, data: Any, estimate: Any, time: Any, table: Mapping[str, Any]) -> Given:
        """data: [K, T, S] or [T, S], whose first step is number `time`; or a table, of which `time` is a column and
        `table` names the others. A record of which some counts are missing is a missing step."""
        if not is_table(data):
            refuse_options(data, table)
            chain = Transitions.of(estimate)
            if isinstance(time, bool) or not isinstance(time, int | np.integer):
                raise InputError(f"time must be the number of the first step of an array; got {time!r}")
            y = _whole_records(check_counts(data, gaps=True))
            _check_states(y, chain)
            ends = np.full(len(y), y.shape[1] - 1)
            return cls(y, chain, Labels.plain(len(y), int(time)), ends, np.ndim(data) == 2)
        check_options(table)
        chain = Transitions.of(estimate)
        options = {**table, **({"time": time} if isinstance(time, str | list | tuple) else {})}
        records, clock = table_records(data, chain.states, chain.noise, chain.population, options)
        series = [s for s in series_of(records) if not np.isnan(s.counts).any(1).all()]
        found = padded([replace(s, counts=_whole_records(s.counts[None])[0]) for s in series])
        labels = Labels(tuple(s.name for s in series), np.array([s.start for s in series]), clock)
        ends = np.array([len(s.counts) - 1 for s in series])
        single = len(series) == 1 and options.get("realization", "") is None
        return cls(found, replace(chain, clock=clock), labels, ends, single)

    @property
    def steps(self) -> np.ndarray:
        """[K, T]: the number of each step."""
        return np.asarray(self.labels.starts[:, None] + np.arange(self.counts.shape[1]))


def step_labels(steps: np.ndarray, clock: Clock) -> np.ndarray:
    """Steps as the user writes times."""
    different, place = np.unique(steps, return_inverse=True)
    labels = [clock.label(int(t)) for t in different]
    return np.array(labels, object if clock.stamps else np.int64)[place]


def _whole_records(y: np.ndarray) -> np.ndarray:
    """Without records of which a part is missing."""
    partial = np.isnan(y).any(2)
    return np.where(partial[:, :, None], np.nan, y) if partial.any() else y


def _check_states(y: np.ndarray, chain: Transitions) -> None:
    if y.shape[2] != len(chain.states):
        raise InputError(f"counts have {y.shape[2]} states, the estimate has {len(chain.states)}")
