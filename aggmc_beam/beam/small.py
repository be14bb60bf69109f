"""Input so small that one worker reads it whole: nothing has to travel, and nothing is read twice."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np

from aggmc_beam.beam.bounded import NOTICED, PLACES, REACH, count_noticed, group_key, unused_rows
from aggmc_beam.beam.files import PIECE, Piece, feed, is_local, piece_frame, to_batches
from aggmc_beam.beam.summing import Meeting, take
from aggmc_beam.beam.values import Batch, Group, Reach, reach_of, without_tracks
from aggmc_beam.local.assemble import Refused
from aggmc_beam.local.engine import Plan
from aggmc_beam.local.keys import Keys
from aggmc_beam.local.tidy import group_columns
from aggmc_beam.records import good_rows
from aggmc_beam.saved import Sums

#: Values that one worker takes on alone.
SMALL = PIECE


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
    """The sums of all groups of the input, whose pieces are these. Its one element tells nothing."""

    def __init__(self, plan: Plan, pieces: Sequence[Piece], tracks: bool) -> None:
        self.plan, self.pieces, self.tracks = plan, pieces, tracks

    def process(self, _: bytes) -> Iterator[tuple[str, Sums] | Any]:
        noticed: Counter[str] = Counter()
        groups: dict[Group, list[Batch]] = {}
        for piece in self.pieces:
            refused = Refused()
            for batch in self._read(piece, refused, noticed):
                groups.setdefault(batch.group, []).append(batch)
            for file, row in np.concatenate([np.zeros((0, 2), int), *refused.places]).tolist():
                yield beam.pvalue.TaggedOutput(PLACES, (file, (row, "")))
        for group, batches in groups.items():
            reach = sum((_reach(batch) for batch in batches), Reach())
            meeting = Meeting(self.plan, group, reach.extent)
            found = meeting.add(batches, files=True)
            noticed.update(found.counts)
            for sums in meeting.settle().saved(remember=self.tracks).groups:
                yield group_key(group), sums if self.tracks else without_tracks(sums)
                yield beam.pvalue.TaggedOutput(REACH, (group_key(group), reach))
            yield from unused_rows(found)
        count_noticed(noticed)
        yield beam.pvalue.TaggedOutput(NOTICED, dict(noticed))

    def _read(self, piece: Piece, refused: Refused, noticed: Counter[str]) -> list[Batch]:
        with piece_frame(self.plan, piece) as frame:
            if frame is None:
                return []
            rows, keys = frame.collect(), Keys(group_columns(self.plan.schema))
            found = to_batches(keys, feed(self.plan, rows, keys, refused))
        noticed.update(rows=rows.height, rejected=refused.number)
        return found


def _reach(batch: Batch) -> Reach:
    """How far its rows reach; of a long table those with a count."""
    if batch.state is None:
        return reach_of(batch)
    good = np.flatnonzero(good_rows(batch.values))
    return reach_of(take(batch, good)) if len(good) else Reach()
