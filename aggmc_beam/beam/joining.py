"""What the arrivals of a bundle add, put together as they come: many are summed as quickly as one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms import window
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from aggmc_beam.beam.health import LEDGER, NEVER, from_ledger
from aggmc_beam.beam.stream_sums import StreamRule
from aggmc_beam.beam.stream_values import FIRST, NEW, NOBODY, OLD, Delta, pooled
from aggmc_beam.beam.timing import LAST
from aggmc_beam.ledger import Ledger
from aggmc_beam.sums.moments import Counts
from aggmc_beam.sums.records import Group

#: Arrivals that are handed on together.
TOGETHER = 1000
#: The group of a rejected record that does not tell it.
NO_GROUP = ""


@lru_cache(10_000)
def group_key(group: Group) -> str:
    """The key of a group."""
    return json.dumps(group, ensure_ascii=False)


class Arrivals:
    """Those of one group, in lists, until `delta` makes arrays of them."""

    def __init__(self) -> None:
        self.at: dict[str, int] = {}
        self.numbers: list[int] = []
        self.population: list[float] = []
        self.key: list[int] = []
        self.time: list[int] = []
        self.mark: list[int] = []
        self.rows: list[np.ndarray] = []
        self.records = 0
        self.populations = NOBODY
        #: How many were not used, by the name that `Counts` has for it.
        self.counts: Counter[str] = Counter()

    def add(
        self,
        name: str,
        number: int,
        population: float | None,
        is_first: bool,
        time: int,
        row: np.ndarray,
        near: list[tuple[int, np.ndarray]],
    ) -> None:
        """A new record of a realization, and its open neighbours; whether it is the realization's first."""
        k = self.at.get(name)
        if k is None:
            k = self.at[name] = len(self.numbers)
            self.numbers.append(number)
            self.population.append(1.0 if population is None else population)
        self.records += 1
        self.key.append(k)
        self.time.append(time)
        self.mark.append(FIRST if is_first else NEW)
        self.rows.append(row)
        for t, old in near:
            self.key.append(k)
            self.time.append(t)
            self.mark.append(OLD)
            self.rows.append(old)

    def inhabit(self, population: float) -> None:
        """The population of a realization that was not known before."""
        self.populations = pooled(self.populations, (1.0, population, population, population))

    @property
    def ledger(self) -> Ledger:
        return Ledger.of({**self.counts, "records": self.records})

    def delta(self, S: int, weighted: bool = False, named: bool = False) -> Delta:
        """All of it, each row once: a record that is new is the neighbour of later ones."""
        key, time, mark = (np.array(a, np.int64) for a in (self.key, self.time, self.mark))
        order = np.lexsort((mark == OLD, time, key))
        key, time = key[order], time[order]
        once = np.ones(len(order), bool)
        once[1:] = (np.diff(key) != 0) | (np.diff(time) != 0)
        order = order[once]
        rows = [self.rows[i] for i in order.tolist()]
        return Delta(
            np.array(self.numbers, np.int64),
            key[once],
            time[once],
            np.concatenate(rows).reshape(-1, S) if rows else np.zeros((0, S)),
            mark[order],
            np.array(self.population) if weighted else None,
            Counts(**self.counts),
            self.populations,
            tuple(self.at) if named else (),
        )


class Joining:
    """The arrivals of a bundle by group, with their ledger and their event times."""

    def __init__(self, rule: StreamRule) -> None:
        self.rule = rule
        self._empty()

    def _empty(self) -> None:
        self.parts: dict[str, Arrivals] = {}
        self.number, self.earliest, self.newest = 0, LAST.micros, NEVER

    def arrivals(self, group: str) -> Arrivals:
        """Where what comes for a group goes, until `handed_on`."""
        found = self.parts.get(group)
        if found is None:
            found = self.parts[group] = Arrivals()
        return found

    def came(self, moment: int) -> bool:
        """Note that a record of this event time (microseconds) is there; whether all are to be handed on."""
        self.number += 1
        self.earliest = min(self.earliest, moment)
        self.newest = max(self.newest, moment)
        return self.number >= TOGETHER

    def handed_on(self) -> Iterator[Any]:
        """((group, shard), Delta), and the ledger to `LEDGER`. What has no group goes there only."""
        parts, number, earliest, newest = self.parts, self.number, self.earliest, self.newest
        self._empty()
        # As early as the earliest that it holds, so that no timer runs ahead of it.
        at, everywhere = Timestamp(micros=earliest), [window.GlobalWindow()]
        for group, part in parts.items():
            if group == NO_GROUP:
                continue
            for shard, delta in self.rule.dealt(part):
                key = json.dumps([group, shard], ensure_ascii=False)
                yield WindowedValue((key, delta), at, everywhere)
        if number:
            ledger = sum((part.ledger for part in parts.values()), Ledger())
            numbers = from_ledger(ledger, newest)
            yield beam.pvalue.TaggedOutput(LEDGER, WindowedValue(numbers, at, everywhere))
