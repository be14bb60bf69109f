"""The Beam plugin: transition matrices as a step of any pipeline.

Everything a user may touch is named here.
"""

from aggmc_beam.beam.combiners import TrackFn
from aggmc_beam.beam.transform import Estimated, EstimateTransitions
from aggmc_beam.beam.values import Batch
from aggmc_beam.config.model import Stream

__all__ = ["Batch", "EstimateTransitions", "Estimated", "Stream", "TrackFn"]
