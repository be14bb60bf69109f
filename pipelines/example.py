"""A pipeline of one's own, with EstimateTransitions among its transforms.

Raw sightings (device, place, minute) are counted by place and hour, noise for privacy is added, and
the moves between places are estimated; what is not a record is written aside.

    python pipelines/example.py --runner=FnApiRunner
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions

PLACES = ["home", "work", "other"]
SIGMA = 3.0


def sightings(day: int, devices: int = 500, hours: int = 24) -> Iterator[tuple[tuple[int, int, str], int]]:
    """((day, hour, place), 1) for each device that was seen; here they are simulated."""
    moves = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.3, 0.2, 0.5]])
    rng = np.random.default_rng(day)
    place = rng.choice(3, devices, p=[0.55, 0.27, 0.18])
    for hour in range(hours):
        for p in place.tolist():
            yield (day, hour, PLACES[p]), 1
        place = np.array([rng.choice(3, p=moves[p]) for p in place])


class AddNoise(beam.DoFn):
    """(day, hour) and counts by place to a record, with Gaussian noise for privacy."""

    def process(self, element: tuple[tuple[int, int], Any]) -> Iterator[dict[str, Any]]:
        (day, hour), found = element
        counts = dict(found)
        rng = np.random.default_rng([day, hour])
        noisy = [counts.get(p, 0) + rng.normal(0, SIGMA) for p in PLACES]
        yield {"realization": day, "time": hour, "counts": noisy}


def main(arguments: list[str] | None = None) -> None:
    options = PipelineOptions(sys.argv[1:] if arguments is None else arguments)
    with beam.Pipeline(options=options) as pipeline:
        found = (
            pipeline
            | "Days" >> beam.Create(range(20))
            | "Sightings" >> beam.FlatMap(sightings)
            | "Count" >> beam.CombinePerKey(sum)
            | "By hour" >> beam.MapTuple(lambda key, n: (key[:2], (key[2], n)))
            | "Together" >> beam.GroupByKey()
            | "Protect" >> beam.ParDo(AddNoise())
            | "Moves" >> EstimateTransitions(PLACES, am.Gaussian(SIGMA), population=500)
        )
        _ = found.estimates | "Show" >> beam.Map(print)
        _ = found.rejected | "Show rejected" >> beam.Map(print)


if __name__ == "__main__":
    main()
