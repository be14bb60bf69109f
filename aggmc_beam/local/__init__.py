"""The local engine: Polars reads, the core sums. Importing this adds `df.aggmc` to Polars frames."""

import aggmc_beam.local.namespace  # noqa: F401 - registers df.aggmc
from aggmc_beam.local.engine import Result, run

__all__ = ["Result", "run"]
