"""EstimateTransitions in Beam YAML: rows in, rows out, with `error_handling`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.typehints.row_type import RowTypeConstraint

from aggmc_beam.beam.sinks import line
from aggmc_beam.beam.transform import EstimateTransitions
from aggmc_beam.config.kinds import Section
from aggmc_beam.config.model import Stream
from aggmc_beam.config.special import ChainKind, NoiseKind
from aggmc_beam.errors import InputError
from aggmc_beam.uses.rows import EstimateRow, to_row

#: Schema of the rows of errors.
ERROR = RowTypeConstraint.from_fields([("element", str), ("msg", str)])


class EstimateTransitionsYaml(beam.PTransform):  # type: ignore[misc]
    """`type: EstimateTransitions` of a YAML pipeline; see `configs/aggmc_provider.yaml`.

    Options are those of `EstimateTransitions`, of which noise, chain and stream are written as in a config. Counts
    are by default in a column for each state. windowing: "input" makes estimates of each window.
    With `error_handling: {output: NAME}` rejected rows go to that output; without it they fail the job.
    """

    def __init__(
        self,
        states: Sequence[str],
        noise: Any = "exact",
        chain: Any = "stationary",
        counts: Any = None,
        stream: dict[str, str] | None = None,
        error_handling: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if error_handling is not None and "output" not in error_handling:
            raise InputError("error_handling needs `output`, the name of the output for rejected rows")
        self.errors = None if error_handling is None else error_handling["output"]
        self.inner = EstimateTransitions(
            states,
            NoiseKind().read(noise, "noise"),
            chain=ChainKind().read(chain, "chain"),
            counts=list(states) if counts is None else counts,
            stream=None if stream is None else Section(Stream).read(stream, "stream"),
            **{"max_rejected": None if error_handling is not None else 0, **options},
        )

    def expand(self, rows: Any) -> Any:
        found = rows | "Estimate" >> self.inner
        good = found.estimates | "To rows" >> beam.Map(to_row).with_output_types(EstimateRow)
        if self.errors is None:
            return good
        bad = found.rejected | "Rejected to rows" >> beam.Map(as_error).with_output_types(ERROR)
        return {"output": good, self.errors: bad}


def as_error(rejected: dict[str, Any]) -> Any:
    return beam.Row(element=line(rejected["record"]), msg=str(rejected["reason"]))
