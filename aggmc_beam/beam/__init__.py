"""The Beam plugin: transition matrices as a step of any pipeline.

Everything a user may touch is named here.
"""

from aggmc_beam.beam.combine import SumsCombineFn
from aggmc_beam.beam.estimate import Estimate
from aggmc_beam.beam.estimate_rows import EstimateRow, to_row
from aggmc_beam.beam.follow_up import Followed, FollowUp
from aggmc_beam.beam.transform import Estimated, EstimateTransitions
from aggmc_beam.beam.transforms import ParseRecords, ReadRecords, SumRecords, Sums, WriteEstimates
from aggmc_beam.config.model import Stream

__all__ = [
    "Estimate",
    "EstimateRow",
    "EstimateTransitions",
    "Estimated",
    "FollowUp",
    "Followed",
    "ParseRecords",
    "ReadRecords",
    "Stream",
    "SumRecords",
    "Sums",
    "SumsCombineFn",
    "WriteEstimates",
    "to_row",
]
