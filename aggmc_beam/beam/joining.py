"""What the arrivals of a bundle add, put together as they come: many are summed as quickly as one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms import window
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from aggmc_beam.beam.health import LEDGER, NEVER, from_ledger
from aggmc_beam.beam.timing import LAST
from aggmc_beam.beam.values import NOBODY, Delta, pooled
from aggmc_beam.ledger import Ledger
from aggmc_beam.moments import Counts
from aggmc_beam.track import Row

#: Arrivals that are handed on together.
TOGETHER = 1000
#: The group of a rejected record that does not tell it.
NO_GROUP = ""


class Arrivals:
    """Those of one group and shard, in lists, until `delta` makes arrays of them."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.sizes: list[int] = []
        self.first: list[int] = []
        self.time: list[int] = []
        self.rows: list[Row] = []
        self.new: list[int] = []
        self.payloads: list[str] = []
        self.populations = NOBODY
        #: How many were not used, by the name that `Counts` has for it.
        self.counts: Counter[str] = Counter()

    def add(self, number: int, first: bool, steps: list[int], rows: list[Row], place: int) -> None:
        """A record, at this place among its neighbours; whether it is the first of its realization."""
        self.numbers.append(number)
        self.sizes.append(len(rows))
        self.first.append(int(first))
        self.new.append(len(self.rows) + place)
        self.time += steps
        self.rows += rows

    def repeat(self, number: int) -> None:
        """A record that was known: an arrival without rows."""
        self.numbers.append(number)
        self.sizes.append(0)
        self.first.append(0)
        self.counts["duplicates"] += 1

    def inhabit(self, population: float) -> None:
        """The population of a realization that was not known before."""
        self.populations = pooled(self.populations, (1.0, population, population, population))

    @property
    def ledger(self) -> Ledger:
        return Ledger.of({**self.counts, "records": len(self.new)})

    def delta(self, S: int) -> Delta:
        settled = np.ones(len(self.rows), np.int64)
        settled[np.array(self.new, np.int64)] = 0
        weight = np.array([row.weight for row in self.rows])
        values = [row.values for row in self.rows]
        return Delta(
            np.array(self.numbers, np.int64),
            np.array(self.sizes, np.int64),
            np.array(self.first, np.int64),
            np.array(self.time, np.int64),
            np.concatenate(values).reshape(-1, S) if values else np.zeros((0, S)),
            settled,
            None if (weight == 1.0).all() else weight,
            Counts(**self.counts),
            self.populations,
            tuple(self.payloads),
        )


class Joining:
    """The arrivals of a bundle by group and shard, with their ledger and their event times."""

    def __init__(self, states: int, shards: int) -> None:
        self.states, self.shards = states, shards
        self._empty()

    def _empty(self) -> None:
        self.parts: dict[tuple[str, int], Arrivals] = {}
        self.number, self.earliest, self.newest = 0, LAST.micros, NEVER

    def arrivals(self, group: str, number: int = 0) -> Arrivals:
        """Where what comes for the realization of this number goes, until `handed_on`."""
        at = group, number % self.shards
        found = self.parts.get(at)
        if found is None:
            found = self.parts[at] = Arrivals()
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
        for (group, shard), part in parts.items():
            if group != NO_GROUP:
                key = json.dumps([group, shard], ensure_ascii=False)
                yield WindowedValue((key, part.delta(self.states)), at, everywhere)
        if number:
            ledger = sum((part.ledger for part in parts.values()), Ledger())
            numbers = from_ledger(ledger, newest)
            yield beam.pvalue.TaggedOutput(LEDGER, WindowedValue(numbers, at, everywhere))
