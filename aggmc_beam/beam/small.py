"""Input so small that one worker sums it whole, by the local engine: nothing travels but the sums."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam

from aggmc_beam.beam.bounded import NOTICED, REACH, count_noticed, group_key, unused_rows
from aggmc_beam.beam.files import File, Piece, is_local
from aggmc_beam.beam.former.engine import Plan, explained, sum_plan
from aggmc_beam.beam.former.sources import open_files
from aggmc_beam.beam.summing import Noticed
from aggmc_beam.beam.values import Reach, without_tracks
from aggmc_beam.saved import Sums

#: Values that one worker takes on alone: a second or two of work.
SMALL = 1 << 27


def is_small(plan: Plan, pieces: Sequence[Piece]) -> bool:
    """Whether these are all at hand and hold at most `SMALL` values."""
    if not all(is_local(piece.file.path) for piece in pieces):
        return False
    return sum(_values(plan, piece) for piece in pieces) <= SMALL


def _values(plan: Plan, piece: Piece) -> int:
    """At most how many values a piece holds. In text, each takes a character and ends with another."""
    if piece.rows is None:
        return os.path.getsize(piece.file.path) // 2
    return piece.rows * len(plan.schema.columns)


class SumSmall(beam.DoFn):  # type: ignore[misc]
    """The sums of all groups of these files. Its one element tells nothing."""

    def __init__(self, plan: Plan, files: Sequence[File], tracks: bool) -> None:
        self.plan, self.files, self.tracks = plan, files, tracks

    def process(self, _: bytes) -> Iterator[tuple[str, Sums] | Any]:
        plan = self._opened()
        with explained(plan):
            total, rows, _sorted = sum_plan(plan)
        total.count_repeated()
        for g, sums in zip(total.filled, total.saved(remember=self.tracks).groups, strict=True):
            key = group_key(total.keys.groups[g])
            yield key, sums if self.tracks else without_tracks(sums)
            # Groups are ordered as they are met; how far they reach is known to their sums.
            yield beam.pvalue.TaggedOutput(REACH, (key, Reach(place=(0, g))))
        noticed = Noticed.of(total)
        yield from unused_rows(noticed)
        counts = {"rows": rows, **noticed.counts}
        count_noticed(counts)
        yield beam.pvalue.TaggedOutput(NOTICED, counts)

    def _opened(self) -> Plan:
        """The plan with its files. How many rows may be rejected is asked where all are counted."""
        config = replace(self.plan.config, max_rejected=None)
        paths = [file.path for file in self.files]
        return replace(
            self.plan,
            config=config,
            sources=open_files(paths, config.input.format, config.input.separator),
        )
