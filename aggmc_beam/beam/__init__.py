"""The Beam plugin: transition matrices as a step of any pipeline.

Everything a user may touch is named here.
"""

from aggmc_beam.beam.combine import SumsCombineFn
from aggmc_beam.beam.dead_letters import RejectedRow, rejected_row
from aggmc_beam.beam.estimate import Estimate
from aggmc_beam.beam.follow_up import Followed, FollowUp
from aggmc_beam.beam.transform import Estimated, EstimateTransitions
from aggmc_beam.beam.transforms import ParseRecords, ReadRecords, SumRecords, Sums, WriteEstimates
from aggmc_beam.config.model import Stream
from aggmc_beam.uses.rows import EstimateRow, to_row

__all__ = [
    "Estimate",
    "EstimateRow",
    "EstimateTransitions",
    "Estimated",
    "FollowUp",
    "Followed",
    "ParseRecords",
    "ReadRecords",
    "RejectedRow",
    "Stream",
    "SumRecords",
    "Sums",
    "SumsCombineFn",
    "WriteEstimates",
    "rejected_row",
    "to_row",
]
