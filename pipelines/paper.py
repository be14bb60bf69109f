"""The figures and claims of Bernstein & Sheldon (2016), reproduced: `make paper`.

    python -m pipelines.paper --docs docs        # all of configs/paper; goes on where it was
    python -m pipelines.paper --quick            # a small grid, with its claims checked
    python -m pipelines.paper --beam --runner=DirectRunner

Writes trials.csv and figures (PNG, SVG) to --output, and with --docs the page of figures and claims.
On Beam each trial is an element, kept in --output, which all workers must see.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported

try:
    import apache_beam as beam
except ImportError:
    beam = None

from benchmarks.paper.command import main
from benchmarks.paper.grid import Cell
from benchmarks.paper.runner import kept


def on_beam(cells: Sequence[Cell], directory: Path, options: Sequence[str]) -> None:
    with beam.Pipeline(argv=list(options)) as pipeline:
        (
            pipeline
            | "Cells" >> beam.Create(cells)
            | "Spread" >> beam.Reshuffle()
            | "Trials" >> beam.Map(partial(kept, directory=directory))
        )


if __name__ == "__main__":
    raise SystemExit(main(elsewhere=None if beam is None else on_beam))
