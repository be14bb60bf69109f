"""What a user must read before the estimate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aggmc_beam.intervals import Uncertainty
from aggmc_beam.result import Estimate

if TYPE_CHECKING:
    from aggmc_beam.celldata import Data, Point


def warned(estimate: Estimate, data: Data, point: Point, found: Uncertainty) -> Estimate:
    """The estimate with its warnings."""
    return replace(estimate, warnings=())
